//! `orinoco top` on a terminal: a pseudo-terminal of the test's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::server::{Answer, STATUS, serve, serve_at};

/// Time in which the screen shows something, or the program ends.
const WITHIN: Duration = Duration::from_secs(20);

/// Bytes that a program writes when it leaves the screen to the shell: the cursor is shown, and xterm's alternate screen ends.
const CURSOR_SHOWN: &str = "\x1b[?25h";
const SCREEN_LEFT: &str = "\x1b[?1049l";

/// A program on a terminal.
struct Terminal {
    child: Child,
    master: File,
    slave: OwnedFd,
    written: Arc<Mutex<String>>,
    modes_before: String,
}

impl Terminal {
    fn start(arguments: &[&str]) -> Self {
        Self::start_with("ORINOCO_SOCKET=", arguments)
    }

    /// Starts `orinoco top` with a variable of its environment, `NAME=VALUE`.
    fn start_with(variable: &str, arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is unlocked");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let slave =
            rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other end");
        let master = File::from(master);
        resize(&master, 80, 24);
        let end = || Stdio::from(slave.try_clone().expect("a copy"));
        // The screen belongs to a session of its own, as in a terminal window.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "env", variable, env!("CARGO_BIN_EXE_orinoco"), "top"]).args(arguments);
        command.env("TERM", "xterm-256color");
        let modes_before = modes(&slave);
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("setsid starts");
        let written = Arc::new(Mutex::new(String::new()));
        let (mut reader, into) = (master.try_clone().expect("a copy"), written.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                into.lock().expect("no panic").push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Self { child, master, slave, written, modes_before }
    }

    /// Waits until the program has written a text, and forgets what came before.
    fn wait_for(&self, text: &str) {
        let start = Instant::now();
        loop {
            let mut written = self.written.lock().expect("no panic");
            if let Some(at) = written.find(text) {
                written.drain(..at + text.len());
                return;
            }
            assert!(start.elapsed() < WITHIN, "no {text:?} in {written:?}");
            drop(written);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("keys are taken");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is sent");
    }

    /// Checks that the program ends with this exit code, and leaves the terminal as it was.
    fn check_end(mut self, exit: i32) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waits") {
                break status;
            }
            assert!(start.elapsed() < WITHIN, "it goes on");
            thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(exit));
        self.wait_for(CURSOR_SHOWN);
        self.wait_for(SCREEN_LEFT);
        assert_eq!(modes(&self.slave), self.modes_before, "line editing and echo are as before");
    }
}

fn resize(master: &File, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).expect("a size");
}

fn modes(slave: &OwnedFd) -> String {
    let modes = tcgetattr(slave).expect("a terminal");
    format!("{:?} {:?} {:?}", modes.input_modes, modes.output_modes, modes.local_modes)
}

#[test]
fn keys_end_the_screen_and_the_terminal_is_as_before() {
    let (_folder, socket) = serve(Answer::json("200 OK", STATUS));
    let socket = socket.display().to_string();
    for key in ["q", "\x1b", "\x03"] {
        let mut terminal = Terminal::start(&["--socket", &socket, "--interval", "0.2"]);
        terminal.wait_for("gate-north");
        terminal.wait_for("VDD_CPU_GPU_CV");
        terminal.press(key);
        terminal.check_end(0);
    }
}

#[test]
fn signals_end_the_screen_and_the_terminal_is_as_before() {
    let (_folder, socket) = serve(Answer::json("200 OK", STATUS));
    let socket = socket.display().to_string();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let terminal = Terminal::start(&["--socket", &socket]);
        terminal.wait_for("gate-north");
        terminal.signal(signal);
        terminal.check_end(130);
    }
}

#[test]
fn the_screen_follows_the_size_of_the_terminal() {
    let (_folder, socket) = serve(Answer::json("200 OK", STATUS));
    let mut terminal = Terminal::start(&["--socket", &socket.display().to_string()]);
    terminal.wait_for("q quit  p pause");
    resize(&terminal.master, 40, 10);
    terminal.wait_for("60x16 shows all");
    resize(&terminal.master, 130, 40);
    terminal.wait_for("reconnects");
    terminal.press("?");
    // Only cells that change are written: of the texts some are cut into words, of the frame none.
    terminal.wait_for("└───");
    terminal.press("q");
    terminal.check_end(0);
}

#[test]
fn a_daemon_that_comes_later_takes_the_place_of_this_machine() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("orinoco.sock");
    // The default address may fall back to this machine, so the socket is named by the environment.
    let variable = format!("ORINOCO_SOCKET={}", socket.display());
    let mut terminal = Terminal::start_with(&variable, &["--interval", "0.2"]);
    terminal.wait_for("sensors of this machine only");
    serve_at(&socket, Answer::json("200 OK", STATUS));
    terminal.wait_for("gate-north");
    terminal.press("q");
    terminal.check_end(0);
}
