//! Emulator of a board: QEMU's command line and the device tree.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::Rig;
use crate::parts::{Flavour, sources};
use crate::process::succeed;
use crate::run::Run;

/// Most boards of one call. As many addresses are in `guest/common/etc/hosts`, and more would need a machine that has not
/// been tried.
pub const BOARDS_MAX: u8 = 8;

/// Link between the boards. Their addresses are 10.77.0.1, 10.77.0.2 and so on, and they know each other as `board1`,
/// `board2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Boards without a link.
    #[default]
    None,
    /// Bridge in a network namespace of its own: the fastest link, for any number of boards. Needs root.
    Bridge,
    /// Sockets between the emulators, without root: a pair of sockets for two boards, and multicast for more, which
    /// loses packets in bursts.
    Socket,
}

/// Settings of a set of boards, which are all alike.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory of each board, in MiB. 256 is enough for the fast flavour.
    pub memory_mib: u32,
    /// Number of cores of each board. If all boards together have more cores than this machine, all of them are slower.
    pub cpus: u32,
    /// Link between the boards.
    pub link: Link,
    /// MTU of that link, in bytes. RDMA is faster at 4200, because its own MTU can then be 4096.
    pub mtu: u32,
    /// Size of the memory that all boards share through PCI, in MiB, a power of two; `None` for no such memory. See
    /// [`crate::Board::bar`].
    pub shared_bar_mib: Option<u32>,
    /// Whether these boards precede other boards when cores are scarce, for tests that measure time while others run.
    /// [`crate::Boards::alone`] is stricter.
    pub hurried: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory_mib: 512, cpus: 1, link: Link::None, mtu: 1500, shared_bar_mib: None, hurried: false }
    }
}

/// Name of the link between the boards in QEMU, for its command `set_link`.
pub(crate) const LINK: &str = "link";

/// CPU whose instructions Orin's Cortex-A78AE has, too (Armv8.2 with half precision and dot products).
const CPU: &str = "cortex-a76";

/// Niceness of boards that are not hurried: it leaves them a tenth of the CPU time that others take.
const NICENESS: u8 = 10;

/// Size of QEMU's buffer for translated code, in MiB. Its default is a share of the host's memory, for each board.
const TRANSLATED_MIB: u32 = 128;

