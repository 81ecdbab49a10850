//! Checked form of a board file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use orinoco_core::{Diagnosis, DropPolicy, Resize};
use orinoco_uri::SourceUri;

use crate::{
    ChosenLevels, ClusterSpec, GovernorSpec, ModelLevel, ModelLevels, OtlpSpec, SeatFallback, SeatSpec,
    SinkSpec,
};

/// Checked board: engines, models and streams of one board.
#[derive(Clone, Debug)]
pub struct Board {
    /// Name of the board in summaries and metrics.
    pub name: String,
    /// Engines and their settings.
    pub inference: Inference,
    /// Memory budget of all models and streams, in bytes; `None` where memory is not planned.
    pub memory: Option<u64>,
    /// Number of lanes (executing threads); see [`Board::lane_of`].
    pub lanes: usize,
    /// Control socket of the daemon.
    pub control: ControlSpec,
    /// Reading of the board's sensors.
    pub sensors: SensorsSpec,
    /// Export to an OpenTelemetry collector by the daemon; `None` exports nothing.
    pub otlp: Option<OtlpSpec>,
    /// Seat of the board in a cluster, which the daemon takes; `None` where it has none.
    pub cluster: Option<ClusterSpec>,
    /// Power and thermal governor; `None` where nothing is governed.
    pub governor: Option<GovernorSpec>,
    /// Models; streams refer to them by index.
    pub models: Vec<BoardModel>,
    /// Streams, in the order of their ids.
    pub streams: Vec<BoardStream>,
    /// The board file and the files it inherits; empty where the board comes from elsewhere.
    pub files: Vec<PathBuf>,
}

impl Board {
    /// Returns the lane of a stream: the one it names, else the lanes in turn.
    pub fn lane_of(&self, stream: usize) -> usize {
        self.streams[stream].lane.unwrap_or(stream % self.lanes)
    }

    /// Returns the number of lanes up to the last one with streams.
    pub fn lanes_used(&self) -> usize {
        (0..self.streams.len()).map(|stream| self.lane_of(stream) + 1).max().unwrap_or(0)
    }

    /// Returns the board with these levels of its models. What its file does not allow is not taken.
    pub fn with_levels(mut self, chosen: &ChosenLevels) -> Self {
        for model in &mut self.models {
            let level = chosen.get(&model.name).cloned().unwrap_or_default();
            model.choose(&level);
        }
        self
    }
}

/// Control socket of the daemon: the addresses on which it serves health, status, events and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlSpec {
    /// Unix socket.
    pub socket: SocketSpec,
    /// Loopback address for TCP; `None` does not listen on TCP. Port 0 takes a free port.
    pub listen: Option<SocketAddr>,
    /// Whether the metrics include those with the names that Triton Inference Server uses.
    pub nv_inference_metrics: bool,
}

/// Unix socket of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SocketSpec {
    /// The usual path, [`SocketSpec::USUAL_PATH`]. If it cannot be created, that is a warning.
    #[default]
    Usual,
    /// This path, relative to the working folder. If it cannot be created, the board does not start.
    At(PathBuf),
    /// No socket.
    Off,
}

impl SocketSpec {
    /// Path of [`SocketSpec::Usual`]: the runtime folder of the daemon's systemd unit.
    pub const USUAL_PATH: &str = "/run/orinoco/orinoco.sock";
    /// Maximum length of a path, in bytes: `sun_path` of Linux has 108, one of them for the end (unix(7)).
    pub const PATH_BYTES_MAX: usize = 107;
}

/// Reading of the board's sensors while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SensorsSpec {
    /// Whether they are read. Without them no energy is measured.
    pub enabled: bool,
    /// Mean time between two readings of the power rails.
    pub power_interval: Duration,
}

impl SensorsSpec {
    /// Default of `power_interval`. Ten readings a second use less than 0.5 % of a core on a board whose rails are on I2C (six
    /// reads of 0.1 ms to 0.8 ms), and see batches of any length by their share of the time.
    pub const POWER_INTERVAL: Duration = Duration::from_millis(100);
    /// Minimum of `power_interval`: reading a rail takes some system calls, and a chip on I2C some of 0.1 ms.
    pub const POWER_INTERVAL_MIN: Duration = Duration::from_millis(20);
    /// Maximum of `power_interval`: all sensors are reported once a second.
    pub const POWER_INTERVAL_MAX: Duration = Duration::from_secs(1);
}

impl Default for SensorsSpec {
    fn default() -> Self {
        Self { enabled: true, power_interval: Self::POWER_INTERVAL }
    }
}

