//! Decides which module a Jetson is. Each file that says something about it is a claim; a claim that fits with those before
//! it narrows the choice, and one that does not is a contradiction. Memory and cores come first, because nobody edits
//! them; then TNSPEC, which was written for this board; then the device tree, which may be that of another SKU.

use super::boot_control::{BOOT_CONTROL, BootControl};
use super::device_tree::DeviceTree;
use super::fact::Fact;
use super::files::BoardFiles;
use super::machine::Machine;
use crate::profile::{BoardKind, Module, Profile};

/// Module for which the files speak.
#[derive(Debug, Default)]
pub(super) struct ModuleDecision {
    pub(super) profile: Option<Fact<&'static Profile>>,
    /// Name of the module.
    pub(super) name: Option<Fact<String>>,
    /// Part number with SKU.
    pub(super) sku: Option<Fact<String>>,
    /// Files that contradict one another.
    pub(super) conflicts: Vec<String>,
}

/// Module of a profile.
type Candidate = (&'static Profile, &'static Module);

/// Statement of a file about the module.
struct Claim {
    source: String,
    /// Statement as a message repeats it: `names p3767-0005`.
    says: String,
    /// Modules with which it agrees.
    allowed: Vec<Candidate>,
    kind: ClaimKind,
}

/// Kind of a claim. Properties alone decide nothing, because other modules may have the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimKind {
    /// Property that several modules share: SoC, memory, cores.
    Property,
    /// Name of a module or of a family of modules.
    Name,
    /// Part number with SKU.
    Sku,
}

/// Decides which module this is.
pub(super) fn decide(
    files: &BoardFiles<'_>,
    soc: Option<&Fact<String>>,
    tree: &DeviceTree,
    boot: &BootControl,
    machine: &Machine,
    profiles: &'static [Profile],
) -> ModuleDecision {
    let jetsons = profiles.iter().filter(|profile| profile.kind == BoardKind::Jetson);
    let all: Vec<Candidate> =
        jetsons.flat_map(|profile| profile.modules.iter().map(move |module| (profile, module))).collect();
    let mut conflicts = several_boards(boot);
    let tree_skus = tree.modules(|number| is_module(number, profiles));
    if tree_skus.len() > 1 {
        let source = tree.compatible.as_ref().map_or("", |compatible| compatible.source.as_str());
        conflicts.push(format!("{source} names several modules: {}", tree_skus.join(", ")));
    }
    // A name that no profile has is a module that we do not know, and not the one that happens to fit.
    let spec_skus: Vec<&String> = boot.specs.iter().filter_map(|spec| spec.sku.as_ref()).collect();
    let best = if spec_skus.is_empty() { tree_skus.iter().collect() } else { spec_skus };
    if !best.is_empty() && !best.iter().any(|sku| is_module(sku, profiles)) {
        let source = if boot.specs.is_empty() { "the device tree" } else { BOOT_CONTROL };
        files.note("module", source, format!("names {}, of which there is no profile", best[0]));
        return ModuleDecision { conflicts, ..ModuleDecision::default() };
    }
    let claims = claims(&all, soc, tree, &tree_skus, boot, machine);
    let (candidates, accepted) = narrow(&all, &claims);
    conflicts.extend(contradictions(&claims, &accepted));
    decision(candidates, &claims, &accepted, conflicts)
}

/// Whether this is the number of a part of which there is a profile.
pub(super) fn is_module(number: &str, profiles: &[Profile]) -> bool {
    let part = number.split('-').next().unwrap_or_default();
    profiles.iter().flat_map(|profile| &profile.modules).any(|module| module.part() == part)
}

/// Returns the memory of a module, in GiB, of which the kernel has `bytes`. Modules have powers of two; firmware and
/// carve-outs take less than half.
pub(super) fn module_memory_gib(bytes: u64) -> u32 {
    let gib = bytes.div_ceil(1 << 30).clamp(1, 1 << 20);
    u32::try_from(gib.next_power_of_two()).unwrap_or(u32::MAX)
}

