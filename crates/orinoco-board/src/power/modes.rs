use orinoco_sysroot::{ReadError, Sysroot};

use crate::detect::{POWER_MODE_CONFIGURATION, POWER_MODE_STATUS, mode_of_status};

/// Greatest number of modes that are read; real files have up to nine.
const MODES_MAX: usize = 64;
/// Greatest length of a mode's name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// End of the names of masks that switch units of the GPU off, such as `TPC_PG_MASK`.
const MASK: &str = "_PG_MASK";

/// Power modes of `nvpmodel`: those of its configuration, and the one that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvpModes {
    /// Modes in the order of the file. A name that several modes have is left out: it names none of them.
    pub modes: Vec<NvpMode>,
    /// Index of the mode that is set; `None` where it is not known.
    pub current: Option<usize>,
}

/// Power mode of `nvpmodel`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvpMode {
    /// Number, which differs between modules and makers.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Masks of units of the GPU that are switched off, by their names.
    masks: Vec<(String, String)>,
}

impl NvpModes {
    /// Reads the modes of a board.
    ///
    /// # Errors
    /// The configuration of `nvpmodel` cannot be read: the board is no Jetson, or not set up.
    pub fn read(sysroot: &Sysroot) -> Result<Self, ReadError> {
        let modes = parse(&sysroot.text(POWER_MODE_CONFIGURATION)?);
        let set = Self::read_number(sysroot);
        let with_id = |id| modes.iter().filter(move |mode: &&NvpMode| mode.id == id).count();
        let current = set.filter(|id| with_id(*id) == 1);
        let current = current.and_then(|id| modes.iter().position(|mode| mode.id == id));
        Ok(Self { modes, current })
    }

    /// Reads the number of the mode that is set; `None` where there is no `nvpmodel`. It is one short file.
    pub fn read_number(sysroot: &Sysroot) -> Option<u32> {
        sysroot.text(POWER_MODE_STATUS).ok().and_then(|status| mode_of_status(&status))
    }

    /// Returns the mode with this name.
    pub fn named(&self, name: &str) -> Option<&NvpMode> {
        self.modes.iter().find(|mode| mode.name == name)
    }

    /// Returns the mode that is set.
    pub fn current(&self) -> Option<&NvpMode> {
        self.modes.get(self.current?)
    }
}

impl NvpMode {
    /// Whether a change between two modes needs a reboot: `nvpmodel` cannot switch units of the GPU on or off while it runs. A mask
    /// that only one of them has counts as different.
    pub fn needs_reboot_to(&self, other: &Self) -> bool {
        let value = |mode: &Self, mask: &str| {
            mode.masks.iter().find(|(name, _)| name == mask).map(|(_, value)| value.clone())
        };
        let masks = self.masks.iter().chain(&other.masks);
        masks.into_iter().any(|(mask, _)| value(self, mask) != value(other, mask))
    }
}

/// Reads the sections `< POWER_MODEL ID=2 NAME=MAXN_SUPER >` with their lines `TPC_POWER_GATING TPC_PG_MASK 240`.
fn parse(text: &str) -> Vec<NvpMode> {
    let mut modes: Vec<NvpMode> = Vec::new();
    let mut is_in_mode = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('<') {
            let mode = parse_heading(section).filter(|_| modes.len() < MODES_MAX);
            is_in_mode = mode.is_some();
            modes.extend(mode);
        } else if let (true, Some(mode)) = (is_in_mode, modes.last_mut()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [_, mask, value] = words[..]
                && mask.ends_with(MASK)
            {
                mode.masks.push((mask.to_owned(), value.to_owned()));
            }
        }
    }
    let names: Vec<String> = modes.iter().map(|mode| mode.name.clone()).collect();
    modes.retain(|mode| names.iter().filter(|name| **name == mode.name).count() == 1);
    modes
}

fn parse_heading(section: &str) -> Option<NvpMode> {
    let rest = section.trim_end_matches('>').trim().strip_prefix("POWER_MODEL")?;
    let field = |key: &str| rest.split_whitespace().find_map(|word| word.strip_prefix(key));
    let name = field("NAME=")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.+".contains(c);
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain);
    let id = field("ID=")?.parse().ok()?;
    is_name.then(|| NvpMode { id, name: name.to_owned(), masks: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# comment\n< PARAM TYPE=FILE NAME=CPU_ONLINE >\nCORE_0 /sys/devices/system/cpu/cpu0/online\n\
        < POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_0 1\nTPC_POWER_GATING TPC_PG_MASK 240\nGPU MAX_FREQ 612000000\n\
        < POWER_MODEL ID=1 NAME=25W >\nTPC_POWER_GATING TPC_PG_MASK 240\n\
        < POWER_MODEL ID=3 NAME=7W >\nTPC_POWER_GATING TPC_PG_MASK 252\n\
        < POWER_MODEL ID=4 NAME=PLAIN >\nGPU MAX_FREQ 612000000\n\
        < POWER_MODEL ID=5 NAME=../x >\n< POWER_MODEL ID=6 NAME=TWICE >\n< POWER_MODEL ID=7 NAME=TWICE >\n\
        < PM_CONFIG DEFAULT=1 >\nX Y_PG_MASK 1\n";

    #[test]
    fn masks_say_which_change_needs_a_reboot() {
        let modes = NvpModes { modes: parse(TEXT), current: None };
        let names: Vec<&str> = modes.modes.iter().map(|mode| mode.name.as_str()).collect();
        assert_eq!(names, ["15W", "25W", "7W", "PLAIN"]);
        let check = |one: &str, other: &str, expected: bool| {
            let (one, other) = (modes.named(one).expect("known"), modes.named(other).expect("known"));
            assert_eq!(one.needs_reboot_to(other), expected, "{} to {}", one.name, other.name);
            assert_eq!(other.needs_reboot_to(one), expected);
        };
        check("15W", "25W", false);
        check("15W", "7W", true);
        check("15W", "PLAIN", true);
        check("PLAIN", "PLAIN", false);
    }

    #[test]
    fn the_current_mode_is_that_of_the_status() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        let sysroot = Sysroot::at(dir.path());
        assert!(NvpModes::read(&sysroot).is_err());
        put("etc/nvpmodel.conf", TEXT);
        assert_eq!(NvpModes::read(&sysroot).expect("read").current, None);
        assert_eq!(NvpModes::read_number(&sysroot), None);
        put("var/lib/nvpmodel/status", "pmode:0001 fmode:quiet\n");
        let modes = NvpModes::read(&sysroot).expect("read");
        assert_eq!(modes.current().map(|mode| mode.name.as_str()), Some("25W"));
        assert_eq!(NvpModes::read_number(&sysroot), Some(1));
        put("var/lib/nvpmodel/status", "pmode:0009\n");
        assert_eq!(NvpModes::read(&sysroot).expect("read").current(), None);
    }
}
