//! Reads the file of a profile into its checked form.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use orinoco_config::{Document, Faults, TableReader, Vars};
use orinoco_core::{Celsius, Choice, Ohms, Watts, codes};

use crate::profile::{
    BoardKind, Connections, DevfreqNode, Module, Performance, PowerModeProfile, Profile, RailProfile, Soc,
    Source, ThermalZoneProfile, TotalPower, TripKind, TripPoint,
};

/// Largest memory of a module, in GiB: four times that of the largest one known.
const MEMORY_GIB_MAX: i64 = 512;
/// Largest number of CPU cores, GPU units and the like.
const COUNT_MAX: i64 = 100_000;
/// Highest clock in MHz.
const MHZ_MAX: f64 = 10_000.0;
/// Highest power of a module, in watts.
const WATTS_MAX: f64 = 1_000.0;
/// Largest shunt resistor, in microohms: 1 ohm.
const SHUNT_MICRO_OHMS_MAX: i64 = 1_000_000;
/// Temperatures at which a trip point can lie, in degrees Celsius.
const TRIP_CELSIUS: RangeInclusive<f64> = 0.0..=150.0;
/// I2C addresses that are not reserved (UM10204, section 3.1.12).
const I2C_ADDRESSES: RangeInclusive<i64> = 0x08..=0x77;

/// Reads the profile in `text`. `file` names it in faults, and its stem is the profile's name.
pub(crate) fn read(file: &str, text: &str) -> Result<Profile, Faults> {
    let path = Path::new(file);
    let doc = Document::from_text(path, text, &Vars::new())?;
    let top = doc.reader();
    top.version();
    let sources = read_sources(&top);
    let profile = {
        let named = SourceNames { sources: &sources, used: RefCell::default() };
        let profile = read_profile(&top, path, &named);
        named.check_all_used(&top);
        profile
    };
    top.finish();
    doc.finish(Profile { sources, ..profile })
}

fn read_profile(top: &TableReader<'_>, path: &Path, named: &SourceNames<'_>) -> Profile {
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let name = top.text_required("name");
    if name != stem {
        top.fault(
            "name",
            &codes::KEY_RANGE,
            format!("it is `{name}`"),
            format!("write the file's: `{stem}`"),
        );
    }
    let rails: Vec<RailProfile> =
        top.tables("rail").into_iter().map(|table| read_rail(table, named)).collect();
    let profile = Profile {
        name,
        kind: choice_required(top, "kind").unwrap_or(BoardKind::Host),
        description: top.text_required("description"),
        modules: top.tables("module").into_iter().map(|table| read_module(table, named)).collect(),
        model_names: top.texts("model_names"),
        soc: optional(top, "soc", |table| read_soc(table, named)),
        performance: optional(top, "performance", |table| read_performance(table, named)),
        connections: optional(top, "connections", |table| read_connections(table, named)),
        total: optional(top, "total", |table| read_total(table, &rails, named)),
        rails,
        thermal_zones: top.tables("thermal_zone").into_iter().map(|table| read_zone(table, named)).collect(),
        devfreq: top.tables("devfreq").into_iter().map(|table| read_devfreq(table, named)).collect(),
        power_modes: top.tables("power_mode").into_iter().map(|table| read_mode(table, named)).collect(),
        sources: Vec::new(),
    };
    check_unique(top, "module", profile.modules.iter().map(|module| module.sku.clone()));
    check_unique(top, "rail", profile.rails.iter().map(|rail| rail.name.clone()));
    check_included(top, &profile.rails);
    let places = profile
        .rails
        .iter()
        .filter_map(|rail| Some(format!("{}-{:04x} channel {}", rail.bus?, rail.address, rail.channel)));
    check_unique(top, "rail", places);
    check_unique(top, "thermal_zone", profile.thermal_zones.iter().map(|zone| zone.name.clone()));
    let modes = profile.power_modes.iter();
    check_unique(top, "power_mode", modes.map(|mode| format!("{} (super: {})", mode.name, mode.is_super)));
    if (profile.kind == BoardKind::Jetson) == profile.modules.is_empty() {
        top.missing("module", "a Jetson, and nothing else, has a [[module]] with its SKU");
    }
    profile
}

