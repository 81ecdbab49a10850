//! CUDA for Orinoco: kernels compiled ahead, streams, graphs, and the memory they run on. The driver is opened at run
//! time; where there is none, [`Device::open`] says why, and nothing else here can be reached.
//!
//! It decides nothing about models or pipelines, links no CUDA library, and compiles no kernel at run time. Every kernel
//! has a twin on the CPU, in `orinoco-vision` or in [`twin`], and is tested against it: on a GPU, and without one by
//! running its source on the CPU.
//!
//! Read first: [`Device`], [`FrameTable`] (all that a captured plan reads to find its frames), [`Graph`] (a sequence of
//! launches, replayed as one), then the launches in [`launch`].

pub mod bench;
mod block;
mod capture;
mod context;
mod device;
mod driver;
mod error;
mod filter;
mod frees;
mod graph;
mod info;
mod kernels;
pub mod launch;
mod memory;
mod pool;
mod span;
mod stream;
mod surface;
mod table;
pub mod twin;
mod upload;

pub use block::{AllocatedBytes, allocated};
pub use context::CaptureGuard;
pub use device::Device;
pub use error::{CudaError, DriverFault, Unavailable};
pub use graph::{Graph, GraphCounters, GraphRun};
pub use info::{DeviceInfo, MemoryKind};
pub use kernels::{Image, Kernel, Sm};
pub use launch::{Element, ImageTensor, Launch};
pub use memory::{DeviceArena, PinnedBuffer, PinnedPool, PinnedSlot};
pub use pool::DevicePool;
pub use span::{Owner, Span};
pub use stream::{Event, Stream};
pub use surface::Surfaces;
pub use table::{FilterBounds, FrameTable, Placement, TableFault, TableLayout, TableSpan};
pub use upload::{Upload, Uploaded};
