//! Board of a card: its name, its versions, and its clocks and temperatures.

use orinoco_api::{CardBoard, Conditions, UnknownValue};
use orinoco_board::readers::{Sensors, Snapshot};
use orinoco_board::{Detection, Fact};
use orinoco_core::Nanos;
use orinoco_sysroot::Sysroot;

/// Longest `/proc/cpuinfo` that is read, in bytes: servers list some hundred cores.
const CPUINFO_BYTES_MAX: u64 = 4 << 20;

/// Detection and sensors of a board.
pub(super) struct BoardSensors {
    pub(super) sysroot: Sysroot,
    pub(super) detection: Detection,
    pub(super) sensors: Sensors,
}

impl BoardSensors {
    /// Detects the board of `sysroot`, and finds its sensors.
    pub(super) fn find(sysroot: Sysroot) -> Self {
        let (detection, sensors) = (orinoco_board::detect(&sysroot), Sensors::discover(&sysroot));
        Self { sysroot, detection, sensors }
    }

    /// Returns the board for a card.
    pub(super) fn card_board(&self, cores: usize) -> CardBoard {
        let found = &self.detection;
        let profile = found.profile.as_ref().map(|profile| profile.value.name.clone());
        let named = [&found.module, &found.model].into_iter().find_map(value);
        CardBoard {
            name: named.or_else(|| profile.clone()).unwrap_or_else(|| "unknown board".to_owned()),
            profile,
            power_mode: found.power_mode.as_ref().map(|mode| mode.value.name.clone()),
            processor: self.processor(),
            cores,
        }
    }

    /// Returns the name of the processor, which the kernel gives on x86 (`/proc/cpuinfo`), or else its profile.
    fn processor(&self) -> Option<String> {
        let text = self.sysroot.bytes_within("/proc/cpuinfo", CPUINFO_BYTES_MAX).ok();
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let of_kernel = text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "model name").then(|| value.trim().to_owned())
        });
        let profile = self.detection.profile.as_ref().and_then(|profile| profile.value.soc.as_ref());
        of_kernel.or_else(|| profile.and_then(|soc| soc.cpu.clone()))
    }

    /// Reads clocks, temperatures and counters of throttling.
    pub(super) fn conditions(&mut self, now: Nanos) -> Conditions {
        let mut snapshot = Snapshot::default();
        self.sensors.read(now, &mut snapshot);
        let mut conditions = orinoco_runtime::conditions(&self.sensors, &snapshot);
        conditions.unknown.extend(self.missing(&conditions));
        conditions
    }

    /// Returns the reasons why a board has no clocks or no temperatures.
    fn missing(&self, conditions: &Conditions) -> Vec<UnknownValue> {
        let about = |part: &str| {
            let gaps = self.sensors.gaps().iter().filter(move |gap| gap.path.contains(part));
            gaps.map(|gap| UnknownValue { value: gap.path.clone(), why: gap.reason.clone() })
                .collect::<Vec<_>>()
        };
        let mut missing = about("cpufreq");
        missing.extend(about("thermal"));
        let mut none = |is_empty: bool, value: &str, why: &str| {
            if is_empty {
                missing.push(UnknownValue { value: value.to_owned(), why: why.to_owned() });
            }
        };
        none(
            self.sensors.policies().is_empty(),
            "clocks",
            "the kernel of this machine reports no clock of the processor",
        );
        none(conditions.temperatures.is_empty(), "temperatures", "this machine has no temperature sensor");
        none(self.sensors.throttling().is_empty(), "throttling", "this machine has no counter of throttling");
        missing
    }
}

/// Returns the value of a fact.
pub(super) fn value<T: Clone>(fact: &Option<Fact<T>>) -> Option<T> {
    fact.as_ref().map(|fact| fact.value.clone())
}

#[cfg(test)]
mod tests {
    use orinoco_api::{ClockStatus, TemperatureStatus};
    use orinoco_board::readers::{GpuDevices, GpuInfo, GpuPower, GpuReading, Hertz, Unknown};
    use orinoco_core::Celsius;
    use orinoco_sysroot::Recording;

