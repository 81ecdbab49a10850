//! The release of Jetson Linux: `/etc/nv_tegra_release`, the package of its core, and the boot loader.

use orinoco_sysroot::{PACKAGES, PACKAGES_BYTES_MAX};

use super::fact::Fact;
use super::files::{BoardFiles, shown};

pub(super) const TEGRA_RELEASE: &str = "/etc/nv_tegra_release";
const CORE_PACKAGE: &str = "nvidia-l4t-core";
/// Firmware version in the SMBIOS tables of boards that boot by UEFI, such as `36.4.3-gcid-38968081`.
const BIOS_VERSION: &str = "/sys/class/dmi/id/bios_version";

/// Greatest number of lines of the release file that are looked at; real ones have up to six.
const LINES_MAX: usize = 64;

/// Versions of the software of a Jetson.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// Release of the root file system, such as `36.4.3`.
    pub(super) l4t: Option<Fact<String>>,
    /// Release of the boot loader, which is updated apart from the root file system.
    pub(super) boot_loader: Option<Fact<String>>,
    /// Board that its maker named in a line of its own.
    pub(super) maker: Option<Fact<String>>,
    /// Versions that contradict one another.
    pub(super) conflicts: Vec<String>,
}

impl Release {
    pub(super) fn read(files: &BoardFiles<'_>) -> Self {
        let file = files.text("l4t", TEGRA_RELEASE);
        let of_file = file.as_ref().and_then(|text| {
            let version = text.value.lines().take(LINES_MAX).find_map(version_of_line);
            if version.is_none() {
                files.note("l4t", TEGRA_RELEASE, format!("names no release: {}", shown(&text.value)));
            }
            version.map(|version| Fact::new(version, TEGRA_RELEASE))
        });
        let maker = file.and_then(|text| text.value.lines().take(LINES_MAX).find_map(maker_of_line));
        let of_package = package_version(files);
        let boot_loader = boot_loader_version(files);
        let l4t = of_file.clone().or_else(|| of_package.clone());
        let mut conflicts = Vec::new();
        if let (Some(file), Some(package)) = (&of_file, &of_package)
            && !is_same(&file.value, &package.value)
        {
            conflicts.push(format!(
                "{TEGRA_RELEASE} says L4T {}, but {PACKAGES} has {CORE_PACKAGE} {}",
                file.value, package.value
            ));
        }
        if let (Some(root), Some(loader)) = (&l4t, &boot_loader)
            && !is_same(&root.value, &loader.value)
        {
            conflicts.push(format!(
                "{} says L4T {}, but {BIOS_VERSION} gives boot loader version {}: update the boot loader",
                root.source, root.value, loader.value
            ));
        }
        let maker = maker.map(|maker| Fact::new(maker, TEGRA_RELEASE));
        Self { l4t, boot_loader, maker, conflicts }
    }
}

/// Returns the release in a line such as `# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic`. `BOARD` is not the
/// board, and the date comes in several forms.
fn version_of_line(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("# R")?;
    let (major, rest) = rest.split_once(" (release)")?;
    let (_, rest) = rest.split_once("REVISION:")?;
    let revision = rest.split(',').next()?.trim();
    let is_number =
        |text: &str| !text.is_empty() && text.len() < 4 && text.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = revision.split('.').collect();
    let is_version = is_number(major) && parts.len() <= 3 && parts.iter().all(|part| is_number(part));
    is_version.then(|| format!("{major}.{revision}"))
}

/// Returns the board in a line that its maker added: `# BOARD_NAME: reComputer J4012`, or a comment that is none of
/// NVIDIA's.
fn maker_of_line(line: &str) -> Option<String> {
    const NVIDIA: [&str; 3] = ["KERNEL_VARIANT", "INSTALL_TYPE", "TARGET_USERSPACE"];
    let text = line.trim().strip_prefix('#')?.trim();
    let is_release = text.contains("(release)");
    if text.is_empty() || is_release || NVIDIA.iter().any(|known| text.starts_with(known)) {
        return None;
    }
    let named = text.split_once([':', '=']).filter(|(key, value)| {
        let key = key.to_lowercase();
        !value.trim().is_empty()
            && (key.contains("board") || key.contains("carrier") || key.contains("product"))
    });
    let name = shown(named.map_or(text, |(_, value)| value));
    (!name.is_empty()).then_some(name)
}

/// Returns the version of the installed core package. Machines without a package manager have no list.
fn package_version(files: &BoardFiles<'_>) -> Option<Fact<String>> {
    let text = files.long_text(PACKAGES, PACKAGES_BYTES_MAX)?;
    let paragraph = text.split("\n\n").find(|paragraph| {
        paragraph.lines().next().is_some_and(|line| line.trim() == format!("Package: {CORE_PACKAGE}"))
    })?;
    let version = paragraph.lines().find_map(|line| line.strip_prefix("Version:"))?;
    version_before_dash(version).map(|version| Fact::new(version, PACKAGES))
}

fn boot_loader_version(files: &BoardFiles<'_>) -> Option<Fact<String>> {
    let text = files.optional_text(BIOS_VERSION)?;
    // Other machines have a version of another kind here.
    text.contains("-gcid-")
        .then(|| version_before_dash(&text))?
        .map(|version| Fact::new(version, BIOS_VERSION))
}

fn version_before_dash(text: &str) -> Option<String> {
    let version = text.trim().split('-').next()?;
    let is_version = version.len() < 12
        && version.contains('.')
        && version.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    is_version.then(|| version.to_owned())
}

/// Whether two versions are the same; `36.4` is the same as `36.4.0`.
fn is_same(a: &str, b: &str) -> bool {
    fn without_zeros(text: &str) -> &str {
        let mut text = text;
        while let Some(shorter) = text.strip_suffix(".0") {
            text = shorter;
        }
        text
    }
    without_zeros(a) == without_zeros(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_real_boards_are_read() {
        let board = "GCID: 1, BOARD: t186ref, EABI: aarch64, DATE";
        for (line, version) in [
            (
                format!("# R32 (release), REVISION: 7.1, {board}: Sat Feb 19 17:05:08 UTC 2022"),
                Some("32.7.1"),
            ),
            (
                format!("# R35 (release), REVISION: 4.1, {board}: Tue Aug  1 19:57:35 UTC 2023"),
                Some("35.4.1"),
            ),
            (
                format!("# R39 (release), REVISION: 2.1, {board}: Fri Aug 7 05:54:22 AM UTC 2026"),
                Some("39.2.1"),
            ),
            ("# R32 (release), REVISION: 5".to_owned(), Some("32.5")),
            ("# R36 (release)".to_owned(), None),
            ("# R (release), REVISION: 1".to_owned(), None),
            ("# R36 (release), REVISION: x.1".to_owned(), None),
            ("# KERNEL_VARIANT: oot".to_owned(), None),
        ] {
            assert_eq!(version_of_line(&line).as_deref(), version, "{line}");
        }
    }

    #[test]
    fn a_line_of_the_maker_names_its_board() {
        for (line, maker) in [
            ("# BOARD_NAME: reComputer J4012", Some("reComputer J4012")),
            ("# Connect Tech Hadron NGX027", Some("Connect Tech Hadron NGX027")),
            ("# KERNEL_VARIANT: oot", None),
            ("# R36 (release), REVISION: 4.3, BOARD: generic", None),
            ("TARGET_USERSPACE_LIB_DIR=nvidia", None),
            ("#", None),
        ] {
            assert_eq!(maker_of_line(line).as_deref(), maker, "{line}");
        }
        assert!(is_same("36.4", "36.4.0") && !is_same("36.4.3", "36.4.4"));
    }
}
