//! QEMU Machine Protocol (QMP): one JSON object per line over a Unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Maximum wait for an answer. QEMU answers at once, unless this machine is overloaded.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(20);

/// Executes one command of the emulator that listens at `socket`, and returns its result.
pub(crate) fn execute(socket: &Path, command: &str, arguments: Value) -> Result<Value> {
    (|| {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
        let mut lines = BufReader::new(stream.try_clone()?);
        lines.read_line(&mut String::new())?; // the greeting
        ask(&mut stream, &mut lines, "qmp_capabilities", json!({}))?;
        ask(&mut stream, &mut lines, command, arguments)
    })()
    .with_context(|| format!("asking the emulator at {} to {command}", socket.display()))
}

fn ask(out: &mut impl Write, lines: &mut impl BufRead, command: &str, arguments: Value) -> Result<Value> {
    writeln!(out, "{}", json!({ "execute": command, "arguments": arguments }))?;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            bail!("it ended the conversation");
        }
        let mut answer: Value = serde_json::from_str(&line)?;
        if let Some(error) = answer.get("error") {
            bail!("{}", error["desc"].as_str().unwrap_or("refused"));
        }
        if let Some(value) = answer.get_mut("return") {
            return Ok(value.take());
        }
        // Any other object is an event, which may arrive at any time.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answers: &str) -> Result<Value> {
        ask(&mut Vec::new(), &mut answers.as_bytes(), "stop", json!({}))
    }

    #[test]
    fn events_are_passed_over() {
        let value =
            check("{\"event\": \"STOP\"}\n{\"return\": {\"status\": \"paused\"}}\n").expect("answered");
        assert_eq!(value["status"], "paused");
    }

    #[test]
    fn refusals_and_ends_are_errors() {
        assert_eq!(check("{\"error\": {\"desc\": \"no\"}}\n").expect_err("refused").to_string(), "no");
        assert!(check("").is_err());
    }
}
