//! Sources, one file each.

pub(crate) mod gif;
pub(crate) mod images;
pub(crate) mod pattern;
pub(crate) mod raw;
