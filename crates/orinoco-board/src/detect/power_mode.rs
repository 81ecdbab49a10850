//! The power mode that `nvpmodel` has set: its number in a status file, its name in the configuration.

use super::fact::Fact;
use super::files::{BoardFiles, shown};

/// Configuration of `nvpmodel`.
pub(crate) const CONFIGURATION: &str = "/etc/nvpmodel.conf";
/// File in which `nvpmodel` keeps the current mode.
pub(crate) const STATUS: &str = "/var/lib/nvpmodel/status";
/// Greatest number of modes that are read; real files have up to nine.
const MODES_MAX: usize = 64;

/// Power mode of `nvpmodel`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerMode {
    /// Number in the board's configuration file.
    pub id: u32,
    /// Name, such as `MAXN_SUPER`.
    pub name: String,
}

/// Power modes of a board.
#[derive(Debug, Default)]
pub(super) struct PowerModes {
    /// Mode that is set.
    pub(super) current: Option<Fact<PowerMode>>,
    /// Modes of the configuration file.
    pub(super) all: Vec<PowerMode>,
    /// Files that contradict one another.
    pub(super) conflicts: Vec<String>,
}

impl PowerModes {
    pub(super) fn read(files: &BoardFiles<'_>) -> Self {
        let configuration = files.text("power_mode", CONFIGURATION);
        let all = configuration.map_or_else(Vec::new, |text| parse_modes(&text.value));
        let Some(status) = files.text("power_mode", STATUS) else {
            return Self { all, ..Self::default() };
        };
        let Some(id) = mode_of_status(&status.value) else {
            files.note("power_mode", &status.source, format!("names no mode: {}", shown(&status.value)));
            return Self { all, ..Self::default() };
        };
        let named: Vec<&PowerMode> = all.iter().filter(|mode| mode.id == id).collect();
        let (current, conflict) = match named[..] {
            [mode] => {
                let source = format!("{}, {CONFIGURATION}", status.source);
                (Some(Fact::new(mode.clone(), source)), None)
            }
            [] if all.is_empty() => (None, None),
            [] => (
                None,
                Some(format!("{} names mode {id}, which {CONFIGURATION} does not have", status.source)),
            ),
            _ => {
                let source = &status.source;
                let text =
                    format!("{CONFIGURATION} defines power mode {id} more than once; {source} refers to it");
                (None, Some(text))
            }
        };
        Self { current, all, conflicts: conflict.into_iter().collect() }
    }
}

/// Reads the lines `< POWER_MODEL ID=2 NAME=MAXN_SUPER >`.
fn parse_modes(text: &str) -> Vec<PowerMode> {
    let modes = text.lines().filter_map(|line| {
        let inner = line.trim().strip_prefix('<')?.trim_end().trim_end_matches('>').trim();
        let rest = inner.strip_prefix("POWER_MODEL")?;
        let field = |key: &str| rest.split_whitespace().find_map(|word| word.strip_prefix(key));
        Some(PowerMode { id: field("ID=")?.parse().ok()?, name: shown(field("NAME=")?) })
    });
    modes.take(MODES_MAX).collect()
}

/// Reads `pmode:0002 fmode:quiet`.
pub(crate) fn mode_of_status(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("pmode:")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_go_by_the_name_in_the_file() {
        let text = "# comment\n< PARAM TYPE=FILE NAME=CPU_ONLINE >\n<POWER_MODEL ID=0 NAME=15W>\n\
            < POWER_MODEL  ID=2   NAME=MAXN_SUPER >\n< POWER_MODEL ID=x NAME=y >\n< PM_CONFIG DEFAULT=1 >\n";
        let modes: Vec<(u32, String)> =
            parse_modes(text).into_iter().map(|mode| (mode.id, mode.name)).collect();
        assert_eq!(modes, [(0, "15W".to_owned()), (2, "MAXN_SUPER".to_owned())]);
    }

    #[test]
    fn the_status_names_a_number() {
        for (text, id) in [
            ("pmode:0002", Some(2)),
            ("pmode:0000 fmode:fanNull", Some(0)),
            ("fmode:quiet\npmode: 3", Some(3)),
            ("pmode:", None),
            ("pmode:99999999999", None),
            ("", None),
        ] {
            assert_eq!(mode_of_status(text), id, "{text}");
        }
    }
}
