//! What models and streams need, checked once: names are unique, lanes exist, sums cannot overflow.

use std::fmt;

use orinoco_core::MemoryDomain;

/// Bytes of a page. Every area of a plan fills whole ones, since each becomes a mapping of its own. Jetson's kernels, and
/// those of x86_64, have pages of 4 KiB.
pub const PAGE_BYTES: u64 = 4096;

/// What tensors and frames are counted in: a cache line, or an AVX-512 register.
pub const ALIGN_BYTES: u64 = 64;
const _: () = assert!(PAGE_BYTES.is_multiple_of(ALIGN_BYTES));

/// The most that all needs may sum up to: 256 TiB, what a process can address. It keeps every sum of a plan in 64 bits.
pub const BYTES_MAX: u64 = 1 << 48;

/// Whose memory it is. A dma-buf has no place here: its driver owns it, and a plan only what we allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// Ordinary pageable host memory.
    Host,
    /// Page-locked host memory that the GPU maps.
    Pinned,
    /// GPU memory.
    Device,
}

impl Domain {
    /// Every domain, in the order in which plans list them.
    pub const ALL: [Self; 3] = [Self::Host, Self::Pinned, Self::Device];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Pinned => "pinned",
            Self::Device => "device",
        }
    }

    /// The domain of a frame's memory; `None` for memory that its driver owns.
    pub fn of(memory: MemoryDomain) -> Option<Self> {
        match memory {
            MemoryDomain::Host => Some(Self::Host),
            MemoryDomain::PinnedMapped => Some(Self::Pinned),
            MemoryDomain::Device => Some(Self::Device),
            _ => None,
        }
    }
}

/// Bytes that grow with the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesPerBatch {
    /// Bytes whatever the batch. What was measured at one batch only belongs here: it holds for that batch and all
    /// smaller ones.
    pub fixed_bytes: u64,
    /// Bytes for each item of the batch.
    pub item_bytes: u64,
}

impl BytesPerBatch {
    /// Bytes for `batch` items.
    pub(crate) fn at(self, batch: u32) -> u64 {
        self.fixed_bytes + self.item_bytes * u64::from(batch)
    }

    fn at_checked(self, batch: u32) -> u128 {
        u128::from(self.fixed_bytes) + u128::from(self.item_bytes) * u128::from(batch)
    }
}

/// An input or output that a model is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorNeeds {
    /// The name in the model.
    pub name: String,
    /// Its bytes. A tensor without a batch axis has fixed ones only.
    pub bytes: BytesPerBatch,
}

/// What a model needs, bound to one lane and one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelNeeds {
    /// The name in the board; unique among models.
    pub name: String,
    /// Which model is behind the name. Models of one name and revision are the same one: a change keeps its memory.
    pub revision: String,
    /// The engine that said so, or on which it was measured.
    pub engine: String,
    /// The lane that replays it.
    pub lane: usize,
    /// Where its scratch lies.
    pub domain: Domain,
    /// Where inputs and outputs lie.
    pub io_domain: Domain,
    /// Weights, prepacked kernels and whatever else is kept between runs, by where it lies. A model on a GPU takes some of
    /// the host as well.
    pub weights: Vec<(Domain, u64)>,
    /// The most that the engine's activations fill at one time. For an engine that allocates from an
    /// [`Arena`](crate::Arena): the arena's reach, [`Usage::reach_bytes`](crate::Usage::reach_bytes).
    pub scratch: BytesPerBatch,
    /// Inputs, then outputs, in the model's order.
    pub tensors: Vec<TensorNeeds>,
    /// Items in a batch; at least 1.
    pub batch: u32,
}

impl ModelNeeds {
    /// What is kept between runs in `domain`, in bytes. [`Needs::new`] holds that the sum has room in 64 bits.
    pub(crate) fn weights_bytes(&self, domain: Domain) -> u64 {
        self.weights.iter().filter(|(theirs, _)| *theirs == domain).map(|(_, bytes)| bytes).sum()
    }
}

/// What a stream needs: what its source allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamNeeds {
    /// The name in the board; unique among streams.
    pub name: String,
    /// Which source is behind the name. Streams of one name and revision are the same one: a change keeps its memory.
    pub revision: String,
    /// Where its frames lie.
    pub domain: Domain,
    /// Frames that may wait in its ring; at least 1.
    pub queue_frames: u32,
    /// Slots of its source, with this ring.
    pub slots: u32,
    /// Slots of those that the source has in addition to the ring's: a shorter ring leaves it no more than its own frames
    /// and these.
    pub extra_slots: u32,
    /// Bytes of a slot.
    pub frame_bytes: u64,
    /// Bytes of the buffers that a driver allocates for it.
    pub driver_bytes: u64,
    /// What is allocated for it in addition, of a size that is known only once it runs: `decoder buffers`.
    pub uncounted: Vec<String>,
}

