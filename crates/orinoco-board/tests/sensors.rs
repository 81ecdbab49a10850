//! Readers on synthetic boards (no value in them was measured), and on this machine.

mod synthetic;

use std::fs;
use std::ops::ControlFlow;
use std::time::Duration;

use orinoco_board::readers::{
    DeviceKind, GpuDevices, GpuInfo, GpuPower, GpuReading, Hertz, I2cAddress, RailKind, Rails, Sensors,
    Snapshot, Unknown, Utilization, ZoneKind, recorded_files,
};
use orinoco_core::{Amperes, Celsius, Joules, Nanos, Ohms, Volts, Watts};
use orinoco_sysroot::{Packing, ReadErrorKind, Recording, Schedule, Sysroot, record};
use proptest::prelude::*;
use synthetic::{INA238, INA3221, Time, Tree, orin_nx};

const SECOND: Nanos = Nanos(1_000_000_000);

fn read(sysroot: &Sysroot) -> (Sensors, Snapshot) {
    let mut sensors = Sensors::discover(sysroot);
    let mut snapshot = Snapshot::default();
    sensors.read(Nanos(0), &mut snapshot);
    (sensors, snapshot)
}

/// Returns the rails of a board, one a line.
fn rails(tree: &Tree) -> String {
    let (sensors, snapshot) = read(&tree.sysroot());
    let line = |(rail, reading): (&orinoco_board::readers::Rail, &orinoco_board::readers::RailReading)| {
        let i2c = rail.i2c.map_or("-".to_owned(), |i2c| i2c.to_string());
        let watts =
            reading.watts.as_ref().map_or_else(|reason| reason.to_string(), |watts| watts.to_string());
        format!("{} {} {i2c} {:?}: {watts}\n", rail.name, rail.chip, rail.channel)
    };
    sensors.rails().iter().zip(&snapshot.rails).map(line).collect()
}

fn gaps(sensors: &Sensors, path: &str) -> Vec<String> {
    sensors.gaps().iter().filter(|gap| gap.path == path).map(|gap| gap.reason.clone()).collect()
}

