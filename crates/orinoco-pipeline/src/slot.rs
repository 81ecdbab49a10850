//! Memory of a frame's bytes, and its way back to its owner.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use orinoco_core::{Clock, FrameDesc, FrameView, MemoryDomain, Nanos, Region, Signal};

use crate::LaneTimes;
use crate::sync::{Mutex, MutexGuard};

/// Buffer of another owner: of a decoder, an NVMM surface, a dma-buf. Dropping it returns the buffer, so a frame is held
/// exactly until the last reader (the execution that used it, then the sinks) is done with it.
pub trait Lease: Send + Sync {
    /// The bytes, mapped for reading by the host; none where the frame's memory is [`MemoryDomain::DmaBuf`].
    fn bytes(&self) -> &[u8];

    /// The same memory as a dma-buf, where its owner exports it: other devices read it without a copy.
    fn dma_buf(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The memory of one frame.
pub enum Slot {
    /// Our own preallocated buffer; goes back to its [`SlotPool`] when dropped.
    Owned(OwnedSlot),
    /// Somebody else's buffer, given back when dropped.
    Leased(Box<dyn Lease>),
}

/// A buffer from a [`SlotPool`].
#[derive(Debug)]
pub struct OwnedSlot {
    /// The bytes.
    pub bytes: Vec<u8>,
    home: Weak<FreeBuffers>,
}

impl Drop for OwnedSlot {
    fn drop(&mut self) {
        // The pool may be gone before its last frame; then the buffer is simply freed.
        let Some(home) = self.home.upgrade() else { return };
        let mut free = home.lock();
        free.buffers.push(std::mem::take(&mut self.bytes));
        let slot_came = free.slot_came.clone();
        drop(free);
        slot_came.iter().for_each(|slot_came| slot_came.notify());
    }
}

/// A fixed number of equal buffers, allocated once. One thread takes them.
#[derive(Debug)]
pub struct SlotPool {
    free: Arc<FreeBuffers>,
}

/// Buffers of a pool that nobody holds.
#[derive(Debug)]
struct FreeBuffers(Mutex<FreeState>);

struct FreeState {
    buffers: Vec<Vec<u8>>,
    /// Wakes the thread that takes slots; `None` as long as it never waited.
    slot_came: Option<Arc<dyn Signal>>,
}

impl SlotPool {
    /// Allocates `slots` buffers of `bytes` bytes.
    pub fn new(slots: usize, bytes: usize) -> Self {
        let buffers = (0..slots).map(|_| vec![0; bytes]).collect();
        Self { free: Arc::new(FreeBuffers(Mutex::new(FreeState { buffers, slot_came: None }))) }
    }

    /// Returns a free buffer, or `None` when there is none.
    pub fn try_take(&self) -> Option<OwnedSlot> {
        let bytes = self.free.lock().buffers.pop()?;
        Some(OwnedSlot { bytes, home: Arc::downgrade(&self.free) })
    }

    /// Returns a free buffer, or `None` when none comes back within `wait`.
    pub fn take(&self, wait: Duration, clock: &dyn Clock) -> Option<OwnedSlot> {
        if let Some(slot) = self.try_take() {
            return Some(slot);
        }
        let until = clock.now() + wait;
        let slot_came = Arc::clone(self.free.lock().slot_came.get_or_insert_with(|| clock.signal()));
        loop {
            if let Some(slot) = self.try_take() {
                return Some(slot);
            }
            if clock.now() >= until {
                return None;
            }
            slot_came.wait(Some(until));
        }
    }
}

impl FreeBuffers {
    fn lock(&self) -> MutexGuard<'_, FreeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for FreeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FreeState({} buffers)", self.buffers.len())
    }
}

/// Shape of a pixel: its width to its height. Only the annotated video heeds it; boxes are in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelAspect {
    /// Relative width, more than zero.
    pub width: u32,
    /// Relative height, more than zero.
    pub height: u32,
}

impl PixelAspect {
    /// Pixels as wide as high.
    pub const SQUARE: Self = Self { width: 1, height: 1 };
    /// Containers store the two numbers in 16 bits (ITU-T H.264, table E-1).
    const TERM_MAX: u32 = u16::MAX as u32;

    /// The ratio in lowest terms. One that is no ratio (0:1 is "unknown" in H.264), or has no place in a container, is
    /// square.
    pub fn new(width: u32, height: u32) -> Self {
        let divisor = greatest_common_divisor(width, height);
        if width == 0 || height == 0 || (width / divisor).max(height / divisor) > Self::TERM_MAX {
            return Self::SQUARE;
        }
        Self { width: width / divisor, height: height / divisor }
    }
}

