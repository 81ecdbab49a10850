//! The profiles of this binary. Each is one file in `boards/profiles` and one line here.

mod read;

use std::sync::LazyLock;

use orinoco_core::{Diagnosis, codes};

use crate::profile::Profile;

/// Minimum similarity (Jaro-Winkler) at which a profile is suggested for a name that no profile has.
const SUGGEST_MIN: f64 = 0.7;

macro_rules! files {
    ($($file:literal)*) => {
        [$(($file, include_str!(concat!("../../../boards/profiles/", $file)))),*]
    };
}

/// Files of the profiles with their text, in the order in which they are listed.
const FILES: [(&str, &str); 16] = files! {
    "agx-thor-t5000.toml"
    "agx-thor-t4000.toml"
    "agx-orin-64gb.toml"
    "agx-orin-32gb.toml"
    "agx-orin-devkit-32gb.toml"
    "orin-nx-16gb.toml"
    "orin-nx-8gb.toml"
    "orin-nano-8gb.toml"
    "orin-nano-4gb.toml"
    "agx-xavier.toml"
    "xavier-nx.toml"
    "tx2.toml"
    "nano.toml"
    "sbsa.toml"
    "devhost.toml"
    "virtual.toml"
};

static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let read = |(file, text): &(&str, &str)| match read::read(file, text) {
        Ok(profile) => profile,
        Err(faults) => panic!("a profile of this binary is wrong:\n{faults}"),
    };
    FILES.iter().map(read).collect()
});

/// Returns every profile that this binary knows.
pub fn profiles() -> &'static [Profile] {
    &PROFILES
}

/// Returns the profile with this name.
///
/// # Errors
/// `E0111` where there is none; the next step names the most similar one.
pub fn profile_named(name: &str) -> Result<&'static Profile, Diagnosis> {
    if let Some(found) = profiles().iter().find(|profile| profile.name == name) {
        return Ok(found);
    }
    let similar = profiles().iter().map(|profile| (strsim::jaro_winkler(&profile.name, name), profile));
    let nearest = similar.filter(|(score, _)| *score > SUGGEST_MIN).max_by(|a, b| a.0.total_cmp(&b.0));
    let next = match nearest {
        Some((_, profile)) => format!("did you mean `{}`?", profile.name),
        None => "run `orinoco board list` to list them".to_owned(),
    };
    Err(Diagnosis::new(&codes::BOARD_PROFILE, name, "no profile has this name", next))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::profile::{BoardKind, TripKind};

    #[test]
    fn every_file_is_read_and_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../boards/profiles");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
            .collect();
        found.sort();
        let mut listed: Vec<&str> = FILES.iter().map(|(file, _)| *file).collect();
        listed.sort();
        assert_eq!(found, listed, "a file of boards/profiles has no line, or a line no file");
        for (file, text) in FILES {
            if let Err(faults) = read::read(file, text) {
                panic!("{faults}");
            }
        }
    }

    #[test]
    fn each_sku_is_in_one_profile() {
        let mut skus = BTreeMap::new();
        for profile in profiles() {
            for module in &profile.modules {
                let earlier = skus.insert(&module.sku, &profile.name);
                assert_eq!(earlier, None, "{} is in {} as well", module.sku, profile.name);
            }
        }
        assert!(skus.len() >= 20, "{skus:?}");
    }

    #[test]
    fn every_profile_names_its_sources_in_a_comment() {
        for (file, text) in FILES {
            let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
            assert!(head.iter().any(|line| line.contains("Sources:")), "{file} begins without its sources");
        }
    }

    #[test]
    fn a_jetson_says_what_its_total_covers_and_has_a_mode() {
        for profile in profiles().iter().filter(|profile| profile.kind == BoardKind::Jetson) {
            let name = &profile.name;
            assert!(profile.total.is_some() && !profile.rails.is_empty(), "{name}");
            assert!(!profile.power_modes.is_empty() && !profile.thermal_zones.is_empty(), "{name}");
            let soc = profile.soc.as_ref().unwrap_or_else(|| panic!("{name} has no SoC"));
            assert!(soc.sm.is_some() && soc.cpu_cores.is_some() && soc.dla.is_some(), "{name}");
            for mode in &profile.power_modes {
                assert!(
                    mode.cpu_cores.is_none_or(|cores| Some(cores) <= soc.cpu_cores),
                    "{name} {}",
                    mode.name
                );
            }
            let rail = profile.total.as_ref().and_then(|total| total.rail.as_ref());
            assert_eq!(rail.is_none(), name.starts_with("agx-orin") || name == "agx-xavier", "{name}");
        }
    }

    /// The absence of a figure must be a statement of the file, and not an oversight.
    #[test]
    fn a_jetson_has_shunts_trip_points_and_devfreq_nodes_or_says_that_no_source_has_them() {
        for (profile, (file, text)) in profiles().iter().zip(FILES) {
            if profile.kind != BoardKind::Jetson {
                continue;
            }
            let head: Vec<&str> =
                text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
            let head = head.join(" ").to_lowercase();
            let check = |is_known: bool, what: &str| {
                let statement = format!("{what}: no public source known");
                assert_ne!(is_known, head.contains(&statement), "{file}: are {what} known or not?");
            };
            let trips: Vec<TripKind> =
                profile.thermal_zones.iter().flat_map(|zone| &zone.trips).map(|trip| trip.kind).collect();
            check(profile.rails.iter().all(|rail| rail.shunt.is_some()), "shunts");
            check(trips.contains(&TripKind::Passive) && trips.contains(&TripKind::Critical), "trip points");
            check(profile.devfreq.iter().any(|node| node.unit == "gpu"), "devfreq nodes");
        }
    }

    #[test]
    fn a_name_that_no_profile_has_is_corrected() {
        let next = |name| profile_named(name).expect_err("there is none").next;
        assert_eq!(profile_named("tx2").expect("it is there").name, "tx2");
        assert_eq!(next("orin-nano-8g"), "did you mean `orin-nano-8gb`?");
        assert!(next("agx-orin").starts_with("did you mean `agx-orin-"), "{}", next("agx-orin"));
        assert_eq!(next("zzz"), "run `orinoco board list` to list them");
    }

    #[test]
    fn a_change_of_the_gpu_mask_needs_a_reboot() {
        let profile = profiles().iter().find(|profile| profile.name == "orin-nano-8gb").expect("a profile");
        let mode = |name: &str, is_super| {
            let named = |mode: &&crate::PowerModeProfile| mode.name == name && mode.is_super == is_super;
            profile.power_modes.iter().find(named).unwrap_or_else(|| panic!("{name} is missing"))
        };
        let (seven, fifteen, full) = (mode("7W", false), mode("15W", false), mode("MAXN_SUPER", true));
        assert_eq!(fifteen.needs_reboot_to(seven), Some(true));
        assert_eq!(mode("15W", true).needs_reboot_to(full), Some(false));
        let unknown = crate::PowerModeProfile { gpu_mask: None, ..full.clone() };
        assert_eq!(unknown.needs_reboot_to(full), None);
    }
}