fn several_boards(boot: &BootControl) -> Vec<String> {
    let mut skus: Vec<String> = Vec::new();
    for spec in &boot.specs {
        let named = spec.sku.as_ref().map(|sku| format!("{sku} ({})", spec.key));
        skus.extend(named);
    }
    let numbers: std::collections::BTreeSet<&Option<String>> =
        boot.specs.iter().map(|spec| &spec.sku).filter(|sku| sku.is_some()).collect();
    match numbers.len() {
        0 | 1 => Vec::new(),
        _ => vec![format!("{BOOT_CONTROL} names several boards: {}", skus.join(", "))],
    }
}

/// Returns the claims, the most trusted first.
fn claims(
    all: &[Candidate],
    soc: Option<&Fact<String>>,
    tree: &DeviceTree,
    tree_skus: &[String],
    boot: &BootControl,
    machine: &Machine,
) -> Vec<Claim> {
    use ClaimKind::{Name, Property, Sku};
    let allowing = |allows: &dyn Fn(&Candidate) -> bool| -> Vec<Candidate> {
        all.iter().filter(|candidate| allows(candidate)).copied().collect()
    };
    let mut claims = Vec::new();
    let mut add = |source: &str, says: String, allowed: Vec<Candidate>, kind: ClaimKind| {
        claims.push(Claim { source: source.to_owned(), says, allowed, kind });
    };
    if let Some(soc) = soc {
        let has_soc = |profile: &Profile| profile.soc.as_ref().is_some_and(|known| known.name == soc.value);
        add(
            &soc.source,
            format!("names {}", soc.value),
            allowing(&|(profile, _)| has_soc(profile)),
            Property,
        );
    }
    if let Some(memory) = &machine.memory_bytes {
        let gib = module_memory_gib(memory.value);
        let says = format!("gives {:.1} GiB, a module of {gib} GB", memory.value as f64 / f64::from(1 << 30));
        add(&memory.source, says, allowing(&|(_, module)| module.memory_gib == gib), Property);
    }
    if let Some(cpus) = &machine.cpus {
        let cores_of = |profile: &Profile| profile.soc.as_ref().and_then(|soc| soc.cpu_cores);
        let has_cores = |profile: &Profile| cores_of(profile).is_none_or(|cores| cores == cpus.value);
        let says = format!("gives {} CPU cores", cpus.value);
        add(&cpus.source, says, allowing(&|(profile, _)| has_cores(profile)), Property);
    }
    for spec in &boot.specs {
        let Some(sku) = &spec.sku else { continue };
        let says = format!("names {} in {}", named(sku, all), spec.key);
        add(BOOT_CONTROL, says, allowing(&|(_, module)| module.sku == *sku), Sku);
    }
    if let Some(compatible) = tree.compatible.as_ref().filter(|_| !tree_skus.is_empty()) {
        let names: Vec<String> = tree_skus.iter().map(|sku| named(sku, all)).collect();
        let says = format!("names {}", names.join(" and "));
        let allowed = allowing(&|(_, module)| tree_skus.contains(&module.sku));
        add(&compatible.source, says, allowed, Sku);
    }
    if let Some(model) = tree.model.as_ref().or(machine.product.as_ref()) {
        let lower = model.value.to_lowercase();
        let has_name = |profile: &Profile| profile.model_names.iter().any(|name| lower.contains(name));
        let allowed = allowing(&|(profile, _)| has_name(profile));
        // A name of none of these is the carrier's.
        if !allowed.is_empty() {
            add(&model.source, format!("says \"{}\"", model.value), allowed, Name);
        }
    }
    claims
}

fn named(sku: &str, all: &[Candidate]) -> String {
    match all.iter().find(|(_, module)| module.sku == sku) {
        Some((_, module)) => format!("{sku} ({})", module.name),
        None => sku.to_owned(),
    }
}

/// Applies the claims one after another, and returns what is left and which claims were accepted.
fn narrow(all: &[Candidate], claims: &[Claim]) -> (Vec<Candidate>, Vec<bool>) {
    let mut candidates = all.to_vec();
    let mut accepted = Vec::new();
    for claim in claims {
        let agreeing: Vec<Candidate> =
            candidates.iter().filter(|(_, module)| allows(claim, module)).copied().collect();
        accepted.push(!agreeing.is_empty());
        if !agreeing.is_empty() {
            candidates = agreeing;
        }
    }
    (candidates, accepted)
}

