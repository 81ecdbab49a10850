//! Emulated boards from the command line: up until `down`, and meanwhile reached and mistreated by other commands.
//!
//! Boards live as long as the process that holds them. `up` starts that process (`hold`, itself in the background) and
//! leaves its number and the boards' folder in a file, which the other commands read.

#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use orinoco_rig::{BOARDS_MAX, Board, Boards, Fault, Flavour, Link, Options, Rig, Unavailable, VividOptions};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::steps::{UNAVAILABLE, command, step};
use crate::workspace::target_dir;

/// Longest end of the boards after they were told.
const DOWN_MAX: Duration = Duration::from_secs(20);

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Make the parts that boards are put together from
    Build {
        #[arg(long, value_enum, default_value_t)]
        flavour: FlavourName,
    },
    /// Start boards; they run until `down`
    Up(Up),
    /// Hold the boards in the background, started by `up`
    #[command(hide = true)]
    Hold(Up),
    /// List the boards that are up
    List,
    /// End them
    Down,
    /// A shell on a board, or one command
    Ssh {
        /// 1 for the first board
        board: u8,
        /// The command; a shell if none is given
        #[arg(trailing_var_arg = true)]
        command: Vec<String>,
    },
    /// Copy a file to a board
    Put {
        /// 1 for the first board
        board: u8,
        local: PathBuf,
        /// Path on the board, such as `/tmp/name`
        remote: String,
    },
    /// Plug cameras into a board, in place of those that are there
    Camera {
        /// 1 for the first board
        board: u8,
        #[arg(default_value_t = 1)]
        count: u8,
    },
    /// Let something go wrong: link-down, link-up, pause, resume, reset, kill, netem, netem-off, unbind, bind
    Fault {
        /// 1 for the first board
        board: u8,
        /// The fault and its words, as `netem delay 10ms` or `unbind vivid vivid.0`
        #[arg(trailing_var_arg = true, required = true)]
        fault: Vec<String>,
    },
    /// Test the rig, and Orinoco on it
    Test,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Up {
    /// Number of boards
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(BOARDS_MAX)))]
    count: u8,
    #[arg(long, value_enum, default_value_t)]
    flavour: FlavourName,
    /// Network between the boards; `bridge` needs root
    #[arg(long, value_enum, default_value_t)]
    link: LinkName,
    /// Memory of each, in MiB
    #[arg(long, value_name = "MIB", default_value_t = Options::default().memory_mib)]
    memory: u32,
    /// Cores of each
    #[arg(long, default_value_t = Options::default().cpus)]
    cpus: u32,
    /// Largest packet between boards, in bytes; RDMA likes 4200
    #[arg(long, default_value_t = Options::default().mtu)]
    mtu: u32,
    /// Memory that they share through PCI, in MiB, a power of two
    #[arg(long, value_name = "MIB")]
    shared_bar: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum FlavourName {
    /// A shell script as pid 1 and dropbear: up in 4 s
    #[default]
    Dropbear,
    /// systemd and OpenSSH, as boards in the field have them
    Systemd,
}

