use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use expect_test::{Expect, expect};
use orinoco_board::readers::{GpuDevices, GpuInfo, GpuPower, GpuReading};
use orinoco_core::{Nanos, Watts};
use orinoco_sysroot::{ReadErrorKind, Recording, Sysroot};

use super::*;

/// Synthetic board with two rails, three zones of which two have one name, a GPU, two groups of cores of which one is offline, a
/// fan whose driver has no duty cycle. No value in it was measured.
fn board() -> Recording {
    let rails = "/sys/devices/i2c/i2c-1/1-0040/hwmon/hwmon1";
    let zone = "/sys/class/thermal/thermal_zone";
    let gpu = "/sys/class/devfreq/17000000.gpu";
    let policy = "/sys/devices/system/cpu/cpufreq/policy";
    let files = [
        (format!("{rails}/name"), "ina3221"),
        (format!("{rails}/in1_label"), "VDD_IN"),
        (format!("{rails}/in1_input"), "19000"),
        (format!("{rails}/curr1_input"), "500"),
        (format!("{rails}/in2_label"), "VDD_SOC"),
        (format!("{rails}/in2_input"), "19000"),
        (format!("{zone}0/type"), "cpu-thermal"),
        (format!("{zone}0/temp"), "46500"),
        (format!("{zone}0/trip_point_0_temp"), "50000"),
        (format!("{zone}0/trip_point_0_type"), "active"),
        (format!("{zone}0/trip_point_1_temp"), "104500"),
        (format!("{zone}0/trip_point_1_type"), "critical"),
        (format!("{zone}0/trip_point_2_temp"), "99000"),
        (format!("{zone}0/trip_point_2_type"), "passive"),
        (format!("{zone}0/trip_point_3_temp"), "0"),
        (format!("{zone}0/trip_point_3_type"), "passive"),
        (format!("{zone}1/type"), "cv0-thermal"),
        (format!("{zone}2/type"), "cv0-thermal"),
        (format!("{zone}2/temp"), "43000"),
        (format!("{gpu}/cur_freq"), "306000000"),
        (format!("{gpu}/max_freq"), "918000000"),
        (format!("{gpu}/device/load"), "305"),
        ("/sys/devices/system/cpu/present".to_owned(), "0-2"),
        (format!("{policy}0/related_cpus"), "0 1"),
        (format!("{policy}0/scaling_cur_freq"), "1510400"),
        (format!("{policy}0/scaling_max_freq"), "1984000"),
        (format!("{policy}2/related_cpus"), "2"),
        (format!("{policy}2/scaling_cur_freq"), "729600"),
        (format!("{policy}2/scaling_max_freq"), "1984000"),
        ("/sys/class/hwmon/hwmon2/name".to_owned(), "pwm_tach"),
        ("/sys/class/hwmon/hwmon2/rpm".to_owned(), "2810"),
    ];
    let mut board = Recording::synthetic();
    for (path, text) in files {
        board.add_file(&path, format!("{text}\n")).expect("a file of the board");
    }
    board.add_link(&format!("{rails}/device"), "../../../1-0040").expect("a link");
    board.add_link("/sys/class/hwmon/hwmon1", &format!("../../..{rails}")).expect("a link");
    let (before, after) = (
        "cpu 200 0 0 800\ncpu0 100 0 0 900\ncpu1 100 0 0 900\n",
        "cpu 350 0 0 850\ncpu0 175 0 0 925\ncpu1 125 0 0 975\n",
    );
    for (at, text) in [(0, before), (1, after)] {
        let text = Ok(text.as_bytes());
        board.add_value("/proc/stat", Duration::from_secs(at), text).expect("a value");
    }
    let silent = Err(ReadErrorKind::Unavailable);
    board.add_value(&format!("{zone}1/temp"), Duration::ZERO, silent).expect("a value");
    board
}

#[derive(Debug)]
struct Card([GpuInfo; 1], Joules);

impl GpuDevices for Card {
    fn gpus(&self) -> &[GpuInfo] {
        &self.0
    }

    fn read_power(&mut self, _: usize) -> GpuPower {
        self.1 += Joules::from_units(15);
        GpuPower { watts: Ok(Watts::from_units(30)), joules: Ok(self.1) }
    }

    fn read(&mut self, _: usize) -> GpuReading {
        GpuReading {
            power: self.read_power(0),
            temperature: Ok(Celsius::from_units(51)),
            clock: Ok(Hertz(1_200_000_000)),
            ..GpuReading::unknown(&Unknown::Device("NVML: the GPU is lost".to_owned()))
        }
    }
}

/// Returns the status one sensor a line: name and values, `-` for one that is absent, then what is not known. Files that a whole
/// board has and this one has not are left out.
fn text(status: &SensorsStatus) -> String {
    let value = |value: &Option<f64>| value.map_or("-".to_owned(), |value| value.to_string());
    let mut lines = Vec::new();
    for rail in &status.rails {
        let values = [&rail.volts, &rail.amperes, &rail.watts, &rail.joules].map(value).join(" ");
        lines.push(format!("{}: V A W J {values}", rail.name));
    }
    for zone in &status.temperatures {
        lines.push(format!("{}: {} of {} °C", zone.name, value(&zone.celsius), value(&zone.limit_celsius)));
    }
    for clock in &status.clocks {
        let values = [&clock.mhz, &clock.max_mhz, &clock.load].map(value);
        lines.push(format!("{}: {} of {} MHz, load {}", clock.name, values[0], values[1], values[2]));
    }
    for fan in &status.fans {
        lines.push(format!("{}: {} rpm, duty {}", fan.name, value(&fan.rpm), value(&fan.duty)));
    }
    lines.push(format!("load {}", value(&status.cpu_load)));
    let of_sensors = status.unknown.iter().filter(|unknown| !unknown.value.starts_with('/'));
    lines.extend(of_sensors.map(|unknown| format!("? {}: {}", unknown.value, unknown.why)));
    lines.join("\n") + "\n"
}