/// Refuses rails that are included in one that the profile does not have, or that is itself included in another.
fn check_included(top: &TableReader<'_>, rails: &[RailProfile]) {
    let is_whole = |name: &str| rails.iter().any(|rail| rail.name == name && rail.included_in.is_none());
    for name in rails.iter().filter_map(|rail| rail.included_in.as_deref()).filter(|name| !is_whole(name)) {
        let cause = format!("`{name}` is not a rail that is included in no other");
        top.fault("rail", &codes::REFERENCE, cause, "name such a rail in `included_in`, or leave it out");
    }
}

/// Sources by name, of which each part of a profile names one.
struct SourceNames<'a> {
    sources: &'a [Source],
    used: RefCell<BTreeSet<String>>,
}

impl SourceNames<'_> {
    /// Reads the name of the source of a table.
    fn of(&self, table: &TableReader<'_>) -> String {
        let name = table.text_required("source");
        if table.has("source") && !self.sources.iter().any(|source| source.name == name) {
            let known: Vec<&str> = self.sources.iter().map(|source| source.name.as_str()).collect();
            let next = format!("use one of {}, or add a [[source]]", known.join(", "));
            table.fault("source", &codes::REFERENCE, format!("`{name}` is not defined"), next);
        }
        self.used.borrow_mut().insert(name.clone());
        name
    }

    fn check_all_used(&self, top: &TableReader<'_>) {
        let used = self.used.borrow();
        for source in self.sources.iter().filter(|source| !used.contains(&source.name)) {
            let cause = format!("nothing refers to `{}`", source.name);
            let next = "remove it, or refer to it in the entries that it supports";
            top.fault("source", &codes::REFERENCE, cause, next);
        }
    }
}

fn read_sources(top: &TableReader<'_>) -> Vec<Source> {
    let mut sources = Vec::new();
    for table in top.tables("source") {
        sources.push(Source { name: table.text_required("name"), text: table.text_required("text") });
        table.finish();
    }
    if sources.is_empty() {
        top.missing("source", "add a [[source]] with a name and the title of the document");
    }
    check_unique(top, "source", sources.iter().map(|source| source.name.clone()));
    sources
}

fn read_module(table: TableReader<'_>, named: &SourceNames<'_>) -> Module {
    let sku = table.text_required("sku");
    if !is_sku(&sku) {
        let next = "write it as \"p3767-0005\"";
        table.fault("sku", &codes::KEY_RANGE, format!("`{sku}` is not a part number with a SKU"), next);
    }
    let module = Module {
        sku,
        name: table.text_required("name"),
        memory_gib: required(&table, "memory_gib", 1..=MEMORY_GIB_MAX),
        source: named.of(&table),
    };
    table.finish();
    module
}

/// Whether this is a part number with its SKU: `p3767-0005`.
fn is_sku(text: &str) -> bool {
    let digits = |part: &str| part.len() == 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = text.strip_prefix('p').and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(part, sku)| digits(part) && digits(sku))
}

fn read_soc(table: &TableReader<'_>, named: &SourceNames<'_>) -> Soc {
    Soc {
        name: table.text_required("name"),
        cpu: table.text("cpu"),
        cpu_cores: count(table, "cpu_cores"),
        gpu: table.text("gpu"),
        sm: count(table, "sm"),
        cuda_cores: count(table, "cuda_cores"),
        dla: count(table, "dla"),
        codecs: table.texts("codecs"),
        source: named.of(table),
    }
}

fn read_performance(table: &TableReader<'_>, named: &SourceNames<'_>) -> Performance {
    let peak = |key| table.float(key, 0.0..=1e6);
    let power_min = watts(table, "power_min_w");
    let power_max = watts(table, "power_max_w");
    let power_max_super = watts(table, "power_max_super_w");
    let ascending: Vec<Watts> = [power_min, power_max, power_max_super].into_iter().flatten().collect();
    if !ascending.is_sorted() {
        let next = "write power_min_w, power_max_w and power_max_super_w in ascending order";
        table.fault("power_max_w", &codes::KEY_RANGE, "the power range is not ascending", next);
    }
    Performance {
        peak: peak("peak"),
        peak_super: peak("peak_super"),
        unit: table.text("unit").unwrap_or_default(),
        power_min,
        power_max,
        power_max_super,
        source: named.of(table),
    }
}

fn read_connections(table: &TableReader<'_>, named: &SourceNames<'_>) -> Connections {
    Connections { pcie: table.text("pcie"), ethernet: table.text("ethernet"), source: named.of(table) }
}

