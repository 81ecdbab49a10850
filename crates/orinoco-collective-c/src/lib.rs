//! Collective operations as a C library: `include/orinoco_collective.h`, and `liborinoco_collective_c.so` or `.a`.
//!
//! A group lives behind a pointer. All vectors are given by address and number of elements, of a data type that is a number, as in
//! MPI and NCCL. Every function returns an [`OrinocoStatus`]; nothing unwinds into the caller.

mod api;
mod fault;
mod group;
mod record;
mod vectors;

pub use api::*;
pub use fault::OrinocoStatus;
