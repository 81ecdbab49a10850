//! Emulated aarch64 boards: Debian's arm64 kernel and programs under QEMU, with ssh, cameras (vivid), the power rails
//! of a Jetson (ina3221), RDMA (Soft-RoCE), a link between the boards, and memory that they share through PCI. Faults
//! can be injected: links that fail, boards that stop, restart or end, and drivers that lose their device.
//!
//! The rig is not for measurements: an emulated core is 3 to 120 times slower than the host's. There is no GPU, and
//! Debian is not JetPack.
//!
//! Read first: [`Rig`], the parts in the cache; [`Boards`], which run until they are dropped; [`Board`], one of them.
//! Files that run inside a board are in the folder `guest/`, and the shell scripts next to it make the parts.

mod board;
mod boards;
mod fault;
mod parts;
mod process;
mod qemu;
mod qmp;
mod run;
mod stalls;

pub use board::{Bar, Board, Input, Rail, Reading, Session, VividOptions};
pub use boards::Boards;
pub use fault::Fault;
pub use parts::{Flavour, Rig};
pub use qemu::{BOARDS_MAX, Link, Options};
pub use stalls::StallWatch;

/// Error: this machine cannot do the requested thing, with the reason. A test that gets it prints "skipped" and passes;
/// find it with `error.downcast_ref::<Unavailable>()`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);