fn read_rail(table: TableReader<'_>, named: &SourceNames<'_>) -> RailProfile {
    let shunt = table.integer("shunt_micro_ohms", 1..=SHUNT_MICRO_OHMS_MAX);
    let rail = RailProfile {
        name: table.text_required("name"),
        chip: table.text_required("chip"),
        bus: count(&table, "bus"),
        address: required::<u8>(&table, "address", I2C_ADDRESSES),
        channel: required(&table, "channel", 1..=3),
        shunt: shunt.map(Ohms::from_micro),
        is_unlabelled: table.boolean("unlabelled").unwrap_or_default(),
        included_in: table.text("included_in"),
        source: named.of(&table),
    };
    table.finish();
    rail
}

fn read_total(table: &TableReader<'_>, rails: &[RailProfile], named: &SourceNames<'_>) -> TotalPower {
    let rail = table.text("rail");
    if let Some(name) = rail.as_deref().filter(|name| !rails.iter().any(|rail| rail.name == *name)) {
        let known: Vec<&str> = rails.iter().map(|rail| rail.name.as_str()).collect();
        let next = format!("use one of {}", known.join(", "));
        table.fault("rail", &codes::REFERENCE, format!("`{name}` is not a rail"), next);
    }
    TotalPower { rail, covers: table.text_required("covers"), source: named.of(table) }
}

fn read_zone(table: TableReader<'_>, named: &SourceNames<'_>) -> ThermalZoneProfile {
    let trips: Vec<TripPoint> = table.tables("trip").into_iter().map(read_trip).collect();
    if !trips.is_sorted_by(|a, b| a.temperature < b.temperature) {
        table.fault("trip", &codes::KEY_RANGE, "the trip points are not ascending", "write the lowest first");
    }
    let zone = ThermalZoneProfile {
        name: table.text_required("name"),
        other_names: table.texts("other_names"),
        trips,
        source: named.of(&table),
    };
    table.finish();
    zone
}

fn read_trip(table: TableReader<'_>) -> TripPoint {
    if !table.has("celsius") {
        table.missing("celsius", "add it");
    }
    let temperature = table.float("celsius", TRIP_CELSIUS).map_or(Celsius::ZERO, Celsius::from_f64);
    let trip = TripPoint { kind: choice_required(&table, "kind").unwrap_or(TripKind::Hot), temperature };
    table.finish();
    trip
}

fn read_devfreq(table: TableReader<'_>, named: &SourceNames<'_>) -> DevfreqNode {
    let node = DevfreqNode {
        unit: table.text_required("unit"),
        node: table.text_required("node"),
        source: named.of(&table),
    };
    table.finish();
    node
}

fn read_mode(table: TableReader<'_>, named: &SourceNames<'_>) -> PowerModeProfile {
    let mhz = |key| table.float(key, 1.0..=MHZ_MAX);
    let mode = PowerModeProfile {
        name: table.text_required("name"),
        id_hint: count(&table, "id"),
        is_super: table.boolean("super").unwrap_or_default(),
        budget: watts(&table, "watts"),
        cpu_cores: count(&table, "cpu_cores"),
        cpu_mhz: mhz("cpu_mhz"),
        gpu_mhz: mhz("gpu_mhz"),
        gpu_mask: count(&table, "gpu_mask"),
        source: named.of(&table),
    };
    table.finish();
    mode
}

