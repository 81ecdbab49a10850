//! Description of an image in memory. One descriptor serves from the source to the kernel.

use crate::{BoxF, Pts, PtsClock, StreamId, WallTime};

/// Maximum number of planes of a supported format (I420 has three; four leaves space for alpha).
pub const PLANES_MAX: usize = 4;

/// Pixel format: layout of pixels in memory. Names are those of GStreamer's `video/x-raw` formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PixelFormat {
    /// Planar Y, U, V; chroma halved both ways. FFmpeg's `yuv420p`.
    I420,
    /// Y plane, then interleaved U and V; chroma halved both ways.
    Nv12,
    /// Packed Y, U, Y, V for two pixels; chroma halved along the row. V4L2's `YUYV`.
    Yuy2,
    /// Packed U, Y, V, Y for two pixels; chroma halved along the row.
    Uyvy,
    /// Packed red, green, blue, 8 bits each.
    Rgb,
    /// Packed blue, green, red, 8 bits each.
    Bgr,
    /// One 8-bit luma plane.
    Gray8,
}

impl PixelFormat {
    /// Returns the number of planes.
    pub fn planes(self) -> usize {
        match self {
            Self::I420 => 3,
            Self::Nv12 => 2,
            Self::Yuy2 | Self::Uyvy | Self::Rgb | Self::Bgr | Self::Gray8 => 1,
        }
    }

    /// Returns the bytes in a row and the number of rows of plane `index`, for a frame of `width` by `height` pixels.
    pub fn plane_size(self, index: usize, width: u32, height: u32) -> (usize, usize) {
        let (w, h) = (width as usize, height as usize);
        match (self, index) {
            (Self::I420 | Self::Nv12 | Self::Gray8, 0) => (w, h),
            (Self::I420, _) => (w.div_ceil(2), h.div_ceil(2)),
            (Self::Nv12, _) => (w.div_ceil(2) * 2, h.div_ceil(2)),
            (Self::Yuy2 | Self::Uyvy, _) => (w.div_ceil(2) * 4, h),
            (Self::Rgb | Self::Bgr, _) => (w * 3, h),
            (Self::Gray8, _) => (0, 0),
        }
    }

    /// Returns the number of pixels that share one chroma sample, along the row and down the column.
    pub fn chroma_step(self) -> (u32, u32) {
        match self {
            Self::I420 | Self::Nv12 => (2, 2),
            Self::Yuy2 | Self::Uyvy => (2, 1),
            Self::Rgb | Self::Bgr | Self::Gray8 => (1, 1),
        }
    }

    /// Whether the samples are luma and chroma, so that matrix and range matter.
    pub fn is_yuv(self) -> bool {
        matches!(self, Self::I420 | Self::Nv12 | Self::Yuy2 | Self::Uyvy)
    }

    /// Returns the name in `video/x-raw` caps.
    pub fn name(self) -> &'static str {
        match self {
            Self::I420 => "I420",
            Self::Nv12 => "NV12",
            Self::Yuy2 => "YUY2",
            Self::Uyvy => "UYVY",
            Self::Rgb => "RGB",
            Self::Bgr => "BGR",
            Self::Gray8 => "GRAY8",
        }
    }
}

/// Color matrix: coefficients that convert luma and chroma to RGB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ColorMatrix {
    /// ITU-R BT.601: standard definition, JPEG.
    #[default]
    Bt601,
    /// ITU-R BT.709: high definition.
    Bt709,
    /// ITU-R BT.2020, non-constant luminance: ultra high definition and HDR.
    Bt2020,
}

impl ColorMatrix {
    /// Returns the most likely matrix of untagged video with this number of lines.
    pub fn of_untagged(lines: u32) -> Self {
        /// Lines of PAL. Images with more are BT.709 unless their stream says otherwise; GStreamer guesses the same.
        const SD_LINES_MAX: u32 = 576;
        if lines > SD_LINES_MAX { Self::Bt709 } else { Self::Bt601 }
    }
}