impl From<FlavourName> for Flavour {
    fn from(name: FlavourName) -> Self {
        match name {
            FlavourName::Dropbear => Self::Dropbear,
            FlavourName::Systemd => Self::Systemd,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LinkName {
    /// Sockets between the emulators, without root
    #[default]
    Socket,
    /// A bridge in a network namespace
    Bridge,
    /// None
    None,
}

impl From<LinkName> for Link {
    fn from(name: LinkName) -> Self {
        match name {
            LinkName::Socket => Self::Socket,
            LinkName::Bridge => Self::Bridge,
            LinkName::None => Self::None,
        }
    }
}

/// Record that `up` leaves for the other commands.
#[derive(Debug, Serialize, Deserialize)]
struct Held {
    /// The process that holds the boards.
    pid: i32,
    /// The boards' folder.
    folder: PathBuf,
}

pub(crate) fn run(action: Action) -> Result<ExitStatus> {
    match action {
        Action::Build { flavour } => Rig::build(flavour.into()).map(drop)?,
        Action::Up(options) => return up(&options),
        Action::Hold(options) => hold(&options)?,
        Action::List => list(&held()?.folder)?,
        Action::Down => down()?,
        Action::Ssh { board, command } => {
            return Ok(find(board)?.ssh_command().args(command).status()?);
        }
        Action::Put { board, local, remote } => find(board)?.put(&local, &remote)?,
        Action::Camera { board, count } => {
            for device in find(board)?.camera(VividOptions { count, ..VividOptions::default() })? {
                println!("{device}");
            }
        }
        Action::Fault { board, fault } => find(board)?.fault(&fault.join(" ").parse::<Fault>()?)?,
        Action::Test => test()?,
    }
    Ok(ExitStatus::default())
}

/// The boards' tests, and Orinoco's tests on boards. Those say "skipped" where the binaries cannot be built.
fn test() -> Result<()> {
    step("cross-compilation", command(&["cross/build.sh"]))?;
    // Results of boards are compared with those of this machine. No more packages than these: to build all of Orinoco takes longer.
    step("build", command(&["cargo", "build", "--release", "--package", "orinoco"]))?;
    let mut tests = command(&["cargo", "test", "--release", "--package", "orinoco-rig", "--package"]);
    tests.args(["orinoco-tests", "--test", "boards", "--test", "on_board", "--"]);
    // Boards wait much of their time, so that two cores carry four tests. `smoke` is for `make test`.
    tests.args(["--ignored", "--nocapture", "--test-threads=4", "--skip=smoke"]);
    step("boards", tests)?;
    let tract = ["cargo", "test", "--release", "--package", "orinoco-tests", "--test", "aarch64", "--"];
    let mut tract = command(&tract);
    tract.args(["--ignored", "--nocapture", "tract_on_aarch64"]);
    step("tract under qemu-user", tract).map(drop)
}

// --- holding boards ----------------------------------------------------------------------------------------------------

/// Path of the record that `up` leaves: next to the build output, so that two checkouts do not collide.
fn held_file() -> PathBuf {
    target_dir().join("boards.json")
}

fn held() -> Result<Held> {
    let running = || -> Option<Held> {
        let held: Held = serde_json::from_slice(&fs::read(held_file()).ok()?).ok()?;
        // The process may have died without `down`; its boards went with it.
        let alive = Pid::from_raw(held.pid).is_some_and(|pid| test_kill_process(pid).is_ok());
        (alive && held.folder.is_dir()).then_some(held)
    };
    running().context("no boards are up: start some with `cargo xtask boards up 1`")
}

fn find(id: u8) -> Result<Board> {
    let boards = Boards::attach(&held()?.folder)?;
    let count = boards.len();
    let board = boards.into_iter().find(|board| board.id() == id);
    board.with_context(|| format!("there is no board {id}: 1 to {count} are up"))
}

/// Starts `hold` in the background, and waits until its boards answer.
fn up(options: &Up) -> Result<ExitStatus> {
    ensure!(held().is_err(), "boards are up already: end them with `cargo xtask boards down`");
    let mut hold = Command::new(std::env::current_exe()?);
    hold.args(["boards", "hold", &options.count.to_string()]);
    hold.args(["--flavour", name(options.flavour).get_name(), "--link", name(options.link).get_name()]);
    hold.args(["--memory", &options.memory.to_string(), "--cpus", &options.cpus.to_string()]);
    hold.args(["--mtu", &options.mtu.to_string()]);
    if let Some(size) = options.shared_bar {
        hold.args(["--shared-bar", &size.to_string()]);
    }
    let mut child = hold.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn()?;
    let mut folder = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut folder)?;
    if folder.is_empty() {
        // It has said why.
        return Ok(child.wait()?);
    }
    list(Path::new(folder.trim()))?;
    Ok(ExitStatus::default())
}

fn name<T: ValueEnum>(value: T) -> clap::builder::PossibleValue {
    value.to_possible_value().expect("no value is hidden")
}

/// Holds boards until this process is ended. What it leaves behind then, the rig clears away.
fn hold(options: &Up) -> Result<()> {
    let rig = Rig::build(options.flavour.into())?;
    let boards = rig.up(
        options.count,
        &Options {
            memory_mib: options.memory,
            cpus: options.cpus,
            link: options.link.into(),
            mtu: options.mtu,
            shared_bar_mib: options.shared_bar,
            hurried: false,
        },
    )?;
    let pid = i32::try_from(std::process::id())?;
    let held = Held { pid, folder: boards.folder().to_owned() };
    fs::create_dir_all(target_dir())?;
    let part = held_file().with_extension("part");
    File::create(&part)?.write_all(&serde_json::to_vec(&held)?)?;
    fs::rename(part, held_file())?;
    println!("{}", held.folder.display());
    loop {
        thread::park();
    }
}

/// Prints the boards with how to reach them.
fn list(folder: &Path) -> Result<()> {
    println!("{:<8} {:<11} {:<6} CONSOLE", "BOARD", "ADDRESS", "BOOTS");
    for board in Boards::attach(folder)? {
        let console = folder.join(format!("{}.log", board.id()));
        println!(
            "{:<8} {:<11} {:<6} {}",
            board.to_string(),
            board.address(),
            board.boots(),
            console.display()
        );
    }
    println!("\ncargo xtask boards ssh 1      a shell on the first; `cargo xtask boards down` ends them");
    Ok(())
}

/// Ends what holds the boards, and waits until nothing of them is left.
fn down() -> Result<()> {
    let held = held()?;
    let pid = Pid::from_raw(held.pid).context("nobody holds the boards")?;
    kill_process(pid, Signal::TERM)?;
    let start = Instant::now();
    while held.folder.exists() {
        if start.elapsed() > DOWN_MAX {
            bail!("{} is still there: look at what holds it", held.folder.display());
        }
        thread::sleep(Duration::from_millis(50));
    }
    let _ = fs::remove_file(held_file());
    Ok(())
}

/// The exit code that says "this machine cannot do it", where that is why.
pub(crate) fn exit_code(error: &anyhow::Error) -> i32 {
    if error.is::<Unavailable>() { UNAVAILABLE } else { 1 }
}
