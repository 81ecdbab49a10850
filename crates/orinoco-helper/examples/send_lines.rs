//! Sends lines to the helper as the user that runs it, and prints each answer, for the tests on emulated boards:
//! `send_lines SOCKET <LINES`. A line may hold any bytes.

#![allow(clippy::print_stdout, reason = "the answers are its output")]

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

fn main() -> io::Result<()> {
    let socket = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: send_lines SOCKET"))?;
    let mut stream = connect(&socket)?;
    for line in io::stdin().lock().split(b'\n') {
        let line = line?;
        let answer = match ask(&mut stream, &line) {
            Some(answer) => Some(answer),
            None => {
                // The helper closes a connection after a line that is too long.
                stream = connect(&socket)?;
                ask(&mut stream, &line)
            }
        };
        println!("{}", answer.as_deref().unwrap_or("closed"));
    }
    Ok(())
}

fn connect(socket: &OsString) -> io::Result<BufReader<UnixStream>> {
    UnixStream::connect(socket).map(BufReader::new)
}

/// Sends a line, and returns the answer without its new line; `None` if the connection is closed.
fn ask(stream: &mut BufReader<UnixStream>, line: &[u8]) -> Option<String> {
    // A helper that refuses a client answers without reading, and closes: what it said is worth more than the broken pipe.
    let _ = stream.get_mut().write_all(&[line, b"\n"].concat());
    let mut answer = String::new();
    let bytes = stream.read_line(&mut answer).ok()?;
    (bytes > 0).then(|| answer.trim_end().to_owned())
}
