use orinoco_sysroot::ReadErrorKind;

use super::probe::{Probe, Source};
use super::reading::{Governor, Hertz, Reading, Unknown, Utilization, put};

const CLASS: &str = "/sys/class/devfreq";

/// Parts of the device names of integrated GPUs: Nano, TX2, Xavier, Orin, and the name that all share from L4T R36 on
/// (`17000000.gpu`); Thor has `gpu-gpc-0` and `gpu-nvd-0`.
const GPU_NAMES: [&str; 5] = ["gpu", "gm20b", "gp10b", "gv11b", "ga10b"];

/// Files with the load of the GPU in kernels whose devfreq folder has none, in thousandths.
const GPU_LOADS: [&str; 3] = [
    "/sys/devices/gpu.0/load",
    "/sys/devices/platform/gpu.0/load",
    "/sys/devices/platform/17000000.gpu/load",
];

/// Device whose clock changes by itself: GPU, video engines, memory controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequencyDevice {
    /// Name of the device, such as `17000000.gpu`.
    pub name: String,
    /// Folder of its files.
    pub path: String,
    /// Kind of device.
    pub kind: DeviceKind,
    /// Clocks that the driver can set, in its order; empty where it does not list them.
    pub available: Vec<Hertz>,
}

/// Kind of a device with a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Integrated GPU.
    Gpu,
    /// Another part.
    Other,
}

/// Values of a device at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReading {
    /// Clock.
    pub clock: Reading<Hertz>,
    /// Lowest clock that is allowed at present.
    pub min: Reading<Hertz>,
    /// Highest clock that is allowed at present.
    pub max: Reading<Hertz>,
    /// Governor that sets the clock.
    pub governor: Reading<Governor>,
    /// Share of the last sampling period in which the device worked.
    pub load: Reading<Utilization>,
}

/// Devices of devfreq's class.
#[derive(Debug, Default)]
pub(super) struct Devfreq {
    pub(super) devices: Vec<FrequencyDevice>,
    files: Vec<Files>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Files {
    clock: Source,
    min: Source,
    max: Source,
    governor: Source,
    load: Source,
}

impl Devfreq {
    pub(super) fn find(probe: &mut Probe<'_>) -> Self {
        let mut devfreq = Self::default();
        for name in probe.names(CLASS, "") {
            let folder = format!("{CLASS}/{name}");
            let names = probe.names(&folder, "");
            let kind = kind_of(&name);
            let mut file = |name: &str| probe.attribute(&folder, &names, name);
            let (clock, min, max) = (file("cur_freq"), file("min_freq"), file("max_freq"));
            let governor = file("governor");
            let load = load(probe, &folder, kind);
            devfreq.files.push(Files { clock, min, max, governor, load });
            let available = probe.text(&format!("{folder}/available_frequencies")).unwrap_or_default();
            let available = available.split_whitespace().filter_map(|hertz| hertz.parse().ok()).map(Hertz);
            devfreq.devices.push(FrequencyDevice {
                name,
                path: folder,
                kind,
                available: available.collect(),
            });
        }
        devfreq
    }

    /// Reads all devices. Clocks are in Hz (Documentation/ABI/testing/sysfs-class-devfreq), as NVIDIA's drivers give them.
    pub(super) fn read(&mut self, into: &mut Vec<DeviceReading>) {
        into.truncate(self.devices.len());
        for (index, files) in self.files.iter_mut().enumerate() {
            let reading = DeviceReading {
                clock: hertz(&mut files.clock),
                min: hertz(&mut files.min),
                max: hertz(&mut files.max),
                governor: governor(&mut files.governor, &mut self.buffer),
                load: files.load.number().and_then(permille),
            };
            put(into, index, reading);
        }
    }
}

fn kind_of(name: &str) -> DeviceKind {
    if is_gpu_name(name) { DeviceKind::Gpu } else { DeviceKind::Other }
}

/// Whether a device of devfreq with this name is an integrated GPU.
pub(crate) fn is_gpu_name(name: &str) -> bool {
    GPU_NAMES.iter().any(|part| name.contains(part))
}

/// Returns the file with the load, in thousandths, as NVIDIA's drivers have it in the folder of the device.
fn load(probe: &mut Probe<'_>, folder: &str, kind: DeviceKind) -> Source {
    let own = format!("{folder}/device/load");
    let others = if kind == DeviceKind::Gpu { &GPU_LOADS[..] } else { &[] };
    let mut paths = std::iter::once(&own[..]).chain(others.iter().copied());
    // A GPU that is powered off has no load at present.
    let is_there =
        |path: &&str| !matches!(probe.sysroot.bytes(path), Err(why) if why.kind == ReadErrorKind::Absent);
    let found = paths.find(is_there);
    found.map_or(Source::NONE, |path| probe.file(path).into())
}

fn permille(load: i64) -> Reading<Utilization> {
    let load = u64::try_from(load).map_err(|_| Unknown::Malformed)?;
    Utilization::of(load, 1_000).filter(|_| load <= 1_000).ok_or(Unknown::Malformed)
}

/// Reads a clock in Hz.
pub(super) fn hertz(file: &mut Source) -> Reading<Hertz> {
    let hertz = file.number()?;
    u64::try_from(hertz).map(Hertz).map_err(|_| Unknown::Malformed)
}

/// Reads the name of a governor.
pub(super) fn governor(file: &mut Source, buffer: &mut Vec<u8>) -> Reading<Governor> {
    Governor::new(file.text(buffer)?).ok_or(Unknown::Malformed)
}
