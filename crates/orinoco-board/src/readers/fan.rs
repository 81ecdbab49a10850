use super::probe::{Probe, Source, number_between};
use super::reading::{Reading, Unknown, Utilization, put};

const HWMON: &str = "/sys/class/hwmon";

/// Folder of the fan in L4T R32.
const R32_FAN: &str = "/sys/devices/pwm-fan";

/// Greatest value of a duty cycle (Documentation/hwmon/sysfs-interface.rst, pwm).
const DUTY_MAX: u64 = 255;

/// Fan, or one value of it: a Jetson has its duty cycle and its tachometer in two drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fan {
    /// Name of the driver, with the number of the fan if it has several.
    pub name: String,
    /// Folder of its files.
    pub path: String,
}

/// Values of a fan at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanReading {
    /// Turns a minute.
    pub rpm: Reading<u32>,
    /// Duty cycle of its supply.
    pub duty: Reading<Utilization>,
}

/// Fans of a board.
#[derive(Debug, Default)]
pub(super) struct Fans {
    pub(super) fans: Vec<Fan>,
    files: Vec<Files>,
}

#[derive(Debug)]
struct Files {
    rpm: Source,
    duty: Source,
}

impl Fans {
    pub(super) fn find(probe: &mut Probe<'_>) -> Self {
        let mut fans = Self::default();
        for name in probe.sysroot.entries(HWMON).unwrap_or_default() {
            fans.add_hwmon(probe, &format!("{HWMON}/{name}"));
        }
        let names = probe.sysroot.entries(R32_FAN).unwrap_or_default();
        let duty = probe.attribute(R32_FAN, &names, "cur_pwm");
        let rpm = probe.attribute(R32_FAN, &names, "rpm_measured");
        fans.add("pwm-fan".to_owned(), R32_FAN, Files { rpm, duty });
        fans
    }

    fn add_hwmon(&mut self, probe: &mut Probe<'_>, folder: &str) {
        let names = probe.sysroot.entries(folder).unwrap_or_default();
        let number =
            |name: &String| number_between(name, "fan", "_input").or_else(|| number_between(name, "pwm", ""));
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        // NVIDIA's tachometer, pwm_tach, has a file of its own name.
        let has_tachometer = names.iter().any(|name| name == "rpm");
        if numbers.is_empty() && !has_tachometer {
            return;
        }
        numbers.sort_unstable();
        numbers.dedup();
        let chip = probe.text(&format!("{folder}/name")).unwrap_or_else(|| "fan".to_owned());
        if has_tachometer {
            let rpm = probe.attribute(folder, &names, "rpm");
            self.add(chip.clone(), folder, Files { rpm, duty: Source::NONE });
        }
        for number in &numbers {
            let rpm = probe.attribute(folder, &names, &format!("fan{number}_input"));
            let duty = probe.attribute(folder, &names, &format!("pwm{number}"));
            let name = if numbers.len() == 1 { chip.clone() } else { format!("{chip} {number}") };
            self.add(name, folder, Files { rpm, duty });
        }
    }

    fn add(&mut self, name: String, folder: &str, files: Files) {
        if files.rpm.is_some() || files.duty.is_some() {
            self.fans.push(Fan { name, path: folder.to_owned() });
            self.files.push(files);
        }
    }

    pub(super) fn read(&mut self, into: &mut Vec<FanReading>) {
        into.truncate(self.fans.len());
        for (index, files) in self.files.iter_mut().enumerate() {
            let rpm = files.rpm.number().and_then(|rpm| u32::try_from(rpm).map_err(|_| Unknown::Malformed));
            put(into, index, FanReading { rpm, duty: files.duty.number().and_then(duty) });
        }
    }
}

fn duty(duty: i64) -> Reading<Utilization> {
    let duty = u64::try_from(duty).ok().filter(|duty| *duty <= DUTY_MAX).ok_or(Unknown::Malformed)?;
    Utilization::of(duty, DUTY_MAX).ok_or(Unknown::Malformed)
}
