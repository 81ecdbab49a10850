//! Collects every text for users on one page, `docs/texts.md`, so that a changed text is visible there and can be
//! reviewed. `UPDATE_EXPECT=1 cargo test -p orinoco-tests --test texts` writes the page again.

mod strings;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect_file;
use orinoco_core::codes;
use orinoco_tests::{binary, root};

const HEADING: &str = "# Texts\n\n\
    Every text that a user can meet: the help of each command, the page of each error code, and the strings of the sources, \
    file by file, with `{}` where a value is filled in. Written by the test `texts`; do not edit it by hand.\n";

/// Crates without texts for users: they are for tests and for developers.
const NOT_SHIPPED: [&str; 3] = ["orinoco-cuda-doubles", "orinoco-sim", "xtask"];

#[test]
fn the_page_of_texts_is_up_to_date() {
    let mut page = HEADING.to_owned();
    page.push_str("\n## Help\n");
    help(&mut page, "orinoco", &mut Vec::new());
    help(&mut page, "orinocod", &mut Vec::new());
    page.push_str("\n## Error codes\n");
    for code in codes::ALL {
        write!(page, "\n**{}** (exit {}): {}\n\n{}\n", code.id, code.exit as i32, code.title, code.page)
            .expect("writing to a string");
    }
    page.push_str("\n## Strings of the sources\n");
    for file in shipped_sources() {
        let source = std::fs::read_to_string(&file).expect("sources are readable");
        let strings = strings::of_source(&source);
        if !strings.is_empty() {
            let name = file.strip_prefix(root()).expect("below the root");
            write!(page, "\n### {}\n\n", name.display()).expect("writing to a string");
            strings.iter().for_each(|string| page.push_str(&format!("- {string}\n")));
        }
    }
    expect_file![root().join("docs/texts.md")].assert_eq(&page);
}

/// Adds the help of a command and of its subcommands to the page.
fn help(page: &mut String, program: &str, command: &mut Vec<String>) {
    let output = Command::new(binary(program)).args(&*command).arg("--help").env("NO_COLOR", "1").output();
    let text = String::from_utf8(output.expect("the program starts").stdout).expect("UTF-8");
    let name = [&[program.to_owned()], &command[..]].concat().join(" ");
    write!(page, "\n### `{name}`\n\n```text\n{}\n```\n", text.trim_end()).expect("writing to a string");
    for subcommand in subcommands(&text) {
        command.push(subcommand);
        help(page, program, command);
        command.pop();
    }
}

/// Returns the names under the heading `Commands:` of a help page, in order.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Second lines of descriptions are indented further.
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Returns the source files of all crates that users get, in order.
fn shipped_sources() -> Vec<PathBuf> {
    let crates = files_in(&root().join("crates"));
    let shipped = crates.into_iter().filter(|path| !NOT_SHIPPED.iter().any(|name| path.ends_with(name)));
    let mut sources = Vec::new();
    shipped.for_each(|path| add_sources(&path.join("src"), &mut sources));
    sources
}

fn add_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for path in files_in(folder) {
        let is_for_tests =
            path.file_stem().is_some_and(|name| name == "tests" || name == "testing" || name == "simulated");
        if is_for_tests {
        } else if path.is_dir() {
            add_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}
