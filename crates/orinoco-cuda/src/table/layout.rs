//! Memory layout of the frame table, as `kernels/prelude.cuh` reads it, and the checks of its entries.

use std::mem::offset_of;

use orinoco_core::{FrameDesc, Orientation, PLANES_MAX, PixelFormat, Plane, WallTime};
use thiserror::Error;

use crate::filter::Axis;
use crate::span::Span;

/// Position of the upright frame in the model's input, from `orinoco_vision::Mapping`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Top left corner of the resized image in the model's input; negative where it is cropped.
    pub offset: (i32, i32),
    /// Size of the image after the resize, before any crop.
    pub size: (u32, u32),
    /// Model pixels for each pixel of the upright frame, by axis.
    pub scale: (f32, f32),
}

/// Maximum side of a frame and of its resized image, in pixels: float32 counts every integer up to 2^24, which is far beyond
/// any camera.
const SIDE_MAX: u32 = 1 << 24;

/// Reason for which a frame cannot be put into the table.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum TableFault {
    #[error("a frame of {width}x{height} needs {needed} bytes, but its buffer has {bytes}")]
    FrameOutside { width: u32, height: u32, needed: usize, bytes: usize },
    #[error("plane {plane} of a frame has rows of {row} bytes, but a stride of {stride}")]
    StrideTooShort { plane: usize, row: usize, stride: usize },
    #[error(
        "a frame of {width}x{height} cannot be resized to {to_width}x{to_height}: sides are 1 to {max} pixels",
        max = SIDE_MAX
    )]
    NoPixels { width: u32, height: u32, to_width: u32, to_height: u32 },
    #[error("the CUDA kernels do not support the pixel format {0:?}")]
    Format(PixelFormat),
    #[error(
        "resizing {width}x{height} to {to_width}x{to_height} needs {words} words of filter weights; the maximum is {words_max}"
    )]
    FilterTooLarge { width: u32, height: u32, to_width: u32, to_height: u32, words: usize, words_max: usize },
}

/// Bounds of the frame sizes that the antialiased resize supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterBounds {
    /// The longest side of a frame.
    pub frame_side_max: u32,
    /// Width and height of the model's input.
    pub input: (u32, u32),
}

/// Layout of a table in memory: entries, then the weights of each entry's two axes.
#[derive(Clone, Debug)]
pub struct TableLayout {
    batch: usize,
    /// Of one axis of one entry; 0 where the resize needs no weights.
    axis_words: usize,
    /// The model's input, where the resize needs weights.
    input: (u32, u32),
    /// The axes whose weights are in the table.
    axes: Vec<[Axis; 2]>,
}

/// Bytes of one entry: `sizeof(FrameEntry)` of `kernels/prelude.cuh`.
const ENTRY_BYTES: usize = 176;

/// Offsets in `FrameEntry` of `kernels/prelude.cuh`.
mod entry {
    pub(super) const ADDRESS: usize = 0;
    pub(super) const FRAME: usize = 8;
    pub(super) const OFFSET: usize = 136;
    pub(super) const SIZE: usize = 144;
    pub(super) const SCALE: usize = 152;
    pub(super) const FILTER: usize = 160;
    pub(super) const TAPS: usize = 168;
}

// The kernels' mirror of `FrameDesc`: what C++ makes of the same fields in the same order.
const _: () = {
    assert!(size_of::<FrameDesc>() == 128 && align_of::<FrameDesc>() == 8);
    assert!(offset_of!(FrameDesc, format) == 0 && offset_of!(FrameDesc, width) == 4);
    assert!(offset_of!(FrameDesc, height) == 8 && offset_of!(FrameDesc, planes) == 16);
    assert!(offset_of!(FrameDesc, matrix) == 80 && offset_of!(FrameDesc, range) == 81);
    assert!(offset_of!(FrameDesc, orientation) == 82 && offset_of!(FrameDesc, memory) == 83);
    assert!(offset_of!(FrameDesc, pts) == 88 && offset_of!(FrameDesc, clock) == 96);
    assert!(offset_of!(FrameDesc, wall) == 104 && size_of::<Option<WallTime>>() == 8);
    assert!(offset_of!(FrameDesc, seq) == 112 && offset_of!(FrameDesc, stream) == 120);
    assert!(size_of::<Plane>() == 16 && offset_of!(Plane, stride) == 8 && PLANES_MAX == 4);
    assert!(entry::OFFSET == entry::FRAME + size_of::<FrameDesc>() && entry::TAPS + 8 == ENTRY_BYTES);
};