/// Returns the emulator's command, in the run's network namespace if the boards have a bridge.
pub(crate) fn emulator(rig: &Rig, options: &Options, id: u8, count: u8, run: &Run) -> Command {
    let niceness = if options.hurried { 0 } else { NICENESS };
    let mut command = match options.link {
        Link::Bridge => in_namespace(crate::run::namespace(run.folder()), "nice"),
        Link::None | Link::Socket => Command::new("nice"),
    };
    command.arg(format!("-n{niceness}")).arg(rig.emulator());
    command.args(machine(options));
    command.args(["-accel", &format!("tcg,thread=multi,tb-size={TRANSLATED_MIB}")]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    command.arg("-serial").arg(format!("file:{}", run.file(&format!("{id}.log")).display()));
    command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", run.file(&format!("{id}.qmp")).display()));
    boot(&mut command, rig, options, id, run);
    management(&mut command, id);
    let shared = run.shared().display().to_string();
    command.args(["-fsdev", &format!("local,id=host,path={shared},security_model=none,readonly=on")]);
    command.args(["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]);
    if let Some(backend) = link(options.link, id, count, run) {
        let device = format!("virtio-net-pci,netdev={LINK},mac=52:54:00:77:00:{id:02x},romfile=");
        command.args(["-netdev", &backend, "-device", &device]);
    }
    if let Some(size) = options.shared_bar_mib {
        let file = run.file("bar").display().to_string();
        let memory = format!("memory-backend-file,id=bar,size={size}M,share=on,mem-path={file}");
        command.args(["-object", &memory, "-device", "ivshmem-plain,memdev=bar"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Returns the command that executes a program in a network namespace.
pub(crate) fn in_namespace(namespace: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

/// Returns the options that determine the device tree.
fn machine(options: &Options) -> [String; 8] {
    let words = ["-M", "virt,gic-version=3", "-cpu", CPU, "-smp", "", "-m", ""].map(str::to_owned);
    let [m, virt, cpu, model, smp, _, memory, _] = words;
    [m, virt, cpu, model, smp, options.cpus.to_string(), memory, options.memory_mib.to_string()]
}

/// Adds the options for kernel, root file system, and the kernel's command line.
fn boot(command: &mut Command, rig: &Rig, options: &Options, id: u8, run: &Run) {
    let root = rig.root.join("root.sqfs").display().to_string();
    command.arg("-dtb").arg(run.file("board.dtb"));
    command.arg("-kernel").arg(rig.kernel.join("vmlinuz"));
    command.arg("-initrd").arg(rig.initrd.join("initrd.img"));
    // `cryptomgr.notests`: the kernel's tests of its ciphers at each boot take 0.4 s on an emulated core.
    // `iomem=relaxed`: without it only a driver may map the shared memory.
    let access = if options.shared_bar_mib.is_some() { "iomem=relaxed" } else { "" };
    command.arg("-append").arg(format!(
        "console=ttyAMA0 quiet loglevel=3 mitigations=off cryptomgr.notests panic=-1 {access} board.id={id} board.mtu={}",
        options.mtu
    ));
    command.args(["-drive", &format!("if=none,id=root,file={root},format=raw,readonly=on")]);
    command.args(["-device", "virtio-blk-pci,drive=root"]);
    command.args(["-object", "rng-random,filename=/dev/urandom,id=rng"]);
    command.args(["-device", "virtio-rng-pci,rng=rng"]);
}

/// Adds the network for ssh: it reaches only the board, through a port of this machine that the kernel chooses.
fn management(command: &mut Command, id: u8) {
    command.args(["-netdev", "user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:0-:22"]);
    command
        .args(["-device", &format!("virtio-net-pci,netdev=management,mac=52:54:00:88:00:{id:02x},romfile=")]);
}

/// Returns QEMU's option for the link between boards.
fn link(link: Link, id: u8, count: u8, run: &Run) -> Option<String> {
    let socket = |id: u8| run.file(&format!("{id}.link")).display().to_string();
    match link {
        Link::None => None,
        Link::Bridge => Some(format!("tap,id={LINK},ifname=board{id},script=no,downscript=no")),
        Link::Socket if count == 2 => Some(format!(
            "dgram,id={LINK},local.type=unix,local.path={},remote.type=unix,remote.path={}",
            socket(id),
            socket(3 - id)
        )),
        Link::Socket => {
            // Another run may get the same port, but then it has another address.
            let pid = std::process::id();
            let port = 20_000 + pid % 20_000;
            let address = format!("239.77.{}.{}", pid >> 8 & 0xff, pid & 0xff);
            Some(format!("socket,id={LINK},mcast={address}:{port},localaddr=127.0.0.1"))
        }
    }
}

/// Creates the network namespace of a run: a bridge, with a port for each board. It has no connection to the outside.
pub(crate) fn make_bridge(namespace: &str, count: u8, mtu: u32) -> Result<()> {
    assert!(count <= BOARDS_MAX, "{count} boards: at most {BOARDS_MAX}");
    let ip = |words: &str| -> Result<()> {
        let mut command = Command::new("ip");
        command.args(words.split(' '));
        succeed(&mut command).map(drop)
    };
    ip(&format!("netns add {namespace}"))?;
    let ip = |words: &str| ip(&format!("-n {namespace} {words}"));
    ip("link set lo up")?;
    ip("link add bridge0 type bridge")?;
    ip("link set bridge0 up")?;
    for id in 1..=count {
        ip(&format!("tuntap add dev board{id} mode tap"))?;
        ip(&format!("link set board{id} mtu {mtu} master bridge0 up"))?;
    }
    Ok(())
}

/// Writes the device tree of a run: QEMU's own for this machine, with the power rails, a thermal zone and clocks added.
pub(crate) fn write_device_tree(rig: &Rig, options: &Options, run: &Run) -> Result<()> {
    let (plain, source, whole) = (run.file("plain.dtb"), run.file("board.dts"), run.file("board.dtb"));
    let mut dump = Command::new(rig.emulator());
    dump.args(machine(options)).args(["-nodefaults", "-display", "none"]);
    dump.arg("-M").arg(format!("dumpdtb={}", plain.display()));
    succeed(&mut dump)?;
    let dtc = |from: &str, to: &str, input: &Path, output: &Path| {
        let mut command = Command::new("dtc");
        succeed(command.args(["-q", "-I", from, "-O", to, "-o"]).args([output, input])).map(drop)
    };
    dtc("dtb", "dts", &plain, &source)?;
    let mut text = std::fs::read_to_string(&source)?;
    for part in ["rails.dtsi", "dvfs.dtsi"] {
        text += &std::fs::read_to_string(sources().join(part))?;
    }
    std::fs::write(&source, text + &core_clocks(options.cpus))?;
    dtc("dts", "dtb", &source, &whole).context("compiling the boards' device tree")
}

/// Returns the part of the device tree that gives each core the clock and the levels of `dvfs.dtsi`.
fn core_clocks(cpus: u32) -> String {
    let core =
        |id| format!("cpu@{id:x} {{ clocks = <&core_clock>; operating-points-v2 = <&core_levels>; }};\n");
    format!("/ {{\ncpus {{\n{}}};\n}};\n", (0..cpus).map(core).collect::<String>())
}

impl Rig {
    fn emulator(&self) -> std::path::PathBuf {
        self.qemu.join("qemu-system-aarch64")
    }

    /// Returns the boot flavour of this rig's boards.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }
}
