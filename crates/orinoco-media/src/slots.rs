//! How many slots a source has, by its ring: the rule by which sources allocate and boards are planned.

/// Most slots of a source: more than a ring, a batch and the sinks hold together.
pub(crate) const SLOTS_MAX: usize = 16;
/// Slots of a source in addition to its ring's: those of a batch in work, and of the sinks. A board's ring holds 4 frames
/// unless its file says otherwise, which makes `SLOTS_MAX`.
pub(crate) const EXTRA_SLOTS: usize = 12;
/// Fewest slots of raw video. With fewer it would stand still: one is read while others wait for their batch.
const RAW_SLOTS_MIN: usize = 4;
/// What the slots of raw video may take in all, unless `RAW_SLOTS_MIN` frames are larger.
const RAW_SLOTS_BYTES: usize = 256 * 1024 * 1024;
const _: () = assert!(RAW_SLOTS_MIN <= EXTRA_SLOTS && EXTRA_SLOTS < SLOTS_MAX);

/// What a source allocates once it is open, as far as its URI determines it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceNeeds {
    /// Slots in memory of our own.
    pub slots: usize,
    /// Slots of those in addition to the ring's: with a shorter ring there are at most as many as its frames and these.
    pub extra_slots: usize,
    /// Bytes of a slot; 0 where `uncounted` has them.
    pub frame_bytes: u64,
    /// Bytes of the buffers that a driver is asked for; 0 where `uncounted` has them.
    pub driver_bytes: u64,
    /// What is allocated in addition, of a size that is known only once the source is open: `decoder buffers`.
    pub uncounted: Vec<&'static str>,
}

impl SourceNeeds {
    /// Needs of a source whose `slots` of `frame_bytes` bytes depend on its ring.
    pub(crate) fn of_slots(slots: usize, frame_bytes: usize) -> Self {
        let frame_bytes = frame_bytes as u64;
        Self { slots, extra_slots: EXTRA_SLOTS, frame_bytes, ..Self::default() }
    }

    /// Needs that are known only once the source is open.
    pub(crate) fn uncounted(what: &'static str) -> Self {
        Self { uncounted: vec![what], ..Self::default() }
    }
}

/// Slots of a source whose ring holds `queue_frames`.
pub(crate) fn slots(queue_frames: usize) -> usize {
    queue_frames.saturating_add(EXTRA_SLOTS).min(SLOTS_MAX)
}

/// Slots of raw video in frames of `frame_bytes`: fewer, where they are large.
pub(crate) fn raw_slots(queue_frames: usize, frame_bytes: usize) -> usize {
    slots(queue_frames).min(RAW_SLOTS_BYTES / frame_bytes.max(1)).max(RAW_SLOTS_MIN)
}
