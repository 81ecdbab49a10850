//! Detections and profiles as JSON.

use std::collections::BTreeMap;

use orinoco_api::{
    BOARD_PROFILE_SCHEMA, BOARD_PROFILES_SCHEMA, BOARD_SCHEMA, BoardProblem, BoardProfileJson,
    BoardProfileList, BoardProfileReport, BoardReport, EnergyCounterJson, ListedBoardProfile, PowerModeJson,
    ProfileDevfreqJson, ProfileModuleJson, ProfilePowerModeJson, ProfileRailJson, ProfileTripJson,
    ProfileZoneJson, RailJson, ThermalZoneJson,
};
use orinoco_board::{
    CounterReport, Detection, DevfreqNode, Fact, Module, PowerModeProfile, Problem, Profile, RailProfile,
    RailReport, ThermalZone, ThermalZoneProfile,
};
use orinoco_core::{Choice, Watts};

pub(super) fn board(found: &Detection) -> BoardReport {
    fn value<T: Clone>(fact: &Option<Fact<T>>) -> Option<T> {
        fact.as_ref().map(|fact| fact.value.clone())
    }
    let sources =
        found.sources().into_iter().filter_map(|(key, source)| Some((key.to_owned(), source?.to_owned())));
    let mode = value(&found.power_mode);
    BoardReport {
        schema: BOARD_SCHEMA.to_owned(),
        is_jetson: value(&found.is_jetson),
        model: value(&found.model),
        module: value(&found.module),
        soc: value(&found.soc),
        sku: value(&found.sku),
        carrier: value(&found.carrier),
        memory_gb: value(&found.memory_gib),
        memory_bytes: value(&found.memory_bytes),
        cpus: value(&found.cpus),
        cpus_online: value(&found.cpus_online),
        l4t: value(&found.l4t),
        boot_loader: value(&found.boot_loader),
        jetpack: value(&found.jetpack),
        kernel: value(&found.kernel),
        power_mode: mode.as_ref().map(|mode| mode.name.clone()),
        power_mode_id: mode.map(|mode| mode.id),
        power_modes: found
            .power_modes
            .iter()
            .map(|mode| PowerModeJson { id: mode.id, name: mode.name.clone() })
            .collect(),
        rails: found.rails.iter().map(rail).collect(),
        energy_counters: found.energy_counters.iter().map(counter).collect(),
        total_rail: value(&found.total_rail),
        total_covers: value(&found.total_covers),
        thermal_zones: found.thermal_zones.iter().map(zone).collect(),
        gpus: found.gpus.iter().map(|gpu| gpu.value.clone()).collect(),
        profile: found.profile.as_ref().map(|fact| fact.value.name.clone()),
        conflicts: found.conflicts.clone(),
        unknown: found.unknown.iter().map(|key| (*key).to_owned()).collect(),
        problems: found.problems.iter().map(problem).collect(),
        sources: sources.collect(),
    }
}

fn rail(rail: &RailReport) -> RailJson {
    RailJson {
        name: rail.name.clone(),
        chip: rail.chip.clone(),
        i2c: rail.i2c.map(|i2c| i2c.to_string()),
        channel: rail.channel,
        mv: rail.voltage.map(|voltage| voltage.milli()),
        ma: rail.current.map(|current| current.milli()),
        mw: rail.power.map(|power| power.milli()),
        warning_ma: rail.warning.map(|current| current.milli()),
        critical_ma: rail.critical.map(|current| current.milli()),
        unavailable: rail.unavailable.clone(),
        source: rail.source.clone(),
    }
}

fn counter(counter: &CounterReport) -> EnergyCounterJson {
    let CounterReport { name, unavailable, source } = counter.clone();
    EnergyCounterJson { name, unavailable, source }
}

fn zone(zone: &ThermalZone) -> ThermalZoneJson {
    ThermalZoneJson {
        name: zone.name.clone(),
        celsius: zone.temperature.map(|temperature| temperature.to_f64()),
        unavailable: zone.unavailable.clone(),
        source: zone.source.clone(),
    }
}

fn problem(problem: &Problem) -> BoardProblem {
    BoardProblem { key: problem.key.to_owned(), path: problem.path.clone(), cause: problem.cause.clone() }
}

pub(super) fn list(profiles: &[Profile]) -> BoardProfileList {
    let schema = BOARD_PROFILES_SCHEMA.to_owned();
    BoardProfileList { schema, profiles: profiles.iter().map(listed).collect() }
}

fn listed(of: &Profile) -> ListedBoardProfile {
    let of = profile(of);
    let mut memory_gb: Vec<u32> = of.modules.iter().map(|module| module.memory_gb).collect();
    memory_gb.sort_unstable();
    memory_gb.dedup();
    ListedBoardProfile {
        name: of.name,
        kind: of.kind,
        description: of.description,
        skus: of.modules.into_iter().map(|module| module.sku).collect(),
        memory_gb,
        peak: of.peak,
        peak_super: of.peak_super,
        peak_unit: of.peak_unit,
        power_min_w: of.power_min_w,
        power_max_w: of.power_max_w,
        power_max_super_w: of.power_max_super_w,
    }
}

