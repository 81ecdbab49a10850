//! Metrics as Prometheus's own checker reads them.

use std::io::Write;
use std::process::{Command, Stdio};

use orinoco_server::Limits;

use crate::fake::Served;

#[test]
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn promtool_finds_nothing_wrong() {
    let served = Served::new(Limits::default());
    let text = served.tcp().request("GET", "/metrics", &served.host()).body;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut checker) = promtool.spawn() else {
        eprintln!("skipped: promtool is not installed (Debian: prometheus)");
        return;
    };
    checker.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = checker.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}\n{text}", String::from_utf8_lossy(&said));
}
