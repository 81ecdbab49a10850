//! Number of slots of a source, by its ring: the rule by which sources allocate and boards are planned.

/// Maximum number of slots of a source: more than a ring, a batch and the sinks hold together.
pub(crate) const SLOTS_MAX: usize = 16;
/// Slots of a source in addition to its ring's: those of a batch in work, and of the sinks. A ring of 4 frames, the
/// default, makes `SLOTS_MAX`.
pub(crate) const EXTRA_SLOTS: usize = 12;
/// Minimum number of slots of raw video. With fewer it would stop: one is read while others wait for their batch.
const RAW_SLOTS_MIN: usize = 4;
/// Maximum size of all slots of raw video, in bytes, unless `RAW_SLOTS_MIN` frames are larger.
const RAW_SLOTS_BYTES: usize = 256 * 1024 * 1024;
const _: () = assert!(RAW_SLOTS_MIN <= EXTRA_SLOTS && EXTRA_SLOTS < SLOTS_MAX);

/// Memory that a source allocates once it is open, as far as its URI determines it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceNeeds {
    /// Number of slots in Orinoco's own memory.
    pub slots: usize,
    /// Number of those slots in addition to the ring's: with a shorter ring there are at most as many as its frames and
    /// these.
    pub extra_slots: usize,
    /// Size of a slot, in bytes; 0 where it is in `uncounted`.
    pub frame_bytes: u64,
    /// Size of the buffers that a driver is asked for, in bytes; 0 where it is in `uncounted`.
    pub driver_bytes: u64,
    /// Memory allocated in addition, of a size that is known only once the source is open, such as `decoder buffers`.
    pub uncounted: Vec<&'static str>,
}

impl SourceNeeds {
    /// Makes the needs of a source whose `slots` of `frame_bytes` bytes depend on its ring.
    pub(crate) fn of_slots(slots: usize, frame_bytes: usize) -> Self {
        let frame_bytes = frame_bytes as u64;
        Self { slots, extra_slots: EXTRA_SLOTS, frame_bytes, ..Self::default() }
    }

    /// Makes needs that are known only once the source is open.
    pub(crate) fn uncounted(what: &'static str) -> Self {
        Self { uncounted: vec![what], ..Self::default() }
    }
}

/// Returns the number of slots of a source whose ring holds `queue_frames`.
pub(crate) fn slots(queue_frames: usize) -> usize {
    queue_frames.saturating_add(EXTRA_SLOTS).min(SLOTS_MAX)
}

/// Returns the number of slots of raw video with frames of `frame_bytes`: fewer if frames are large.
pub(crate) fn raw_slots(queue_frames: usize, frame_bytes: usize) -> usize {
    slots(queue_frames).min(RAW_SLOTS_BYTES / frame_bytes.max(1)).max(RAW_SLOTS_MIN)
}