impl TableLayout {
    /// For `batch` frames and the bilinear resize.
    pub fn bilinear(batch: usize) -> Self {
        Self { batch, axis_words: 0, input: (0, 0), axes: Vec::new() }
    }

    /// For `batch` frames and the antialiased resize.
    pub fn antialiased(batch: usize, bounds: FilterBounds) -> Self {
        let FilterBounds { frame_side_max, input } = bounds;
        let axis_words = Axis::words_max(frame_side_max, input.0.max(input.1));
        Self { batch, axis_words, input, axes: vec![[Axis::default(); 2]; batch] }
    }

    /// The most frames.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        self.filters_offset() + self.batch * 2 * self.axis_words * size_of::<i32>()
    }

    pub(crate) fn filters_offset(&self) -> usize {
        self.batch * ENTRY_BYTES
    }

    pub(crate) fn has_filters(&self) -> bool {
        self.axis_words > 0
    }

    /// Writes item `item` of `table`, which is the same memory at each call: weights are written where they change.
    pub fn set(
        &mut self,
        table: &mut [u8],
        item: usize,
        frame: &FrameDesc,
        bytes: &Span,
        placement: Placement,
    ) -> Result<(), TableFault> {
        assert_eq!(table.len(), self.bytes(), "the bytes of {self:?}");
        check_frame(frame, bytes, placement)?;
        let axes = upright_axes(frame, placement, self.input);
        if self.has_filters() {
            self.write_filters(table, item, frame, axes)?;
        }
        let entry = &mut table[item * ENTRY_BYTES..][..ENTRY_BYTES];
        write_frame(&mut entry[entry::FRAME..], frame);
        put(entry, entry::ADDRESS, bytes.address().to_le_bytes());
        put_pair(entry, entry::OFFSET, [placement.offset.0.to_le_bytes(), placement.offset.1.to_le_bytes()]);
        put_pair(entry, entry::SIZE, [placement.size.0.to_le_bytes(), placement.size.1.to_le_bytes()]);
        put_pair(entry, entry::SCALE, [placement.scale.0.to_le_bytes(), placement.scale.1.to_le_bytes()]);
        let first = |axis: usize| ((item * 2 + axis) * self.axis_words) as u32;
        put_pair(entry, entry::FILTER, [first(0).to_le_bytes(), first(1).to_le_bytes()]);
        let taps = if self.has_filters() { axes.map(Axis::taps_max) } else { [0; 2] };
        put_pair(entry, entry::TAPS, taps.map(u32::to_le_bytes));
        Ok(())
    }

    /// Leaves item `item` of `table` out: kernels skip it.
    pub fn clear(&self, table: &mut [u8], item: usize) {
        put(&mut table[item * ENTRY_BYTES..][..ENTRY_BYTES], entry::ADDRESS, 0u64.to_le_bytes());
    }

    fn write_filters(
        &mut self,
        table: &mut [u8],
        item: usize,
        frame: &FrameDesc,
        axes: [Axis; 2],
    ) -> Result<(), TableFault> {
        if self.axes[item] == axes {
            return Ok(());
        }
        let words = axes.map(Axis::words);
        if let Some(words) = words.into_iter().find(|words| *words > self.axis_words) {
            let [x, y] = axes;
            return Err(TableFault::FilterTooLarge {
                width: frame.width,
                height: frame.height,
                to_width: x.outputs,
                to_height: y.outputs,
                words,
                words_max: self.axis_words,
            });
        }
        for (index, axis) in axes.into_iter().enumerate() {
            let mut weights = vec![0; axis.words()];
            axis.write(&mut weights);
            let at = self.filters_offset() + (item * 2 + index) * self.axis_words * size_of::<i32>();
            let target = table[at..].as_chunks_mut::<4>().0;
            target.iter_mut().zip(&weights).for_each(|(target, word)| *target = word.to_le_bytes());
        }
        self.axes[item] = axes;
        Ok(())
    }
}

