//! Detection of a board from its files. Each answer names its source, files that contradict one another are listed, and
//! what no file says is unknown.

mod boot_control;
mod carrier;
mod device_tree;
mod fact;
mod files;
mod jetpack;
mod machine;
mod module;
mod power_mode;
mod rails;
mod release;
mod thermal;

use orinoco_sysroot::Sysroot;

use crate::profile::{BoardKind, Profile};
use crate::profiles::profiles;
use boot_control::BootControl;
use device_tree::DeviceTree;
use files::BoardFiles;
use machine::{Architecture, Machine};
use module::ModuleDecision;
use power_mode::PowerModes;
use release::Release;

pub use fact::{Fact, Problem};
pub use power_mode::PowerMode;
pub(crate) use power_mode::{
    CONFIGURATION as POWER_MODE_CONFIGURATION, STATUS as POWER_MODE_STATUS, mode_of_status,
};
pub use rails::{CounterReport, RailReport};
pub use thermal::ThermalZone;

/// Names of rails that measure the whole input of a module where no profile says so.
const INPUT_RAILS: [&str; 3] = ["VDD_IN", "POM_5V_IN", "VIN"];

/// Board as its files describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection {
    /// Whether it is an NVIDIA Jetson.
    pub is_jetson: Option<Fact<bool>>,
    /// Name that the firmware gives the board.
    pub model: Option<Fact<String>>,
    /// Module, such as `Jetson Orin Nano 8GB`.
    pub module: Option<Fact<String>>,
    /// System on chip, such as `tegra234`.
    pub soc: Option<Fact<String>>,
    /// Part number of the module with its SKU, such as `p3767-0005`.
    pub sku: Option<Fact<String>>,
    /// Carrier: NVIDIA's part number, or another maker's name for it.
    pub carrier: Option<Fact<String>>,
    /// Memory in bytes that the kernel manages.
    pub memory_bytes: Option<Fact<u64>>,
    /// Memory in GiB: of a Jetson that of the module, else what the kernel manages.
    pub memory_gib: Option<Fact<f64>>,
    /// CPU cores that can be online.
    pub cpus: Option<Fact<u32>>,
    /// CPU cores that are online.
    pub cpus_online: Option<Fact<u32>>,
    /// Release of Jetson Linux of the root file system, such as `36.4.3`.
    pub l4t: Option<Fact<String>>,
    /// Release of Jetson Linux of the boot loader.
    pub boot_loader: Option<Fact<String>>,
    /// JetPack release that contains the release of Jetson Linux.
    pub jetpack: Option<Fact<String>>,
    /// Release of the kernel.
    pub kernel: Option<Fact<String>>,
    /// Power mode that is set.
    pub power_mode: Option<Fact<PowerMode>>,
    /// Power modes that the board's configuration offers.
    pub power_modes: Vec<PowerMode>,
    /// Power rails with one reading each.
    pub rails: Vec<RailReport>,
    /// Energy counters of a host's processor.
    pub energy_counters: Vec<CounterReport>,
    /// Name of the rail that measures the whole input.
    pub total_rail: Option<Fact<String>>,
    /// Coverage of that rail, or the reason why there is none.
    pub total_covers: Option<Fact<String>>,
    /// Thermal zones with one reading each.
    pub thermal_zones: Vec<ThermalZone>,
    /// NVIDIA GPUs that the driver lists.
    pub gpus: Vec<Fact<String>>,
    /// Profile of this kind of board.
    pub profile: Option<Fact<&'static Profile>>,
    /// Contradictions, each with the files and what they say.
    pub conflicts: Vec<String>,
    /// Keys of the answers that are not known.
    pub unknown: Vec<&'static str>,
    /// Files that were wrong, and files whose absence leaves an answer unknown.
    pub problems: Vec<Problem>,
}