#[test]
fn rails_of_an_orin_nx_are_found() {
    let (sensors, snapshot) = read(&orin_nx().sysroot());
    expect_test::expect![[r#"
        VDD_IN ina3221 1-0040 Some(1): 9.744 W
        VDD_CPU_GPU_CV ina3221 1-0040 Some(2): 2.435 W
        VDD_SOC ina3221 1-0040 Some(3): 1.827 W
        ina238 2-0044 ina238 2-0044 None: 11.842 W
    "#]]
    .assert_eq(&rails(&orin_nx()));
    let rail = &sensors.rails()[0];
    assert_eq!(rail.i2c, Some(I2cAddress { bus: 1, address: 0x40 }));
    assert_eq!(rail.source, "/sys/class/hwmon/hwmon1");
    assert_eq!(rail.shunt, Some(Ohms::from_milli(5)));
    assert_eq!((rail.limits.warning, rail.limits.critical), (None, None), "32760 mA is no limit");
    assert_eq!(sensors.rails()[1].limits.warning, Some(Amperes::from_units(3)));
    assert_eq!(rail.period, Some(Duration::from_millis(36)));
    assert_eq!(rail.resolution.volts, Some(Volts::from_milli(8)));
    assert_eq!(rail.resolution.amperes, Some(Amperes::from_milli(8)), "40 µV over 5 mΩ");
    let reading = &snapshot.rails[0];
    assert_eq!(
        (&reading.volts, &reading.amperes),
        (&Ok(Volts::from_milli(19_032)), &Ok(Amperes::from_milli(512)))
    );
    assert_eq!(rail.watts_step(reading), Some(Watts::from_micro(19_032 * 8 + 512 * 8)));
    assert_eq!(reading.joules, Err(Unknown::NotOffered));
    assert_eq!(
        snapshot.rails[3].volts,
        Ok(Volts::from_milli(19_100)),
        "in1 is the bus voltage, in0 the shunt's"
    );
    assert_eq!(sensors.rails()[3].resolution.watts, None, "its shunt is not known");
}

#[test]
fn rails_are_found_on_any_bus_under_any_number() {
    let tree = Tree::default().chip(12, "7-0041", INA3221).chip(0, "7-0040", INA3221);
    expect_test::expect![[r#"
        VDD_IN ina3221 7-0040 Some(1): 9.744 W
        VDD_CPU_GPU_CV ina3221 7-0040 Some(2): 2.435 W
        VDD_SOC ina3221 7-0040 Some(3): 1.827 W
        VDD_IN #2 ina3221 7-0041 Some(1): 9.744 W
        VDD_CPU_GPU_CV #2 ina3221 7-0041 Some(2): 2.435 W
        VDD_SOC #2 ina3221 7-0041 Some(3): 1.827 W
    "#]]
    .assert_eq(&rails(&tree));
}

#[test]
fn channels_that_are_not_rails_are_left_out() {
    let files = [
        ("name", "ina3221"),
        ("in1_label", "VDD_GPU_SOC"),
        ("in1_input", "19000"),
        ("curr1_input", "1000"),
        ("in2_label", "NC"),
        ("in2_input", "0"),
        ("curr2_input", "0"),
        ("in3_input", "19000"),
        ("curr3_input", "500"),
    ];
    let tree = Tree::default().chip(3, "1-0041", &files);
    expect_test::expect![[r#"
        VDD_GPU_SOC ina3221 1-0041 Some(1): 19.000 W
        ina3221 1-0041 channel 3 ina3221 1-0041 Some(3): 9.500 W
    "#]]
    .assert_eq(&rails(&tree));
    let (sensors, _) = read(&tree.sysroot());
    let label = "/sys/class/hwmon/hwmon3/in2_label";
    assert_eq!(gaps(&sensors, label), ["the board says that the channel is not connected"]);
    let converted = |tree: &Tree| -> Vec<Option<u32>> {
        read(&tree.sysroot()).0.rails().iter().map(|rail| rail.converted).collect()
    };
    assert_eq!(converted(&tree), [Some(3), Some(3)], "the chip converts what is not connected, too");
    let tree = Tree::default().chip(3, "1-0041", &[&files[..], &[("in2_enable", "0")]].concat());
    assert_eq!(converted(&tree), [Some(2), Some(2)], "unless it is switched off");
}

#[test]
fn a_channel_that_is_switched_off_is_no_rail() {
    let files = [
        ("name", "ina3221"),
        ("in1_enable", "0"),
        ("in1_label", "VDD_IN"),
        ("in1_input", "19000"),
        ("in2_enable", "1"),
        ("in2_label", "VDD_SOC"),
        ("in2_input", "19000"),
        ("curr2_input", "100"),
    ];
    let tree = Tree::default().chip(3, "1-0041", &files);
    assert_eq!(rails(&tree), "VDD_SOC ina3221 1-0041 Some(2): 1.900 W\n");
    let (sensors, _) = read(&tree.sysroot());
    assert_eq!(gaps(&sensors, "/sys/class/hwmon/hwmon3/in1_enable"), ["the channel is switched off"]);
}

/// A container, or a copy of a board, may have only one of the paths to a sensor.
#[test]
fn a_sensor_is_found_once_by_any_of_its_paths() {
    let expected = "VDD_IN ina3221 1-0040 Some(1): 9.744 W\nVDD_CPU_GPU_CV ina3221 1-0040 Some(2): 2.435 W\n\
                    VDD_SOC ina3221 1-0040 Some(3): 1.827 W\n";
    let device = "/sys/devices/platform/bus@0/i2c/i2c-1/1-0040";
    let linked = |folder: &str| (format!("/sys/bus/i2c/{folder}/1-0040"), device);
    let by_class = Tree::default().chip(1, "1-0040", INA3221);
    let (path, target) = linked("devices");
    assert_eq!(rails(&by_class.clone().link(path, target)), expected);
    for folder in ["devices", "drivers/ina3221"] {
        let (path, target) = linked(folder);
        let tree = Tree::default().files(&format!("{device}/hwmon/hwmon1"), INA3221).link(path, target);
        assert_eq!(rails(&tree), expected, "{folder}");
    }
    let files = [("name", "ina3221x"), ("in_voltage1_input", "5000"), ("in_current1_input", "200")];
    let tree = Tree::default()
        .files(&format!("{device}/iio:device0"), &files)
        .link("/sys/bus/iio/devices/iio:device0", &format!("{device}/iio:device0"))
        .link("/sys/bus/i2c/drivers/ina3221x/1-0040", device);
    assert_eq!(rails(&tree), "ina3221x 1-0040 channel 2 ina3221x 1-0040 Some(2): 1.000 W\n");
    let (sensors, _) = read(&tree.sysroot());
    assert_eq!(sensors.rails()[0].label, None, "the name is ours");
}

#[test]
fn a_value_that_no_sensor_can_measure_is_unknown() {
    let files = [("name", "ina3221"), ("in1_input", "9223372036854775807"), ("curr1_input", "-1000000001")];
    let tree = Tree::default().chip(3, "1-0041", &files).zone(0, "odd", "-9999999").zone(1, "even", "-40000");
    let (_, snapshot) = read(&tree.sysroot());
    let rail = &snapshot.rails[0];
    assert_eq!(rail.volts, Err(Unknown::OutOfRange(i64::MAX)));
    assert_eq!(rail.amperes, Err(Unknown::OutOfRange(-1_000_000_001)));
    assert_eq!(snapshot.zones, [Err(Unknown::OutOfRange(-9_999_999)), Ok(Celsius::from_units(-40))]);
}

#[test]
fn a_rail_that_fails_is_unknown_and_not_zero() {
    // A disabled channel gives ENODATA, a bus that hangs EREMOTEIO.
    let remote = ReadErrorKind::Other("Remote I/O error (os error 121)".into());
    let folder = "/sys/devices/platform/bus@0/i2c/i2c-1/1-0040/hwmon/hwmon1";
    let tree = orin_nx()
        .fails(&format!("{folder}/in1_input"), ReadErrorKind::Unavailable)
        .fails(&format!("{folder}/curr2_input"), remote.clone())
        .file(format!("{folder}/curr3_input"), "garbage\n");
    let (_, snapshot) = read(&tree.sysroot());
    assert_eq!(snapshot.rails[0].watts, Err(Unknown::File(ReadErrorKind::Unavailable)));
    assert_eq!(snapshot.rails[0].amperes, Ok(Amperes::from_milli(512)));
    assert_eq!(snapshot.rails[1].watts, Err(Unknown::File(remote)));
    let garbage = Unknown::File(ReadErrorKind::NotANumber("garbage".into()));
    assert_eq!(garbage.to_string(), "its file 'garbage' is not a whole number");
    assert_eq!(snapshot.rails[2].watts, Err(garbage));
}

#[test]
fn the_shunt_of_an_ina238_comes_from_the_device_tree() {
    let device = "/sys/devices/platform/bus@0/i2c/i2c-2/2-0044";
    let tree = Tree::default()
        .chip(4, "2-0044", INA238)
        .file(format!("{device}/of_node/shunt-resistor"), 2_000_u32.to_be_bytes());
    let (sensors, _) = read(&tree.sysroot());
    let rail = &sensors.rails()[0];
    assert_eq!(rail.shunt, Some(Ohms::from_milli(2)));
    assert_eq!(rail.resolution.amperes, Some(Amperes::from_milli(10)));
    assert_eq!(rail.resolution.watts, Some(Watts::from_milli(2)));
}

#[test]
fn an_ina226_and_an_energy_counter_are_rails() {
    let ina226 = [
        ("name", "ina226"),
        ("in0_input", "1"),
        ("in1_input", "12000"),
        ("curr1_input", "1500"),
        ("power1_input", "18000000"),
        ("power1_label", "CARRIER"),
        ("shunt_resistor", "2000"),
        ("update_interval", "2"),
    ];
    let ina228 = [
        ("name", "ina228"),
        ("in1_input", "5000"),
        ("curr1_input", "10"),
        ("power1_input", "50000"),
        ("energy1_input", "777000000"),
    ];
    let tree = Tree::default().chip(1, "1-0045", &ina226).chip(2, "1-004a", &ina228);
    let (sensors, snapshot) = read(&tree.sysroot());
    let rail = &sensors.rails()[0];
    assert_eq!((rail.name.as_str(), rail.kind, rail.channel), ("CARRIER", RailKind::Power, None));
    assert_eq!(rail.resolution.volts, Some(Volts::from_micro(1_250)));
    assert_eq!(rail.resolution.watts, Some(Watts::from_micro(31_250)));
    assert_eq!(rail.watts_step(&snapshot.rails[0]), rail.resolution.watts);
    assert_eq!(snapshot.rails[0].watts, Ok(Watts::from_units(18)));
    assert_eq!(sensors.rails()[1].kind, RailKind::EnergyCounter { wraps_at: None });
    assert_eq!(snapshot.rails[1].joules, Ok(Joules::from_units(777)));
    let of_counter = Err(Unknown::NeedsSecondReading);
    assert_eq!(
        snapshot.rails[1].watts, of_counter,
        "the average of its counter, not the power of one conversion"
    );
    let mut broken = ina228;
    broken[4].1 = "none";
    let (_, snapshot) = read(&Tree::default().chip(2, "1-004a", &broken).sysroot());
    assert!(snapshot.rails[0].joules.is_err());
    let of_broken = &snapshot.rails[0].watts;
    assert!(matches!(of_broken, Err(Unknown::File(_))), "nor without its counter: {of_broken:?}");
}

#[test]
fn rails_of_l4t_r32_are_found() {
    let folder = "/sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0";
    let tree = Tree::default()
        .files(
            folder,
            &[
                ("name", "ina3221x"),
                ("rail_name_0", "POM_5V_IN"),
                ("in_voltage0_input", "4920"),
                ("in_current0_input", "408"),
                ("in_power0_input", "2007"),
                ("warn_current_limit_0", "32760 ma"),
                ("crit_current_limit_0", "5000 ma"),
                ("rail_name_1", "POM_5V_GPU"),
                ("in_voltage1_input", "4920"),
                ("in_current1_input", "0"),
                ("in_power1_input", "0"),
                ("rail_name_2", "NC"),
            ],
        )
        .file("/sys/bus/i2c/drivers/ina3221x/bind", "");
    expect_test::expect![[r#"
        POM_5V_IN ina3221x 6-0040 Some(1): 2.007 W
        POM_5V_GPU ina3221x 6-0040 Some(2): 0.000 W
    "#]]
    .assert_eq(&rails(&tree));
    let (sensors, _) = read(&tree.sysroot());
    let limits = sensors.rails()[0].limits;
    assert_eq!((limits.warning, limits.critical), (None, Some(Amperes::from_units(5))));
}

fn rapl(microjoules: &str) -> Tree {
    let zone = |name: &str, energy: &str| {
        [
            ("name", name.to_owned()),
            ("energy_uj", energy.to_owned()),
            ("max_energy_range_uj", "262143328850".to_owned()),
        ]
    };
    let zones = [
        ("intel-rapl:0", zone("package-0", microjoules)),
        ("intel-rapl:0:0", zone("core", "500")),
        ("intel-rapl-mmio:0", zone("package-0", "1")),
    ];
    zones.iter().fold(Tree::default(), |tree, (folder, files)| {
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        tree.files(&format!("/sys/class/powercap/{folder}"), &files)
    })
}

#[test]
fn energy_counters_give_power_from_their_second_reading_on_and_go_on_when_they_wrap() {
    let mut recording = rapl("262143328840").recording();
    let energy = "/sys/class/powercap/intel-rapl:0/energy_uj";
    recording.add_value(energy, Duration::from_millis(500), Ok(b"14999990\n")).expect("a value");
    let time = Time::default();
    let mut sensors = Sensors::discover(&time.replay(recording));
    let names: Vec<&str> = sensors.rails().iter().map(|rail| rail.name.as_str()).collect();
    assert_eq!(names, ["package-0", "package-0/core"], "the same package is not counted twice");
    assert_eq!(sensors.rails()[1].part_of.as_deref(), Some("package-0"));
    let end = Joules::from_micro(262_143_328_850);
    assert_eq!(sensors.rails()[0].kind, RailKind::EnergyCounter { wraps_at: Some(end) });
    let mut snapshot = Snapshot::default();
    sensors.read(Nanos(0), &mut snapshot);
    assert_eq!(snapshot.rails[0].watts, Err(Unknown::NeedsSecondReading));
    sensors.read_rails(Nanos(0), &mut snapshot);
    assert_eq!(snapshot.rails[0].watts, Err(Unknown::NeedsSecondReading), "no time has passed");
    time.set(500);
    sensors.read_rails(SECOND, &mut snapshot);
    assert_eq!(snapshot.rails[0].watts, Ok(Watts::from_units(15)));
    assert_eq!(snapshot.rails[1].watts, Ok(Watts::ZERO));
}

#[test]
fn a_counter_that_only_root_may_read_says_so() {
    let energy = "/sys/class/powercap/intel-rapl:0/energy_uj";
    let (sensors, snapshot) = read(&rapl("1").fails(energy, ReadErrorKind::Denied).sysroot());
    assert_eq!(snapshot.rails[0].joules, Err(Unknown::File(ReadErrorKind::Denied)));
    assert_eq!(snapshot.rails[0].watts, Err(Unknown::File(ReadErrorKind::Denied)));
    let [gap] = &gaps(&sensors, energy)[..] else { panic!("one gap") };
    assert!(gap.starts_with("permission denied: the kernel lets only root"), "{gap}");
}

#[test]
fn zones_that_do_not_measure_are_unknown() {
    let (sensors, snapshot) = read(&orin_nx().sysroot());
    let index = |name: &str| sensors.zones().iter().position(|zone| zone.name == name).expect("the zone");
    assert_eq!(snapshot.zones[index("gpu-thermal")], Ok(Celsius::from_milli(44_125)));
    assert_eq!(snapshot.zones[index("cv0-thermal")], Err(Unknown::File(ReadErrorKind::Unavailable)));
    assert_eq!(snapshot.zones[index("tmp451 temp2")], Ok(Celsius::from_milli(43_250)));
    let trips: Vec<String> = sensors.zones()[1]
        .trips
        .iter()
        .map(|trip| format!("{:.1} {}", trip.temperature, trip.kind))
        .collect();
    assert_eq!(trips, ["99.0 °C passive", "104.5 °C critical"], "a trip at -274 is not set");
    let cooling = &sensors.cooling()[0];
    assert_eq!((cooling.name.as_str(), cooling.max, &snapshot.cooling[0]), ("pwm-fan", 3, &Ok(1)));
}

#[test]
fn the_pmic_of_r32_is_a_constant_until_its_alarm() {
    let pmic = "/sys/class/thermal/thermal_zone4/temp";
    let mut recording =
        Tree::default().zone(4, "PMIC-Die", "100000").zone(5, "GPU-therm", "100000").recording();
    recording.add_value(pmic, Duration::from_millis(1), Ok(b"120000\n")).expect("a value");
    let time = Time::default();
    let (mut sensors, mut snapshot) = read(&time.replay(recording));
    assert_eq!(sensors.zones()[0].kind, ZoneKind::Constant);
    assert_eq!(snapshot.zones, [Err(Unknown::AlarmOnly), Ok(Celsius::from_units(100))]);
    time.set(1);
    sensors.read(SECOND, &mut snapshot);
    assert_eq!(snapshot.zones[0], Ok(Celsius::from_units(120)));
}

#[test]
fn clocks_and_loads_are_read() {
    let (sensors, snapshot) = read(&orin_nx().sysroot());
    let gpu = sensors.devices().iter().position(|device| device.kind == DeviceKind::Gpu).expect("a GPU");
    assert_eq!(sensors.devices()[gpu].name, "17000000.gpu");
    assert_eq!(sensors.devices()[gpu].available.len(), 7);
    let reading = &snapshot.devices[gpu];
    assert_eq!((&reading.clock, &reading.max), (&Ok(Hertz(306_000_000)), &Ok(Hertz(918_000_000))));
    assert_eq!(reading.load, Ok(Utilization::of(305, 1_000).expect("a share")));
    assert_eq!(reading.governor.as_ref().map(|governor| governor.as_str()), Ok("nvhost_podgov"));
    assert_eq!(snapshot.devices[0].load, Err(Unknown::NotOffered), "VIC has none");
    let policy = &sensors.policies()[1];
    assert_eq!(policy.cores, [4, 5, 6, 7]);
    assert_eq!(policy.range, Some((Hertz(115_200_000), Hertz(1_984_000_000))));
    assert_eq!(snapshot.cpu.policies[1].clock, Ok(Hertz(1_510_400_000)));
    let thor = Tree::default().files("/sys/class/devfreq/gpu-gpc-0", &[("cur_freq", "1575000000")]);
    let (sensors, snapshot) = read(&thor.sysroot());
    assert_eq!(sensors.devices()[0].kind, DeviceKind::Gpu);
    assert_eq!(snapshot.devices[0].governor, Err(Unknown::NotOffered));
    let wrong = Tree::default()
        .files(
            "/sys/class/devfreq/x",
            &[("cur_freq", "-1"), ("governor", "a name that is too long for a governor")],
        )
        .file("/sys/class/devfreq/x/device/load", "1001\n");
    let (_, snapshot) = read(&wrong.sysroot());
    let device = &snapshot.devices[0];
    assert_eq!((&device.clock, &device.load), (&Err(Unknown::Malformed), &Err(Unknown::Malformed)));
    assert_eq!(device.governor, Err(Unknown::Malformed));
}

#[test]
fn the_load_of_an_old_gpu_is_found_elsewhere() {
    let tree = Tree::default()
        .files("/sys/class/devfreq/57000000.gpu", &[("cur_freq", "76800000")])
        .file("/sys/devices/gpu.0/load", "999\n");
    let (_, snapshot) = read(&tree.sysroot());
    assert_eq!(snapshot.devices[0].load, Ok(Utilization::of(999, 1_000).expect("a share")));
}

#[test]
fn a_gpu_that_is_off_at_the_start_has_a_load_later() {
    let dir = tempfile::tempdir().expect("a folder");
    let (device, load) =
        (dir.path().join("sys/class/devfreq/57000000.gpu"), dir.path().join("sys/devices/gpu.0/load"));
    fs::create_dir_all(&device).expect("made");
    fs::write(device.join("cur_freq"), "76800000\n").expect("written");
    // A file that is there and cannot be read.
    fs::create_dir_all(&load).expect("made");
    let (mut sensors, mut snapshot) = read(&Sysroot::at(dir.path()));
    assert!(snapshot.devices[0].load.is_err());
    fs::remove_dir(&load).expect("removed");
    fs::write(&load, "500\n").expect("written");
    sensors.read(SECOND, &mut snapshot);
    assert_eq!(snapshot.devices[0].load, Ok(Utilization::of(1, 2).expect("a share")));
}

#[test]
fn the_load_of_cores_is_that_since_the_last_reading() {
    let mut recording = orin_nx().recording();
    // Core 0 works half of 100 ticks, core 1 not at all, core 5 goes offline, core 6 comes online.
    let later = "cpu  650 0 300 5250 0 0 0 0 0 0\ncpu0 150 0 50 900 0 0 0 0 7 0\ncpu1 100 0 50 950 0 0 0 0 0 0\n\
                 cpu6 9 0 9 9 0 0 0 0 0 0\nintr 1\ncpu9 is not a core line\n";
    recording.add_value("/proc/stat", Duration::from_millis(1), Ok(later.as_bytes())).expect("a value");
    recording.add_value("/proc/stat", Duration::from_millis(2), Ok(b"cpu  a b\n")).expect("a value");
    recording.add_value("/proc/stat", Duration::from_millis(3), Err(ReadErrorKind::Denied)).expect("a value");
    let time = Time::default();
    let (mut sensors, mut snapshot) = read(&time.replay(recording));
    assert_eq!(snapshot.cpu.usage, Err(Unknown::NeedsSecondReading));
    assert_eq!(snapshot.cpu.cores.len(), 8);
    assert_eq!(snapshot.cpu.cores[7], Err(Unknown::Offline));
    time.set(1);
    sensors.read(SECOND, &mut snapshot);
    let share = |part, whole| Ok(Utilization::of(part, whole).expect("a share"));
    assert_eq!(snapshot.cpu.usage, share(50, 200));
    assert_eq!(snapshot.cpu.cores[..2], [share(1, 2), share(0, 1)]);
    assert_eq!(snapshot.cpu.cores[5], Err(Unknown::Offline));
    assert_eq!(snapshot.cpu.cores[6], Err(Unknown::NeedsSecondReading));
    time.set(2);
    sensors.read(SECOND, &mut snapshot);
    assert_eq!(snapshot.cpu.usage, Err(Unknown::Malformed));
    time.set(3);
    sensors.read(SECOND, &mut snapshot);
    assert_eq!(snapshot.cpu.usage, Err(Unknown::File(ReadErrorKind::Denied)));
    assert_eq!(snapshot.cpu.cores[0], Err(Unknown::File(ReadErrorKind::Denied)));
}

#[test]
fn memory_pressure_group_and_throttling_are_read() {
    let (sensors, snapshot) = read(&orin_nx().sysroot());
    let memory = &snapshot.memory;
    assert_eq!((&memory.total, &memory.nvmap_used), (&Ok(15_823_480 << 10), &Ok(512_000 << 10)));
    let pressure = snapshot.pressure.memory.as_ref().expect("pressure");
    assert_eq!(pressure.some.last_10_s, Utilization::of(15, 1_000).expect("a share"));
    assert_eq!(pressure.some.total, Duration::from_millis(1_500));
    let group = &snapshot.group;
    assert_eq!((&group.memory, &group.memory_max), (&Ok(734_003_200), &Ok(None)));
    assert_eq!((&group.memory_limit_hits, &group.oom_kills), (&Ok(3), &Ok(1)));
    assert_eq!(group.cpu_time, Ok(Duration::from_secs(5)));
    assert_eq!((sensors.throttling()[1].name.as_str(), &snapshot.throttling[1]), ("oc2", &Ok(7)));
    let fans: Vec<&str> = sensors.fans().iter().map(|fan| fan.name.as_str()).collect();
    assert_eq!(fans, ["pwm_tach", "pwmfan"]);
    assert_eq!((&snapshot.fans[0].rpm, &snapshot.fans[0].duty), (&Ok(2_810), &Err(Unknown::NotOffered)));
    assert_eq!(snapshot.fans[1].duty, Ok(Utilization::of(88, 255).expect("a share")));
}

#[test]
fn groups_of_other_machines_are_found_or_said_to_be_missing() {
    let own = |cgroup: &str, tree: Tree| read(&tree.file("/proc/self/cgroup", cgroup).sysroot());
    let files = [("memory.current", "1000"), ("memory.max", "2000")];
    let hybrid = Tree::default()
        .file("/sys/fs/cgroup/unified/cgroup.controllers", "")
        .files("/sys/fs/cgroup/unified/user.slice", &[("cpu.stat", "usage_usec 7")]);
    let (_, snapshot) = own("4:memory:/x\n0::/user.slice\n", hybrid);
    assert_eq!(snapshot.group.cpu_time, Ok(Duration::from_micros(7)));
    assert_eq!(snapshot.group.throttled, Err(Unknown::NotOffered), "no cpu controller");
    assert_eq!(snapshot.group.memory, Err(Unknown::NotOffered), "memory is of version 1");
    let container =
        Tree::default().file("/sys/fs/cgroup/cgroup.controllers", "memory\n").files("/sys/fs/cgroup", &files);
    for path in ["0::/../../outside\n", "0::/not/mounted/here\n", "0::/\n"] {
        let (_, snapshot) = own(path, container.clone());
        assert_eq!(
            (&snapshot.group.memory, &snapshot.group.memory_max),
            (&Ok(1_000), &Ok(Some(2_000))),
            "{path}"
        );
    }
    let (sensors, _) = own("4:memory:/x\n", Tree::default());
    assert_eq!(gaps(&sensors, "/proc/self/cgroup"), ["names no control group of version 2"]);
    let (sensors, _) = own("0::/\n", Tree::default());
    assert_eq!(gaps(&sensors, "/sys/fs/cgroup"), ["has no control groups of version 2"]);
}

#[test]
fn intel_counters_of_throttling_count_a_package_once() {
    let counters = [("core_throttle_count", "3"), ("package_throttle_count", "5")];
    let mut tree = Tree::default().file("/sys/devices/system/cpu/online", "0-2\n");
    for (core, package) in [(0, "0"), (1, "0"), (2, "1")] {
        let folder = format!("/sys/devices/system/cpu/cpu{core}");
        tree = tree
            .files(&format!("{folder}/thermal_throttle"), &counters)
            .files(&format!("{folder}/topology"), &[("physical_package_id", package)]);
    }
    let (sensors, snapshot) = read(&tree.sysroot());
    let names: Vec<&str> = sensors.throttling().iter().map(|counter| counter.name.as_str()).collect();
    assert_eq!(names, ["cpu0 core", "cpu0 package", "cpu1 core", "cpu2 core", "cpu2 package"]);
    assert_eq!(snapshot.throttling[..2], [Ok(3), Ok(5)]);
}

#[test]
fn fans_of_r32_and_of_a_host_are_found() {
    let tree =
        Tree::default().files("/sys/devices/pwm-fan", &[("cur_pwm", "255"), ("rpm_measured", "0")]).files(
            "/sys/class/hwmon/hwmon0",
            &[("name", "nct6775"), ("fan1_input", "900"), ("pwm1", "300"), ("fan2_input", "-3")],
        );
    let (sensors, snapshot) = read(&tree.sysroot());
    let names: Vec<&str> = sensors.fans().iter().map(|fan| fan.name.as_str()).collect();
    assert_eq!(names, ["nct6775 1", "nct6775 2", "pwm-fan"]);
    assert_eq!((&snapshot.fans[0].rpm, &snapshot.fans[0].duty), (&Ok(900), &Err(Unknown::Malformed)));
    assert_eq!(snapshot.fans[1].rpm, Err(Unknown::Malformed));
    assert_eq!(snapshot.fans[2].duty, Ok(Utilization::of(1, 1).expect("a share")));
}

#[test]
fn an_empty_board_has_nothing_and_says_why() {
    let (sensors, snapshot) = read(&Tree::default().sysroot());
    assert!(sensors.rails().is_empty() && sensors.zones().is_empty() && sensors.devices().is_empty());
    assert_eq!(snapshot.memory.total, Err(Unknown::File(ReadErrorKind::Absent)));
    assert_eq!(snapshot.pressure.cpu, Err(Unknown::NotOffered));
    let paths: Vec<&str> = sensors.gaps().iter().map(|gap| gap.path.as_str()).collect();
    expect_test::expect![[r#"
        [
            "/proc/pressure",
            "/proc/self/cgroup",
            "/sys/class/devfreq",
            "/sys/class/hwmon",
            "/sys/class/thermal",
            "/sys/devices/system/cpu/cpufreq",
        ]"#]]
    .assert_eq(&format!("{paths:#?}"));
}

#[test]
fn folders_that_cannot_be_read_are_named() {
    let (sensors, _) = read(&Tree::default().fails("/sys/class/hwmon", ReadErrorKind::Denied).sysroot());
    assert!(!gaps(&sensors, "/sys/class/hwmon").is_empty());
    let chip = "/sys/class/hwmon/hwmon0";
    let tree = Tree::default()
        .fails(&format!("{chip}/name"), ReadErrorKind::Denied)
        .file(format!("{chip}/power1_input"), "1");
    let (sensors, _) = read(&tree.sysroot());
    assert_eq!(gaps(&sensors, &format!("{chip}/name")), ["permission denied"]);
}

/// Two GPUs of a synthetic driver, and the energy that has been counted.
#[derive(Debug)]
struct TwoGpus(Vec<GpuInfo>, Joules);

impl GpuDevices for TwoGpus {
    fn gpus(&self) -> &[GpuInfo] {
        &self.0
    }

    fn read_power(&mut self, index: usize) -> GpuPower {
        self.read(index).power
    }

    fn read(&mut self, index: usize) -> GpuReading {
        let unknown = GpuReading::unknown(&Unknown::Device("NVML: the GPU is lost".into()));
        if index == 1 {
            return unknown;
        }
        self.1 += Joules::from_units(9);
        let power = GpuPower { watts: Ok(Watts::from_units(70)), joules: Ok(self.1) };
        GpuReading { power, ..unknown }
    }
}

#[test]
fn gpus_of_a_driver_are_rails_too() {
    let gpu = |address: &str, counts_energy| GpuInfo {
        name: "synthetic".into(),
        address: address.into(),
        counts_energy,
    };
    let gpus = TwoGpus(vec![gpu("00000000:01:00.0", true), gpu("", false)], Joules::default());
    let mut sensors = Sensors::discover(&orin_nx().sysroot()).with_gpus(Ok(Box::new(gpus)));
    let mut snapshot = Snapshot::default();
    sensors.read(Nanos(0), &mut snapshot);
    let rails = &sensors.rails()[4..];
    let names: Vec<(&str, &str)> =
        rails.iter().map(|rail| (rail.name.as_str(), rail.source.as_str())).collect();
    assert_eq!(names, [("GPU 0", "NVML GPU 0 00000000:01:00.0"), ("GPU 1", "NVML GPU 1")]);
    assert_eq!((rails[0].kind, rails[1].kind), (RailKind::EnergyCounter { wraps_at: None }, RailKind::Power));
    assert_eq!(snapshot.gpus.len(), 2);
    // The power of a GPU that counts energy comes from the counter: 9 J for each look, once more for the rail.
    assert_eq!(snapshot.rails[4].watts, Err(Unknown::NeedsSecondReading));
    sensors.read_rails(SECOND, &mut snapshot);
    let per_second = snapshot.rails[4].watts.clone().expect("a second reading");
    assert!(per_second == Watts::from_units(9) || per_second == Watts::from_units(18), "{per_second}");
    let lost = snapshot.rails[5].watts.as_ref().expect_err("the GPU is lost");
    assert_eq!(lost.to_string(), "NVML: the GPU is lost");
    let none = Sensors::discover(&orin_nx().sysroot()).with_gpus(Err("NVML is not installed".into()));
    assert_eq!(gaps(&none, "NVML"), ["NVML is not installed"]);
}

#[test]
#[cfg(feature = "nvml")]
fn nvml_opens_or_says_why_not() {
    match orinoco_board::readers::Nvml::open() {
        Ok(mut nvml) => {
            for index in 0..nvml.gpus().len() {
                assert_ne!(nvml.read(index).memory_total, Ok(0), "{:?}", nvml.gpus()[index]);
            }
        }
        Err(reason) => assert!(reason.starts_with("NVML "), "{reason}"),
    }
}

#[test]
fn this_machine_has_memory_and_a_processor() {
    let mut sensors = Sensors::discover(&Sysroot::host());
    let mut snapshot = Snapshot::default();
    sensors.read(Nanos(0), &mut snapshot);
    sensors.read(SECOND, &mut snapshot);
    assert!(snapshot.memory.total.as_ref().is_ok_and(|bytes| *bytes > 0), "{:?}", snapshot.memory);
    assert!(!snapshot.cpu.cores.is_empty(), "{:?}", sensors.gaps());
    assert!(
        snapshot.cpu.cores.iter().any(|core| !matches!(core, Err(Unknown::Offline | Unknown::Malformed)))
    );
    for zone in snapshot.zones.iter().flatten() {
        assert!((-50.0..150.0).contains(&zone.to_f64()), "{zone}");
    }
    assert_eq!(snapshot.rails.len(), sensors.rails().len());
}

#[test]
fn a_sensor_that_goes_away_and_comes_back_is_read_again() {
    let dir = tempfile::TempDir::new().expect("a folder");
    orin_nx().write(dir.path());
    let (mut rails, gaps) = Rails::discover(&Sysroot::at(dir.path()));
    assert_eq!(gaps, []);
    let mut readings = Vec::new();
    let mut watts = |rails: &mut Rails| {
        rails.read(Nanos(0), None, &mut readings);
        readings[0].watts.clone()
    };
    assert_eq!(watts(&mut rails), Ok(Watts::from_micro(19_032 * 512)));
    let current = dir.path().join("sys/class/hwmon/hwmon1/curr1_input");
    fs::remove_file(&current).expect("the file goes");
    assert_eq!(watts(&mut rails), Err(Unknown::File(ReadErrorKind::Absent)));
    fs::write(&current, "1000\n").expect("the file comes back");
    assert_eq!(watts(&mut rails), Ok(Watts::from_micro(19_032_000)));
}

#[test]
fn reading_again_allocates_nothing() {
    let dir = tempfile::TempDir::new().expect("a folder");
    orin_nx().write(dir.path());
    let mut sensors = Sensors::discover(&Sysroot::at(dir.path()));
    let mut snapshot = Snapshot::default();
    sensors.read(Nanos(0), &mut snapshot);
    sensors.read(SECOND, &mut snapshot);
    // The zone that is switched off has no file here, so it is opened again each time.
    fs::write(dir.path().join("sys/class/thermal/thermal_zone2/temp"), "43000\n").expect("a file");
    sensors.read(SECOND, &mut snapshot);
    let allocations = allocation_counter::measure(|| sensors.read(Nanos(2_000_000_000), &mut snapshot));
    assert_eq!(allocations.count_total, 0);
}

/// A recorded board gives the readers what the board gave them.
#[test]
fn a_recorded_board_has_the_same_sensors_and_values() {
    let mut recording = orin_nx().recording();
    let power = "/sys/devices/platform/bus@0/i2c/i2c-1/1-0040/hwmon/hwmon1/curr1_input";
    recording.add_value(power, Duration::from_millis(20), Ok(b"900\n")).expect("a value");
    recording.add_value(power, Duration::from_millis(30), Err(ReadErrorKind::Unavailable)).expect("a value");
    let time = Time::default();
    let board = time.replay(recording);
    let schedule = Schedule { period: Duration::from_millis(10), rounds: 5 };
    let clock = std::cell::Cell::new(Duration::ZERO);
    let wait = |until: Duration| {
        clock.set(until);
        time.set(until.as_millis() as u64);
        ControlFlow::Continue(())
    };
    let recorded = record(&board, &recorded_files(&board), schedule, || clock.get(), wait);
    let mut archive = Vec::new();
    recorded.recording.save(&mut archive, Packing::Gzip).expect("memory takes it");
    let replay = time.replay(Recording::load(&archive[..]).expect("our own archive"));
    time.set(0);
    let (mut here, mut there) = (Sensors::discover(&board), Sensors::discover(&replay));
    assert_eq!(here.rails(), there.rails());
    assert_eq!((here.zones(), here.devices(), here.fans()), (there.zones(), there.devices(), there.fans()));
    assert_eq!(
        (here.policies(), here.throttling(), here.cooling()),
        (there.policies(), there.throttling(), there.cooling())
    );
    let (mut expected, mut found) = (Snapshot::default(), Snapshot::default());
    for millis in [0, 10, 20, 30, 40] {
        time.set(millis);
        here.read(Nanos(millis), &mut expected);
        there.read(Nanos(millis), &mut found);
        assert_eq!(found, expected, "at {millis} ms");
    }
}

/// Texts that a driver, or somebody who writes a board's directory, could give.
const ODD: [&str; 14] = [
    "",
    "\0",
    "-1",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "4294967295",
    "NC",
    "max",
    "0-4294967295",
    "some avg10=999999999999999999999.99 total=1",
    "cpu 18446744073709551615 18446744073709551615 1 1 1",
    "é\n",
];

proptest! {
    /// Whatever stands in its files, a board is read without a panic, and no reading is longer than the board's lists.
    #[test]
    fn odd_contents_do_not_panic(odd in proptest::collection::vec((0_usize..200, 0..ODD.len()), 1..40)) {
        let mut tree = orin_nx();
        let paths = tree.paths();
        for (path, text) in odd {
            tree = tree.file(paths[path % paths.len()].clone(), ODD[text]);
        }
        let mut sensors = Sensors::discover(&tree.sysroot());
        let mut snapshot = Snapshot::default();
        for time in [0, 1, 1_000_000] {
            sensors.read(Nanos(time), &mut snapshot);
        }
        prop_assert_eq!(snapshot.rails.len(), sensors.rails().len());
        prop_assert!(snapshot.cpu.cores.len() <= 8_192);
    }
}
