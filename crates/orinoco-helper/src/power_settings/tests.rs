use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::protocol::REQUEST_BYTES_MAX;

const GPU: &str = "sys/class/devfreq/17000000.gpu/max_freq";
const CPU: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
const SAVED: &str = "run/orinoco-helper/saved.json";

/// Makes a synthetic board with two power modes that need no reboot, one that does, a GPU and a group of cores. Its `nvpmodel` sets
/// clocks of its own, as the real one does.
fn board() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path();
    put(root, "etc/passwd", "root:x:0:0::/root:/bin/sh\norinoco:x:987:987::/var/lib/orinoco:/bin/false\n");
    put(
        root,
        "etc/nvpmodel.conf",
        "< POWER_MODEL ID=0 NAME=15W >\nTPC_POWER_GATING TPC_PG_MASK 240\n< POWER_MODEL ID=1 NAME=25W >\n\
         TPC_POWER_GATING TPC_PG_MASK 240\n< POWER_MODEL ID=3 NAME=7W >\nTPC_POWER_GATING TPC_PG_MASK 252\n",
    );
    put(root, "var/lib/nvpmodel/status", "pmode:0001\n");
    put(
        root,
        "usr/sbin/nvpmodel",
        "#!/bin/sh\n# Synthetic nvpmodel.\nroot=${0%/usr/sbin/nvpmodel}\n\
         [ \"$1\" = -m ] || exit 1\ncase $2 in 0) gpu=612000000 ;; 1) gpu=918000000 ;; *) exit 1 ;; esac\n\
         echo \"pmode:000$2\" > \"$root/var/lib/nvpmodel/status\"\n\
         echo $gpu > \"$root/sys/class/devfreq/17000000.gpu/max_freq\"\n",
    );
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(root.join("usr/sbin/nvpmodel"), executable).expect("set");
    put(
        root,
        "sys/class/devfreq/17000000.gpu/available_frequencies",
        "306000000 612000000 918000000 1020000000\n",
    );
    put(root, GPU, "918000000\n");
    put(
        root,
        "sys/devices/system/cpu/cpufreq/policy0/scaling_available_frequencies",
        "115200 729600 1510400\n",
    );
    put(root, CPU, "1510400\n");
    dir
}

fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

fn get(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join(name)).expect("readable").trim().to_owned()
}

fn settings(dir: &TempDir) -> PowerSettings {
    PowerSettings::new(Sysroot::at(dir.path()))
}

fn done(settings: &mut PowerSettings, line: &str) -> PowerState {
    match settings.answer(line.as_bytes()) {
        Answer::Done(state) => state,
        Answer::Refused(refusal) => panic!("{line}: {}", refusal.text),
    }
}

fn refused(settings: &mut PowerSettings, line: &str) -> RefusalReason {
    match settings.answer(line.as_bytes()) {
        Answer::Done(_) => panic!("{line} was done"),
        Answer::Refused(refusal) => refusal.reason,
    }
}

/// Every file of a board with what it holds.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path()) {
            match entry.is_dir() {
                true => folders.push(entry),
                false => {
                    let name = entry.strip_prefix(root).expect("below").display().to_string();
                    found.insert(name, fs::read(&entry).expect("readable"));
                }
            }
        }
    }
    found
}