/// Engines and their settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inference {
    /// Names of the engines in order of preference.
    pub engines: Vec<String>,
    /// Engines that must work: if one is refused, that is an error instead of a fallback.
    pub require: Vec<String>,
    /// Threads that an engine uses for one inference.
    pub threads: usize,
    /// Path of ONNX Runtime's library; `None` searches for it.
    pub ort_library: Option<PathBuf>,
    /// Whether engines allocate their scratch from Orinoco's arenas, as they do where the board plans memory.
    pub shared_scratch: bool,
}

impl Inference {
    /// Creates the usual settings of engines, which are named in order of preference.
    pub fn new(engines: Vec<String>) -> Self {
        Self { engines, require: Vec::new(), threads: 1, ort_library: None, shared_scratch: false }
    }
}

/// Position of an entry in the board file. It is equal to every other: an entry that moved in its file has not changed.
#[derive(Clone, Debug, Default)]
pub struct Written(Option<String>);

impl Written {
    /// Creates a position from file and line: `board.toml:12`.
    pub(crate) fn at(place: String) -> Self {
        Self(Some(place))
    }

    /// Returns the fault with the position before its subject.
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

/// Model as this board uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardModel {
    /// Name by which streams refer to the model.
    pub name: String,
    /// Name or path of the model in the model repository.
    pub model: String,
    /// Batch size: frames of one inference.
    pub batch: usize,
    /// Score threshold, 0 to 1; `None` keeps that of the model's description.
    pub score_threshold: Option<f32>,
    /// IoU threshold, 0 to 1; `None` keeps that of the model's description.
    pub iou_threshold: Option<f32>,
    /// Resize filter; `None` keeps that of the model's description.
    pub resize: Option<Resize>,
    /// Inference interval: the model runs on one of every `interval` frames of a stream. (DeepStream counts those skipped.)
    pub interval: u32,
    /// Levels of interval and model between which the governor may choose.
    pub levels: ModelLevels,
    /// Primary model whose objects this model operates on; `None` operates on whole frames.
    pub on: Option<ObjectSelectionSpec>,
    /// Seat of the cluster that executes the model; `None` if this board does.
    pub seat: Option<SeatSpec>,
    /// Position of the `model` key in the board file, or of its entry.
    pub written: Written,
}

impl BoardModel {
    /// Whether this board loads the model: it executes it always, or when another seat does not.
    pub fn is_loaded(&self) -> bool {
        self.seat.as_ref().is_none_or(|seat| seat.fallback == SeatFallback::Local)
    }

    /// Creates a model with default settings: every frame, batch size 1, thresholds of its description.
    pub fn new(name: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            model: model.into(),
            batch: 1,
            score_threshold: None,
            iou_threshold: None,
            resize: None,
            interval: 1,
            levels: ModelLevels::default(),
            on: None,
            seat: None,
            written: Written::default(),
        }
    }

    fn choose(&mut self, level: &ModelLevel) {
        let ModelLevels { intervals, variants } = &self.levels;
        let chosen = intervals.iter().find(|interval| level.interval == Some(**interval));
        if let Some(interval) = chosen.or(intervals.first()) {
            self.interval = *interval;
        }
        let chosen = variants.iter().find(|variant| level.variant.as_ref() == Some(*variant));
        if let Some(variant) = chosen.or(variants.first()) {
            self.model.clone_from(variant);
        }
    }

    /// Whether a plan of this model serves for the other one, too: only what a lane changes by itself differs, which is the
    /// inference interval, and the levels that are allowed.
    pub fn has_same_plan(&self, other: &Self) -> bool {
        *self == Self { interval: self.interval, levels: self.levels.clone(), ..other.clone() }
    }
}

/// Objects that a secondary model operates on.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectSelectionSpec {
    /// Name of the model that detects them.
    pub model: String,
    /// Classes of the objects, by that model's labels; empty for all classes.
    pub classes: Vec<String>,
    /// Minimum length of the object's shorter side, in source pixels.
    pub side_min: u32,
    /// Maximum number of objects in one frame; the best ones are used.
    pub count_max: usize,
}

impl ObjectSelectionSpec {
    /// Default of `side_min`: smaller crops show hardly anything.
    pub const SIDE_MIN: u32 = 16;
    /// Default of `count_max`: a crowd must not occupy a lane for seconds.
    pub const COUNT_MAX: usize = 16;
}

