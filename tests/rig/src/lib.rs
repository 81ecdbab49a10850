//! Emulated aarch64 boards: Debian's arm64 kernel and programs under QEMU, with ssh, cameras (vivid), the power rails of a
//! Jetson (ina3221), RDMA (Soft-RoCE), a link between the boards, and memory that they share through PCI. And faults: links
//! that fail, boards that stop, start again or die, drivers that are taken away.
//!
//! It refuses to measure: an emulated core is 3 to 120 times slower than the host's. There is no GPU, and Debian is not
//! JetPack.
//!
//! Read first: [`Rig`], which has the parts in its cache; [`Boards`], which run until they are dropped; [`Board`], one of
//! them. What runs inside a board is in the folder `guest/`; what makes the parts are the shell scripts beside it.

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
pub use boards::{BOARDS_MAX, Boards};
pub use fault::Fault;
pub use parts::{Flavour, Rig};
pub use qemu::{Link, Options};
pub use stalls::StallWatch;

/// This machine cannot do what was asked, and why. A test that meets it says "skipped" and passes; find it with
/// `error.downcast_ref::<Unavailable>()`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);