/// Reads what the board of `sysroot` is. It reads files and nothing else, and never fails: what cannot be read is unknown.
pub fn detect(sysroot: &Sysroot) -> Detection {
    let files = BoardFiles::new(sysroot);
    let tree = DeviceTree::read(&files);
    let boot = BootControl::read(&files);
    let release = Release::read(&files);
    let machine = Machine::read(&files);
    let (soc, soc_conflict) = soc(&files, &tree, &boot);
    let (is_jetson, jetson_conflict) = is_jetson(&files, soc.as_ref(), &tree, &boot, &release, &machine);
    let jetson = is_jetson.as_ref().is_some_and(|fact| fact.value);
    let mut conflicts: Vec<String> = soc_conflict.into_iter().chain(jetson_conflict).collect();
    let module = match jetson {
        true => module::decide(&files, soc.as_ref(), &tree, &boot, &machine, profiles()),
        false => ModuleDecision { profile: other_profile(&is_jetson, &tree, &machine), ..Default::default() },
    };
    conflicts.extend(module.conflicts);
    let (carrier, carrier_conflicts) = match jetson {
        true => carrier::read(&tree, &boot, &release, profiles()),
        false => (None, Vec::new()),
    };
    conflicts.extend(carrier_conflicts);
    let power_modes = PowerModes::read(&files);
    conflicts.extend(power_modes.conflicts);
    let (mut rails, energy_counters) = rails::read(sysroot);
    let total = total(&mut rails, module.profile.as_ref());
    let jetpack = release.l4t.as_ref().and_then(|l4t| {
        let jetpack = jetpack::jetpack_of(&l4t.value)?;
        Some(Fact::new(jetpack.to_owned(), format!("{}, by the table of releases", l4t.source)))
    });
    conflicts.extend(release.conflicts);
    let model = tree.model.or(machine.product);
    let mut detection = Detection {
        is_jetson,
        model,
        module: module.name,
        soc,
        sku: module.sku,
        carrier,
        memory_gib: machine.memory_bytes.clone().map(|fact| fact.map(|bytes| memory_gib(bytes, jetson))),
        memory_bytes: machine.memory_bytes,
        cpus: machine.cpus,
        cpus_online: machine.cpus_online,
        l4t: release.l4t,
        boot_loader: release.boot_loader,
        jetpack,
        kernel: machine.kernel,
        power_mode: power_modes.current,
        power_modes: power_modes.all,
        rails,
        energy_counters,
        total_rail: total.rail,
        total_covers: total.covers,
        thermal_zones: thermal::read(sysroot),
        gpus: machine.gpus,
        profile: module.profile,
        conflicts,
        unknown: Vec::new(),
        problems: Vec::new(),
    };
    detection.unknown = detection.unknown_keys();
    detection.problems = files.into_problems(&detection.unknown);
    detection
}

impl Detection {
    /// Returns the keys of the answers, each with the source of the answer if there is one.
    pub fn sources(&self) -> Vec<(&'static str, Option<&str>)> {
        fn of<T>(fact: &Option<Fact<T>>) -> Option<&str> {
            fact.as_ref().map(|fact| fact.source.as_str())
        }
        vec![
            ("is_jetson", of(&self.is_jetson)),
            ("model", of(&self.model)),
            ("module", of(&self.module)),
            ("soc", of(&self.soc)),
            ("sku", of(&self.sku)),
            ("carrier", of(&self.carrier)),
            ("memory_gb", of(&self.memory_gib)),
            ("memory_bytes", of(&self.memory_bytes)),
            ("cpus", of(&self.cpus)),
            ("cpus_online", of(&self.cpus_online)),
            ("l4t", of(&self.l4t)),
            ("boot_loader", of(&self.boot_loader)),
            ("jetpack", of(&self.jetpack)),
            ("kernel", of(&self.kernel)),
            ("power_mode", of(&self.power_mode)),
            ("power_mode_id", of(&self.power_mode)),
            ("total_rail", of(&self.total_rail)),
            ("total_covers", of(&self.total_covers)),
            ("profile", of(&self.profile)),
        ]
    }

    fn unknown_keys(&self) -> Vec<&'static str> {
        let mut unknown: Vec<&'static str> =
            self.sources().into_iter().filter(|(_, source)| source.is_none()).map(|(key, _)| key).collect();
        if self.rails.is_empty() {
            unknown.push("rails");
        }
        unknown
    }
}

/// Returns the memory in GiB: of a Jetson that of its module, else what the kernel manages, to a tenth.
fn memory_gib(bytes: u64, is_jetson: bool) -> f64 {
    match is_jetson {
        true => f64::from(module::module_memory_gib(bytes)),
        false => (bytes as f64 / f64::from(1 << 30) * 10.0).round() / 10.0,
    }
}

/// Returns the SoC, and a text where the files name different ones.
fn soc(
    files: &BoardFiles<'_>,
    tree: &DeviceTree,
    boot: &BootControl,
) -> (Option<Fact<String>>, Option<String>) {
    const SOC_ID: &str = "/sys/devices/soc0/soc_id";
    let of_chip = files.optional_text(SOC_ID).and_then(|id| {
        let soc = boot_control::soc_of_chip(&id)?;
        Some(Fact::new(soc.to_owned(), SOC_ID))
    });
    let mut found: Vec<Fact<String>> =
        [tree.soc(), of_chip, boot.soc.clone()].into_iter().flatten().collect();
    let different = found.iter().find(|fact| fact.value != found[0].value);
    let conflict = different.map(|other| {
        let first = &found[0];
        format!("{} names {}, but {} names {}", first.source, first.value, other.source, other.value)
    });
    let first = (!found.is_empty()).then(|| found.swap_remove(0));
    (first, conflict)
}

