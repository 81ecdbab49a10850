//! `/etc/nv_boot_control.conf`: the board for which the image was flashed.

use super::fact::Fact;
use super::files::{BoardFiles, shown};

pub(super) const BOOT_CONTROL: &str = "/etc/nv_boot_control.conf";

/// Greatest number of lines that are looked at; real files have up to ten.
const LINES_MAX: usize = 200;

/// Configurations of NVIDIA's own boards, as `flash.sh` names them (Jetson Linux Developer Guide, Quick Start). A name that
/// begins with none of these is that of another maker's carrier.
const NVIDIA_CONFIGURATIONS: [&str; 21] = [
    "clara-agx-xavier-devkit",
    "igx-orin-devkit",
    "jetson-agx-orin-devkit",
    "jetson-agx-thor-devkit",
    "jetson-agx-thor-t4000",
    "jetson-agx-xavier-devkit",
    "jetson-agx-xavier-industrial",
    "jetson-nano-2gb-devkit",
    "jetson-nano-devkit",
    "jetson-nano-emmc",
    "jetson-nano-qspi",
    "jetson-orin-nano-devkit",
    "jetson-orin-nx-devkit",
    "jetson-orin-nx-xavier-nx-devkit",
    "jetson-tx2",
    "jetson-xavier-as-",
    "jetson-xavier-maxn",
    "jetson-xavier-nx-devkit",
    "jetson-xavier-slvs-ec",
    "p3768-0000-p3767-0000-a0",
    "p3448-",
];

/// Devices that end a configuration's name: where the root file system was meant to be.
const DEVICES: [&str; 5] = ["mmcblk", "nvme", "sd", "internal", "external"];

/// Contents of the file.
#[derive(Debug, Default)]
pub(super) struct BootControl {
    /// Boards, TNSPEC first.
    pub(super) specs: Vec<BoardSpec>,
    /// SoC by its chip id.
    pub(super) soc: Option<Fact<String>>,
}

/// Board as `TNSPEC` and `COMPATIBLE_SPEC` describe it: board, fab, SKU, revision and further fields, then the name of
/// the configuration and the device, all joined by dashes. Fields may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BoardSpec {
    /// Name of the line.
    pub(super) key: String,
    /// Part number with SKU, such as `p3767-0005`.
    pub(super) sku: Option<String>,
    /// Name of the configuration, such as `jetson-orin-nano-devkit-super`.
    pub(super) configuration: Option<String>,
}

impl BoardSpec {
    /// Returns the name of another maker's carrier.
    pub(super) fn maker_carrier(&self) -> Option<&str> {
        let name = self.configuration.as_deref()?;
        let is_nvidia =
            name == "jetson-xavier" || NVIDIA_CONFIGURATIONS.iter().any(|known| name.starts_with(known));
        (!is_nvidia).then_some(name)
    }
}

impl BootControl {
    pub(super) fn read(files: &BoardFiles<'_>) -> Self {
        let Some(text) = files.text("sku", BOOT_CONTROL) else { return Self::default() };
        let mut found = Self::default();
        for line in text.value.lines().take(LINES_MAX) {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some(key @ ("TNSPEC" | "COMPATIBLE_SPEC")), Some(spec)) => {
                    let spec = parse_spec(key, spec);
                    if spec.sku.is_none() {
                        files.note("sku", BOOT_CONTROL, format!("{key} names no board: {}", shown(line)));
                    }
                    if !found.specs.contains(&spec) {
                        found.specs.push(spec);
                    }
                }
                (Some("TEGRA_CHIPID"), Some(id)) => {
                    found.soc = soc_of_chip(id).map(|soc| Fact::new(soc.to_owned(), BOOT_CONTROL));
                }
                _ => {}
            }
        }
        found.specs.sort_by_key(|spec| spec.key != "TNSPEC");
        if found.specs.is_empty() {
            files.note("sku", BOOT_CONTROL, "has no TNSPEC");
        }
        found
    }
}

/// Returns the SoC of a chip id (Tegra `HIDREV`), as in `TEGRA_CHIPID 0x23` or `/sys/devices/soc0/soc_id`.
pub(super) fn soc_of_chip(id: &str) -> Option<&'static str> {
    let number = match id.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => id.parse().ok()?,
    };
    match number {
        0x21 => Some("tegra210"),
        0x18 => Some("tegra186"),
        0x19 => Some("tegra194"),
        0x23 => Some("tegra234"),
        0x26 => Some("tegra264"),
        _ => None,
    }
}

