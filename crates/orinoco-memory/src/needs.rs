//! Memory needs of models and streams, checked once: names are unique, lanes exist, sums cannot overflow.

use std::collections::BTreeMap;
use std::fmt;

/// Size of a page, in bytes. Every area of a plan has whole pages, because a lane's scratch becomes a mapping of its own. The
/// kernels of Jetson boards and of x86_64 have pages of 4 KiB.
pub const PAGE_BYTES: u64 = 4096;

/// Unit in which tensors and frames are counted: a cache line, or an AVX-512 register.
pub const ALIGN_BYTES: u64 = 64;
const _: () = assert!(PAGE_BYTES.is_multiple_of(ALIGN_BYTES));

/// Maximum sum of all needs: 256 TiB, which is the address space of a process. It keeps every sum of a plan within 64
/// bits.
pub const BYTES_MAX: u64 = 1 << 48;

/// Kind of memory that is allocated. Unlike `orinoco_core::MemoryDomain`, it has no dma-buf: a driver allocates that, and a plan
/// has only what Orinoco allocates.
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
    /// All domains, in the order in which plans list them.
    pub const ALL: [Self; 3] = [Self::Host, Self::Pinned, Self::Device];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Pinned => "pinned",
            Self::Device => "device",
        }
    }
}

/// Size that grows with the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesPerBatch {
    /// Bytes at any batch size. A size that was measured at one batch only belongs here: it holds for that batch and
    /// all smaller ones.
    pub fixed_bytes: u64,
    /// Bytes for each item of the batch.
    pub item_bytes: u64,
}

impl BytesPerBatch {
    /// Returns the bytes for `batch` items.
    pub(crate) fn at(self, batch: u32) -> u64 {
        self.fixed_bytes + self.item_bytes * u64::from(batch)
    }

    fn at_checked(self, batch: u32) -> u128 {
        u128::from(self.fixed_bytes) + u128::from(self.item_bytes) * u128::from(batch)
    }
}

/// Memory of an input or output that a model is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorNeeds {
    /// Name in the model's graph.
    pub name: String,
    /// Size in bytes. A tensor without a batch axis has only fixed bytes.
    pub bytes: BytesPerBatch,
}

/// Memory that a model needs, bound to one lane and one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelNeeds {
    /// The name in the board. One name with two revisions are two models: of a running board one may be leaving.
    pub name: String,
    /// Revision of the model behind the name. Models of one name and revision are the same, so a change keeps their
    /// memory.
    pub revision: String,
    /// Engine that reported the sizes, or on which they were measured.
    pub engine: String,
    /// Lane that executes the model.
    pub lane: usize,
    /// Memory that its scratch is in.
    pub domain: Domain,
    /// Memory that its inputs and outputs are in.
    pub io_domain: Domain,
    /// Weights, prepacked kernels and other memory that is kept between runs, by domain. A model on a GPU needs some on
    /// the host as well.
    pub weights: Vec<(Domain, u64)>,
    /// Maximum memory of the engine's activations at one time. For an engine that allocates from an
    /// [`Arena`](crate::Arena): the arena's reach, [`Usage::reach_bytes`](crate::Usage::reach_bytes).
    pub scratch: BytesPerBatch,
    /// Inputs, then outputs, in the model's order.
    pub tensors: Vec<TensorNeeds>,
    /// Batch size, in items; at least 1.
    pub batch: u32,
}

impl ModelNeeds {
    /// Returns the bytes that are kept between runs in `domain`. [`Needs::new`] holds that the sum has room in 64 bits.
    pub(crate) fn weights_bytes(&self, domain: Domain) -> u64 {
        self.weights.iter().filter(|(theirs, _)| *theirs == domain).map(|(_, bytes)| bytes).sum()
    }
}

/// Memory that a stream needs: what its source allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamNeeds {
    /// The name in the board. One name with two revisions are two streams: of a running board one may be leaving.
    pub name: String,
    /// Revision of the source behind the name. Streams of one name and revision are the same, so a change keeps their
    /// memory.
    pub revision: String,
    /// Memory that its frames are in.
    pub domain: Domain,
    /// Capacity of the ring of waiting frames; at least 1.
    pub queue_frames: u32,
    /// Slots of the source with a ring of this capacity.
    pub slots: u32,
    /// Slots that the source has in addition to the ring's. With a shorter ring, it has at most that ring's slots and
    /// these.
    pub extra_slots: u32,
    /// Size of a slot, in bytes.
    pub frame_bytes: u64,
    /// Size of the buffers that a driver allocates for it, in bytes.
    pub driver_bytes: u64,
    /// Memory that is allocated for it in addition, of a size that is known only once it runs: `decoder buffers`.
    pub uncounted: Vec<String>,
}

impl StreamNeeds {
    /// Returns the bytes of all slots.
    pub(crate) fn slots_bytes(&self) -> u64 {
        self.frame_bytes.next_multiple_of(ALIGN_BYTES) * u64::from(self.slots)
    }
}

