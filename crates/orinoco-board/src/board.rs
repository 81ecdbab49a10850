//! The checked form.

use std::path::PathBuf;
use std::time::Duration;

use orinoco_core::{Choice, Codec, Diagnosis, DropPolicy, Resize};
use orinoco_uri::SourceUri;

/// Everything one board runs.
#[derive(Clone, Debug)]
pub struct Board {
    /// Its name, in summaries and metrics.
    pub name: String,
    /// Engines and how they run.
    pub inference: Inference,
    /// Bytes that all models and streams may take; `None` where memory is not planned.
    pub memory: Option<u64>,
    /// Executing threads; see [`Board::lane_of`].
    pub lanes: usize,
    /// Models, referred to by index.
    pub models: Vec<BoardModel>,
    /// Streams, in the order of their ids.
    pub streams: Vec<BoardStream>,
    /// The board file and those that it inherits; none where it comes from elsewhere.
    pub files: Vec<PathBuf>,
}

impl Board {
    /// The lane of a stream: the one it names, else they are dealt in turn.
    pub fn lane_of(&self, stream: usize) -> usize {
        self.streams[stream].lane.unwrap_or(stream % self.lanes)
    }

    /// How many lanes have streams, or lie before one that has.
    pub fn lanes_used(&self) -> usize {
        (0..self.streams.len()).map(|stream| self.lane_of(stream) + 1).max().unwrap_or(0)
    }
}

/// Engines and how they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inference {
    /// Order of preference.
    pub engines: Vec<String>,
    /// Engines whose refusal is an error instead of a fallback.
    pub require: Vec<String>,
    /// Threads of one inference.
    pub threads: usize,
    /// ONNX Runtime's library, where it is not to be searched for.
    pub ort_library: Option<PathBuf>,
    /// Whether engines compute in memory of ours: where the board plans it.
    pub shared_scratch: bool,
}

impl Default for Inference {
    fn default() -> Self {
        let engines = ["ort-cpu", "tract"].map(str::to_owned).to_vec();
        Self { engines, require: Vec::new(), threads: 1, ort_library: None, shared_scratch: false }
    }
}

/// Where an entry was written. Equal to every other: an entry that moved in its file has not changed.
#[derive(Clone, Debug, Default)]
pub struct Written(Option<String>);

impl Written {
    /// In this file, at this line: `board.toml:12`.
    pub(crate) fn at(place: String) -> Self {
        Self(Some(place))
    }

    /// Returns the fault with the place put before its subject.
    pub fn fault(&self, fault: Diagnosis) -> Diagnosis {
        match &self.0 {
            Some(place) => Diagnosis { subject: format!("{place}: {}", fault.subject), ..fault },
            None => fault,
        }
    }
}

impl PartialEq for Written {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One model as this board uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardModel {
    /// The name streams use.
    pub name: String,
    /// What the model repository is asked for.
    pub model: String,
    /// Frames of one inference.
    pub batch: usize,
    /// In place of the description's.
    pub score_threshold: Option<f32>,
    /// In place of the description's.
    pub iou_threshold: Option<f32>,
    /// In place of the description's.
    pub resize: Option<Resize>,
    /// It looks at every so many frames of a stream.
    pub interval: u32,
    /// It looks at objects that another model found, in place of whole frames.
    pub on: Option<ObjectSelectionSpec>,
    /// Place of its `model` key in the board file, or of its entry.
    pub written: Written,
}

impl BoardModel {
    /// A model with every setting at its default: every frame, one at a time, as its description says.
    pub fn new(name: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            model: model.into(),
            batch: 1,
            score_threshold: None,
            iou_threshold: None,
            resize: None,
            interval: 1,
            on: None,
            written: Written::default(),
        }
    }
}

/// Which objects a model looks at.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectSelectionSpec {
    /// The name of the model that finds them.
    pub model: String,
    /// Their classes, by that model's labels; any if empty.
    pub classes: Vec<String>,
    /// Shortest side, in source pixels.
    pub side_min: u32,
    /// The most in one frame, best first.
    pub count_max: usize,
}

impl ObjectSelectionSpec {
    /// Unless the board file says otherwise: smaller crops show hardly anything.
    pub const SIDE_MIN: u32 = 16;
    /// Unless the board file says otherwise: a crowd must not hold a lane for seconds.
    pub const COUNT_MAX: usize = 16;
}

