//! Synthetic boards: no value in them was measured.

use super::*;
use orinoco_board::detect;
use orinoco_board::readers::{GpuDevices, GpuInfo, GpuPower, GpuReading};
use orinoco_sysroot::Sysroot;
use std::fs;
use tempfile::TempDir;

const ORIN: [&str; 3] = ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"];
const RAPL: &str = "sys/class/powercap/intel-rapl";

/// Folder of a synthetic board.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, format!("{text}\n")).expect("written");
        self
    }

    /// Adds an INA3221 with these rails at 19 V and 264 mA, over 5 mΩ.
    fn with_ina3221(&self, labels: &[&str]) -> &Self {
        let chip = "sys/class/hwmon/hwmon3";
        self.write(&format!("{chip}/name"), "ina3221").write(&format!("{chip}/update_interval"), "4");
        for (channel, label) in (1..).zip(labels) {
            self.write(&format!("{chip}/in{channel}_label"), label);
            self.write(&format!("{chip}/in{channel}_input"), "19000");
            self.write(&format!("{chip}/curr{channel}_input"), "264");
            self.write(&format!("{chip}/shunt{channel}_resistor"), "5000");
        }
        let link = self.0.path().join(chip).join("device");
        std::os::unix::fs::symlink("../../../bus/i2c/devices/1-0043", link).expect("a link");
        self
    }

    /// Adds the counter of a processor's package or of a part of it.
    fn with_rapl(&self, number: &str, name: &str) -> &Self {
        self.write(&format!("{RAPL}:{number}/name"), name).write(&format!("{RAPL}:{number}/energy_uj"), "7")
    }

    fn sysroot(&self) -> Sysroot {
        Sysroot::at(self.0.path())
    }

    fn choose(&self, period: Option<Duration>) -> Result<EnergyRails, EnergyRailsError> {
        let mut sensors = Sensors::discover(&self.sysroot());
        EnergyRails::choose(&mut sensors, &detect(&self.sysroot()), ComputeUnit::Cpu, period, Nanos(0))
    }
}

/// Returns the names of all rails, those in the total in brackets, and what they cover.
fn shown(rails: &EnergyRails) -> String {
    let settings = rails.settings();
    let name = |rail: &energy::Rail| match rail.is_in_total {
        true => format!("[{}]", rail.name),
        false => rail.name.to_string(),
    };
    let names: Vec<String> = settings.rails.iter().map(name).collect();
    format!("{} {:?}", names.join(" "), settings.covers)
}

#[test]
fn the_rail_of_the_input_is_the_total_and_the_others_are_counted_too() {
    let tree = Tree::new();
    let rails = tree.with_ina3221(&ORIN).choose(None).expect("there is an input");
    assert_eq!(shown(&rails), "[VDD_IN] VDD_CPU_GPU_CV VDD_SOC Input");
    let first = &rails.settings().rails[0];
    assert_eq!(first.gain_tolerance, SHUNT_TOLERANCE);
    // Steps of 8 mV and of 40 µV over 5 mΩ.
    assert!((first.resolution.to_f64() - (19.0 * 0.008 + 0.264 * 0.008)).abs() < 1e-6);
}

#[test]
fn the_period_is_the_wanted_one_if_the_sensor_is_not_slower() {
    let tree = Tree::new();
    tree.with_ina3221(&ORIN);
    let period = |wanted| {
        let rails = tree.choose(wanted).expect("there is an input");
        rails.settings().sample_period.as_millis()
    };
    assert_eq!(period(None), 20, "its sensor is faster than it is read");
    assert_eq!(period(Some(Duration::from_millis(5))), 20);
    assert_eq!(period(Some(Duration::from_millis(100))), 100);
}

#[test]
fn an_ina3221_that_averages_remembers_its_conversions() {
    let tree = Tree::new();
    tree.with_ina3221(&ORIN[..1]);
    tree.write("sys/class/hwmon/hwmon3/samples", "16").write("sys/class/hwmon/hwmon3/update_interval", "64");
    let rails = tree.choose(None).expect("there is an input");
    let sensor = &rails.settings().sensor;
    assert_eq!(sensor.update_period, Duration::from_millis(4));
    let conversion = Duration::from_millis(2);
    assert_eq!(sensor.averaging, Averaging::Exponential { samples: 16, conversion });
}

#[test]
fn channels_that_are_not_connected_take_their_part_of_the_period() {
    let tree = Tree::new();
    tree.with_ina3221(&["VDD_IN", "NC"]);
    let rails = tree.choose(None).expect("there is an input");
    assert_eq!(rails.settings().rails.len(), 1);
    // Two channels, each with a conversion of the shunt's voltage and one of the bus voltage, in 4 ms.
    assert_eq!(rails.settings().sensor.averaging, Averaging::Window(Duration::from_millis(1)));
}

