use std::time::Duration;

use super::probe::{Probe, Source};
use super::reading::{Reading, Unknown, Utilization};

const FOLDER: &str = "/proc/pressure";

/// Shares of time in which tasks waited for a resource (Documentation/accounting/psi.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Time in which at least one task waited.
    pub some: Stall,
    /// Time in which all tasks waited; `None` where the kernel does not give it, as older ones for the CPU.
    pub full: Option<Stall>,
}

/// Share and sum of the time that tasks waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Share of the last 10 s.
    pub last_10_s: Utilization,
    /// Time since the system started.
    pub total: Duration,
}

/// Pressure on the machine's resources at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PressureReading {
    /// Waiting for a core.
    pub cpu: Reading<Pressure>,
    /// Waiting for memory.
    pub memory: Reading<Pressure>,
    /// Waiting for storage.
    pub io: Reading<Pressure>,
}

impl Default for PressureReading {
    fn default() -> Self {
        Self { cpu: Err(Unknown::NotOffered), memory: Err(Unknown::NotOffered), io: Err(Unknown::NotOffered) }
    }
}

/// Files of `/proc/pressure`.
#[derive(Debug)]
pub(super) struct PressureFiles {
    cpu: Source,
    memory: Source,
    io: Source,
    buffer: Vec<u8>,
}

impl PressureFiles {
    pub(super) fn find(probe: &mut Probe<'_>) -> Self {
        if probe.sysroot.entries(FOLDER).is_err() {
            probe.gap(FOLDER, "the kernel does not account pressure (CONFIG_PSI, or boot with psi=1)");
            return Self { cpu: Source::NONE, memory: Source::NONE, io: Source::NONE, buffer: Vec::new() };
        }
        let mut file = |name: &str| probe.file(&format!("{FOLDER}/{name}")).into();
        Self { cpu: file("cpu"), memory: file("memory"), io: file("io"), buffer: Vec::new() }
    }

    pub(super) fn read(&mut self) -> PressureReading {
        let mut pressure = |file: &mut Source| {
            let text = file.text(&mut self.buffer)?;
            parse(text).ok_or(Unknown::Malformed)
        };
        PressureReading {
            cpu: pressure(&mut self.cpu),
            memory: pressure(&mut self.memory),
            io: pressure(&mut self.io),
        }
    }
}

/// Reads `some avg10=0.12 avg60=0.05 avg300=0.01 total=12345`, and the same for `full`.
fn parse(text: &str) -> Option<Pressure> {
    let stall = |kind: &str| text.lines().find_map(|line| line.strip_prefix(kind)).map(stall);
    let some = stall("some ")??;
    match stall("full ") {
        Some(full) => Some(Pressure { some, full: Some(full?) }),
        None => Some(Pressure { some, full: None }),
    }
}

fn stall(line: &str) -> Option<Stall> {
    let value = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key));
    // Hundredths of a percent, without a float: `28.71` is 2871.
    let (whole, fraction) = value("avg10=")?.split_once('.')?;
    let whole = whole.parse::<u64>().ok().filter(|percent| *percent <= 100)?;
    let hundredths = whole * 100 + fraction.get(..2)?.parse::<u64>().ok()?;
    let total = Duration::from_micros(value("total=")?.parse().ok()?);
    Some(Stall { last_10_s: Utilization::of(hundredths, 10_000)?, total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_with_and_without_full() {
        let text = "some avg10=28.71 avg60=27.16 avg300=14.11 total=18832596861\n";
        let pressure = parse(text).expect("the kernel's form");
        assert_eq!(pressure.some.last_10_s.to_string(), "28.7 %");
        assert_eq!(pressure.some.total, Duration::from_micros(18_832_596_861));
        assert_eq!(pressure.full, None);
        let text = format!("{text}full avg10=0.03 avg60=0.00 avg300=0.00 total=7\n");
        let full = parse(&text).expect("the kernel's form").full.expect("a second line");
        assert_eq!((full.last_10_s.millionths(), full.total), (300, Duration::from_micros(7)));
        for wrong in ["", "some", "some avg10=x total=1", "some avg10=1 total=1", "some avg10=1.00"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