/// Checks everything that the kernels assume about a frame.
fn check_frame(frame: &FrameDesc, bytes: &Span, placement: Placement) -> Result<(), TableFault> {
    use PixelFormat::{Bgr, Gray8, I420, Nv12, Rgb, Uyvy, Yuy2};
    let (width, height, (to_width, to_height)) = (frame.width, frame.height, placement.size);
    if ![I420, Nv12, Yuy2, Uyvy, Rgb, Bgr, Gray8].contains(&frame.format) {
        return Err(TableFault::Format(frame.format));
    }
    if [width, height, to_width, to_height].iter().any(|side| *side == 0 || *side > SIDE_MAX) {
        return Err(TableFault::NoPixels { width, height, to_width, to_height });
    }
    for plane in 0..frame.format.planes() {
        let (row, _) = frame.format.plane_size(plane, width, height);
        let stride = frame.planes[plane].stride;
        if stride < row {
            return Err(TableFault::StrideTooShort { plane, row, stride });
        }
    }
    let needed = frame.bytes_needed();
    if needed > bytes.bytes() {
        return Err(TableFault::FrameOutside { width, height, needed, bytes: bytes.bytes() });
    }
    Ok(())
}

/// The resize of each axis of the upright image, as far as it lies in the model's input.
fn upright_axes(frame: &FrameDesc, placement: Placement, input: (u32, u32)) -> [Axis; 2] {
    let axis = |inputs, outputs: u32, offset: i32, side: u32| {
        let seen_first = offset.min(0).unsigned_abs().min(outputs);
        let end = i64::from(side).saturating_sub(i64::from(offset)).clamp(0, i64::from(outputs)) as u32;
        Axis { inputs, outputs, seen_first, seen: end.saturating_sub(seen_first) }
    };
    let turned = matches!(frame.orientation, Orientation::Rotate90 | Orientation::Rotate270);
    let (width, height) = if turned { (frame.height, frame.width) } else { (frame.width, frame.height) };
    [
        axis(width, placement.size.0, placement.offset.0, input.0),
        axis(height, placement.size.1, placement.offset.1, input.1),
    ]
}

fn write_frame(target: &mut [u8], frame: &FrameDesc) {
    put(target, offset_of!(FrameDesc, format), [frame.format as u8]);
    put(target, offset_of!(FrameDesc, width), frame.width.to_le_bytes());
    put(target, offset_of!(FrameDesc, height), frame.height.to_le_bytes());
    for (index, plane) in frame.planes.iter().enumerate() {
        let at = offset_of!(FrameDesc, planes) + index * size_of::<Plane>();
        put(target, at + offset_of!(Plane, offset), plane.offset.to_le_bytes());
        put(target, at + offset_of!(Plane, stride), plane.stride.to_le_bytes());
    }
    put(target, offset_of!(FrameDesc, matrix), [frame.matrix as u8]);
    put(target, offset_of!(FrameDesc, range), [frame.range as u8]);
    put(target, offset_of!(FrameDesc, orientation), [frame.orientation as u8]);
    put(target, offset_of!(FrameDesc, memory), [frame.memory as u8]);
    put(target, offset_of!(FrameDesc, pts), frame.pts.0.to_le_bytes());
    put(target, offset_of!(FrameDesc, clock), [frame.clock as u8]);
    put(target, offset_of!(FrameDesc, wall), frame.wall.map_or(0, WallTime::unix_nanos).to_le_bytes());
    put(target, offset_of!(FrameDesc, seq), frame.seq.to_le_bytes());
    put(target, offset_of!(FrameDesc, stream), frame.stream.0.to_le_bytes());
}

fn put<const N: usize>(target: &mut [u8], at: usize, value: [u8; N]) {
    target[at..at + N].copy_from_slice(&value);
}

fn put_pair(target: &mut [u8], at: usize, [first, second]: [[u8; 4]; 2]) {
    put(target, at, first);
    put(target, at + 4, second);
}