fn check(status: &SensorsStatus, expected: &Expect) {
    expected.assert_eq(&text(status));
}

#[test]
fn values_are_in_plain_units_and_unknown_ones_are_absent_with_the_reason() {
    let sysroot = Sysroot::replay(board(), || Duration::ZERO);
    let mut sensors = Sensors::discover(&sysroot);
    let mut snapshot = Snapshot::default();
    sensors.read(Nanos(0), &mut snapshot);
    let status = sensors_status(&sensors, &snapshot, &[Some(Joules::from_milli(1_500))]);
    check(
        &status,
        &expect![[r#"
        VDD_IN: V A W J 19 0.5 9.5 1.5
        VDD_SOC: V A W J 19 - - -
        cpu-thermal: 46.5 of 99 °C
        cv0-thermal: - of - °C
        cv0-thermal #2: 43 of - °C
        17000000.gpu: 306 of 918 MHz, load 0.305
        cpu 0-1: 1510.4 of 1984 MHz, load -
        cpu 2: 729.6 of 1984 MHz, load -
        pwm_tach: 2810 rpm, duty -
        load -
        ? current of rail VDD_SOC: the driver does not offer it
        ? power of rail VDD_SOC: the driver does not offer it
        ? temperature of cv0-thermal: its file has no value at present
        ? load of cpu 0-1: it needs a second reading
        ? load of cpu 2: the core is offline
        ? load of the processor: it needs a second reading
        ? duty cycle of fan pwm_tach: the driver does not offer it
    "#]],
    );
    let gap = status.unknown.iter().find(|unknown| unknown.value == "/proc/pressure");
    assert!(gap.is_some(), "files that cannot be read are listed: {:?}", status.unknown);
}

#[test]
fn loads_are_over_the_cores_of_a_group_and_gpus_of_a_driver_are_listed() {
    let time = Arc::new(AtomicU64::new(0));
    let now = time.clone();
    let seconds = move || Duration::from_secs(now.load(Ordering::Relaxed));
    let sysroot = Sysroot::replay(board(), seconds);
    let card = GpuInfo { name: "card".to_owned(), address: String::new(), counts_energy: true };
    let mut sensors = Sensors::discover(&sysroot).with_gpus(Ok(Box::new(Card([card], Joules::default()))));
    let mut snapshot = Snapshot::default();
    sensors.read(Nanos(0), &mut snapshot);
    time.store(1, Ordering::Relaxed);
    sensors.read(Nanos(1_000_000_000), &mut snapshot);
    check(
        &sensors_status(&sensors, &snapshot, &[None, None, Some(Joules::from_units(30))]),
        &expect![[r#"
        VDD_IN: V A W J 19 0.5 9.5 -
        VDD_SOC: V A W J 19 - - -
        GPU: V A W J - - 30 30
        cpu-thermal: 46.5 of 99 °C
        cv0-thermal: - of - °C
        cv0-thermal #2: 43 of - °C
        GPU: 51 of - °C
        17000000.gpu: 306 of 918 MHz, load 0.305
        cpu 0-1: 1510.4 of 1984 MHz, load 0.5
        cpu 2: 729.6 of 1984 MHz, load -
        GPU: 1200 of - MHz, load -
        pwm_tach: 2810 rpm, duty -
        load 0.75
        ? current of rail VDD_SOC: the driver does not offer it
        ? power of rail VDD_SOC: the driver does not offer it
        ? voltage of rail GPU: the driver does not offer it
        ? current of rail GPU: the driver does not offer it
        ? temperature of cv0-thermal: its file has no value at present
        ? load of cpu 2: the core is offline
        ? load of GPU: NVML: the GPU is lost
        ? duty cycle of fan pwm_tach: the driver does not offer it
    "#]],
    );
}

#[test]
fn a_driver_that_is_missing_is_unknown_and_a_snapshot_without_readings_has_no_sensors() {
    let sysroot = Sysroot::replay(board(), || Duration::ZERO);
    let sensors = Sensors::discover(&sysroot).with_gpus(Err("NVML is not installed".to_owned()));
    let status = sensors_status(&sensors, &Snapshot::default(), &[]);
    check(
        &status,
        &expect![[r#"
        load -
        ? NVML: NVML is not installed
        ? load of the processor: it needs a second reading
    "#]],
    );
}

#[test]
fn groups_of_cores_are_named_by_their_cores() {
    let check = |cores: &[u32], expected: &str| {
        let policy = Policy { path: "/sys/x/policy7".to_owned(), cores: cores.to_vec(), range: None };
        assert_eq!(policy_name(&policy), expected);
    };
    check(&[0, 1, 2, 3], "cpu 0-3");
    check(&[5], "cpu 5");
    check(&[0, 2], "cpu 0,2");
    check(&[], "policy7");
}
