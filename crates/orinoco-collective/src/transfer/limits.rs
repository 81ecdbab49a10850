/// Most bytes of a region's name.
pub(super) const NAME_BYTES_MAX: usize = 64;
/// Most regions of a rank: a list of them is one payload.
pub(super) const REGIONS_MAX: usize = 1024;
