//! Modules that have the name of a crate which their own crate uses: `ring::sign` may then be either. There shall be none.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::cycles::{load, roots};
use super::modules::{Load, Modules};

/// Crates that every crate can name.
const ALWAYS: [&str; 3] = ["alloc", "core", "std"];

/// Fails on every such module.
pub(super) fn check(packages: &[Value]) -> Result<()> {
    let mut found = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("a package has a name")?;
        let used = dependencies(package);
        for root in roots(package) {
            let shadows =
                shadows(Path::new(root), &used, &load).with_context(|| format!("reading {name}"))?;
            found.extend(shadows.iter().map(|shadow| format!("{name}: {shadow}")));
        }
    }
    if !found.is_empty() {
        bail!("modules with the name of a crate:\n  {}", found.join("\n  "));
    }
    Ok(())
}

/// Names by which a package's code knows the crates that it uses, those of its tests among them.
fn dependencies(package: &Value) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    let named = all.filter_map(|dependency| dependency["rename"].as_str().or(dependency["name"].as_str()));
    named.map(|name| name.replace('-', "_")).chain(ALWAYS.map(str::to_owned)).collect()
}

/// The modules of the crate whose root is the file `root` that have the name of a crate, each as "file declares name".
fn shadows(root: &Path, used: &BTreeSet<String>, load: &Load<'_>) -> Result<Vec<String>> {
    let modules = Modules::read(root, load)?;
    let named = |module: &super::modules::Module| {
        let file = modules.files[module.file].display().to_string();
        let children = module.children.iter().filter(|(name, _)| used.contains(name));
        children.map(move |(name, _)| format!("{file} declares {name}")).collect::<Vec<_>>()
    };
    Ok(modules.all.iter().flat_map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_with_the_name_of_a_crate_is_found() {
        let package = serde_json::json!({ "dependencies": [
            { "name": "embedded-hal", "rename": null },
            { "name": "image", "rename": "pictures" },
        ] });
        let used = dependencies(&package);
        let load = |path: &Path| {
            let text = match path.to_str() {
                Some("src/lib.rs") => Some("mod image; mod parts { mod core {} mod embedded_hal {} }"),
                Some("src/image.rs") => Some("mod pictures {}"),
                _ => None,
            };
            Ok(text.map(str::to_owned))
        };
        let found = shadows(Path::new("src/lib.rs"), &used, &load).expect("the sources are whole");
        let expected = ["lib.rs declares core", "lib.rs declares embedded_hal", "image.rs declares pictures"];
        assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    }
}