/// One stream.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardStream {
    /// Its name.
    pub name: String,
    /// What it reads.
    pub source: SourceUri,
    /// Indices into [`Board::models`], in the order in which they run; none where frames only go to sinks.
    pub models: Vec<usize>,
    /// The lane that it runs on, from 0; `None` where it is dealt to one.
    pub lane: Option<usize>,
    /// What happens when its ring is full; `None` lets the kind of source decide.
    pub drop: Option<DropPolicy>,
    /// Size of its ring.
    pub queue_frames: usize,
    /// How long a frame waits for others to fill its batch.
    pub batch_wait: Duration,
    /// Frames that take longer are counted as late.
    pub latency_max: Option<Duration>,
    /// Ends after this many frames; what was lost at the source is none.
    pub frames_max: Option<u64>,
    /// Attempts to reach a live source that never delivered; `None` for ever.
    pub reconnect_attempts: Option<u32>,
    /// Silence that counts as a stall.
    pub stall: Duration,
    /// How objects are followed from frame to frame; `None` where they are not.
    pub track: Option<TrackSpec>,
    /// Where its outcomes go.
    pub sinks: Vec<SinkSpec>,
    /// Place of its source in the board file.
    pub written: Written,
}

/// How objects are followed, and what is counted of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackSpec {
    /// What differs from the tracker's defaults.
    pub tracker: TrackerSpec,
    /// Polygons, by their corners.
    pub zones: Vec<Shape>,
    /// Lines, by their two ends.
    pub lines: Vec<Shape>,
}

/// Settings of the tracker; `None` where its default is taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackerSpec {
    /// Detections from this score on are joined first.
    pub score_high: Option<f32>,
    /// Detections below it are not looked at.
    pub score_low: Option<f32>,
    /// What starts a track.
    pub score_new: Option<f32>,
    /// Least overlap of a detection of high score with the predicted box.
    pub iou_min: Option<f32>,
    /// The same for one of low score.
    pub iou_min_low: Option<f32>,
    /// How long an object may be away and keep its id.
    pub lost_max: Option<Duration>,
    /// In how many frames an object must be seen before it gets an id.
    pub confirm_hits: Option<u32>,
    /// Whether a detection may continue an object of another class.
    pub across_classes: Option<bool>,
}

/// A named shape in the frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Its name.
    pub name: String,
    /// Its points, as fractions of the frame's width and height.
    pub points: Vec<(f32, f32)>,
    /// Place of their points in the board file.
    pub written: Written,
}

/// One output of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSpec {
    /// What is written.
    pub kind: SinkKind,
    /// Where; `-` is standard output.
    pub path: PathBuf,
}

/// Kinds of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// One `orinoco.result/1` object a line.
    Jsonl,
    /// The video with boxes and names, in MP4.
    Mp4(Codec),
    /// A checksum of every frame, as FFmpeg's `framemd5`.
    FrameMd5,
}

/// Its names are those of board files and of the command line.
impl Choice for SinkKind {
    const ALL: &'static [Self] =
        &[Self::Jsonl, Self::Mp4(Codec::H264), Self::Mp4(Codec::H265), Self::FrameMd5];

    fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Mp4(Codec::H264) => "mp4",
            Self::Mp4(Codec::H265) => "mp4-h265",
            Self::FrameMd5 => "framemd5",
        }
    }
}

impl BoardStream {
    /// Frames that may wait for a lane, unless the board file says otherwise: two in work and two to come.
    pub const QUEUE_FRAMES: usize = 4;
    /// Unless the board file says otherwise: half a frame at 50 frames a second.
    pub const BATCH_WAIT: Duration = Duration::from_millis(10);
    /// Unless the board file says otherwise.
    pub const STALL: Duration = Duration::from_secs(5);

    /// A stream with every setting at its default.
    pub fn new(name: impl Into<String>, source: SourceUri, models: Vec<usize>) -> Self {
        Self {
            name: name.into(),
            source,
            models,
            lane: None,
            drop: None,
            queue_frames: Self::QUEUE_FRAMES,
            batch_wait: Self::BATCH_WAIT,
            latency_max: None,
            frames_max: None,
            reconnect_attempts: None,
            stall: Self::STALL,
            track: None,
            sinks: Vec::new(),
            written: Written::default(),
        }
    }
}
