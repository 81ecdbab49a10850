//! Frames on their way to a discrete GPU.

use crate::memory::{DeviceArena, PinnedBuffer};
use crate::span::Span;
use crate::{CudaError, Device, Event, Stream};

/// Copies frames to a discrete GPU during its work: staging in pinned memory, a separate stream, and two events for each
/// place, so that neither side overtakes the other.
#[derive(Debug)]
pub struct Upload {
    copies: Stream,
    places: Vec<StagingSlot>,
    next: usize,
}

#[derive(Debug)]
struct StagingSlot {
    staging: PinnedBuffer,
    target: Span,
    /// The copy is done, and the staging free.
    copied: Event,
    /// The last reader is done, and the target free.
    read: Event,
}

/// Bytes that are on the GPU for whatever follows in the stream they were pushed for.
#[derive(Debug)]
#[must_use = "the place is free for other bytes once it is released"]
pub struct Uploaded {
    /// Address range of the bytes on the GPU.
    pub span: Span,
    place: usize,
}

impl Upload {
    /// `depth` places of up to `bytes` bytes: as many frames may be on their way, or be read, at a time.
    pub fn new(device: &Device, depth: usize, bytes: usize) -> Result<Self, CudaError> {
        /// Alignment at which the copy engines are fastest.
        const ALIGNMENT: usize = 256;
        assert!(depth > 0, "an upload has places");
        let each = bytes.next_multiple_of(ALIGNMENT);
        let arena = DeviceArena::new(device, depth * each)?;
        let place = |index: usize| {
            Ok(StagingSlot {
                staging: PinnedBuffer::new(device, bytes)?,
                target: arena.span(index * each, bytes),
                copied: device.event()?,
                read: device.event()?,
            })
        };
        let places = (0..depth).map(place).collect::<Result<_, CudaError>>()?;
        Ok(Self { copies: device.stream()?, places, next: 0 })
    }

    /// Starts to copy the `bytes` bytes that `fill` writes; what follows in `stream`, which must not be capturing, waits
    /// for them. Waits itself until the copy before the last `depth` ones is done.
    pub fn push(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
        stream: &Stream,
    ) -> Result<Uploaded, CudaError> {
        let index = self.next;
        self.next = (index + 1) % self.places.len();
        let place = &mut self.places[index];
        place.copied.synchronize()?;
        fill(&mut place.staging.bytes_mut()[..bytes]);
        self.copies.wait(&place.read)?;
        let span = place.target.part(0, bytes);
        self.copies.copy(&place.staging.span().part(0, bytes), &span)?;
        self.copies.record(&place.copied)?;
        stream.wait(&place.copied)?;
        Ok(Uploaded { span, place: index })
    }

    /// Gives the place back once everything so far in `stream` is done.
    pub fn release(&mut self, uploaded: Uploaded, stream: &Stream) -> Result<(), CudaError> {
        stream.record(&self.places[uploaded.place].read)
    }
}
