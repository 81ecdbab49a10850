//! A stand-in for the driver, in which the tests run where there is no GPU: `driver.h` and the kernels, compiled for the
//! CPU.

use std::process::Command;

use crate::compile;

/// The stand-in driver: the kernels, `driver.h`, and a list of the kernels.
fn stand_in() -> String {
    let (mut text, mut list) = (compile::head(), String::new());
    for name in compile::SOURCES {
        let source = compile::source(name);
        for kernel in compile::kernel_names(&source) {
            let place = format!("{name}_source::{kernel}");
            list += &format!(
                "{{\"{kernel}\", [](void **v) {{ emulator::call({place}, v); }}, \
                 [](void **v) {{ return prepare({place}, v); }}}},\n"
            );
        }
        text += &format!("namespace {name}_source {{\n{source}}}\n");
    }
    text += include_str!("driver.h");
    text + &format!(
        "const stand_in::Kernel stand_in::kernels[] = {{{list}}};\n\
         const size_t stand_in::kernel_count = sizeof stand_in::kernels / sizeof *stand_in::kernels;\n"
    )
}

/// Set in the process that has the stand-in.
const INSIDE: &str = "ORINOCO_STAND_IN";

/// Whether the driver is the stand-in.
pub fn is_stand_in() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs the tests of this program once more, with the stand-in for a driver: as a discrete GPU, and as an integrated one.
/// `arguments` choose which. Returns at once in that run. The error says why there can be none. Panics where a test failed.
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
pub fn run_with_stand_in(arguments: &[&str]) -> Result<(), String> {
    if is_stand_in() {
        return Ok(());
    }
    let compiler = compile::compiler()?;
    let folder = tempfile::tempdir().expect("a folder for the stand-in");
    compile::finish(compile::start(&compiler, &stand_in(), &folder.path().join("libcuda.so.1")));
    for other in ["libcuda.so", "libnvbufsurface.so"] {
        std::os::unix::fs::symlink("libcuda.so.1", folder.path().join(other)).expect("a link");
    }
    for memory in ["STAND_IN_DISCRETE", "STAND_IN_INTEGRATED"] {
        let mut tests = Command::new(std::env::current_exe().expect("this test has a file"));
        tests.arg("--nocapture").args(arguments);
        let run = tests.env("LD_LIBRARY_PATH", folder.path()).env(INSIDE, "1").env(memory, "1").output();
        let run = run.expect("this test starts itself");
        let said =
            format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{memory}: {}:\n{said}", run.status);
        assert!(!said.contains("no CUDA device"), "{memory}:\n{said}");
        said.lines().filter(|line| line.starts_with("skipped")).for_each(|line| eprintln!("{line}"));
    }
    Ok(())
}
