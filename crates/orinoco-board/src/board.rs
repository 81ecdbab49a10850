//! The checked form.

use std::path::PathBuf;
use std::time::Duration;

/// Everything one board runs.
#[derive(Clone, Debug)]
pub struct Board {
    /// Its name, in summaries and metrics.
    pub name: String,
    /// Engines and how they run.
    pub inference: Inference,
    /// Bytes that all models and streams may take; `None` where memory is not planned.
    pub memory: Option<u64>,
    /// Executing threads. Streams are dealt to them in turn.
    pub lanes: usize,
    /// Models, referred to by index.
    pub models: Vec<BoardModel>,
    /// Streams, in the order of their ids.
    pub streams: Vec<BoardStream>,
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
    /// In place of the description's: `bilinear` or `bilinear-antialias`.
    pub resize: Option<String>,
    /// It looks at every so many frames of a stream.
    pub interval: u32,
    /// It looks at objects that another model found, in place of whole frames.
    pub on: Option<ObjectsSpec>,
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
        }
    }
}

/// Which objects a model looks at.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectsSpec {
    /// The name of the model that finds them.
    pub model: String,
    /// Their classes, by that model's labels; any if empty.
    pub classes: Vec<String>,
    /// Shortest side, in source pixels.
    pub side_min: u32,
    /// The most in one frame, best first.
    pub count_max: usize,
}

impl ObjectsSpec {
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
    /// Its source's URI.
    pub source: String,
    /// Indices into [`Board::models`], in the order in which they run; none where frames only go to sinks.
    pub models: Vec<usize>,
    /// What happens when its ring is full; `None` lets the kind of source decide.
    pub drop: Option<Drop>,
    /// Size of its ring.
    pub queue_frames: usize,
    /// How long a frame waits for others to fill its batch.
    pub batch_wait: Duration,
    /// Frames that take longer are counted as late.
    pub latency_max: Option<Duration>,
    /// Ends after this many frames.
    pub frames_max: Option<u64>,
    /// Attempts to reach a live source that never delivered; `None` for ever.
    pub reconnect_attempts: Option<u32>,
    /// Silence that counts as a stall.
    pub stall: Duration,
    /// How objects are followed from frame to frame; `None` where they are not.
    pub track: Option<TrackSpec>,
    /// Where its outcomes go.
    pub sinks: Vec<SinkSpec>,
}

/// What is counted of objects that are followed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackSpec {
    /// Polygons, by their corners.
    pub zones: Vec<Shape>,
    /// Lines, by their two ends.
    pub lines: Vec<Shape>,
}

/// A named shape in the frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Its name.
    pub name: String,
    /// Its points, as fractions of the frame's width and height.
    pub points: Vec<(f32, f32)>,
}

/// What happens to a frame that finds its ring full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// The oldest waiting frame makes room.
    Oldest,
    /// The new frame is dropped.
    Newest,
    /// The source waits.
    Block,
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
#[non_exhaustive]
pub enum SinkKind {
    /// One `orinoco.result/1` object a line.
    Jsonl,
    /// The video with boxes and names, H.264 in MP4.
    Mp4,
    /// The same as H.265, which needs about half of the space.
    Mp4H265,
    /// A checksum of every frame, as FFmpeg's `framemd5`.
    FrameMd5,
}

impl SinkKind {
    /// All kinds by the name used in board files and on the command line.
    pub const NAMES: [(&'static str, SinkKind); 4] = [
        ("jsonl", Self::Jsonl),
        ("mp4", Self::Mp4),
        ("mp4-h265", Self::Mp4H265),
        ("framemd5", Self::FrameMd5),
    ];
}

impl BoardStream {
    /// Frames that may wait for a lane, unless the board file says otherwise: two in work and two to come.
    pub const QUEUE_FRAMES: usize = 4;
    /// Unless the board file says otherwise: half a frame at 50 frames a second.
    pub const BATCH_WAIT: Duration = Duration::from_millis(10);
    /// Unless the board file says otherwise.
    pub const STALL: Duration = Duration::from_secs(5);

    /// A stream with every setting at its default.
    pub fn new(name: impl Into<String>, source: impl Into<String>, models: Vec<usize>) -> Self {
        Self {
            name: name.into(),
            source: source.into(),
            models,
            drop: None,
            queue_frames: Self::QUEUE_FRAMES,
            batch_wait: Self::BATCH_WAIT,
            latency_max: None,
            frames_max: None,
            reconnect_attempts: None,
            stall: Self::STALL,
            track: None,
            sinks: Vec::new(),
        }
    }
}
