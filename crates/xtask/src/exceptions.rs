//! Files that are exceptions to a rule of the workspace, each named here with its reason: those that contain `unsafe`, and
//! those that read files of the kernel without a `Sysroot`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace::root;

/// Files that may lift the lint, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("crates/orinoco-collective-c/src/api.rs", "C calls these functions by name, with addresses"),
    ("crates/orinoco-collective-c/src/join.rs", "C calls these functions by name, with addresses"),
    ("crates/orinoco-collective-c/src/vectors.rs", "C gives vectors by address and length"),
    (
        "crates/orinoco-collective/src/message/vector_memory.rs",
        "memory that a device reads and writes is a raw mapping",
    ),
    (
        "crates/orinoco-collective/src/pcie/mapping.rs",
        "a PCI window that other boards write to is a raw mapping",
    ),
    (
        "crates/orinoco-collective/src/rdma/verbs.rs",
        "the verbs are C functions with raw handles, and devices write to the memory",
    ),
    ("crates/orinoco-collective/src/shm/arm.rs", "the instruction has no function"),
    ("crates/orinoco-collective/src/shm/remote.rs", "the kernel copies between addresses of two processes"),
    ("crates/orinoco-collective/src/shm/segment.rs", "memory that other processes share is a raw mapping"),
    ("crates/orinoco-cuda/src/block.rs", "the driver's allocations are raw memory"),
    ("crates/orinoco-cuda/src/capture.rs", "the driver's graphs are raw handles"),
    ("crates/orinoco-cuda/src/context.rs", "the driver's context and modules are raw handles"),
    ("crates/orinoco-cuda/src/driver.rs", "the driver's functions take raw pointers"),
    ("crates/orinoco-cuda/src/info.rs", "the driver answers through raw pointers"),
    ("crates/orinoco-cuda/src/memory.rs", "the driver's allocations are raw memory"),
    ("crates/orinoco-cuda/src/span.rs", "an address is what the caller says it is"),
    ("crates/orinoco-cuda/src/stream.rs", "the driver's streams and events are raw handles"),
    ("crates/orinoco-cuda/src/surface.rs", "two C libraries that know each other's handles"),
    ("crates/orinoco-cuda/src/table/span.rs", "a table is filled if the caller says so"),
    (
        "crates/orinoco-cuda-doubles/src/emulator.rs",
        "kernels compiled for the CPU are C, and read memory by address",
    ),
    ("crates/orinoco-cuda-doubles/src/gpu.rs", "a table of frames in memory of the test's own"),
    (
        "crates/orinoco-media/src/v4l2/kernel.rs",
        "V4L2's ioctls take pointers, and its buffers are mapped memory",
    ),
    (
        "crates/orinoco-runtime/src/process.rs",
        "environment and C library are set up by functions that ask for care",
    ),
    ("crates/orinoco-media/src/gst/nvmm.rs", "a buffer's content is a C structure with a pointer to another"),
    ("crates/orinoco-infer/tests/allocations.rs", "a global allocator that counts"),
    (
        "crates/orinoco-infer/src/engines/onnxruntime/device_session.rs",
        "tensors of ONNX Runtime on the GPU are raw memory",
    ),
    (
        "crates/orinoco-infer/src/engines/onnxruntime/memory.rs",
        "ONNX Runtime calls back with and for raw pointers",
    ),
    (
        "crates/orinocod/src/crash.rs",
        "a handler of a crash must promise to call only what a signal handler may",
    ),
    ("crates/orinoco-memory/src/arena.rs", "an arena is a mapping, and hands out pointers into it"),
];