pub(super) fn report(of: &Profile) -> BoardProfileReport {
    BoardProfileReport { schema: BOARD_PROFILE_SCHEMA.to_owned(), profile: profile(of) }
}

fn profile(of: &Profile) -> BoardProfileJson {
    let (soc, performance) = (of.soc.as_ref(), of.performance.as_ref());
    let (connections, total) = (of.connections.as_ref(), of.total.as_ref());
    let watts = |power: Option<Watts>| power.map(Watts::to_f64);
    let source_of = [
        ("soc", soc.map(|part| &part.source)),
        ("performance", performance.map(|part| &part.source)),
        ("connections", connections.map(|part| &part.source)),
        ("total", total.map(|part| &part.source)),
    ];
    let source_of: BTreeMap<String, String> =
        source_of.into_iter().filter_map(|(part, source)| Some((part.to_owned(), source?.clone()))).collect();
    BoardProfileJson {
        name: of.name.clone(),
        kind: of.kind.name().to_owned(),
        description: of.description.clone(),
        modules: of.modules.iter().map(module).collect(),
        soc: soc.map(|soc| soc.name.clone()),
        cpu: soc.and_then(|soc| soc.cpu.clone()),
        cpu_cores: soc.and_then(|soc| soc.cpu_cores),
        gpu: soc.and_then(|soc| soc.gpu.clone()),
        sm: soc.and_then(|soc| soc.sm),
        cuda_cores: soc.and_then(|soc| soc.cuda_cores),
        dla: soc.and_then(|soc| soc.dla),
        codecs: soc.map(|soc| soc.codecs.clone()).unwrap_or_default(),
        peak: performance.and_then(|part| part.peak),
        peak_super: performance.and_then(|part| part.peak_super),
        peak_unit: performance.map(|part| part.unit.clone()),
        power_min_w: watts(performance.and_then(|part| part.power_min)),
        power_max_w: watts(performance.and_then(|part| part.power_max)),
        power_max_super_w: watts(performance.and_then(|part| part.power_max_super)),
        pcie: connections.and_then(|part| part.pcie.clone()),
        ethernet: connections.and_then(|part| part.ethernet.clone()),
        rails: of.rails.iter().map(profile_rail).collect(),
        total_rail: total.and_then(|total| total.rail.clone()),
        total_covers: total.map(|total| total.covers.clone()),
        thermal_zones: of.thermal_zones.iter().map(profile_zone).collect(),
        devfreq: of.devfreq.iter().map(devfreq).collect(),
        power_modes: of.power_modes.iter().map(power_mode).collect(),
        source_of,
        sources: of.sources.iter().map(|source| (source.name.clone(), source.text.clone())).collect(),
    }
}

fn module(module: &Module) -> ProfileModuleJson {
    ProfileModuleJson {
        sku: module.sku.clone(),
        name: module.name.clone(),
        memory_gb: module.memory_gib,
        source: module.source.clone(),
    }
}

fn profile_rail(rail: &RailProfile) -> ProfileRailJson {
    ProfileRailJson {
        name: rail.name.clone(),
        chip: rail.chip.clone(),
        bus: rail.bus,
        address: rail.address,
        channel: rail.channel,
        shunt_micro_ohms: rail.shunt.map(|shunt| shunt.micro()),
        unlabelled: rail.is_unlabelled,
        included_in: rail.included_in.clone(),
        source: rail.source.clone(),
    }
}

fn profile_zone(zone: &ThermalZoneProfile) -> ProfileZoneJson {
    let trips = zone.trips.iter();
    let trips = trips.map(|trip| ProfileTripJson {
        kind: trip.kind.name().to_owned(),
        celsius: trip.temperature.to_f64(),
    });
    ProfileZoneJson {
        name: zone.name.clone(),
        other_names: zone.other_names.clone(),
        trips: trips.collect(),
        source: zone.source.clone(),
    }
}

fn devfreq(node: &DevfreqNode) -> ProfileDevfreqJson {
    ProfileDevfreqJson { unit: node.unit.clone(), node: node.node.clone(), source: node.source.clone() }
}

fn power_mode(mode: &PowerModeProfile) -> ProfilePowerModeJson {
    ProfilePowerModeJson {
        name: mode.name.clone(),
        id: mode.id_hint,
        is_super: mode.is_super,
        watts: mode.budget.map(Watts::to_f64),
        cpu_cores: mode.cpu_cores,
        cpu_mhz: mode.cpu_mhz,
        gpu_mhz: mode.gpu_mhz,
        gpu_mask: mode.gpu_mask,
        source: mode.source.clone(),
    }
}
