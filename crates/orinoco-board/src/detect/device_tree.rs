//! The names in the device tree. Its serial number is never read.

use super::fact::Fact;
use super::files::{BoardFiles, shown};

/// Folders of the device tree. The first is a symbolic link to the second on a board; a copy may have either.
const FOLDERS: [&str; 2] = ["/proc/device-tree", "/sys/firmware/devicetree/base"];
/// Greatest number of entries of `compatible` that are looked at; real ones have up to six.
const COMPATIBLE_MAX: usize = 32;

/// Names in the device tree.
#[derive(Debug, Default)]
pub(super) struct DeviceTree {
    /// Property `model`.
    pub(super) model: Option<Fact<String>>,
    /// Property `compatible`, most specific first.
    pub(super) compatible: Option<Fact<Vec<String>>>,
}

impl DeviceTree {
    pub(super) fn read(files: &BoardFiles<'_>) -> Self {
        let paths = |name: &str| FOLDERS.map(|folder| format!("{folder}/{name}"));
        let model = paths("model").iter().find_map(|path| files.text("model", path));
        let compatible = paths("compatible").iter().find_map(|path| files.texts("soc", path));
        let cut = |mut texts: Vec<String>| {
            texts.truncate(COMPATIBLE_MAX);
            texts.iter().map(|text| shown(text)).collect()
        };
        Self {
            model: model.map(|model| model.map(|text| shown(&text))),
            compatible: compatible.map(|compatible| compatible.map(cut)),
        }
    }

    /// Returns the SoC: `tegra234` of `nvidia,tegra234`.
    pub(super) fn soc(&self) -> Option<Fact<String>> {
        let compatible = self.compatible.as_ref()?;
        let named = compatible.value.iter().find_map(|text| text.strip_prefix("nvidia,tegra"));
        named.map(|number| Fact::new(format!("tegra{number}"), &compatible.source))
    }

    /// Returns the part numbers of modules: what stands after the `+` of a pair of carrier and module, and numbers for
    /// which `is_module` holds. Each is named once, in their order.
    pub(super) fn modules(&self, is_module: impl Fn(&str) -> bool) -> Vec<String> {
        let mut modules = Vec::new();
        for text in self.texts() {
            let of_pair = text.split_once('+').map(|(_, module)| part_numbers(module));
            let found = of_pair.unwrap_or_else(|| {
                part_numbers(text).into_iter().filter(|number| is_module(number)).collect()
            });
            modules.extend(found);
        }
        without_repeats(modules)
    }

    /// Returns the part numbers of carriers: all that are no modules.
    pub(super) fn carriers(&self, is_module: impl Fn(&str) -> bool) -> Vec<String> {
        let mut carriers = Vec::new();
        for text in self.texts() {
            let carrier = text.split_once('+').map_or(text.as_str(), |(carrier, _)| carrier);
            carriers.extend(part_numbers(carrier).into_iter().filter(|number| !is_module(number)));
        }
        without_repeats(carriers)
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.compatible.iter().flat_map(|compatible| &compatible.value)
    }
}

/// Returns the part numbers with SKU in a text: `p3767-0005`.
fn part_numbers(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| {
        bytes.get(range).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
    };
    let begins = |start: &usize| {
        let is_word = *start == 0 || !bytes[start - 1].is_ascii_alphanumeric();
        let more = bytes.get(start + 10).is_some_and(u8::is_ascii_digit);
        is_word
            && bytes[*start] == b'p'
            && digits(start + 1..start + 5)
            && bytes.get(start + 5) == Some(&b'-')
            && digits(start + 6..start + 10)
            && !more
    };
    let starts = (0..bytes.len()).filter(begins);
    starts.map(|start| String::from_utf8_lossy(&bytes[start..start + 10]).into_owned()).collect()
}

fn without_repeats(mut names: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(compatible: &[&str], modules: &[&str], carriers: &[&str]) {
        let texts = compatible.iter().map(|text| (*text).to_owned()).collect();
        let tree = DeviceTree { model: None, compatible: Some(Fact::new(texts, "c")) };
        let is_module = |number: &str| number.starts_with("p3767") || number.starts_with("p3448");
        assert_eq!(tree.modules(is_module), modules, "{compatible:?}");
        assert_eq!(tree.carriers(is_module), carriers, "{compatible:?}");
    }

    #[test]
    fn modules_and_carriers_are_told_apart() {
        let plain = ["nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0005", "nvidia,tegra234"];
        check(&plain, &["p3767-0005"], &["p3768-0000"]);
        check(&["nvidia,p3768-0000+p3767-0005-super"], &["p3767-0005"], &["p3768-0000"]);
        check(
            &["nvidia,p3449-0000-b00+p3448-0000-b00", "nvidia,jetson-nano"],
            &["p3448-0000"],
            &["p3449-0000"],
        );
        // A module that nobody knows is a module all the same.
        check(&["nvidia,p3509-0000+p3636-0001"], &["p3636-0001"], &["p3509-0000"]);
        check(&["nvidia,p2972-0000", "nvidia,tegra194"], &[], &["p2972-0000"]);
        check(&["", "p", "xp3767-0005", "p3767-00055", "p3767-000", "+", "päää-0000"], &[], &[]);
    }
}
