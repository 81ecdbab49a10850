//! Files of a crate that use one another in a cycle: such files can be read only all at once. There shall be none.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};
use pathfinding::directed::strongly_connected_components::strongly_connected_components;
use serde_json::Value;

use super::modules::{Load, Modules};

/// Files of a crate that use one another, by way of one another.
#[derive(Debug, PartialEq, Eq)]
struct Cycle {
    /// In alphabetical order.
    files: Vec<String>,
    /// Every arrow among them, with the names that tie it.
    arrows: Vec<String>,
}

/// Fails on every cycle.
pub(super) fn check(packages: &[Value]) -> Result<()> {
    let mut found = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("a package has a name")?;
        for root in roots(package) {
            let cycles = cycles(Path::new(root), &load).with_context(|| format!("reading {name}"))?;
            found.extend(cycles.iter().map(|cycle| shown(name, cycle)));
        }
    }
    if !found.is_empty() {
        bail!("cycles of files:\n  {}", found.join("\n  "));
    }
    println!("files of {} crates, no cycle", packages.len());
    Ok(())
}

fn shown(name: &str, cycle: &Cycle) -> String {
    let arrows: String = cycle.arrows.iter().map(|arrow| format!("\n    {arrow}")).collect();
    format!("{name}: {} use one another{arrows}", cycle.files.join(", "))
}

/// Roots of what a package ships: its library and its programs.
pub(super) fn roots(package: &Value) -> impl Iterator<Item = &str> {
    let targets = package["targets"].as_array().into_iter().flatten();
    let shipped = targets.filter(|target| {
        let kinds = target["kind"].as_array().into_iter().flatten();
        kinds.filter_map(Value::as_str).any(|kind| kind == "lib" || kind == "bin")
    });
    shipped.filter_map(|target| target["src_path"].as_str())
}