    use super::*;

    #[derive(Debug)]
    struct Gpu([GpuInfo; 1]);

    impl GpuDevices for Gpu {
        fn gpus(&self) -> &[GpuInfo] {
            &self.0
        }

        fn read_power(&mut self, _: usize) -> GpuPower {
            GpuPower::unknown(&Unknown::NotOffered)
        }

        fn read(&mut self, _: usize) -> GpuReading {
            GpuReading {
                temperature: Ok(Celsius::from_units(51)),
                clock: Ok(Hertz(1_200_000_000)),
                ..GpuReading::unknown(&Unknown::NotOffered)
            }
        }
    }

    /// Returns the sensors of a synthetic board with a discrete GPU.
    fn board(files: &[(&str, &str)]) -> BoardSensors {
        let mut board = Recording::synthetic();
        for (path, text) in files {
            board.add_file(path, format!("{text}\n")).expect("a file of the board");
        }
        let mut board = BoardSensors::find(Sysroot::replay(board, || std::time::Duration::ZERO));
        let gpu = GpuInfo { name: "card".to_owned(), address: String::new(), counts_energy: false };
        board.sensors = board.sensors.with_gpus(Ok(Box::new(Gpu([gpu]))));
        board
    }

    fn clock(name: &str, mhz: f64, max_mhz: Option<f64>) -> ClockStatus {
        ClockStatus { name: name.to_owned(), mhz: Some(mhz), max_mhz, load: None }
    }

    fn temperature(name: &str, celsius: f64, limit_celsius: Option<f64>) -> TemperatureStatus {
        TemperatureStatus { name: name.to_owned(), celsius: Some(celsius), limit_celsius }
    }

    #[test]
    fn conditions_have_the_gpu_and_only_limits_that_a_driver_gives() {
        let zone = "/sys/class/thermal/thermal_zone0";
        let policy = "/sys/devices/system/cpu/cpufreq/policy0";
        let files = [
            (format!("{zone}/type"), "cpu-thermal"),
            (format!("{zone}/temp"), "46500"),
            (format!("{zone}/trip_point_0_temp"), "99000"),
            (format!("{zone}/trip_point_0_type"), "passive"),
            (format!("{zone}/trip_point_1_temp"), "0"),
            (format!("{zone}/trip_point_1_type"), "critical"),
            ("/sys/devices/system/cpu/present".to_owned(), "0-1"),
            (format!("{policy}/related_cpus"), "0 1"),
            (format!("{policy}/scaling_cur_freq"), "1510400"),
            (format!("{policy}/scaling_max_freq"), "1984000"),
        ];
        let found = board(&files.each_ref().map(|(path, text)| (path.as_str(), *text))).conditions(Nanos(0));
        let expected = [clock("cpu 0-1", 1510.4, Some(1984.0)), clock("GPU", 1200.0, None)];
        assert_eq!(found.clocks, expected);
        let expected = [temperature("cpu-thermal", 46.5, Some(99.0)), temperature("GPU", 51.0, None)];
        assert_eq!(found.temperatures, expected);
        let about_values = found.unknown.iter().filter(|unknown| !unknown.value.starts_with('/'));
        let values: Vec<&str> = about_values.map(|unknown| unknown.value.as_str()).collect();
        assert_eq!(values, ["throttling"], "loads are not part of the conditions: {:?}", found.unknown);
    }

    #[test]
    fn a_board_with_only_the_temperature_of_a_gpu_has_a_temperature() {
        let found = board(&[]).conditions(Nanos(0));
        assert_eq!(found.temperatures, [temperature("GPU", 51.0, None)]);
        let is_missing = |value: &str| found.unknown.iter().any(|unknown| unknown.value == value);
        assert!(is_missing("clocks") && !is_missing("temperatures"), "{:?}", found.unknown);
    }
}
