//! Memory that a camera needs: its slots, and the driver's buffers.

use orinoco_core::FrameDesc;
use orinoco_uri::V4l2Address;

use super::formats::{FORMATS, Payload, payload};
use crate::slots::{SourceNeeds, slots};

/// Returns the memory that the camera at `address` needs, by the size in its URI. If that has no format, it is the one
/// of [`FORMATS`] that needs most, because the camera's format is known only once it is open. Padding of rows by the
/// driver is not known either.
pub(crate) fn camera_needs(address: &V4l2Address, queue_frames: usize) -> SourceNeeds {
    let (Some(width), Some(height)) = (address.width, address.height) else {
        return SourceNeeds::uncounted("frames and driver buffers of the camera's current size");
    };
    let needs = |payload: Payload| {
        let frame_bytes = FrameDesc::packed(payload.frame_format(), width, height).bytes_needed();
        let slots = SourceNeeds::of_slots(slots(queue_frames), frame_bytes);
        match payload {
            Payload::Raw(_) | Payload::Planes(_) => {
                SourceNeeds { driver_bytes: u64::from(address.buffers) * slots.frame_bytes, ..slots }
            }
            // Images are decoded into the slots.
            Payload::Jpeg => {
                let uncounted = vec!["driver buffers of compressed frames", "decoder buffers"];
                SourceNeeds { uncounted, ..slots }
            }
        }
    };
    match address.format {
        Some(format) => payload(format).map(needs).unwrap_or_default(),
        None => {
            let each = FORMATS.iter().map(|(_, payload)| needs(*payload));
            each.max_by_key(|needs| needs.frame_bytes * needs.slots as u64 + needs.driver_bytes)
                .expect("formats are understood")
        }
    }
}