impl Default for PixelAspect {
    fn default() -> Self {
        Self::SQUARE
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// A frame on its way: descriptor, bytes, and the times by which its stages are measured.
pub struct Frame {
    /// Description of the bytes.
    pub desc: FrameDesc,
    /// Time the decoder took, where the source knows it.
    pub decode: Option<Duration>,
    /// Processor time of the decoder for this frame, and for those before it that went no further; `None` where it is not
    /// known.
    pub decode_cpu: Option<Duration>,
    /// Time from the driver's stamp to the slot, where the source knows it.
    pub captured: Option<Duration>,
    /// Frames that the source lost just before this one.
    pub lost: u64,
    /// Shape of its pixels.
    pub aspect: PixelAspect,
    /// When it reached its slot.
    pub arrived: Nanos,
    /// Times that it spent in its lane; zero before it has left it.
    pub lane_times: LaneTimes,
    slot: Arc<Slot>,
}

impl Frame {
    /// Pairs a descriptor with its bytes; `None` when they do not fit it.
    pub fn new(desc: FrameDesc, slot: Slot, arrived: Nanos) -> Option<Self> {
        let frame = Self {
            desc,
            decode: None,
            decode_cpu: None,
            captured: None,
            lost: 0,
            aspect: PixelAspect::default(),
            arrived,
            lane_times: LaneTimes::default(),
            slot: Arc::new(slot),
        };
        match desc.memory {
            MemoryDomain::DmaBuf => frame.dma_buf().map(drop)?,
            _ => FrameView::new(&frame.desc, frame.bytes()).map(drop)?,
        }
        Some(frame)
    }

    /// The same frame once more: its slot is given back when the last of them is dropped.
    pub fn share(&self) -> Self {
        Self { slot: Arc::clone(&self.slot), ..*self }
    }

    /// Its slot, as somebody sees it who does not hold it.
    pub(crate) fn slot(&self) -> Weak<Slot> {
        Arc::downgrade(&self.slot)
    }

    /// A part of it as a frame of its own, which shares its slot, and the part that it is: see [`FrameDesc::part`].
    pub fn part(&self, region: Region) -> Option<(Self, Region)> {
        let (desc, part) = self.desc.part(region)?;
        Some((Self { desc, ..self.share() }, part))
    }

    /// Its memory as a dma-buf, where its owner exports it.
    pub fn dma_buf(&self) -> Option<BorrowedFd<'_>> {
        match &*self.slot {
            Slot::Owned(_) => None,
            Slot::Leased(lease) => lease.dma_buf(),
        }
    }

    /// Returns a view of the frame in host memory. Panics for a frame whose memory is [`MemoryDomain::DmaBuf`], which only
    /// comes from a source that was asked for it.
    pub fn view(&self) -> FrameView<'_> {
        FrameView::new(&self.desc, self.bytes()).expect("checked when the frame was made")
    }

    fn bytes(&self) -> &[u8] {
        match &*self.slot {
            Slot::Owned(slot) => &slot.bytes,
            Slot::Leased(lease) => lease.bytes(),
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Frame(stream {}, seq {}, {}x{})",
            self.desc.stream, self.desc.seq, self.desc.width, self.desc.height
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonotonicClock;
    use orinoco_core::PixelFormat;

    #[test]
    fn a_dropped_frame_gives_its_slot_back() {
        let desc = FrameDesc::packed(PixelFormat::Gray8, 4, 4);
        let pool = SlotPool::new(1, desc.bytes_needed());
        let slot = pool.try_take().expect("one slot is free");
        assert!(pool.try_take().is_none());
        let frame = Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits");
        drop(frame);
        assert!(pool.try_take().is_some());
    }

    #[test]
    fn a_slot_that_comes_back_ends_the_wait_for_it() {
        let (pool, clock) = (SlotPool::new(1, 1), MonotonicClock::default());
        let held = pool.try_take().expect("one slot is free");
        assert!(pool.take(Duration::from_millis(1), &clock).is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| drop(held));
            assert!(pool.take(Duration::from_secs(3600), &clock).is_some());
        });
    }

    #[test]
    fn the_shape_of_pixels_is_in_lowest_terms_and_never_zero() {
        let terms = |width, height| {
            let aspect = PixelAspect::new(width, height);
            (aspect.width, aspect.height)
        };
        assert_eq!([terms(64, 32), terms(12, 11), terms(7, 7)], [(2, 1), (12, 11), (1, 1)]);
        assert_eq!([terms(0, 1), terms(1, 0), terms(0, 0), terms(70_001, 1)], [(1, 1); 4]);
    }

    #[test]
    fn a_slot_that_is_too_small_makes_no_frame() {
        let pool = SlotPool::new(1, 15);
        let slot = pool.try_take().expect("one slot is free");
        let desc = FrameDesc::packed(PixelFormat::Gray8, 4, 4);
        assert!(Frame::new(desc, Slot::Owned(slot), Nanos(0)).is_none());
    }
}