/// Returns whether the machine is a Jetson, and a text where the files disagree.
fn is_jetson(
    files: &BoardFiles<'_>,
    soc: Option<&Fact<String>>,
    tree: &DeviceTree,
    boot: &BootControl,
    release: &Release,
    machine: &Machine,
) -> (Option<Fact<bool>>, Option<String>) {
    const SOC_FAMILY: &str = "/sys/devices/soc0/family";
    let family = files.optional_text(SOC_FAMILY).filter(|family| family == "Tegra");
    let kernel = machine.kernel.as_ref().filter(|kernel| kernel.value.contains("tegra"));
    let product = machine.product.as_ref().filter(|product| product.value.contains("Jetson"));
    let signs = [
        soc.map(|soc| soc.source.as_str()),
        family.as_ref().map(|_| SOC_FAMILY),
        (!boot.specs.is_empty()).then_some(boot_control::BOOT_CONTROL),
        release.l4t.as_ref().map(|l4t| l4t.source.as_str()),
        product.map(|product| product.source.as_str()),
        kernel.map(|kernel| kernel.source.as_str()),
    ];
    let sign = signs.into_iter().flatten().next();
    let x86 = machine.architecture.as_ref().filter(|found| found.value == Architecture::X86);
    if let Some(x86) = x86 {
        let conflict =
            sign.map(|sign| format!("{sign} is a Jetson's, but {} is an x86 processor's", x86.source));
        return (Some(Fact::new(false, &x86.source)), conflict);
    }
    let other = tree.compatible.as_ref().map(|compatible| compatible.source.as_str());
    let other = other.or_else(|| machine.product.as_ref().map(|product| product.source.as_str()));
    let found = match (sign, other) {
        (Some(sign), _) => Some(Fact::new(true, sign)),
        (None, Some(other)) => Some(Fact::new(false, other)),
        (None, None) => None,
    };
    (found, None)
}

/// Returns the profile of a machine that is not a Jetson.
fn other_profile(
    is_jetson: &Option<Fact<bool>>,
    tree: &DeviceTree,
    machine: &Machine,
) -> Option<Fact<&'static Profile>> {
    is_jetson.as_ref()?;
    let of_kind = |kind, source: &str| {
        let profile = profiles().iter().find(|profile| profile.kind == kind)?;
        Some(Fact::new(profile, source))
    };
    let is_arm = machine.architecture.as_ref().is_some_and(|found| found.value == Architecture::Arm);
    let compatible = tree.compatible.as_ref();
    let emulated = compatible.filter(|names| names.value.iter().any(|name| name == "linux,dummy-virt"));
    if let Some(emulated) = emulated {
        return of_kind(BoardKind::Virtual, &emulated.source);
    }
    if let Some(product) = machine.product.as_ref().filter(|product| is_arm && product.value.contains("QEMU"))
    {
        return of_kind(BoardKind::Virtual, &product.source);
    }
    match machine.gpus.first() {
        Some(gpu) if is_arm && machine.has_acpi => return of_kind(BoardKind::Sbsa, &gpu.source),
        _ => {}
    }
    let is_other_board = is_arm && compatible.is_some();
    let source = machine.architecture.as_ref().filter(|_| !is_other_board)?;
    of_kind(BoardKind::Host, &source.source)
}

/// Rail that measures the whole input, and its coverage.
struct Total {
    rail: Option<Fact<String>>,
    covers: Option<Fact<String>>,
}

/// Names the rails for which the driver has no label, and finds the one that measures the whole input.
fn total(rails: &mut [RailReport], profile: Option<&Fact<&'static Profile>>) -> Total {
    for rail in rails.iter_mut().filter(|rail| rail.name.is_none()) {
        let known = profile.and_then(|profile| {
            let is_this = |known: &&crate::profile::RailProfile| {
                let bus = known.bus.is_none() || known.bus == rail.i2c.map(|i2c| i2c.bus);
                bus && Some(known.address) == rail.i2c.map(|i2c| i2c.address) && known.channel == rail.channel
            };
            profile.value.rails.iter().find(is_this)
        });
        rail.name = known.map(|known| known.name.clone());
    }
    if let Some(profile) = profile
        && let Some(total) = &profile.value.total
    {
        let source = format!("profile {}", profile.value.name);
        let named = rails.iter().find(|rail| rail.name.is_some() && rail.name == total.rail);
        if let Some(rail) = named {
            let name = rail.shown_name();
            let covers = Fact::new(total.covers.clone(), source);
            return Total { rail: Some(Fact::new(name, &rail.source)), covers: Some(covers) };
        }
        if total.rail.is_none() && !rails.iter().any(RailReport::is_unlabelled_input) {
            return Total { rail: None, covers: Some(Fact::new(total.covers.clone(), source)) };
        }
    }
    let is_input = |rail: &&RailReport| {
        rail.is_unlabelled_input() || rail.name.as_deref().is_some_and(|name| INPUT_RAILS.contains(&name))
    };
    match rails.iter().find(is_input) {
        Some(rail) => {
            let covers = "the board's whole input, according to the sensor's type or label";
            let name = Fact::new(rail.shown_name(), &rail.source);
            Total { rail: Some(name), covers: Some(Fact::new(covers.to_owned(), &rail.source)) }
        }
        None => Total { rail: None, covers: None },
    }
}