fn allows(claim: &Claim, module: &Module) -> bool {
    claim.allowed.iter().any(|(_, allowed)| allowed.sku == module.sku)
}

/// Names each claim that was not accepted, with one that speaks against it: for a property the name of a module, if there
/// is one.
fn contradictions(claims: &[Claim], accepted: &[bool]) -> Vec<String> {
    let kept: Vec<&Claim> = accepted_of(claims, accepted).collect();
    let against = |claim: &Claim| {
        let excludes = |other: &&&Claim| !claim.allowed.iter().any(|(_, module)| allows(other, module));
        let names = || kept.iter().filter(|other| other.kind != ClaimKind::Property);
        let by_name = if claim.kind == ClaimKind::Property { names().find(excludes) } else { None };
        by_name.or_else(|| kept.iter().find(excludes)).or(kept.first()).copied()
    };
    let refused = claims.iter().zip(accepted).filter(|(_, accepted)| !**accepted).map(|(claim, _)| claim);
    let texts = refused.map(|claim| match against(claim) {
        _ if claim.allowed.is_empty() => {
            format!("{} {}, of which there is no profile", claim.source, claim.says)
        }
        Some(other) => format!("{} {}, but {} {}", claim.source, claim.says, other.source, other.says),
        None => format!("{} {}, which no module has", claim.source, claim.says),
    });
    texts.collect()
}

fn accepted_of<'a>(claims: &'a [Claim], accepted: &'a [bool]) -> impl Iterator<Item = &'a Claim> {
    claims.iter().zip(accepted).filter(|(_, accepted)| **accepted).map(|(claim, _)| claim)
}

fn decision(
    candidates: Vec<Candidate>,
    claims: &[Claim],
    accepted: &[bool],
    conflicts: Vec<String>,
) -> ModuleDecision {
    let kept: Vec<&Claim> = accepted_of(claims, accepted).collect();
    let [(profile, first), ..] = candidates[..] else {
        return ModuleDecision { conflicts, ..Default::default() };
    };
    let is_named = kept.iter().any(|claim| claim.kind != ClaimKind::Property);
    if !is_named || candidates.iter().any(|(other, _)| other.name != profile.name) {
        return ModuleDecision { conflicts, ..ModuleDecision::default() };
    }
    let source = sources(kept.iter().copied());
    let sku_source = sources(kept.iter().copied().filter(|claim| claim.kind == ClaimKind::Sku));
    let has_sku = candidates.len() == 1 && !sku_source.is_empty();
    let name = common_words(candidates.iter().map(|(_, module)| module.name.as_str()));
    ModuleDecision {
        profile: Some(Fact::new(profile, source.clone())),
        name: Some(Fact::new(name, source)),
        sku: has_sku.then(|| Fact::new(first.sku.clone(), sku_source)),
        conflicts,
    }
}

fn sources<'a>(claims: impl Iterator<Item = &'a Claim>) -> String {
    let mut paths: Vec<&str> = Vec::new();
    for claim in claims {
        if !paths.contains(&claim.source.as_str()) {
            paths.push(&claim.source);
        }
    }
    paths.join(", ")
}

/// Returns the words with which all names begin: what holds for each of several modules of one profile.
fn common_words<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let common = names.map(|name| name.split(' ').collect::<Vec<&str>>()).reduce(|common, words| {
        common.into_iter().zip(words).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    });
    common.unwrap_or_default().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_the_module() {
        let mib = |mib: u64| module_memory_gib(mib << 20);
        assert_eq!(
            [mib(1979), mib(3956), mib(7607), mib(15_656), mib(62_780), mib(125_772)],
            [2, 4, 8, 16, 64, 128]
        );
        assert_eq!((module_memory_gib(0), module_memory_gib(u64::MAX)), (1, 1 << 20));
        assert_eq!(
            common_words(["Jetson AGX Xavier 32GB", "Jetson AGX Xavier Industrial"].into_iter()),
            "Jetson AGX Xavier"
        );
    }
}