pub(super) fn load(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// The cycles of the crate whose root is the file `root`.
fn cycles(root: &Path, load: &Load<'_>) -> Result<Vec<Cycle>> {
    let modules = Modules::read(root, load)?;
    let arrows = modules.arrows();
    let name = |file: usize| modules.files[file].display().to_string();
    let all: Vec<usize> = (0..modules.files.len()).collect();
    let next = |file: &usize| {
        let of_file = arrows.keys().filter(|(from, _)| from == file);
        of_file.map(|(_, to)| *to).collect::<Vec<_>>()
    };
    let components = strongly_connected_components(&all, next);
    let mut cycles: Vec<Cycle> = components
        .into_iter()
        .filter(|files| files.len() > 1)
        .map(|files| {
            let among = arrows.iter().filter(|((from, to), _)| files.contains(from) && files.contains(to));
            let show = |((from, to), names): (&(usize, usize), &BTreeSet<String>)| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                format!("{} -> {}: {}", name(*from), name(*to), names.join(", "))
            };
            let mut arrows: Vec<String> = among.map(show).collect();
            arrows.sort();
            let mut files: Vec<String> = files.iter().map(|file| name(*file)).collect();
            files.sort();
            Cycle { files, arrows }
        })
        .collect();
    cycles.sort_by(|a, b| a.files.cmp(&b.files));
    Ok(cycles)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Checks the cycles of a crate with these source files, of which the first is its root.
    fn check(sources: &[(&str, &str)], expected: Expect) {
        let load = |path: &Path| {
            let found = sources.iter().find(|(file, _)| Path::new("src").join(file) == path);
            Ok(found.map(|(_, text)| (*text).to_owned()))
        };
        let found = cycles(&Path::new("src").join(sources[0].0), &load).expect("the sources are whole");
        let lines = found.into_iter().flat_map(|cycle| [vec![cycle.files.join(", ")], cycle.arrows].concat());
        expected.assert_eq(&lines.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines_the_name() {
        check(
            &[
                ("lib.rs", "mod a; mod b; mod outer; pub use a::A; pub use outer::*;"),
                ("a.rs", "use crate::Deep; pub struct A(Deep);"),
                ("b.rs", "use crate::A; pub struct B(A);"),
                ("outer.rs", "mod deep; pub(crate) use deep::Deep as Deep;"),
                ("outer/deep.rs", "use crate::b; pub struct Deep(Option<Box<b::B>>);"),
            ],
            expect![[r#"
                a.rs, b.rs, outer/deep.rs
                a.rs -> outer/deep.rs: Deep
                b.rs -> a.rs: A
                outer/deep.rs -> b.rs: B"#]],
        );
    }

    #[test]
    fn a_child_that_uses_its_parent_which_uses_it_is_a_cycle() {
        check(
            &[
                ("lib.rs", "mod parent;"),
                ("parent.rs", "mod child; pub struct Shared; fn run() { child::start(self::Shared); }"),
                ("parent/child.rs", "pub(super) fn start(_: super::Shared) {}"),
            ],
            expect![[r#"
                parent.rs, parent/child.rs
                parent.rs -> parent/child.rs: start
                parent/child.rs -> parent.rs: Shared"#]],
        );
    }

    #[test]
    fn declaring_or_re_exporting_a_child_is_no_arrow_to_it() {
        check(
            &[
                ("lib.rs", "mod parent; pub use parent::start;"),
                ("parent.rs", "mod child; pub use child::start; pub struct Shared;"),
                (
                    "parent/child.rs",
                    "use super::*; pub fn start(_: Shared) { inner::run() } \
                  mod inner { pub(super) fn run() { super::super::Shared; } }",
                ),
            ],
            expect![""],
        );
    }

    #[test]
    fn what_only_tests_use_is_no_arrow() {
        let uses = "pub struct A;
            #[cfg(test)] use crate::b::B;
            #[cfg(all(test, unix))] mod tests { use crate::b::B; }
            #[cfg(test)] mod more;
            #[test] fn check() { crate::b::B; }
            impl A { #[cfg(test)] fn check(_: crate::b::B) {} }
            fn run() { #[cfg(test)] let _ = crate::b::B; }";
        let b = ("b.rs", "use crate::a::A; pub struct B(A);");
        check(&[("lib.rs", "mod a; mod b;"), ("a.rs", uses), b], expect![""]);
        let uses = "pub struct A; #[cfg(any(test, unix))] use crate::b::B;";
        check(
            &[("lib.rs", "mod a; mod b;"), ("a.rs", uses), b],
            expect![[r#"
                a.rs, b.rs
                a.rs -> b.rs: B
                b.rs -> a.rs: A"#]],
        );
    }

    #[test]
    fn names_in_macros_and_through_globs_count() {
        check(
            &[
                ("lib.rs", "mod a; mod c; pub mod all { pub use crate::c::*; }"),
                (
                    "a.rs",
                    "use crate::all::*;
                  macro_rules! shout { ($text:expr) => { println!(\"{}\", $text) } }
                  mod b;
                  fn run(b: B) { assert!(b.c().is_empty(), \"{}\", [C; 1].len()); }",
                ),
                ("a/b.rs", "pub fn run() { assert!(shout!(1)); }"),
                ("c.rs", "pub const C: u8 = 1; fn run() { vec![crate::a::b::run()]; }"),
            ],
            expect![[r#"
                a.rs, a/b.rs, c.rs
                a.rs -> c.rs: C
                a/b.rs -> a.rs: shout
                c.rs -> a/b.rs: run"#]],
        );
    }

    #[test]
    fn modules_that_a_list_declares_count() {
        check(
            &[
                ("lib.rs", "mod list; mod b;"),
                (
                    "list.rs",
                    "macro_rules! all { () => { mod none; } } all! { #[cfg(x)] mod one: \"one\" => ONE, TWO; }",
                ),
                ("list/one.rs", "use crate::b::B; pub const ONE: B = B; pub const TWO: B = B;"),
                ("b.rs", "pub struct B; fn run() { crate::list::one::ONE; }"),
            ],
            expect![[r#"
                b.rs, list/one.rs
                b.rs -> list/one.rs: ONE
                list/one.rs -> b.rs: B"#]],
        );
        check(
            &[
                ("lib.rs", "pub struct Root; all! { mod one: ONE; }"),
                ("one.rs", "use crate::Root; pub const ONE: Root = Root;"),
            ],
            expect![[r#"
                lib.rs, one.rs
                lib.rs -> one.rs: ONE
                one.rs -> lib.rs: Root"#]],
        );
    }

    #[test]
    fn other_crates_values_and_a_ring_of_globs_are_no_arrows() {
        check(
            &[
                ("lib.rs", "mod a; mod b; pub use a::*; pub use b::*;"),
                (
                    "a.rs",
                    "use std::fmt; use crate::*; pub struct A { pub run: u8 } \
                  pub fn new(a: A) -> fmt::Result { assert!(a.run == ::b::run(1)); unknown() }",
                ),
                ("b.rs", "use crate::*; pub fn run(a: A) -> A { A { run: a.run } }"),
            ],
            expect![""],
        );
    }

    #[test]
    fn a_cycle_is_shown_with_the_names_that_tie_it() {
        let cycle = Cycle {
            files: vec!["a.rs".to_owned(), "b.rs".to_owned()],
            arrows: vec!["a.rs -> b.rs: B".to_owned(), "b.rs -> a.rs: A".to_owned()],
        };
        expect![[r#"
            one: a.rs, b.rs use one another
                a.rs -> b.rs: B
                b.rs -> a.rs: A"#]]
        .assert_eq(&shown("one", &cycle));
    }

    #[test]
    fn a_module_without_a_file_is_an_error() {
        let load = |path: &Path| Ok((path == Path::new("lib.rs")).then(|| "mod gone;".to_owned()));
        let error = cycles(Path::new("lib.rs"), &load).expect_err("there is no such file");
        expect!["lib.rs declares module `gone`, which has no file"].assert_eq(&error.to_string());
    }
}