#[test]
fn what_is_set_is_restored_and_nothing_is_left() {
    let dir = board();
    let before = files(dir.path());
    let mut settings = settings(&dir);
    let state = done(&mut settings, r#"{"verb":"status"}"#);
    assert!(!state.is_changed);
    let gpu = &state.clocks[0];
    assert_eq!((gpu.domain.as_str(), gpu.max), ("devfreq/17000000.gpu", 918_000_000));
    // The mode allows no more than 918 MHz, whatever the driver could.
    assert_eq!(gpu.available, [306_000_000, 612_000_000, 918_000_000]);
    let modes: Vec<_> =
        state.power_modes.iter().map(|mode| (mode.name.as_str(), mode.is_current, mode.can_be_set)).collect();
    assert_eq!(modes, [("15W", false, true), ("25W", true, true), ("7W", false, false)]);

    let state =
        done(&mut settings, r#"{"verb":"set-clock","domain":"devfreq/17000000.gpu","hertz":306000000}"#);
    assert!(state.is_changed && get(dir.path(), GPU) == "306000000");
    assert_eq!(state.clocks[0].available.len(), 3, "what was allowed before still is");
    done(&mut settings, r#"{"verb":"set-clock","domain":"cpufreq/policy0","hertz":729600000}"#);
    assert_eq!(get(dir.path(), CPU), "729600");
    let state = done(&mut settings, r#"{"verb":"set-power-mode","name":"15W"}"#);
    assert_eq!(get(dir.path(), "var/lib/nvpmodel/status"), "pmode:0000");
    assert_eq!(state.clocks[0].available, [306_000_000, 612_000_000], "the new mode allows less");
    assert_eq!(
        get(dir.path(), SAVED),
        r#"{"power_mode":"25W","clocks":[{"domain":"devfreq/17000000.gpu","hertz":918000000},{"domain":"cpufreq/policy0","hertz":1510400000}]}"#
    );

    assert!(!done(&mut settings, r#"{"verb":"restore"}"#).is_changed);
    let trimmed = |files: BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
        files.into_iter().map(|(name, bytes)| (name, bytes.trim_ascii().to_vec())).collect()
    };
    assert_eq!(trimmed(files(dir.path())), trimmed(before));
}

/// Lets a cooling device of the cores lower their clock as the kernel does: the file has the least of what is allowed.
fn throttle(root: &Path, state: u32, khz: &str) {
    put(root, "sys/class/thermal/cooling_device0/type", "cpufreq-cpu0\n");
    put(root, "sys/class/thermal/cooling_device0/max_state", "3\n");
    put(root, "sys/class/thermal/cooling_device0/cur_state", &format!("{state}\n"));
    put(root, CPU, khz);
}

#[test]
fn a_throttled_clock_is_not_saved_as_what_was_set() {
    let dir = board();
    throttle(dir.path(), 1, "729600\n");
    let before = files(dir.path());
    let mut settings = settings(&dir);
    let state = done(&mut settings, r#"{"verb":"status"}"#);
    assert_eq!(state.blocked_by.as_deref(), Some("cpufreq-cpu0"));
    assert!(state.clocks.is_empty() && state.power_modes.iter().all(|mode| !mode.can_be_set), "{state:?}");
    for line in [
        r#"{"verb":"set-power-mode","name":"15W"}"#,
        r#"{"verb":"set-clock","domain":"devfreq/17000000.gpu","hertz":306000000}"#,
        r#"{"verb":"set-clock","domain":"cpufreq/policy0","hertz":729600000}"#,
    ] {
        assert_eq!(refused(&mut settings, line), RefusalReason::Throttled, "{line}");
        assert_eq!(files(dir.path()), before, "{line}");
    }

    throttle(dir.path(), 0, "1510400\n");
    let gpu = r#"{"verb":"set-clock","domain":"devfreq/17000000.gpu","hertz":306000000}"#;
    assert_eq!(done(&mut settings, gpu).blocked_by, None);
    // From now on what was set is known, however much the kernel throttles.
    throttle(dir.path(), 1, "729600\n");
    let state = done(&mut settings, r#"{"verb":"status"}"#);
    assert_eq!(
        (state.clocks[1].max, state.clocks[1].available.len(), state.blocked_by),
        (729_600_000, 3, None)
    );
    done(&mut settings, r#"{"verb":"set-clock","domain":"cpufreq/policy0","hertz":115200000}"#);
    assert_eq!(get(dir.path(), CPU), "115200");
    settings.restore().expect("restored");
    assert_eq!((get(dir.path(), GPU), get(dir.path(), CPU)), ("918000000".into(), "1510400".into()));
}

#[test]
fn a_clock_that_is_only_throttled_to_a_value_is_written() {
    let dir = board();
    let mut settings = settings(&dir);
    done(&mut settings, r#"{"verb":"set-clock","domain":"devfreq/17000000.gpu","hertz":306000000}"#);
    // What the kernel shows has a new line, which tells whether the helper has written.
    throttle(dir.path(), 1, "729600\n");
    done(&mut settings, r#"{"verb":"set-clock","domain":"cpufreq/policy0","hertz":729600000}"#);
    let written = fs::read_to_string(dir.path().join(CPU)).expect("readable");
    assert_eq!(written, "729600", "or the clock rises when the throttling ends");
}

#[test]
fn limits_of_a_power_mode_that_is_set_while_the_kernel_throttles_are_read_later() {
    let dir = board();
    let mut settings = settings(&dir);
    done(&mut settings, r#"{"verb":"set-clock","domain":"devfreq/17000000.gpu","hertz":306000000}"#);
    throttle(dir.path(), 1, "729600\n");
    let domains =
        |state: PowerState| -> Vec<String> { state.clocks.into_iter().map(|clock| clock.domain).collect() };
    let state = done(&mut settings, r#"{"verb":"set-power-mode","name":"15W"}"#);
    assert_eq!(domains(state), ["devfreq/17000000.gpu"], "the limit of the cores is not known");
    let set = r#"{"verb":"set-clock","domain":"cpufreq/policy0","hertz":115200000}"#;
    assert_eq!(refused(&mut settings, set), RefusalReason::Throttled);
    throttle(dir.path(), 0, "1510400\n");
    assert_eq!(done(&mut settings, set).clocks[1].available.len(), 3);
}

#[test]
fn another_process_restores_what_a_killed_one_left() {
    let dir = board();
    done(&mut settings(&dir), r#"{"verb":"set-power-mode","name":"15W"}"#);
    let mut next = settings(&dir);
    done(&mut next, r#"{"verb":"set-clock","domain":"devfreq/17000000.gpu","hertz":306000000}"#);
    next.restore().expect("restored");
    let restored = (get(dir.path(), "var/lib/nvpmodel/status"), get(dir.path(), GPU));
    assert_eq!(restored, ("pmode:0001".to_owned(), "918000000".to_owned()));
    assert!(!dir.path().join(SAVED).exists());
    next.restore().expect("nothing to do");
}

#[test]
fn values_that_the_board_does_not_list_are_refused() {
    let dir = board();
    let before = files(dir.path());
    let mut settings = settings(&dir);
    let mut check = |line: &str, expected: RefusalReason| {
        assert_eq!(refused(&mut settings, line), expected, "{line}");
        assert_eq!(files(dir.path()), before, "{line}");
    };
    use RefusalReason::{NeedsReboot, NotARequest, NotListed};
    check(r#"{"verb":"set-power-mode","name":"7W"}"#, NeedsReboot);
    for name in ["MAXN", "", "15w", "0", "-m", "15W\n", "../15W"] {
        let line = serde_json::json!({"verb": "set-power-mode", "name": name}).to_string();
        check(&line, NotListed);
    }
    for (domain, hertz) in [
        ("devfreq/17000000.gpu", 0),
        ("devfreq/17000000.gpu", 306_000_001),
        ("devfreq/17000000.gpu", 1_020_000_000),
        ("cpufreq/policy0", 729_600),
        ("cpufreq/policy1", 729_600_000),
        ("17000000.gpu", 306_000_000),
        ("devfreq/../devfreq/17000000.gpu", 306_000_000),
        ("devfreq/17000000.gpu/max_freq", 306_000_000),
        ("", 306_000_000),
    ] {
        let line = serde_json::json!({"verb": "set-clock", "domain": domain, "hertz": hertz}).to_string();
        check(&line, NotListed);
    }
    check(r#"{"verb":"set-governor","name":"performance"}"#, NotARequest);
}

#[test]
fn a_board_that_does_not_obey_is_a_refusal_and_is_restored() {
    let dir = board();
    let mut settings = settings(&dir);
    put(dir.path(), "usr/sbin/nvpmodel", "#!/bin/sh\nexit 3\n");
    let set = r#"{"verb":"set-power-mode","name":"15W"}"#;
    assert_eq!(refused(&mut settings, set), RefusalReason::Failed);
    put(dir.path(), "usr/sbin/nvpmodel", "#!/bin/sh\nexit 0\n");
    assert_eq!(refused(&mut settings, set), RefusalReason::Failed, "it did not do what it said");
    let anybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(dir.path().join("usr/sbin/nvpmodel"), anybody).expect("set");
    assert_eq!(refused(&mut settings, set), RefusalReason::Failed, "anybody could have written it");
    settings.restore().expect("nothing differs");
    assert!(!dir.path().join(SAVED).exists());
}

#[test]
fn a_state_file_that_cannot_be_read_stops_changes() {
    let dir = board();
    put(dir.path(), SAVED, "{");
    let mut settings = settings(&dir);
    assert!(settings.restore().expect_err("a fault").to_string().contains(SAVED));
    let line = r#"{"verb":"set-clock","domain":"devfreq/17000000.gpu","hertz":306000000}"#;
    assert_eq!(refused(&mut settings, line), RefusalReason::Failed);
    assert_eq!(get(dir.path(), GPU), "918000000");
}

#[test]
fn a_board_without_power_settings_has_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let state = settings(&dir).state();
    assert_eq!(state, PowerState { version: PROTOCOL_VERSION, ..PowerState::default() });
}

/// Requests that are nearly right, and any bytes.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("15W".to_owned()),
        Just("25W".to_owned()),
        Just("7W".to_owned()),
        Just("devfreq/17000000.gpu".to_owned()),
        Just("cpufreq/policy0".to_owned()),
        Just("../../../../etc/passwd".to_owned()),
        ".{0,20}",
    ];
    let hertz = prop_oneof![
        Just(306_000_000_u64),
        Just(612_000_000),
        Just(1_020_000_000),
        Just(729_600_000),
        any::<u64>()
    ];
    let verb = prop_oneof![
        Just("status".to_owned()),
        Just("set-power-mode".to_owned()),
        Just("set-clock".to_owned()),
        Just("restore".to_owned()),
        "[a-z-]{0,12}",
    ];
    let keys =
        prop::collection::vec(prop_oneof![Just("name"), Just("domain"), Just("hertz"), Just("id")], 0..3);
    let json = (verb, word, hertz, keys).prop_map(|(verb, word, hertz, keys)| {
        let mut request = serde_json::json!({ "verb": verb });
        for key in keys {
            request[key] = if key == "hertz" { hertz.into() } else { word.clone().into() };
        }
        request.to_string().into_bytes()
    });
    prop_oneof![3 => json, 1 => prop::collection::vec(any::<u8>(), 0..REQUEST_BYTES_MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is sent, only the files of the list are written, only with values that the board lists, and all of it is restored.
    #[test]
    fn no_request_writes_anything_else(requests in prop::collection::vec(lines(), 1..8)) {
        let dir = board();
        let before = files(dir.path());
        let mut settings = settings(&dir);
        for line in &requests {
            let answer = settings.answer(line);
            prop_assert!(crate::protocol::line_of(&answer).len() <= crate::ANSWER_BYTES_MAX);
            for (name, bytes) in files(dir.path()) {
                let text = String::from_utf8_lossy(&bytes);
                let is_right = match name.as_str() {
                    GPU => ["306000000", "612000000", "918000000"].contains(&text.trim()),
                    CPU => ["115200", "729600", "1510400"].contains(&text.trim()),
                    "var/lib/nvpmodel/status" => ["pmode:0000", "pmode:0001"].contains(&text.trim()),
                    SAVED => true,
                    _ => before.get(&name).is_some_and(|before| *before == bytes),
                };
                prop_assert!(is_right, "{name}: {text}");
            }
        }
        settings.restore().expect("restored");
        for name in [GPU, CPU, "var/lib/nvpmodel/status"] {
            prop_assert_eq!(get(dir.path(), name).into_bytes(), before[name].trim_ascii().to_vec());
        }
    }
}