/// Color range: the part of 0..=255 that samples use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ColorRange {
    /// Luma 16..=235, chroma 16..=240 ("video range").
    #[default]
    Limited,
    /// 0..=255 ("JPEG range").
    Full,
}

/// Rotation that makes an image upright.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Orientation {
    /// No rotation.
    #[default]
    Upright,
    /// A quarter turn clockwise.
    Rotate90,
    /// Half a turn.
    Rotate180,
    /// A quarter turn anticlockwise.
    Rotate270,
}

/// Memory that holds the bytes. It decides which devices can access them without a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum MemoryDomain {
    /// Ordinary pageable host memory.
    #[default]
    Host,
    /// Page-locked host memory that the GPU maps: on Jetson the same DRAM, no copy.
    PinnedMapped,
    /// GPU memory.
    Device,
    /// A dma-buf (NVMM surface, V4L2 export) known by its file descriptor.
    DmaBuf,
}

/// Position of one plane in its buffer, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Plane {
    /// Bytes from the buffer's start to the first row.
    pub offset: usize,
    /// Bytes from one row to the next; at least the row's own bytes.
    pub stride: usize,
}

/// Rectangle of an image, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Left edge, in pixels from the image's left edge.
    pub x: u32,
    /// Top edge, in pixels from the image's top edge.
    pub y: u32,
    /// Width, in pixels.
    pub width: u32,
    /// Height, in pixels.
    pub height: u32,
}

impl Region {
    /// Returns the pixels that `bounds` touches; `None` when it is empty, or lies outside an image of `width` by
    /// `height`.
    pub fn of(bounds: &BoxF, width: u32, height: u32) -> Option<Self> {
        // A cast saturates, and converts NaN to 0.
        let first = |at: f32, max: u32| (at.max(0.0) as u32).min(max);
        let past = |at: f32, max: u32| {
            let whole = at.max(0.0) as u32;
            whole.saturating_add(u32::from(at > whole as f32)).min(max)
        };
        let (x, y) = (first(bounds.x1, width), first(bounds.y1, height));
        let (right, bottom) = (past(bounds.x2, width), past(bounds.y2, height));
        (right > x && bottom > y).then(|| Self { x, y, width: right - x, height: bottom - y })
    }
}

/// Description of a frame without its bytes. Plain data: a captured graph finds its inputs in a table of these
/// descriptors, which is refilled before each launch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct FrameDesc {
    /// Pixel format.
    pub format: PixelFormat,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Positions of the planes; those after `format.planes()` are zero.
    pub planes: [Plane; PLANES_MAX],
    /// Coefficients for YUV to RGB. A wrong matrix lowers accuracy without any error.
    pub matrix: ColorMatrix,
    /// Range of the samples.
    pub range: ColorRange,
    /// Rotation that makes the frame upright.
    pub orientation: Orientation,
    /// Memory that holds the bytes.
    pub memory: MemoryDomain,
    /// Presentation time.
    pub pts: Pts,
    /// Clock of `pts`.
    pub clock: PtsClock,
    /// Time of day at which a live source captured the frame: the driver's time stamp, else the time at which its data
    /// reached the decoder. `None` for recordings and test patterns.
    pub wall: Option<WallTime>,
    /// Sequence number at the source, from 0. A gap means that frames were lost at the source.
    pub seq: u64,
    /// Stream of the frame.
    pub stream: StreamId,
}

impl FrameDesc {
    /// Describes a frame whose planes follow one another without padding; time and stream are zero.
    pub fn packed(format: PixelFormat, width: u32, height: u32) -> Self {
        let mut planes = [Plane::default(); PLANES_MAX];
        let mut offset = 0;
        for (index, plane) in planes.iter_mut().enumerate().take(format.planes()) {
            let (row, rows) = format.plane_size(index, width, height);
            *plane = Plane { offset, stride: row };
            offset += row * rows;
        }
        Self {
            format,
            width,
            height,
            planes,
            matrix: ColorMatrix::default(),
            range: if format.is_yuv() { ColorRange::Limited } else { ColorRange::Full },
            orientation: Orientation::default(),
            memory: MemoryDomain::default(),
            pts: Pts::default(),
            clock: PtsClock::default(),
            wall: None,
            seq: 0,
            stream: StreamId::default(),
        }
    }

