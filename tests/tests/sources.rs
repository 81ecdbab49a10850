//! Raw video through the standard input of the real command, and folders as sources.

use std::io::Write;
use std::process::{Output, Stdio};

use orinoco_tests::{assert_one_sentence, orinoco};

/// Executes `orinoco run --source SOURCE --sink framemd5` with `input` piped into it.
fn run(source: &str, input: &[u8]) -> Output {
    let mut command = orinoco(&["run", "--source", source, "--sink", "framemd5"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("orinoco starts");
    // The command may refuse the source before it reads, so an error is ignored.
    let _ = child.stdin.take().expect("it is piped").write_all(input);
    child.wait_with_output().expect("orinoco ends")
}

/// Returns PTS and size of each frame.
fn frames(output: &Output) -> Vec<(u64, u64)> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let numbers = lines.map(|line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let number = |index: usize| fields[index].parse().expect("a number");
        (number(2), number(4))
    });
    numbers.collect()
}

#[test]
fn raw_video_is_read_from_standard_input() {
    let raw = frames(&run("stdin://?format=i420&width=16&height=8&fps=50", &[90; 3 * 192]));
    assert_eq!(raw, [(0, 192), (20_000_000, 192), (40_000_000, 192)]);
    let mut text = b"YUV4MPEG2 W16 H8 F25:1 Ip C420jpeg\n".to_vec();
    for _ in 0..2 {
        text.extend(b"FRAME\n");
        text.extend([90; 192]);
    }
    assert_eq!(frames(&run("stdin://?format=y4m", &text)), [(0, 192), (40_000_000, 192)]);
}

#[test]
fn inputs_that_cannot_be_used_are_told() {
    let cut = run("stdin://?format=i420&width=16&height=8", &[90; 200]);
    assert_one_sentence(&cut, 3, "E0404", &["8 of 192 bytes"]);
    let empty = run("stdin://?format=i420&width=16&height=8", &[]);
    assert_one_sentence(&empty, 3, "E0403", &["before the first frame"]);
    let unknown = run("stdin://?format=yuv9&width=16&height=8", &[]);
    assert_one_sentence(&unknown, 2, "E0401", &["format=yuv9"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let none = run(&format!("{}/", folder.path().display()), &[]);
    assert_one_sentence(&none, 2, "E0101", &["no PNG, JPEG or WebP image"]);
}
