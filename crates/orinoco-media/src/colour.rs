//! What untagged video most likely means.

use orinoco_core::ColorMatrix;

/// Pictures of more lines than PAL has are BT.709 unless their stream says otherwise. GStreamer guesses the same.
const SD_LINES_MAX: u32 = 576;

/// The matrix of luma and chroma that nobody described.
pub(crate) fn matrix_of_untagged(lines: u32) -> ColorMatrix {
    if lines > SD_LINES_MAX { ColorMatrix::Bt709 } else { ColorMatrix::Bt601 }
}