/// Needs from which no plan can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeedsFault {
    /// Two models of one name and revision.
    #[error("two models are named `{0}`")]
    ModelTwice(String),
    /// Two streams of one name and revision.
    #[error("two streams are named `{0}`")]
    StreamTwice(String),
    /// A model is on a lane that does not exist.
    #[error("model `{model}` is on lane {lane}; the board has {lanes}, counted from 0")]
    NoSuchLane {
        /// Name of the model.
        model: String,
        /// Lane of the model, counted from 0.
        lane: usize,
        /// Number of lanes.
        lanes: usize,
    },
    /// A batch has no items, or a ring has no frames.
    #[error("batch or queue_frames of `{0}` is 0")]
    Empty(String),
    /// The sum is larger than [`BYTES_MAX`].
    #[error("all needs together are more than {} TiB", BYTES_MAX >> 40)]
    TooLarge,
}

/// The needs of a board. In one order, whatever order they were given in: models and streams by name and revision, compared
/// byte by byte; a model's tensors stay in the model's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    lanes: usize,
    /// Sizes of the scratch areas that lanes have already.
    scratches: BTreeMap<(Domain, usize), u64>,
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
        models.sort_by(|a, b| model_key(a).cmp(&model_key(b)));
        streams.sort_by(|a, b| stream_key(a).cmp(&stream_key(b)));
        if let Some(pair) = models.windows(2).find(|pair| model_key(&pair[0]) == model_key(&pair[1])) {
            return Err(NeedsFault::ModelTwice(pair[0].name.clone()));
        }
        if let Some(pair) = streams.windows(2).find(|pair| stream_key(&pair[0]) == stream_key(&pair[1])) {
            return Err(NeedsFault::StreamTwice(pair[0].name.clone()));
        }
        models.iter().try_for_each(|model| check_model(model, lanes))?;
        streams.iter().try_for_each(check_stream)?;
        let needs = Self { lanes, scratches: BTreeMap::new(), models, streams };
        if needs.bytes_bound() > u128::from(BYTES_MAX) { Err(NeedsFault::TooLarge) } else { Ok(needs) }
    }

    /// Takes into account that a lane has a scratch area of `bytes` already. It keeps its size as long as the lane has models
    /// and none of them needs more.
    #[must_use]
    pub fn with_scratch(mut self, lane: usize, domain: Domain, bytes: u64) -> Self {
        assert!(lane < self.lanes, "lane {lane} of {}", self.lanes);
        assert!(bytes <= BYTES_MAX, "an area of {bytes} bytes");
        self.scratches.insert((domain, lane), bytes);
        self
    }

    /// Bytes of the scratch area that a lane has already.
    pub(crate) fn scratch_there(&self, domain: Domain, lane: usize) -> u64 {
        self.scratches.get(&(domain, lane)).copied().unwrap_or(0)
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the models, by name.
    pub fn models(&self) -> &[ModelNeeds] {
        &self.models
    }

    /// Returns the streams, by name.
    pub fn streams(&self) -> &[StreamNeeds] {
        &self.streams
    }

    /// The needs with one model changed; the change keeps its name, and lowers its batch or moves it to another lane
    /// that exists. It is another model then, and what one that runs holds is not its own.
    pub(crate) fn with_model(&self, name: &str, change: impl FnOnce(&mut ModelNeeds)) -> Self {
        let mut needs = self.clone();
        let model = needs.models.iter_mut().find(|model| model.name == name);
        let model = model.expect("a change names a model");
        change(model);
        model.revision.push_str(CHANGED);
        needs
    }

    /// The needs with a shorter ring for one stream, which is another stream then.
    pub(crate) fn with_ring(&self, name: &str, queue_frames: u32) -> Self {
        let mut needs = self.clone();
        let stream = needs.streams.iter_mut().find(|stream| stream.name == name);
        let stream = stream.expect("a change names a stream");
        stream.revision.push_str(CHANGED);
        stream.queue_frames = queue_frames;
        stream.slots = stream.slots.min(queue_frames.saturating_add(stream.extra_slots));
        needs
    }

    /// Returns the needs without one model.
    pub(crate) fn without_model(&self, name: &str) -> Self {
        let mut needs = self.clone();
        needs.models.retain(|model| model.name != name);
        needs
    }

    /// Returns an upper bound of any plan for these needs: every scratch counts, though models of a lane share theirs,
    /// and every share and area is rounded up as if it were alone.
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

/// Marks the revision of what a suggestion changes.
const CHANGED: &str = " (changed)";

fn model_key(model: &ModelNeeds) -> (&str, &str) {
    (&model.name, &model.revision)
}

fn stream_key(stream: &StreamNeeds) -> (&str, &str) {
    (&stream.name, &stream.revision)
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