/// Checked settings of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardStream {
    /// Name of the stream.
    pub name: String,
    /// Source of its frames.
    pub source: SourceUri,
    /// Indices into [`Board::models`], in the order of execution; empty where frames only go to sinks.
    pub models: Vec<usize>,
    /// Lane that executes its models, from 0; `None` assigns lanes in turn.
    pub lane: Option<usize>,
    /// Policy when the ring is full; `None` uses the default of the kind of source.
    pub drop: Option<DropPolicy>,
    /// Capacity of the ring of waiting frames.
    pub queue_frames: usize,
    /// Maximum time that a frame waits for others to fill its batch.
    pub batch_wait: Duration,
    /// Latency above which a frame counts as late; `None` counts none.
    pub latency_max: Option<Duration>,
    /// Maximum number of frames to deliver; frames lost at the source do not count. `None` has no limit.
    pub frames_max: Option<u64>,
    /// Connection attempts to a live source that never delivered, before giving up; `None` never gives up.
    pub reconnect_attempts: Option<u32>,
    /// Time without frames after which a live source counts as stalled.
    pub stall: Duration,
    /// Object tracking; `None` where it is disabled.
    pub track: Option<TrackSpec>,
    /// Sinks of its results.
    pub sinks: Vec<SinkSpec>,
    /// Position of its `source` key in the board file.
    pub written: Written,
}

/// Object tracking of a stream, with its zones and lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackSpec {
    /// Settings of the tracker.
    pub tracker: TrackerSpec,
    /// Zones: polygons, by their corners.
    pub zones: Vec<Shape>,
    /// Lines, by their two ends.
    pub lines: Vec<Shape>,
}

/// Settings of the tracker; `None` keeps the tracker's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackerSpec {
    /// Minimum score, 0 to 1, of detections that are matched with tracks first.
    pub score_high: Option<f32>,
    /// Minimum score, 0 to 1, of detections that are matched with the remaining tracks. Those below it are ignored.
    pub score_low: Option<f32>,
    /// Minimum score, 0 to 1, of a detection that starts a track.
    pub score_new: Option<f32>,
    /// Minimum IoU of a high-score detection with the predicted box, 0 to 1.
    pub iou_min: Option<f32>,
    /// Minimum IoU of a low-score detection with the predicted box, 0 to 1.
    pub iou_min_low: Option<f32>,
    /// Maximum time for which a lost object keeps its track id.
    pub lost_max: Option<Duration>,
    /// Number of frames with the object before it gets a track id.
    pub confirm_hits: Option<u32>,
    /// Whether a detection may continue a track of another class.
    pub across_classes: Option<bool>,
}

/// Zone or line: a named shape in the frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Name of the shape.
    pub name: String,
    /// Points of the shape, as fractions of the frame's width and height.
    pub points: Vec<(f32, f32)>,
    /// Position of the points in the board file.
    pub written: Written,
}

impl BoardStream {
    /// Default capacity of the ring: two frames in work and two to come.
    pub const QUEUE_FRAMES: usize = 4;
    /// Default of `batch_wait`: half of a frame's time at 50 frames per second.
    pub const BATCH_WAIT: Duration = Duration::from_millis(10);
    /// Default of `stall`.
    pub const STALL: Duration = Duration::from_secs(5);

    /// Creates a stream with default settings.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_chosen_among_those_of_the_file_and_taken_back() {
        let levels = ModelLevels { intervals: vec![1, 2], variants: vec!["large".into(), "small".into()] };
        let mut model = BoardModel { levels, ..BoardModel::new("m", "large") };
        let mut choose = |interval, variant: Option<&str>| {
            model.choose(&ModelLevel { interval, variant: variant.map(str::to_owned) });
            (model.interval, model.model.clone())
        };
        assert_eq!(choose(Some(2), Some("small")), (2, "small".to_owned()));
        assert_eq!(choose(Some(2), None), (2, "large".to_owned()));
        assert_eq!(choose(Some(3), Some("other")), (1, "large".to_owned()), "the file does not have them");
        let mut fixed = BoardModel { interval: 5, ..BoardModel::new("m", "large") };
        fixed.choose(&ModelLevel { interval: Some(2), variant: Some("small".into()) });
        assert_eq!((fixed.interval, &*fixed.model), (5, "large"));
    }

    #[test]
    fn only_intervals_and_levels_may_differ_for_the_same_plan() {
        let model = BoardModel::new("m", "large");
        let levels = ModelLevels { intervals: vec![1, 2], variants: Vec::new() };
        assert!(model.has_same_plan(&BoardModel { interval: 2, levels, ..model.clone() }));
        assert!(!model.has_same_plan(&BoardModel::new("m", "small")));
        assert!(!model.has_same_plan(&BoardModel { batch: 2, ..model.clone() }));
    }
}
