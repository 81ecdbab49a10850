use super::devfreq::{governor, hertz};
use super::probe::{Probe, Source, list_of_cores};
use super::reading::{Governor, Hertz, Reading, Unknown, Utilization, put};

const CPUS: &str = "/sys/devices/system/cpu";
const STAT: &str = "/proc/stat";

/// Group of cores that have one clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Folder of its files.
    pub path: String,
    /// Numbers of its cores, also of those that are offline.
    pub cores: Vec<u32>,
    /// Lowest and highest clock of the hardware; `None` where the driver does not give them.
    pub range: Option<(Hertz, Hertz)>,
}

/// Clock of a group of cores at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReading {
    /// Clock.
    pub clock: Reading<Hertz>,
    /// Lowest clock that is allowed at present.
    pub min: Reading<Hertz>,
    /// Highest clock that is allowed at present.
    pub max: Reading<Hertz>,
    /// Governor that sets the clock.
    pub governor: Reading<Governor>,
}

/// Load and clocks of the processor at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuReading {
    /// Share of the time since the last reading in which the cores worked, over all that are online.
    pub usage: Reading<Utilization>,
    /// The same for each core by its number; [`Unknown::Offline`] for a core that is switched off.
    pub cores: Vec<Reading<Utilization>>,
    /// Clocks, in the order of the policies.
    pub policies: Vec<PolicyReading>,
}

impl Default for CpuReading {
    fn default() -> Self {
        Self { usage: Err(Unknown::NeedsSecondReading), cores: Vec::new(), policies: Vec::new() }
    }
}

/// Time of a core since the system started, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    busy: u64,
    total: u64,
}

/// Processor: `/proc/stat` and cpufreq's policies.
#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) policies: Vec<Policy>,
    files: Vec<Files>,
    stat: Source,
    buffer: Vec<u8>,
    /// Number of cores that the kernel knows, online or not.
    cores: usize,
    /// Times at the last reading: of all cores together, then of each.
    earlier: Vec<Option<Ticks>>,
}

#[derive(Debug)]
struct Files {
    clock: Source,
    min: Source,
    max: Source,
    governor: Source,
}

impl Cpu {
    pub(super) fn find(probe: &mut Probe<'_>) -> Self {
        let present = probe.text(&format!("{CPUS}/present")).and_then(|text| list_of_cores(&text));
        let cores = present.and_then(|cores| cores.last().map(|last| *last as usize + 1)).unwrap_or(0);
        let mut cpu = Self {
            policies: Vec::new(),
            files: Vec::new(),
            stat: probe.file(STAT).into(),
            buffer: Vec::new(),
            cores,
            earlier: vec![None; cores + 1],
        };
        if probe.sysroot.entries(&format!("{CPUS}/cpufreq")).is_err() {
            probe.gap(&format!("{CPUS}/cpufreq"), "the kernel does not control the clock of this processor");
            return cpu;
        }
        for name in probe.names(&format!("{CPUS}/cpufreq"), "policy") {
            cpu.add_policy(probe, &format!("{CPUS}/cpufreq/{name}"));
        }
        cpu
    }

    fn add_policy(&mut self, probe: &mut Probe<'_>, folder: &str) {
        let names = probe.names(folder, "");
        let mut file = |name: &str| probe.attribute(folder, &names, name);
        let clock = file("scaling_cur_freq");
        let (min, max) = (file("scaling_min_freq"), file("scaling_max_freq"));
        let governor = file("scaling_governor");
        self.files.push(Files { clock, min, max, governor });
        let mut limit = |name: &str| {
            let kilohertz = probe.number(&format!("{folder}/{name}"))?;
            u64::try_from(kilohertz).ok().map(|kilohertz| Hertz(kilohertz.saturating_mul(1_000)))
        };
        let range = limit("cpuinfo_min_freq").zip(limit("cpuinfo_max_freq"));
        let cores = probe.text(&format!("{folder}/related_cpus")).unwrap_or_default();
        let cores = cores.split_whitespace().filter_map(|core| core.parse().ok()).collect();
        self.policies.push(Policy { path: folder.to_owned(), cores, range });
    }

    pub(super) fn read(&mut self, into: &mut CpuReading) {
        self.read_usage(into);
        into.policies.truncate(self.policies.len());
        for (index, files) in self.files.iter_mut().enumerate() {
            // cpufreq gives kHz (Documentation/admin-guide/pm/cpufreq.rst).
            let kilohertz =
                |file: &mut Source| hertz(file).map(|Hertz(kilo)| Hertz(kilo.saturating_mul(1_000)));
            let reading = PolicyReading {
                clock: kilohertz(&mut files.clock),
                min: kilohertz(&mut files.min),
                max: kilohertz(&mut files.max),
                governor: governor(&mut files.governor, &mut self.buffer),
            };
            put(&mut into.policies, index, reading);
        }
    }

    fn read_usage(&mut self, into: &mut CpuReading) {
        let text = match self.stat.text(&mut self.buffer) {
            Ok(text) => text,
            Err(reason) => {
                into.usage = Err(reason.clone());
                into.cores.clear();
                into.cores.resize(self.cores, Err(reason));
                return;
            }
        };
        into.usage = Err(Unknown::Malformed);
        into.cores.clear();
        into.cores.resize(self.cores, Err(Unknown::Offline));
        for line in text.lines().take_while(|line| line.starts_with("cpu")) {
            let (name, times) = line.split_once(' ').unwrap_or((line, ""));
            let core: Option<usize> = name["cpu".len()..].parse().ok();
            let now = ticks(times);
            let slot = match core {
                None => &mut into.usage,
                Some(core) if core < self.cores => &mut into.cores[core],
                Some(_) => continue,
            };
            let earlier = &mut self.earlier[core.map_or(0, |core| core + 1)];
            *slot = now.ok_or(Unknown::Malformed).and_then(|now| usage(earlier.replace(now), now));
        }
        // A core that is switched on again must not be compared with its time before.
        for (core, reading) in into.cores.iter().enumerate() {
            if *reading == Err(Unknown::Offline) {
                self.earlier[core + 1] = None;
            }
        }
    }
}

/// Reads the times of a line: user, nice, system, idle, iowait, irq, softirq, steal, and two that are contained in the first two
/// (proc_stat(5)).
fn ticks(times: &str) -> Option<Ticks> {
    let mut columns = [0_u64; 8];
    let mut count = 0;
    for (slot, word) in columns.iter_mut().zip(times.split_ascii_whitespace()) {
        *slot = word.parse().ok()?;
        count += 1;
    }
    let total = columns.iter().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
    let idle = columns[3].saturating_add(columns[4]);
    (count >= 4).then_some(Ticks { busy: total - idle.min(total), total })
}

/// Returns the share of time between two readings in which a core worked. The time of waiting for I/O can go back.
fn usage(earlier: Option<Ticks>, now: Ticks) -> Reading<Utilization> {
    let earlier = earlier.ok_or(Unknown::NeedsSecondReading)?;
    let total = now.total.saturating_sub(earlier.total);
    let busy = now.busy.saturating_sub(earlier.busy);
    Utilization::of(busy, total).ok_or(Unknown::NeedsSecondReading)
}
