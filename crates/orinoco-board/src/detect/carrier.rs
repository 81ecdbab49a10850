//! The carrier. Its maker may name it in the device tree, in TNSPEC, in a line of the release file, or nowhere.

use super::boot_control::{BOOT_CONTROL, BootControl};
use super::device_tree::DeviceTree;
use super::fact::Fact;
use super::module::is_module;
use super::release::Release;
use crate::profile::Profile;

/// Returns the carrier, and the files that contradict one another about it.
pub(super) fn read(
    tree: &DeviceTree,
    boot: &BootControl,
    release: &Release,
    profiles: &[Profile],
) -> (Option<Fact<String>>, Vec<String>) {
    let of_spec = boot.specs.iter().find_map(|spec| spec.maker_carrier());
    let of_spec = of_spec.map(|name| Fact::new(name.to_owned(), BOOT_CONTROL));
    let of_model = tree.model.clone().filter(|model| is_makers(&model.value, profiles));
    let by_maker: Vec<Fact<String>> =
        [of_spec, of_model, release.maker.clone()].into_iter().flatten().collect();
    let numbers = tree.carriers(|number| is_module(number, profiles));
    let tree_source = tree.compatible.as_ref().map_or("", |compatible| compatible.source.as_str());
    let mut conflicts = Vec::new();
    if numbers.len() > 1 {
        conflicts.push(format!("{tree_source} names several carriers: {}", numbers.join(", ")));
    }
    if let Some(maker) = by_maker.first() {
        if let [number] = &numbers[..] {
            conflicts.push(format!(
                "{} names the carrier {}, but {tree_source} names {number}",
                maker.source, maker.value
            ));
        }
        return (Some(maker.clone()), conflicts);
    }
    let configured = || {
        let name = boot.specs.iter().find_map(|spec| spec.configuration.clone())?;
        Some(Fact::new(name, BOOT_CONTROL))
    };
    let carrier = match &numbers[..] {
        [number] => Some(Fact::new(number.clone(), tree_source)),
        [] => configured(),
        _ => None,
    };
    (carrier, conflicts)
}

/// Whether a model string is that of another maker: it names neither NVIDIA nor one of its modules or code names.
fn is_makers(model: &str, profiles: &[Profile]) -> bool {
    let lower = model.to_lowercase();
    let is_module = profiles.iter().flat_map(|profile| &profile.model_names).any(|name| lower.contains(name));
    !is_module && !lower.contains("nvidia") && !lower.starts_with("jetson")
}
