//! Measures one reading of all sensors, and one of the power rails alone: of a synthetic Orin NX in a directory, where a read
//! costs its system call, and of this machine. On a board a read of an INA3221 also waits for the I2C bus.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use orinoco_board::readers::{Sensors, Snapshot};
use orinoco_core::Nanos;
use orinoco_sysroot::Sysroot;
use synthetic::orin_nx;

fn main() {
    divan::main();
}

fn reading(bencher: divan::Bencher<'_, '_>, sysroot: &Sysroot, read: fn(&mut Sensors, Nanos, &mut Snapshot)) {
    let mut sensors = Sensors::discover(sysroot);
    let (mut snapshot, mut now) = (Snapshot::default(), 0);
    bencher.bench_local(|| {
        now += 1_000_000;
        read(&mut sensors, Nanos(now), &mut snapshot);
    });
}

#[divan::bench]
fn synthetic_all(bencher: divan::Bencher<'_, '_>) {
    let dir = tempfile::TempDir::new().expect("a folder");
    orin_nx().write(dir.path());
    reading(bencher, &Sysroot::at(dir.path()), Sensors::read);
}

#[divan::bench]
fn synthetic_rails(bencher: divan::Bencher<'_, '_>) {
    let dir = tempfile::TempDir::new().expect("a folder");
    orin_nx().write(dir.path());
    reading(bencher, &Sysroot::at(dir.path()), Sensors::read_rails);
}

#[divan::bench]
fn host_all(bencher: divan::Bencher<'_, '_>) {
    reading(bencher, &Sysroot::host(), Sensors::read);
}

#[divan::bench]
fn host_discovery() -> Sensors {
    Sensors::discover(&Sysroot::host())
}