impl StreamNeeds {
    /// Bytes of all slots.
    pub(crate) fn slots_bytes(&self) -> u64 {
        self.frame_bytes.next_multiple_of(ALIGN_BYTES) * u64::from(self.slots)
    }
}

/// Needs that no plan can be made for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeedsFault {
    /// Two models of one name.
    #[error("two models are named `{0}`")]
    ModelTwice(String),
    /// Two streams of one name.
    #[error("two streams are named `{0}`")]
    StreamTwice(String),
    /// A model on a lane that is not there.
    #[error("model `{model}` is on lane {lane}; the board has {lanes}, counted from 0")]
    NoSuchLane {
        /// The model.
        model: String,
        /// Its lane, counted from 0.
        lane: usize,
        /// How many lanes there are.
        lanes: usize,
    },
    /// A batch without items, or a ring without frames.
    #[error("`{0}` has a batch or ring of 0")]
    Empty(String),
    /// More than [`BYTES_MAX`].
    #[error("all needs together are more than {BYTES_MAX} bytes")]
    TooLarge,
}

/// The needs of a board. In one order, whatever order they were given in: models and streams by name, compared byte by
/// byte; a model's tensors stay in the model's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    lanes: usize,
    models: Vec<ModelNeeds>,
    streams: Vec<StreamNeeds>,
}

impl Needs {
    /// Checks the needs of models on `lanes` lanes, and of streams.
    pub fn new(
        lanes: usize,
        mut models: Vec<ModelNeeds>,
        mut streams: Vec<StreamNeeds>,
    ) -> Result<Self, NeedsFault> {
        models.sort_by(|a, b| a.name.cmp(&b.name));
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = models.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(NeedsFault::ModelTwice(pair[0].name.clone()));
        }
        if let Some(pair) = streams.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(NeedsFault::StreamTwice(pair[0].name.clone()));
        }
        models.iter().try_for_each(|model| check_model(model, lanes))?;
        streams.iter().try_for_each(check_stream)?;
        let needs = Self { lanes, models, streams };
        if needs.bytes_bound() > u128::from(BYTES_MAX) { Err(NeedsFault::TooLarge) } else { Ok(needs) }
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// The models, by name.
    pub fn models(&self) -> &[ModelNeeds] {
        &self.models
    }

    /// The streams, by name.
    pub fn streams(&self) -> &[StreamNeeds] {
        &self.streams
    }

    /// The needs with one model changed; the change keeps its name, and lowers its batch or moves it to another lane
    /// that exists.
    pub(crate) fn with_model(&self, name: &str, change: impl FnOnce(&mut ModelNeeds)) -> Self {
        let mut needs = self.clone();
        change(needs.models.iter_mut().find(|model| model.name == name).expect("a change names a model"));
        needs
    }

    /// The needs with a shorter ring for one stream.
    pub(crate) fn with_ring(&self, name: &str, queue_frames: u32) -> Self {
        let mut needs = self.clone();
        let stream = needs.streams.iter_mut().find(|stream| stream.name == name);
        let stream = stream.expect("a change names a stream");
        stream.queue_frames = queue_frames;
        stream.slots = stream.slots.min(queue_frames.saturating_add(stream.extra_slots));
        needs
    }

    /// The needs without one model.
    pub(crate) fn without_model(&self, name: &str) -> Self {
        let mut needs = self.clone();
        needs.models.retain(|model| model.name != name);
        needs
    }

    /// More than any plan for these needs takes: every scratch counts, though models of a lane share theirs, and every
    /// share and area is rounded up as if it were alone.
    fn bytes_bound(&self) -> u128 {
        let page = u128::from(PAGE_BYTES);
        let models = self.models.iter().map(|model| {
            let tensors: u128 = model.tensors.iter().map(|t| t.bytes.at_checked(model.batch) + page).sum();
            let weights: u128 = model.weights.iter().map(|(_, bytes)| u128::from(*bytes) + page).sum();
            weights + model.scratch.at_checked(model.batch) + tensors + 2 * page
        });
        let streams = self.streams.iter().map(|s| {
            let frame = u128::from(s.frame_bytes) + u128::from(ALIGN_BYTES);
            frame * u128::from(s.slots) + u128::from(s.driver_bytes) + 2 * page
        });
        models.chain(streams).fold(0, u128::saturating_add)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn check_model(model: &ModelNeeds, lanes: usize) -> Result<(), NeedsFault> {
    if model.lane >= lanes {
        return Err(NeedsFault::NoSuchLane { model: model.name.clone(), lane: model.lane, lanes });
    }
    if model.batch == 0 {
        return Err(NeedsFault::Empty(model.name.clone()));
    }
    Ok(())
}

fn check_stream(stream: &StreamNeeds) -> Result<(), NeedsFault> {
    if stream.queue_frames == 0 {
        return Err(NeedsFault::Empty(stream.name.clone()));
    }
    Ok(())
}