#[test]
fn packages_of_a_processor_are_added_up_without_their_parts() {
    let tree = Tree::new();
    tree.with_rapl("0", "package-0").with_rapl("0:0", "core").with_rapl("1", "package-1");
    let rails = tree.choose(Some(Duration::from_millis(100))).expect("there are counters");
    assert_eq!(shown(&rails), "[package-0] package-0/core [package-1] NamedRails");
    let (settings, step) = (rails.settings(), RAPL_STEP / Duration::from_millis(100));
    assert_eq!((settings.rails[0].gain_tolerance, settings.rails[0].resolution), (REPORTED_TOLERANCE, step));
    assert_eq!(settings.sensor.averaging, Averaging::Window(Duration::from_millis(100)));
    tree.with_rapl("2", "psys");
    let rails = tree.choose(None).expect("there are counters");
    assert_eq!(shown(&rails), "package-0 package-0/core package-1 [psys] NamedRails");
}

/// A package's counter does not contain its memory's, although the kernel shows it below the package.
#[test]
fn the_memory_of_a_package_is_added_to_it() {
    let tree = Tree::new();
    tree.with_rapl("0", "package-0").with_rapl("0:0", "core").with_rapl("0:1", "dram");
    let rails = tree.choose(None).expect("there are counters");
    assert_eq!(shown(&rails), "[package-0] package-0/core [package-0/dram] NamedRails");
}

#[test]
fn a_rail_that_is_included_in_another_is_not_added() {
    let tree = Tree::new();
    tree.with_ina3221(&["VDD_GPU_SOC", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"]);
    tree.write("proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0");
    let compatible = "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0";
    tree.write("proc/device-tree/compatible", compatible);
    let rails = tree.choose(None).expect("the profile lists the rails");
    assert_eq!(shown(&rails), "[VDD_GPU_SOC] [VIN_SYS_5V0] VDDQ_VDD2_1V8AO NamedRails");
}

#[test]
fn counters_are_read_at_regular_times_and_sensors_at_random_ones() {
    let period = Duration::from_millis(100);
    let times = |tree: &Tree| {
        let rails = tree.choose(Some(period)).expect("rails");
        let mut times = rails.reading_times(Nanos(5), Rng::with_seed(1));
        let mut now = Nanos(0);
        let mut next = || {
            now = times.next(now);
            now
        };
        [next(), next(), next()]
    };
    let counter = Tree::new();
    counter.with_rapl("0", "package-0");
    assert_eq!(times(&counter), [Nanos(5), Nanos(5) + period, Nanos(5) + 2 * period]);
    let sensor = Tree::new();
    let [first, second, third] = times(sensor.with_ina3221(&ORIN));
    assert!(second.since(first) != third.since(second), "{first:?} {second:?} {third:?}");
}

/// A card that reports its power and counts no energy.
#[derive(Debug)]
struct Card([GpuInfo; 1]);

impl GpuDevices for Card {
    fn gpus(&self) -> &[GpuInfo] {
        &self.0
    }

    fn read_power(&mut self, _: usize) -> GpuPower {
        GpuPower { watts: Ok(Watts::from_units(70)), joules: Err(Unknown::NotOffered) }
    }

    fn read(&mut self, _: usize) -> GpuReading {
        GpuReading { power: self.read_power(0), ..GpuReading::unknown(&Unknown::NotOffered) }
    }
}

#[test]
fn models_on_a_discrete_gpu_are_measured_by_its_own_rail() {
    let tree = Tree::new();
    tree.with_rapl("0", "package-0");
    let choose = |unit| {
        let info = GpuInfo { name: "card".to_owned(), address: String::new(), counts_energy: false };
        let mut sensors = Sensors::discover(&tree.sysroot()).with_gpus(Ok(Box::new(Card([info]))));
        EnergyRails::choose(&mut sensors, &detect(&tree.sysroot()), unit, None, Nanos(0)).expect("rails")
    };
    assert_eq!(shown(&choose(ComputeUnit::Cpu)), "[package-0] GPU NamedRails");
    let of_gpu = choose(ComputeUnit::Gpu);
    assert_eq!(shown(&of_gpu), "package-0 [GPU] NamedRails");
    assert_eq!(of_gpu.settings().sample_period, 2 * NVML_PERIOD);
}

#[test]
fn a_board_without_a_known_total_is_not_measured() {
    let reason = |tree: &Tree| tree.choose(None).expect_err("no rail").to_string();
    let tree = Tree::new();
    let none = "this machine has no power sensor under /sys/class/hwmon, /sys/class/powercap or /sys/bus/iio";
    assert!(reason(&tree).starts_with(none), "{}", reason(&tree));
    tree.with_ina3221(&["VDD_A", "VDD_B"]);
    let expected = "it is not known which of the rails VDD_A, VDD_B measure the whole board, and adding them up could count \
                    power twice";
    assert_eq!(reason(&tree), expected);
    let tree = Tree::new();
    tree.with_ina3221(&ORIN).write("sys/class/hwmon/hwmon3/curr1_input", "nonsense");
    let expected = "rail VDD_IN of /sys/class/hwmon/hwmon3 has no power reading";
    assert!(reason(&tree).starts_with(expected), "{}", reason(&tree));
}
