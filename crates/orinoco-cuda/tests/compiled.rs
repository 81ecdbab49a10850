//! `kernels/compiled` is what the sources compile to.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};

const RENEW: &str = "run kernels/compile.py and commit what it makes";
/// Exit code of a script whose prerequisites are missing on this machine (EX_UNAVAILABLE of sysexits.h).
const UNAVAILABLE: i32 = 69;

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels")
}

fn sha256(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()));
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn manifest() -> Value {
    let path = kernels().join("compiled/manifest.json");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()));
    serde_json::from_str(&text).expect("the manifest is JSON")
}

#[test]
fn no_source_has_changed_since_it_was_compiled() {
    let manifest = manifest();
    let sources = manifest["sources"].as_object().expect("sources");
    for (name, hash) in sources {
        let stale = sha256(&kernels().join(name)) != hash.as_str().unwrap_or_default();
        assert!(!stale, "kernels/{name} has changed since it was compiled: {RENEW}");
    }
    let is_source = |name: &str| name.ends_with(".cu") || name.ends_with(".cuh");
    let there = fs::read_dir(kernels()).expect("the kernels are there").flatten();
    for name in
        there.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| is_source(name))
    {
        assert!(sources.contains_key(&name), "kernels/{name} is not compiled: name it in kernels/compile.py");
    }
}

#[test]
fn every_image_is_the_one_that_was_made() {
    for image in manifest()["images"].as_array().expect("images") {
        let file = image["file"].as_str().expect("a name");
        let path = kernels().join("compiled").join(file);
        assert_eq!(sha256(&path), image["sha256"].as_str().unwrap_or_default(), "{file}: {RENEW}");
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn the_sources_compile_to_the_same_bytes() {
    let script = kernels().join("compile.py");
    let output = match Command::new("python3").arg(&script).arg("--check").output() {
        Ok(output) => output,
        Err(why) => return eprintln!("skipped: compiling the kernels again: python3: {why}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(UNAVAILABLE) => eprintln!("skipped: compiling the kernels again: {}", said.trim()),
        _ => panic!("{said}"),
    }
}
