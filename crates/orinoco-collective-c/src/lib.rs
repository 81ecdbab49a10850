//! Collective operations as a C library: `include/orinoco_collective.h`, and `liborinoco_collective_c.so` or `.a`.
//!
//! A group lives behind a pointer. All vectors are given by address and number of elements, of a data type that is a number, as in
//! MPI and NCCL. Every function returns an [`OrinocoStatus`]; nothing unwinds into the caller.

mod api;
mod explanation;
mod fault;
mod group;
mod join;
mod record;
mod settings;
mod vectors;

pub use api::*;
pub use explanation::{
    ORINOCO_ALL_GATHER, ORINOCO_ALL_REDUCE, ORINOCO_ALL_TO_ALL, ORINOCO_BARRIER, ORINOCO_BROADCAST,
    ORINOCO_GATHER, ORINOCO_REDUCE, ORINOCO_REDUCE_SCATTER, ORINOCO_SCATTER,
};
pub use fault::OrinocoStatus;
pub use group::{OrinocoGroup, OrinocoWork};
pub use join::*;
pub use settings::{
    ORINOCO_BINOMIAL_TREE, ORINOCO_BRUCK, ORINOCO_CHAIN, ORINOCO_DIRECT, ORINOCO_DOUBLE_BINARY_TREE,
    ORINOCO_HALVING_DOUBLING, ORINOCO_PAIRWISE, ORINOCO_RECURSIVE_DOUBLING, ORINOCO_RING, ORINOCO_TWO_LEVEL,
    ORINOCO_TWO_SHOT, OrinocoSettings,
};