/// Reads a table that may be missing.
fn optional<T>(top: &TableReader<'_>, key: &'static str, read: impl Fn(&TableReader<'_>) -> T) -> Option<T> {
    // Asking makes the key a known one, also where it is not there.
    let table = top.table(key);
    if !top.has(key) {
        return None;
    }
    let value = read(&table);
    table.finish();
    Some(value)
}

fn count(table: &TableReader<'_>, key: &'static str) -> Option<u32> {
    table.integer(key, 0..=COUNT_MAX).and_then(|n| u32::try_from(n).ok())
}

fn watts(table: &TableReader<'_>, key: &'static str) -> Option<Watts> {
    table.float(key, 0.1..=WATTS_MAX).map(Watts::from_f64)
}

/// Reads a whole number that must be there.
fn required<N: TryFrom<i64> + Default>(
    table: &TableReader<'_>,
    key: &'static str,
    range: RangeInclusive<i64>,
) -> N {
    if !table.has(key) {
        table.missing(key, "add it");
    }
    table.integer(key, range).and_then(|n| N::try_from(n).ok()).unwrap_or_default()
}

fn choice_required<T: Choice>(table: &TableReader<'_>, key: &'static str) -> Option<T> {
    if !table.has(key) {
        table.missing(key, "add it");
    }
    table.choice_of(key)
}

fn check_unique(top: &TableReader<'_>, key: &'static str, names: impl Iterator<Item = String>) {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name.clone()) {
            top.fault(key, &codes::REFERENCE, format!("`{name}` is listed twice"), "remove one");
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::read;

    const HEAD: &str = "version = 1\nname = 'x'\nkind = 'jetson'\ndescription = 'd'\n\
        [[source]]\nname = 's'\ntext = 't'\n[[module]]\nsku = 'p1234-0001'\nname = 'M'\nmemory_gib = 8\nsource = 's'\n";

    fn check(body: &str, expected: Expect) {
        let text = match read("x.toml", &format!("{HEAD}{body}")) {
            Ok(profile) => format!("{} {:?}", profile.name, profile.modules[0].part()),
            Err(faults) => faults.to_string(),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn all_faults_of_a_profile_come_at_once() {
        check("", expect![[r#"x "p1234""#]]);
        check(
            "[[rail]]\nname = 'A'\nchip = 'ina3221'\naddress = 0x40\nchannel = 9\nsource = 'q'\n\
             [total]\nrail = 'B'\ncovers = 'c'\nsource = 's'\n\
             [[thermal_zone]]\nname = 'z'\nsource = 's'\n\
             [[thermal_zone.trip]]\nkind = 'hot'\ncelsius = 99\n[[thermal_zone.trip]]\nkind = 'mild'\ncelsius = 90\n\
             [performance]\nunit = 'TOPS'\npower_min_w = 25\npower_max_w = 10\nsource = 's'\nfoo = 1\n",
            expect![[r#"
                x.toml:17: key `rail[0].channel`: 9 is outside its range; choose 1 to 3
                x.toml:18: key `rail[0].source`: `q` is not defined; use one of s, or add a [[source]]
                x.toml:35: key `performance.power_max_w`: the power range is not ascending; write power_min_w, power_max_w and power_max_super_w in ascending order
                x.toml:37: key `performance.foo`: unknown key; use one of power_min_w, power_max_w, power_max_super_w, peak, peak_super, unit, source
                x.toml:20: key `total.rail`: `B` is not a rail; use one of A
                x.toml:30: key `thermal_zone[0].trip[1].kind`: `mild` is not one of the choices; use one of active, passive, hot, critical
                x.toml:26: key `thermal_zone[0].trip`: the trip points are not ascending; write the lowest first"#]],
        );
        check(
            "[[module]]\nsku = 'P1234-1'\nname = 'N'\nmemory_gib = 0\nsource = 's'\n\
             [[module]]\nsku = 'p1234-0001'\nname = 'N'\nsource = 's'\n",
            expect![[r#"
                x.toml:14: key `module[1].sku`: `P1234-1` is not a part number with a SKU; write it as "p3767-0005"
                x.toml:16: key `module[1].memory_gib`: 0 is outside its range; choose 1 to 512
                x.toml:18: key `module[2].memory_gib`: it is missing; add it
                x.toml:8: key `module`: `p1234-0001` is listed twice; remove one"#]],
        );
        let rail = |name: &str, address: u8, within: &str| {
            format!(
                "[[rail]]\nname = '{name}'\nchip = 'ina238'\naddress = {address}\nchannel = 1\nincluded_in = '{within}'\nsource = 's'\n"
            )
        };
        check(
            &[rail("A", 64, "B"), rail("B", 65, "C")].concat(),
            expect![[r#"
                x.toml:13: key `rail`: `B` is not a rail that is included in no other; name such a rail in `included_in`, or leave it out
                x.toml:13: key `rail`: `C` is not a rail that is included in no other; name such a rail in `included_in`, or leave it out"#]],
        );
        check(
            "[[source]]\nname = 'u'\ntext = 'unused'\n",
            expect![
                "x.toml:5: key `source`: nothing refers to `u`; remove it, or refer to it in the entries that it supports"
            ],
        );
    }
}
