//! Execution of commands that may hang.

#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::io::{self, Read};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Interval at which a child process is polled for its end.
const POLL: Duration = Duration::from_millis(5);

/// Executes a command, and returns its output. Ends it and fails if it takes longer than `limit`.
pub(crate) fn output_within(command: &mut Command, limit: Duration) -> Result<Output> {
    let start = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    // Both pipes are read while the command runs, because a child that prints much would block otherwise.
    let stdout = collect(child.stdout.take().expect("piped"));
    let stderr = collect(child.stderr.take().expect("piped"));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("no end after {} s", limit.as_secs());
        }
        thread::sleep(POLL);
    };
    let [stdout, stderr] = [stdout, stderr].map(|reader| reader.join().expect("reading does not panic"));
    Ok(Output { status, stdout: stdout?, stderr: stderr? })
}

/// Executes a command that ends soon by itself. If it fails, the error contains its error output.
pub(crate) fn succeed(command: &mut Command) -> Result<Output> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<io::Result<Vec<u8>>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_ended() {
        let failure = output_within(Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert_eq!(failure.expect_err("too late").to_string(), "no end after 0 s");
    }

    #[test]
    fn what_a_command_prints_is_collected() {
        let mut command = Command::new("sh");
        command.args(["-c", "seq 100000; echo why >&2; exit 3"]);
        let output = output_within(&mut command, Duration::from_secs(60)).expect("it ends");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.len(), &output.stderr[..]), (588_895, &b"why\n"[..]));
    }
}
