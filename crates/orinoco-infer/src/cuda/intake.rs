//! Frames to where the GPU reads them.

use orinoco_core::{FrameDesc, FrameView, MemoryDomain};
use orinoco_cuda::{CudaError, Device, MemoryKind, PinnedBuffer, Span, Stream, Surfaces, Upload, Uploaded};
use orinoco_pipeline::Frame;

/// A place for each frame of a batch. It grows with the frames; else nothing is allocated.
pub(super) struct Intake {
    device: Device,
    batch: usize,
    places: IntakeSlots,
    /// Bytes that each place has.
    bytes: usize,
    /// What brings frames in a Jetson's video memory to the GPU, which reads them where they are.
    surfaces: Result<Surfaces, CudaError>,
}

enum IntakeSlots {
    /// Read where they are: the GPU's memory is the host's.
    Pinned(Vec<PinnedBuffer>),
    /// Copied beside the work.
    Upload(Option<Upload>, Vec<Uploaded>),
}

impl Intake {
    pub(super) fn new(device: &Device, batch: usize) -> Self {
        let places = match device.info().memory {
            MemoryKind::Integrated => IntakeSlots::Pinned(Vec::new()),
            MemoryKind::Discrete => IntakeSlots::Upload(None, Vec::new()),
        };
        Self { device: device.clone(), batch, places, bytes: 0, surfaces: Surfaces::open(device) }
    }

    /// Whether a Jetson's video memory can be read.
    pub(super) fn reads_video_memory(&self) -> bool {
        self.surfaces.is_ok() && self.device.info().memory == MemoryKind::Integrated
    }

    /// Makes the places large enough for each of `frames` that needs one.
    pub(super) fn make_room(&mut self, frames: &[Frame]) -> Result<(), CudaError> {
        let copied = frames.iter().filter(|frame| !is_lent(frame));
        let bytes = copied.map(|frame| frame.desc.bytes_packed()).max().unwrap_or(0);
        if bytes <= self.bytes {
            return Ok(());
        }
        match &mut self.places {
            IntakeSlots::Pinned(buffers) => {
                let made = (0..self.batch).map(|_| PinnedBuffer::new(&self.device, bytes));
                *buffers = made.collect::<Result<_, _>>()?;
            }
            IntakeSlots::Upload(upload, uploaded) => {
                uploaded.clear();
                *upload = Some(Upload::new(&self.device, self.batch, bytes)?);
            }
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Puts a frame, for which there is room, where kernels that follow in `stream` read it: without the padding of its
    /// rows, or as it is, where it [is lent](is_lent). Nothing that reads what lay there before may be running.
    pub(super) fn place(
        &mut self,
        item: usize,
        frame: &Frame,
        stream: &Stream,
    ) -> Result<(FrameDesc, Span), CudaError> {
        if is_lent(frame) {
            return Ok((frame.desc, self.lend(frame)?));
        }
        let (view, desc) = (frame.view(), frame.desc.repacked());
        let bytes = desc.bytes_needed();
        let span = match &mut self.places {
            IntakeSlots::Pinned(buffers) => {
                copy_rows(&view, &mut buffers[item].bytes_mut()[..bytes]);
                buffers[item].span().part(0, bytes)
            }
            IntakeSlots::Upload(upload, uploaded) => {
                let upload = upload.as_mut().expect("there is room");
                let pushed = upload.push(bytes, |target| copy_rows(&view, target), stream)?;
                let span = pushed.span.clone();
                uploaded.push(pushed);
                span
            }
        };
        Ok((desc, span))
    }

    fn lend(&self, frame: &Frame) -> Result<Span, CudaError> {
        let surfaces = self.surfaces.as_ref().map_err(CudaError::clone)?;
        let dma_buf = frame.dma_buf().expect("checked when the frame was made");
        surfaces.span(&frame.desc, dma_buf, frame.share())
    }

    /// Says that everything which reads the frames is queued in `stream`.
    pub(super) fn release(&mut self, stream: &Stream) -> Result<(), CudaError> {
        if let IntakeSlots::Upload(Some(upload), uploaded) = &mut self.places {
            for pushed in uploaded.drain(..) {
                upload.release(pushed, stream)?;
            }
        }
        Ok(())
    }
}

/// Whether a frame's memory is a decoder's, which waits for it, and not the host's.
pub(super) fn is_lent(frame: &Frame) -> bool {
    frame.desc.memory == MemoryDomain::DmaBuf
}

fn copy_rows(view: &FrameView<'_>, target: &mut [u8]) {
    let mut rest = target;
    for row in view.packed_rows() {
        let (place, after) = std::mem::take(&mut rest).split_at_mut(row.len());
        place.copy_from_slice(row);
        rest = after;
    }
}