    /// Returns a part of this frame as a frame over the same bytes, and the rectangle of that part: `region`, extended
    /// to the left and to the top to the start of a chroma sample. `None` when `region` is empty or reaches out of the
    /// frame.
    pub fn part(&self, region: Region) -> Option<(Self, Region)> {
        let (across, down) = self.format.chroma_step();
        let (x, y) = (region.x - region.x % across, region.y - region.y % down);
        let right = region.x.checked_add(region.width).filter(|right| *right <= self.width)?;
        let bottom = region.y.checked_add(region.height).filter(|bottom| *bottom <= self.height)?;
        let part = Region { x, y, width: right - x, height: bottom - y };
        if region.width == 0 || region.height == 0 {
            return None;
        }
        let mut desc = Self { width: part.width, height: part.height, ..*self };
        for (index, plane) in desc.planes.iter_mut().enumerate().take(self.format.planes()) {
            // The planes left of and above the part have the size of an image themselves; their rows and columns are
            // skipped.
            let (skipped, rows) = self.format.plane_size(index, x, y);
            plane.offset += plane.stride * rows + skipped;
        }
        Some((desc, part))
    }

    /// Returns the length that a buffer needs to hold every row of every plane, in bytes.
    pub fn bytes_needed(&self) -> usize {
        (0..self.format.planes())
            .map(|index| {
                let (row, rows) = self.format.plane_size(index, self.width, self.height);
                let plane = self.planes[index];
                if rows == 0 { plane.offset } else { plane.offset + plane.stride * (rows - 1) + row }
            })
            .max()
            .unwrap_or(0)
    }

    /// Describes the same frame in host memory with its planes one after another and without padding, as
    /// [`FrameView::packed_rows`] yields them.
    pub fn repacked(&self) -> Self {
        let planes = Self::packed(self.format, self.width, self.height).planes;
        Self { planes, memory: MemoryDomain::Host, ..*self }
    }

    /// Returns the bytes of the frame without padding, which are the bytes that a checksum covers.
    pub fn bytes_packed(&self) -> usize {
        self.repacked().bytes_needed()
    }
}

/// Frame with its bytes in host memory. The buffer has been checked to be large enough.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    desc: &'a FrameDesc,
    bytes: &'a [u8],
}

impl<'a> FrameView<'a> {
    /// Pairs a descriptor with its bytes; `None` when the buffer is too short, a stride is shorter than its row, or the
    /// frame has no pixels.
    pub fn new(desc: &'a FrameDesc, bytes: &'a [u8]) -> Option<Self> {
        let rows_fit = (0..desc.format.planes())
            .all(|i| desc.planes[i].stride >= desc.format.plane_size(i, desc.width, desc.height).0);
        let fits = rows_fit && desc.width > 0 && desc.height > 0 && bytes.len() >= desc.bytes_needed();
        fits.then_some(Self { desc, bytes })
    }

    /// Returns the descriptor.
    pub fn desc(&self) -> &'a FrameDesc {
        self.desc
    }

    /// Returns plane `index`.
    pub fn plane(&self, index: usize) -> PlaneView<'a> {
        let (row, rows) = self.desc.format.plane_size(index, self.desc.width, self.desc.height);
        let plane = self.desc.planes[index];
        PlaneView { bytes: &self.bytes[plane.offset..], stride: plane.stride, row, rows }
    }

    /// Iterates over the rows of all planes in order, without padding.
    pub fn packed_rows(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let view = *self;
        (0..view.desc.format.planes()).flat_map(move |index| {
            let plane = view.plane(index);
            (0..plane.rows).map(move |y| plane.row(y))
        })
    }
}

