//! What untagged video most likely means.

use orinoco_core::ColorMatrix;

/// Pictures of at least this many lines are BT.709 unless their stream says otherwise.
const HD_LINES: u32 = 720;

/// The matrix of luma and chroma that nobody described.
pub(crate) fn matrix_of_untagged(lines: u32) -> ColorMatrix {
    if lines >= HD_LINES { ColorMatrix::Bt709 } else { ColorMatrix::Bt601 }
}