/// Files of programs and libraries that read `/proc`, `/sys` or `/etc` without a `Sysroot`, with the reason. Of a board nothing
/// is read so: a board is a directory, also in tests.
const DIRECT_READS: &[(&str, &str)] = &[
    (
        "crates/orinoco-collective/src/message/tuner.rs",
        "the crate is used alone; the start of the machine it runs on",
    ),
    ("crates/orinoco-collective/src/mutations.rs", "the crate is used alone; the process at work, in tests"),
    (
        "crates/orinoco-collective/src/shm/thread_state.rs",
        "the crate is used alone; a thread of another rank",
    ),
    ("crates/orinoco-config/src/file.rs", "a file without a length, in tests"),
    ("crates/orinoco-infer/src/engines/onnxruntime/library.rs", "libraries that the process has loaded"),
    ("crates/orinoco/src/commands/doctor/machine.rs", "kinds of the files in /dev, by the root's real path"),
    ("crates/orinoco-model/src/onnx.rs", "bytes that the process has read, in tests"),
    ("crates/orinoco-model/src/repository.rs", "bytes that the process has read, in tests"),
];

/// Fails on a file that is an exception without being named, and on a name that is no longer needed.
pub(crate) fn check() -> Result<()> {
    check_unsafe()?;
    check_direct_reads()
}

/// Fails on a file that reads files of the kernel directly without being named, and on a name that is no longer needed.
fn check_direct_reads() -> Result<()> {
    let mut reading = Vec::new();
    for file in sources(&root().join("crates"))? {
        let name = file.strip_prefix(root())?.display().to_string();
        // Developer commands and tests may: they are about the machine that they run on.
        let is_product =
            !name.starts_with("crates/xtask/") && !name.contains("/tests") && !name.contains("/examples/");
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        if is_product && reads_directly(&text) {
            reading.push(name);
        }
    }
    compare("files of the kernel, read without a Sysroot", "reads them", &reading, DIRECT_READS)
}

/// Whether a source file names files of the kernel, and opens or reads files by itself.
fn reads_directly(text: &str) -> bool {
    let reads = ["fs::read", "File::open", "read_to_string("].iter().any(|call| text.contains(call));
    reads && ["\"/proc/", "\"/sys/", "\"/etc/"].iter().any(|folder| text.contains(folder))
}

/// Fails on a file that lifts the lint without being named, and on a name that is no longer needed.
fn check_unsafe() -> Result<()> {
    let mut lifting = Vec::new();
    for file in sources(&root().join("crates"))?.into_iter().chain(sources(&root().join("tests"))?) {
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        // The lint's name has no other place in a source file. Split, so that this file does not find itself.
        if text.contains(concat!("unsafe", "_code")) {
            lifting.push(file.strip_prefix(root())?.display().to_string());
        }
    }
    compare("unsafe code", "lifts the lint", &lifting, EXCEPTIONS)
}

/// Fails unless the files found are those named.
fn compare(rule: &str, does: &str, found: &[String], named: &[(&str, &str)]) -> Result<()> {
    let unnamed = found.iter().filter(|file| !named.iter().any(|(name, _)| name == file));
    let unused = named.iter().filter(|(name, _)| !found.iter().any(|file| file == name));
    let faults: Vec<String> = unnamed
        .map(|file| format!("{file} {does} and is not named"))
        .chain(unused.map(|(name, _)| format!("{name} is named and no longer {does}")))
        .collect();
    if !faults.is_empty() {
        bail!("{rule} (crates/xtask/src/exceptions.rs):\n  {}", faults.join("\n  "));
    }
    println!("{rule}: {} named files", named.len());
    Ok(())
}

fn sources(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::reads_directly;

    #[test]
    fn direct_reads_are_found() {
        assert!(reads_directly(r#"    let text = fs::read_to_string("/proc/self/maps")?;"#));
        assert!(reads_directly(r#"    fs::read_to_string(format!("/proc/{process}/stat"))"#));
        assert!(!reads_directly(r#"    sysroot.text("/proc/meminfo")"#));
        assert!(reads_directly("const BOOT: &str = \"/proc/stat\";\nfs::read(BOOT)"));
        assert!(!reads_directly(r#"    fs::read_to_string(path)"#));
    }
}
