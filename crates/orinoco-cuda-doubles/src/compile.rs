//! The kernels' sources as C++ for the CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The sources without their endings.
pub(crate) const SOURCES: [&str; 5] = ["convert", "heads", "nms", "preprocess", "reduce"];

/// The C++ compiler, or that there is none.
pub(crate) fn compiler() -> Result<String, String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let there = Command::new(&compiler).arg("--version").output().is_ok();
    if there { Ok(compiler) } else { Err(format!("there is no C++ compiler `{compiler}`")) }
}

/// Code in front of the kernels: a shim of CUDA's built-ins, and the prelude that all kernels share.
pub(crate) fn head() -> String {
    format!("{}\n{}\n", include_str!("shim.h"), read("prelude.cuh"))
}

/// The text of a source, whose lines keep their numbers.
pub(crate) fn source(name: &str) -> String {
    format!("#line 1 \"{name}.cu\"\n{}\n", read(&format!("{name}.cu")))
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()))
}

/// The kernels that a text defines.
pub(crate) fn kernel_names(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.split("extern \"C\" __global__ void ").skip(1);
    starts.map(|rest| rest.split('(').next().unwrap_or_default())
}

/// Starts to compile `text` into the shared library `library`.
pub(crate) fn start(compiler: &str, text: &str, library: &Path) -> Child {
    let source: PathBuf = library.with_extension("cpp");
    fs::write(&source, text).expect("the folder can be written to");
    let mut build = Command::new(compiler);
    // Nothing is fused, as in kernels/compile.py. What C++ does not define ends the test.
    build.args(["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w"]);
    build.args(["-fsanitize=undefined,float-cast-overflow", "-fsanitize-undefined-trap-on-error"]);
    build.arg(&source).arg("-o").arg(library).spawn().expect("the compiler starts")
}

/// Waits for it.
pub(crate) fn finish(mut build: Child) {
    let status = build.wait().expect("the compiler ends");
    assert!(status.success(), "compiling the kernels for the CPU failed: {status}");
}