/// Rows of one plane.
#[derive(Clone, Copy, Debug)]
pub struct PlaneView<'a> {
    bytes: &'a [u8],
    stride: usize,
    row: usize,
    rows: usize,
}

impl<'a> PlaneView<'a> {
    /// Returns row `y`, without padding.
    pub fn row(&self, y: usize) -> &'a [u8] {
        &self.bytes[y * self.stride..][..self.row]
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    #[test]
    fn odd_sizes_round_chroma_up() {
        let desc = FrameDesc::packed(PixelFormat::I420, 5, 3);
        assert_eq!(desc.bytes_needed(), 15 + 6 + 6);
        assert_eq!(FrameDesc::packed(PixelFormat::Nv12, 5, 3).bytes_needed(), 15 + 12);
    }

    #[test]
    fn a_view_refuses_short_buffers_and_strides() {
        let desc = FrameDesc::packed(PixelFormat::Rgb, 4, 2);
        assert!(FrameView::new(&desc, &[0; 24]).is_some());
        assert!(FrameView::new(&desc, &[0; 23]).is_none());
        let mut narrow = desc;
        narrow.planes[0].stride = 11;
        assert!(FrameView::new(&narrow, &[0; 24]).is_none());
    }

    #[test]
    fn a_part_has_the_samples_of_its_place() {
        let formats = [
            PixelFormat::I420,
            PixelFormat::Nv12,
            PixelFormat::Yuy2,
            PixelFormat::Uyvy,
            PixelFormat::Rgb,
            PixelFormat::Bgr,
            PixelFormat::Gray8,
        ];
        for format in formats {
            let whole = FrameDesc::packed(format, 12, 10);
            let bytes: Vec<u8> = (0..whole.bytes_needed()).map(|index| index as u8).collect();
            let view = FrameView::new(&whole, &bytes).expect("fits");
            let asked = Region { x: 3, y: 5, width: 6, height: 4 };
            let (desc, part) = whole.part(asked).expect("it lies inside");
            let (across, down) = format.chroma_step();
            assert_eq!((part.x, part.y), (3 - 3 % across, 5 - 5 % down), "{format:?}");
            assert_eq!((part.x + part.width, part.y + part.height), (9, 9), "{format:?}");
            let cut = FrameView::new(&desc, &bytes).expect("fits");
            for plane in 0..format.planes() {
                let (skipped, rows) = format.plane_size(plane, part.x, part.y);
                for y in 0..cut.plane(plane).rows() {
                    let row = cut.plane(plane).row(y);
                    assert_eq!(row, &view.plane(plane).row(rows + y)[skipped..][..row.len()], "{format:?}");
                }
            }
            assert!(
                whole.part(Region { x: 7, ..asked }).is_none()
                    && whole.part(Region { y: 7, ..asked }).is_none()
            );
            assert!(whole.part(Region { width: 0, ..asked }).is_none());
        }
    }

    #[test]
    fn a_box_becomes_the_pixels_it_touches() {
        let region = |x1, y1, x2, y2| Region::of(&BoxF { x1, y1, x2, y2 }, 100, 50);
        assert_eq!(region(-3.0, 1.5, 10.2, 70.0), Some(Region { x: 0, y: 1, width: 11, height: 49 }));
        assert_eq!(region(f32::NAN, 0.0, f32::NAN, 10.0), None);
        assert_eq!(region(120.0, 0.0, 130.0, 10.0), None);
        assert_eq!(
            region(f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY, f32::INFINITY).map(|r| r.width),
            Some(100)
        );
    }

    #[test]
    fn packed_rows_skip_padding() {
        let mut desc = FrameDesc::packed(PixelFormat::Gray8, 2, 2);
        desc.planes[0].stride = 3;
        let bytes = vec![1, 2, 99, 3, 4];
        let view = FrameView::new(&desc, &bytes).expect("fits");
        assert_eq!(view.packed_rows().flatten().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
