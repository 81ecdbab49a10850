//! Converts a decoder's buffer to a [`Frame`] that borrows it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gstreamer as gst;
use gstreamer_video as video;
use orinoco_core::{
    Diagnosis, FrameDesc, MemoryDomain, Nanos, PLANES_MAX, PixelFormat, Plane, Pts, PtsClock, codes,
};
use orinoco_pipeline::{Frame, Lease, PixelAspect, Slot};

use super::colours;
use super::hardware::NVMM;
use super::nvmm::{Surface, SurfaceError};

/// Makes frames from samples. Values that depend only on the caps are computed once per caps: these may change in the
/// middle of a stream, but seldom do.
pub(super) struct FrameBuilder {
    clock: PtsClock,
    lent: Arc<AtomicUsize>,
    /// Number of buffers in NVMM that were lent and not returned yet.
    surfaces: Arc<AtomicUsize>,
    layout: Option<Layout>,
}

struct Layout {
    caps: gst::Caps,
    desc: FrameDesc,
    aspect: PixelAspect,
    interval: Option<u64>,
}

/// Rotation that an element applied to frames whose caps have no matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Lines are still lines: upright, or upside down.
    Lines,
    /// Lines became columns: a quarter turn.
    Quarter,
}

/// Buffer of a decoder, mapped for reading. Dropping it returns the buffer to the decoder.
struct LentBuffer {
    buffer: gst::MappedBuffer<gst::buffer::Readable>,
    lent: Arc<AtomicUsize>,
}

