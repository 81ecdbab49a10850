//! Resolves paths to the files that define what they name. A re-export is followed to its origin.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Modules;

/// Arrows between files, as indices into [`Modules::files`], each with the names that tie it.
pub(super) type FileArrows = BTreeMap<(usize, usize), BTreeSet<String>>;

/// Target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// A name, and the file that defines it.
    Item {
        file: usize,
        name: String,
    },
}

impl Modules {
    /// Every arrow from one file of the crate to another.
    pub(super) fn arrows(&self) -> FileArrows {
        let mut arrows = FileArrows::new();
        for (index, module) in self.all.iter().enumerate() {
            let by_path = module.paths.iter().flat_map(|path| self.resolve(index, path, &mut Vec::new()));
            let by_macro = module.macros_called.iter().flat_map(|name| self.find_macro(index, name));
            for target in by_path.chain(by_macro) {
                match target {
                    Target::Item { file, name } if file != module.file => {
                        arrows.entry((module.file, file)).or_default().insert(name);
                    }
                    // A module by itself ties nothing: what is used of it has a path of its own.
                    _ => {}
                }
            }
        }
        arrows
    }

    /// Resolves `path` as code of `module` writes it; nothing if it leads to another crate. `open` are the lookups under way,
    /// because globs may form a ring.
    fn resolve(&self, module: usize, path: &[String], open: &mut Vec<(usize, String)>) -> Vec<Target> {
        let [first, rest @ ..] = path else { return vec![Target::Module(module)] };
        let mut targets = match first.as_str() {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(module)],
            "super" => self.all[module].parent.map(Target::Module).into_iter().collect(),
            name => self.lookup(module, name, open),
        };
        for name in rest {
            targets = self.step(&targets, name, open);
        }
        targets
    }

    /// Resolves `name` in `targets`. A variant or function of a type resolves to the type.
    fn step(&self, targets: &[Target], name: &str, open: &mut Vec<(usize, String)>) -> Vec<Target> {
        let mut found = Vec::new();
        for target in targets {
            if let Target::Module(module) = target {
                match name {
                    "super" => found.extend(self.all[*module].parent.map(Target::Module)),
                    _ => found.extend(self.lookup(*module, name, open)),
                }
            }
        }
        if found.is_empty() {
            found = targets.iter().filter(|target| matches!(target, Target::Item { .. })).cloned().collect();
        }
        found
    }

    fn lookup(&self, index: usize, name: &str, open: &mut Vec<(usize, String)>) -> Vec<Target> {
        let module = &self.all[index];
        let children = module.children.iter().filter(|(child, _)| child == name);
        let mut found: Vec<Target> = children.map(|(_, child)| Target::Module(*child)).collect();
        if module.items.contains(name) {
            found.push(Target::Item { file: module.file, name: name.to_owned() });
        }
        let key = (index, name.to_owned());
        if open.contains(&key) {
            return found;
        }
        open.push(key);
        for (_, path) in module.imports.iter().filter(|(import, _)| import == name) {
            found.extend(self.resolve(index, path, open));
        }
        if found.is_empty() {
            for path in &module.globs {
                for target in self.resolve(index, path, open) {
                    if let Target::Module(from) = target {
                        found.extend(self.lookup(from, name, open));
                    }
                }
            }
        }
        open.pop();
        found
    }

    /// The macro `name`: of the module, or of a parent that defines it.
    fn find_macro(&self, module: usize, name: &str) -> Vec<Target> {
        let found = self.lookup(module, name, &mut Vec::new());
        if !found.is_empty() {
            return found;
        }
        let parents = std::iter::successors(self.all[module].parent, |parent| self.all[*parent].parent);
        let mut defining = parents.filter(|parent| self.all[*parent].macros.contains(name));
        let target = |parent: usize| Target::Item { file: self.all[parent].file, name: name.to_owned() };
        defining.next().map(target).into_iter().collect()
    }
}
