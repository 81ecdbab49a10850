//! The library from C: its header is up to date, and programs in C get right results and errors.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use orinoco_collective::GroupKey;

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_that_of_the_functions() {
    let folder = crate_folder();
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let sources = ["join.rs", "api.rs", "explanation.rs", "settings.rs", "fault.rs", "group.rs"]
        .map(|name| folder.join("src").join(name));
    let builder = sources
        .iter()
        .fold(cbindgen::Builder::new().with_config(config), |builder, source| builder.with_src(source));
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    let path = folder.join("include/orinoco_collective.h");
    expect_test::expect_file![path].assert_eq(&String::from_utf8(header).unwrap());
}

/// The folder of the library that belongs to this test.
fn library_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

/// Compiles a program in C with the library. `None` if there is no C compiler.
fn compile(source: &Path, into: &Path) -> Option<()> {
    let library = library_folder().join("liborinoco_collective_c.so");
    assert!(library.exists(), "{} is built with this test", library.display());
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    compiler.arg("-I").arg(crate_folder().join("include")).arg(source).arg("-o").arg(into);
    compiler.arg(&library).arg(format!("-Wl,-rpath,{}", library_folder().display()));
    let status = compiler.status().ok()?;
    assert!(status.success(), "cc compiles {}", source.display());
    Some(())
}

/// Runs a program as each rank. Returns the outputs in rank order.
fn run(program: &Path, transport: &str, rendezvous: &str, ranks: usize) -> Vec<(bool, String)> {
    let start = |rank: usize| {
        let mut process = Command::new(program);
        process.args([transport, rendezvous, &rank.to_string(), &ranks.to_string()]);
        process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<_> = (0..ranks).map(start).collect();
    let outputs = processes.into_iter().map(|process| process.wait_with_output().unwrap());
    outputs
        .map(|output| {
            let text = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&text).into_owned())
        })
        .collect()
}

#[test]
fn programs_in_c_get_right_results_and_errors() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let program = folder.path().join("check");
    if compile(&crate_folder().join("tests/check.c"), &program).is_none() {
        println_skipped();
        return;
    }
    let file = folder.path().join("group").display().to_string();
    GroupKey::generate().unwrap().write(Path::new(&format!("{file}.key"))).unwrap();
    for ranks in [1, 2, 3] {
        for (transport, rendezvous) in [
            ("shm", file.clone()),
            ("tcp", format!("file:{file}")),
            ("tcp-plaintext", format!("file:{file}")),
            ("tcp-settings", format!("file:{file}")),
            ("pcie", file.clone()),
            ("pcie-key", file.clone()),
        ] {
            for (rank, (is_right, output)) in run(&program, transport, &rendezvous, ranks).iter().enumerate()
            {
                assert!(is_right, "rank {rank} of {ranks} over {transport}: {output}");
            }
        }
    }
}

#[test]
fn ranks_that_end_as_soon_as_they_have_left_fail_nobody() {
    /// Groups. Some of the first ones fail where the thread that sends the last notice ends with its process.
    const GROUPS: usize = 40;
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let program = folder.path().join("check");
    if compile(&crate_folder().join("tests/check.c"), &program).is_none() {
        println_skipped();
        return;
    }
    let rendezvous = format!("file:{}", folder.path().join("group").display());
    for number in 0..GROUPS {
        for (rank, (is_right, output)) in run(&program, "end-at-once", &rendezvous, 2).iter().enumerate() {
            assert!(is_right, "rank {rank} of group {number}: {output}");
        }
    }
}

#[test]
fn the_example_in_c_runs() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let program = folder.path().join("all_reduce");
    if compile(&crate_folder().join("examples/all_reduce.c"), &program).is_none() {
        println_skipped();
        return;
    }
    let file = folder.path().join("group").display().to_string();
    let outputs = run(&program, "shm", &file, 2);
    assert!(outputs.iter().all(|(is_right, _)| *is_right), "{outputs:?}");
    assert!(outputs[0].1.contains("bytes"), "{outputs:?}");
}

#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn println_skipped() {
    println!("skipped: there is no C compiler (cc)");
}