fn parse_spec(key: &str, spec: &str) -> BoardSpec {
    let fields: Vec<&str> = spec.split('-').collect();
    let number = |index: usize| {
        let field = fields.get(index)?;
        (field.len() == 4 && field.bytes().all(|byte| byte.is_ascii_digit())).then_some(*field)
    };
    let sku = number(0).zip(number(2)).map(|(board, sku)| format!("p{board}-{sku}"));
    BoardSpec { key: key.to_owned(), sku, configuration: configuration(&fields) }
}

/// Returns the name of the configuration: the fields from the first that begins with a letter after the revision, without
/// the device at the end.
fn configuration(fields: &[&str]) -> Option<String> {
    let begins = |field: &&str| field.chars().next().is_some_and(char::is_alphabetic);
    let start = 4 + fields.get(4..)?.iter().position(begins)?;
    let mut name: Vec<&str> = fields[start..].iter().copied().filter(|field| !field.is_empty()).collect();
    while name.last().is_some_and(|last| is_device(last)) {
        name.pop();
    }
    (!name.is_empty()).then(|| shown(&name.join("-")))
}

fn is_device(field: &str) -> bool {
    DEVICES.iter().any(|device| {
        field.strip_prefix(device).is_some_and(|rest| match *device {
            "sd" => rest.len() < 4 && rest.starts_with(char::is_alphabetic),
            "mmcblk" | "nvme" => rest.starts_with(|c: char| c.is_ascii_digit()),
            _ => rest.is_empty(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &str, sku: Option<&str>, configuration: Option<&str>, maker: Option<&str>) {
        let found = parse_spec("TNSPEC", spec);
        let fields = (found.sku.as_deref(), found.configuration.as_deref(), found.maker_carrier());
        assert_eq!(fields, (sku, configuration, maker), "{spec}");
    }

    #[test]
    fn specs_of_real_boards_are_read() {
        let nano = "jetson-orin-nano-devkit-super";
        check("3767-300-0005-S.1-1-1-jetson-orin-nano-devkit-super-", Some("p3767-0005"), Some(nano), None);
        check(
            "3767--0005--1--jetson-orin-nano-devkit-",
            Some("p3767-0005"),
            Some("jetson-orin-nano-devkit"),
            None,
        );
        let kit = "jetson-orin-nx-xavier-nx-devkit";
        check(
            "3767-ES1-0000-A.3-1-0-jetson-orin-nx-xavier-nx-devkit-nvme0n1p1",
            Some("p3767-0000"),
            Some(kit),
            None,
        );
        let seeed = Some("recomputer-orin-j401");
        check("3767-300-0000-H.2-1-0-recomputer-orin-j401-", Some("p3767-0000"), seeed, seeed);
        let cti = Some("cti-orin-agx-agx201-00");
        check("3701-500-0005-A.0-1-0-cti-orin-agx-agx201-00-", Some("p3701-0005"), cti, cti);
        let adlink = Some("jetson-xavier-rqx580");
        check("2888-400-0004-M.0-1-2-jetson-xavier-rqx580-", Some("p2888-0004"), adlink, adlink);
        check(
            "2888-400-0004-M.0-1-2-jetson-xavier-mmcblk0p1",
            Some("p2888-0004"),
            Some("jetson-xavier"),
            None,
        );
        check(
            "3701-300-0000--1--jetson-agx-orin-devkit-",
            Some("p3701-0000"),
            Some("jetson-agx-orin-devkit"),
            None,
        );
    }

    #[test]
    fn specs_of_no_board_give_nothing() {
        for spec in
            ["", "-", "------", "abc", "3767", "3767-300", "37670-300-0005-A", "376-300-0005", "ä-ö-ü-1-2-3"]
        {
            let found = parse_spec("TNSPEC", spec);
            assert_eq!(found.sku, None, "{spec}");
        }
        check("3767-300-0005-A-1-0--", Some("p3767-0005"), None, None);
        assert_eq!(soc_of_chip("0x23"), Some("tegra234"));
        assert_eq!(soc_of_chip("35"), Some("tegra234"));
        assert_eq!(soc_of_chip("0x99"), None);
    }
}