impl Lease for LentBuffer {
    fn bytes(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        self.lent.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Buffer in NVMM. Dropping it returns the buffer to its element.
struct LentSurface {
    /// Keeps the image, and the data from which `surface` was read.
    _buffer: gst::MappedBuffer<gst::buffer::Readable>,
    surface: Surface,
    lent: Arc<AtomicUsize>,
    surfaces: Arc<AtomicUsize>,
}

impl Lease for LentSurface {
    /// Empty, because the host does not read this memory.
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn dma_buf(&self) -> Option<BorrowedFd<'_>> {
        Some(self.surface.dma_buf())
    }
}

impl Drop for LentSurface {
    fn drop(&mut self) {
        self.surfaces.fetch_sub(1, Ordering::Relaxed);
        self.lent.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reason why a sample of the decoder becomes no frame.
#[derive(Debug)]
pub(super) enum FrameError {
    /// The sample has no caps.
    NoCaps,
    /// The sample has no buffer.
    NoBuffer,
    /// Orinoco has no pixel format for these caps.
    UnknownFormat(gst::Caps),
    /// The rows are stored from the bottom to the top.
    UpsideDown,
    /// The buffer's metadata give another size or format than the caps.
    OtherSize,
    /// The buffer has fewer bytes than the caps need.
    TooSmall,
    /// The buffer cannot be mapped for reading.
    Unmapped,
    /// The content of an NVMM buffer cannot be mapped.
    SurfaceUnmapped,
    /// The content of an NVMM buffer is no usable surface.
    Surface(SurfaceError),
    /// An NVMM surface has another size or number of planes than the caps.
    OtherSurfaceSize,
}

impl From<SurfaceError> for FrameError {
    fn from(error: SurfaceError) -> Self {
        Self::Surface(error)
    }
}

impl FrameError {
    /// Converts the error to a fault of the source that is called `shown` in messages.
    pub(super) fn about(&self, shown: &str) -> Diagnosis {
        let cause = match self {
            Self::NoCaps => "the decoder's frame has no caps",
            Self::NoBuffer => "the decoder's frame has no buffer",
            Self::UnknownFormat(caps) => &format!("unknown pixel format {caps}"),
            Self::UpsideDown => "the frame is stored upside down",
            Self::OtherSize => "the decoder's frame has another size than its caps",
            Self::TooSmall => "the decoder's buffer is too small for its caps",
            Self::Unmapped => "the decoder's frame cannot be mapped",
            Self::SurfaceUnmapped => "an NVMM surface cannot be mapped",
            Self::Surface(error) => &error.to_string(),
            Self::OtherSurfaceSize => "an NVMM surface has another size than its caps",
        };
        let next = "re-encode it as H.264 with 8-bit 4:2:0 colour";
        Diagnosis::new(&codes::SOURCE_DECODE, shown, cause, next)
    }
}

impl FrameBuilder {
    pub(super) fn new(clock: PtsClock, lent: Arc<AtomicUsize>) -> Self {
        Self { clock, lent, surfaces: Arc::default(), layout: None }
    }

    /// Returns the number of buffers in NVMM that were lent and not returned yet.
    pub(super) fn surfaces_lent(&self) -> usize {
        self.surfaces.load(Ordering::Relaxed)
    }

    /// Returns the frame in `sample`, and its duration in nanoseconds if that is known.
    pub(super) fn frame(
        &mut self,
        sample: &gst::Sample,
        turn: Turn,
        pts: Pts,
        arrived: Nanos,
    ) -> Result<(Frame, Option<u64>), FrameError> {
        let caps = sample.caps().ok_or(FrameError::NoCaps)?;
        let clock = self.clock;
        let layout = match &mut self.layout {
            Some(layout) if *layout.caps == *caps => layout,
            layout => layout.insert(Layout::new(caps, turn)?),
        };
        let buffer = sample.buffer_owned().ok_or(FrameError::NoBuffer)?;
        let interval = buffer.duration().map(|time| time.nseconds()).or(layout.interval);
        let (desc, aspect) = (FrameDesc { pts, clock, ..layout.desc }, layout.aspect);
        let (desc, lease) = match desc.memory {
            MemoryDomain::DmaBuf => self.lend_surface(desc, buffer)?,
            _ => self.lend_pixels(desc, buffer)?,
        };
        let frame = Frame::new(desc, Slot::Leased(lease), arrived);
        let mut frame = frame.ok_or(FrameError::TooSmall)?;
        frame.aspect = aspect;
        Ok((frame, interval))
    }

    fn lend_pixels(
        &self,
        desc: FrameDesc,
        buffer: gst::Buffer,
    ) -> Result<(FrameDesc, Box<dyn Lease>), FrameError> {
        let desc = with_buffer_layout(desc, &buffer)?;
        let buffer = buffer.into_mapped_buffer_readable().map_err(|_| FrameError::Unmapped)?;
        self.lent.fetch_add(1, Ordering::Relaxed);
        Ok((desc, Box::new(LentBuffer { buffer, lent: Arc::clone(&self.lent) })))
    }

    fn lend_surface(
        &self,
        desc: FrameDesc,
        buffer: gst::Buffer,
    ) -> Result<(FrameDesc, Box<dyn Lease>), FrameError> {
        let buffer = buffer.into_mapped_buffer_readable().map_err(|_| FrameError::SurfaceUnmapped)?;
        let surface = Surface::read(&buffer)?;
        let fits = (surface.width, surface.height) == (desc.width, desc.height)
            && surface.planes.len() == desc.format.planes();
        if !fits {
            return Err(FrameError::OtherSurfaceSize);
        }
        let mut desc = desc;
        for (plane, (offset, stride)) in desc.planes.iter_mut().zip(&surface.planes) {
            *plane = Plane { offset: *offset, stride: *stride };
        }
        self.lent.fetch_add(1, Ordering::Relaxed);
        self.surfaces.fetch_add(1, Ordering::Relaxed);
        let (lent, surfaces) = (Arc::clone(&self.lent), Arc::clone(&self.surfaces));
        Ok((desc, Box::new(LentSurface { _buffer: buffer, surface, lent, surfaces })))
    }
}

impl Layout {
    fn new(caps: &gst::CapsRef, turn: Turn) -> Result<Self, FrameError> {
        let caps = caps.to_owned();
        let info = video::VideoInfo::from_caps(&caps).map_err(|_| FrameError::UnknownFormat(caps.clone()))?;
        let format = pixel_format(info.format()).ok_or_else(|| FrameError::UnknownFormat(caps.clone()))?;
        let mut desc = FrameDesc::packed(format, info.width(), info.height());
        desc.planes = planes(info.offset(), info.stride()).ok_or(FrameError::UpsideDown)?;
        if format.is_yuv() {
            let told = caps.structure(0).and_then(colours::of_caps);
            let lines = if turn == Turn::Quarter { info.width() } else { info.height() };
            desc.matrix = colours::matrix(told.as_ref(), lines);
            desc.range = colours::range(told.as_ref());
        }
        let is_nvmm = caps.features(0).is_some_and(|features| features.contains(NVMM));
        desc.memory = if is_nvmm { MemoryDomain::DmaBuf } else { MemoryDomain::Host };
        let (number, frames) = (info.fps().numer(), info.fps().denom());
        let interval = match (u64::try_from(number), u64::try_from(frames)) {
            (Ok(number @ 1..), Ok(frames)) => Some(frames.saturating_mul(1_000_000_000) / number),
            _ => None,
        };
        // Elements that rotate frames exchange the two terms, too.
        let term = |term: i32| u32::try_from(term).unwrap_or(0);
        let aspect = PixelAspect::new(term(info.par().numer()), term(info.par().denom()));
        Ok(Self { caps, desc, aspect, interval })
    }
}

/// Applies the layout of a buffer's metadata, which decoders attach if they pad their frames.
fn with_buffer_layout(desc: FrameDesc, buffer: &gst::BufferRef) -> Result<FrameDesc, FrameError> {
    let Some(meta) = buffer.meta::<video::VideoMeta>() else { return Ok(desc) };
    let fits = pixel_format(meta.format()) == Some(desc.format)
        && (meta.width(), meta.height()) == (desc.width, desc.height)
        && meta.n_planes() as usize == desc.format.planes();
    if !fits {
        return Err(FrameError::OtherSize);
    }
    let planes = planes(meta.offset(), meta.stride()).ok_or(FrameError::UpsideDown)?;
    Ok(FrameDesc { planes, ..desc })
}

fn pixel_format(format: video::VideoFormat) -> Option<PixelFormat> {
    match format {
        video::VideoFormat::I420 => Some(PixelFormat::I420),
        video::VideoFormat::Nv12 => Some(PixelFormat::Nv12),
        video::VideoFormat::Rgb => Some(PixelFormat::Rgb),
        video::VideoFormat::Bgr => Some(PixelFormat::Bgr),
        video::VideoFormat::Gray8 => Some(PixelFormat::Gray8),
        _ => None,
    }
}

/// Makes planes from offsets and strides; `None` for a negative stride.
fn planes(offsets: &[usize], strides: &[i32]) -> Option<[Plane; PLANES_MAX]> {
    let mut planes = [Plane::default(); PLANES_MAX];
    for (plane, (&offset, &stride)) in planes.iter_mut().zip(offsets.iter().zip(strides)) {
        *plane = Plane { offset, stride: usize::try_from(stride).ok()? };
    }
    Some(planes)
}
