//! `orinoco-helper`: sets the power mode and the highest clocks of a board for the daemon, and restores them. systemd starts it
//! when the daemon connects, with the socket as standard input.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;

use orinoco_helper::{Peers, PowerSettings, SILENCE_MAX, Server};
use orinoco_sysroot::Sysroot;

const USAGE: &str = "usage: orinoco-helper [--restore] [--user NAME] [--root DIR]

Serves the socket that systemd passes as standard input (orinoco-helper.socket).

  --restore     restore the original power settings after a helper was killed, and exit
  --user NAME   user that may connect, in addition to root [default: orinoco]
  --root DIR    read and write the files of a board in this folder instead of this machine's
  --version     print the version, and exit
";

/// Command line.
struct Args {
    is_restore: bool,
    user: String,
    root: PathBuf,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(text) => {
            let is_wanted = text.starts_with("orinoco-helper ");
            return if is_wanted { say(&text, ExitCode::SUCCESS) } else { say(&text, ExitCode::from(2)) };
        }
    };
    let sysroot = Sysroot::at(&args.root);
    let mut settings = PowerSettings::new(sysroot.clone());
    if args.is_restore {
        return match settings.restore() {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => say(&why.to_string(), ExitCode::from(3)),
        };
    }
    match serve(settings, Peers::of_user(&sysroot, &args.user)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let next = "start it through its socket: systemctl enable --now orinoco-helper.socket";
            say(&format!("{why}; {next}"), ExitCode::from(3))
        }
    }
}

/// Reads the command line. The error is a text to print; that of `--version` is the version.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args { is_restore: false, user: "orinoco".to_owned(), root: PathBuf::from("/") };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| USAGE.to_owned());
        match word.as_str() {
            "--restore" => args.is_restore = true,
            "--user" => args.user = value()?,
            "--root" => args.root = PathBuf::from(value()?),
            "--version" => return Err(concat!("orinoco-helper ", env!("CARGO_PKG_VERSION")).to_owned()),
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(args)
}

fn serve(settings: PowerSettings, peers: Peers) -> Result<(), String> {
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.map_err(|why| format!("standard input is not a usable socket: {why}"))?;
    let shown = |why: orinoco_helper::ServerError| {
        let source = std::error::Error::source(&why).map(|source| format!(": {source}"));
        format!("{why}{}", source.unwrap_or_default())
    };
    let mut server = Server::new(UnixListener::from(socket), settings, peers, SILENCE_MAX).map_err(shown)?;
    server.run(&mut |text| note(text)).map_err(shown)
}

/// Writes a text, and returns the exit code of the program.
fn say(text: &str, exit: ExitCode) -> ExitCode {
    note(text);
    exit
}

/// Writes a line for the journal. One that cannot be written is lost.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", text.trim_end());
}
