//! What a board is to its emulator: the command line and the device tree.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::Rig;
use crate::boards::BOARDS_MAX;
use crate::parts::{Flavour, sources};
use crate::process::succeed;
use crate::run::Run;

/// How boards reach each other. They are 10.77.0.1, 10.77.0.2 and so on, and know each other as `board1`, `board2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// They do not.
    #[default]
    None,
    /// A bridge in a network namespace of its own: the fastest, and for any number of boards. Needs root.
    Bridge,
    /// Sockets between the emulators, without root: a pair for two boards; multicast, which loses packets in bursts,
    /// for more.
    Socket,
}

/// What boards are like. The boards of one call are alike.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory of each board, in MiB. 256 is enough for the fast flavour.
    pub memory_mib: u32,
    /// Cores of each board. More boards times cores than this machine has cores makes all of them slower.
    pub cpus: u32,
    /// The link between the boards.
    pub link: Link,
    /// Largest packet of that link, in bytes. RDMA is faster at 4200, where its own is 4096.
    pub mtu: u32,
    /// Size of a memory that all boards share through PCI, in MiB, a power of two; none if `None`. See [`crate::Board::bar`].
    pub shared_bar_mib: Option<u32>,
    /// Whether they go before other boards where cores are scarce: for who looks at the clock while others run.
    /// [`crate::Boards::alone`] is stricter.
    pub hurried: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory_mib: 512, cpus: 1, link: Link::None, mtu: 1500, shared_bar_mib: None, hurried: false }
    }
}

/// The name of the link between the boards in QEMU, for its `set_link`.
pub(crate) const LINK: &str = "link";

/// Instructions that Orin's Cortex-A78AE has, too (Armv8.2 with half precision and dot products).
const CPU: &str = "cortex-a76";

/// How much boards that are not hurried stand back: the scheduler's niceness, which leaves them a tenth of what others take.
const NICENESS: u8 = 10;

/// Memory for translated code, in MiB. QEMU's default is a share of the host's memory, for each board.
const TRANSLATED_MIB: u32 = 128;

/// The emulator, in the run's network namespace where the boards have a bridge.
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

/// A program in a network namespace.
pub(crate) fn in_namespace(namespace: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

/// What decides the device tree.
fn machine(options: &Options) -> [String; 8] {
    let words = ["-M", "virt,gic-version=3", "-cpu", CPU, "-smp", "", "-m", ""].map(str::to_owned);
    let [m, virt, cpu, model, smp, _, memory, _] = words;
    [m, virt, cpu, model, smp, options.cpus.to_string(), memory, options.memory_mib.to_string()]
}

/// Kernel, root, and the kernel's command line.
fn boot(command: &mut Command, rig: &Rig, options: &Options, id: u8, run: &Run) {
    let root = rig.root.join("root.sqfs").display().to_string();
    command.arg("-dtb").arg(run.file("board.dtb"));
    command.arg("-kernel").arg(rig.kernel.join("vmlinuz"));
    command.arg("-initrd").arg(rig.initrd.join("initrd.img"));
    // The kernel tries its ciphers at each boot, which takes an emulated core 0.4 s.
    // Without `relaxed` nothing but a driver may map the shared memory.
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

/// The link for ssh: it reaches nothing but the board, by a port of this machine that the kernel chooses.
fn management(command: &mut Command, id: u8) {
    command.args(["-netdev", "user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:0-:22"]);
    command
        .args(["-device", &format!("virtio-net-pci,netdev=management,mac=52:54:00:88:00:{id:02x},romfile=")]);
}

/// QEMU's side of the link between boards.
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
            // Another run may come upon the same port: then it has another address.
            let pid = std::process::id();
            let port = 20_000 + pid % 20_000;
            let address = format!("239.77.{}.{}", pid >> 8 & 0xff, pid & 0xff);
            Some(format!("socket,id={LINK},mcast={address}:{port},localaddr=127.0.0.1"))
        }
    }
}

/// Makes the network namespace of a run: a bridge, and a port for each board. Nothing in it reaches the outside.
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

/// Writes the device tree of a run: QEMU's own for this machine, and the power rails.
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
    let rails = sources().join("rails.dtsi");
    let text = std::fs::read_to_string(&source)? + &std::fs::read_to_string(&rails)?;
    std::fs::write(&source, text)?;
    dtc("dts", "dtb", &source, &whole).context("compiling the boards' device tree")
}

impl Rig {
    fn emulator(&self) -> std::path::PathBuf {
        self.qemu.join("qemu-system-aarch64")
    }

    /// How boards of this rig boot.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }
}
