//! Reads a board file into its checked form.

mod governor;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orinoco_config::{Document, TableReader, Vars};
use orinoco_core::codes;
use orinoco_core::text::count;
use orinoco_uri::{Scheme, SourceKind, SourceUri};

use crate::cluster::read_cluster;
use crate::otlp::read_otlp;
use crate::seat::read_seat;
use crate::unique::{check_unique, listed_once};
use crate::{
    Board, BoardError, BoardModel, BoardStream, Capabilities, ControlSpec, Inference, ModelLevels,
    ObjectSelectionSpec, SensorsSpec, Shape, SinkKind, SinkSpec, SocketSpec, SourceFault, TrackSpec,
    TrackerSpec, Written,
};

/// Maximum number of streams that one Jetson serves; more is a typing error.
const STREAMS_MAX: usize = 64;
const LANES_MAX: i64 = 16;
const BATCH_MAX: i64 = 64;
const QUEUE_FRAMES_MAX: i64 = 64;
const THREADS_MAX: i64 = 64;
/// Maximum of all waiting times, in milliseconds: longer than any useful one.
const MILLIS_MAX: i64 = 60_000;
/// Bounds of `power_interval`, in milliseconds.
const POWER_INTERVAL_MS: std::ops::RangeInclusive<i64> =
    SensorsSpec::POWER_INTERVAL_MIN.as_millis() as i64..=SensorsSpec::POWER_INTERVAL_MAX.as_millis() as i64;
/// Minimum of `stall`. Sources are checked every 100 ms: below this, a single check without a frame would be a stall.
const STALL_MS_MIN: i64 = 200;
/// Maximum of `interval`, in frames: an hour at 30 frames per second.
const INTERVAL_MAX: i64 = 108_000;
const CONFIRM_HITS_MAX: i64 = 1000;
const SIDE_MAX: i64 = 16_384;
const COUNT_MAX: i64 = 1024;

/// Reads and checks a board file and what it inherits. `known` is what this binary has; `vars` are what
/// `${name}` stands for. All faults are reported at once; those of sources only where the file has no other, so that
/// they come together with what a look at the sources and models finds.
pub fn load(path: &Path, known: &Capabilities<'_>, vars: &Vars) -> Result<Board, BoardError> {
    let doc = Document::load(path, vars)?;
    let top = doc.reader();
    top.version();
    let name = read_name(&top, path);
    let mut inference = read_inference(top.table("inference"), known);
    let memory = read_memory(top.table("memory"));
    inference.shared_scratch = memory.is_some();
    let control = read_control(top.table("control"));
    let sensors = read_sensors(top.table("sensors"));
    let otlp = read_otlp(&top);
    let cluster = read_cluster(&top);
    let governor = governor::read_governor(top.table("governor"), top.has("governor"));
    let lanes = top.integer("lanes", 1..=LANES_MAX).map_or(1, as_usize);
    let models: Vec<BoardModel> = top.tables("model").into_iter().map(read_model).collect();
    let sinks: Vec<NamedSink> =
        top.tables("sink").into_iter().map(|table| read_sink(table, known.sinks)).collect();
    let tables = top.tables("stream");
    if tables.is_empty() {
        top.missing("stream", "add a [[stream]] with a name, a source and its models");
    }
    if tables.len() > STREAMS_MAX {
        let cause = format!("there are {}", count(tables.len() as u64, "stream"));
        top.fault("stream", &codes::KEY_RANGE, cause, format!("use at most {STREAMS_MAX} per board"));
    }
    check_objects(&top, &models);
    check_unique(&top, "model", models.iter().map(|m| m.name.as_str()));
    check_unique(&top, "sink", sinks.iter().map(|s| s.name.as_str()));
    let entries: Vec<StreamEntry> =
        tables.into_iter().map(|table| read_stream(table, known.schemes, lanes, &models, &sinks)).collect();
    check_unique(&top, "stream", entries.iter().map(|entry| entry.name.as_str()));
    check_shared_paths(&top, &entries);
    let served = entries.iter().filter(|entry| entry.serves_the_cluster());
    check_seats(&top, &models, served.filter_map(|entry| entry.stream.as_ref().ok()));
    top.finish();
    let files = doc.files().to_vec();
    doc.finish(())?;
    let mut streams = Vec::with_capacity(entries.len());
    for entry in entries {
        streams.push(entry.stream);
    }
    if streams.iter().any(Result::is_err) {
        return Err(BoardError::Sources { models, streams });
    }
    let streams = streams.into_iter().flatten().collect();
    Ok(Board {
        name,
        inference,
        memory,
        lanes,
        control,
        sensors,
        otlp,
        cluster,
        governor,
        models,
        streams,
        files,
    })
}

fn read_name(top: &TableReader<'_>, path: &Path) -> String {
    let table = top.table("board");
    let stem = || path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let name = table.text("name").unwrap_or_else(stem);
    table.text("description");
    table.finish();
    name
}

fn read_inference(table: TableReader<'_>, known: &Capabilities<'_>) -> Inference {
    let names = |key| {
        let names: Vec<String> = listed_once(&table, key);
        for name in names.iter().filter(|name| !known.engines.contains(&name.as_str())) {
            let next = format!("use one of {}", known.engines.join(", "));
            table.fault(key, &codes::ENGINE_UNKNOWN, format!("no engine is called `{name}`"), next);
        }
        names
    };
    let mut engines = names("engines");
    if engines.is_empty() {
        engines = known.default_engines.iter().map(|name| (*name).to_owned()).collect();
    }
    let usual = Inference::new(engines);
    let inference = Inference {
        require: names("require"),
        threads: table.integer("threads", 1..=THREADS_MAX).map_or(usual.threads, as_usize),
        ort_library: table.path("ort_library"),
        ..usual
    };
    table.finish();
    inference
}

/// Reads the memory budget in bytes; `None` where memory is not planned.
fn read_memory(table: TableReader<'_>) -> Option<u64> {
    let text = table.text("budget");
    let budget = text.and_then(|text| match orinoco_memory::parse_size(&text) {
        Ok(bytes) => Some(bytes),
        Err(why) => {
            let next = "write a size as \"3 GiB\" or \"512 MiB\"";
            table.fault("budget", &codes::KEY_RANGE, why.to_string(), next);
            None
        }
    });
    table.finish();
    budget
}

/// Reads the addresses on which the daemon serves its status.
fn read_control(table: TableReader<'_>) -> ControlSpec {
    let control = ControlSpec {
        socket: match table.text_or_false("socket") {
            None => SocketSpec::Usual,
            Some(None) => SocketSpec::Off,
            Some(Some(path)) => SocketSpec::At(read_socket_path(&table, path)),
        },
        listen: table.text("listen").and_then(|text| read_listen(&table, &text)),
        nv_inference_metrics: table.boolean("nv_inference_metrics").unwrap_or_default(),
    };
    table.finish();
    control
}

/// Reads whether and how often sensors are read.
fn read_sensors(table: TableReader<'_>) -> SensorsSpec {
    let default = SensorsSpec::default();
    let interval = table.integer("power_interval_ms", POWER_INTERVAL_MS);
    let sensors = SensorsSpec {
        enabled: table.boolean("enabled").unwrap_or(default.enabled),
        power_interval: interval
            .map_or(default.power_interval, |ms| Duration::from_millis(ms.unsigned_abs())),
    };
    table.finish();
    sensors
}

fn read_socket_path(table: &TableReader<'_>, path: String) -> PathBuf {
    let fault = match path.len() {
        0 => {
            Some(("the path is empty".to_owned(), "write a path, or socket = false for no socket".to_owned()))
        }
        length if length > SocketSpec::PATH_BYTES_MAX => Some((
            format!("the path has {length} bytes"),
            format!("choose one of at most {} bytes", SocketSpec::PATH_BYTES_MAX),
        )),
        _ => None,
    };
    if let Some((cause, next)) = fault {
        table.fault("socket", &codes::KEY_RANGE, cause, next);
    }
    PathBuf::from(path)
}

/// Reads an address that only this machine reaches.
fn read_listen(table: &TableReader<'_>, text: &str) -> Option<SocketAddr> {
    let (cause, next) = match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => return Some(address),
        Ok(_) => (
            format!("`{text}` is not a loopback address"),
            "use 127.0.0.1:8002 or [::1]:8002; to reach it from another machine, forward the port (ssh -L)",
        ),
        Err(_) => (format!("`{text}` is not an IP address with a port"), "write listen = \"127.0.0.1:8002\""),
    };
    table.fault("listen", &codes::KEY_RANGE, cause, next);
    None
}

/// Reads the name of an entry, which appears in log lines, thread names and paths.
fn read_entry_name(table: &TableReader<'_>) -> String {
    if !table.has("name") {
        table.missing("name", "add it");
    }
    let Some(name) = table.text("name") else { return String::new() };
    if name.trim().is_empty() || name.contains(char::is_control) {
        table.fault(
            "name",
            &codes::KEY_RANGE,
            "it is empty or holds a control character",
            "write a plain name",
        );
    }
    name
}

fn read_model(table: TableReader<'_>) -> BoardModel {
    let name = read_entry_name(&table);
    let model = table.text("model").unwrap_or_else(|| name.clone());
    let model = located(&table, "model", model);
    let interval = table.integer("interval", 1..=INTERVAL_MAX).map_or(1, as_u32);
    let levels = read_levels(&table, &model, interval);
    let ratio = |key| table.float(key, 0.0..=1.0).map(|n| n as f32);
    let model = BoardModel {
        batch: table.integer("batch", 1..=BATCH_MAX).map_or(1, as_usize),
        score_threshold: ratio("score_threshold"),
        iou_threshold: ratio("iou_threshold"),
        resize: table.choice_of("resize"),
        interval,
        levels,
        on: read_objects(&table),
        seat: read_seat(&table),
        written: written(&table, if table.has("model") { "model" } else { "name" }),
        ..BoardModel::new(name, model)
    };
    table.finish();
    model
}

/// Locates a model: a relative path starts at the file that contains it; a name is looked up in the repository.
fn located(table: &TableReader<'_>, key: &'static str, model: String) -> String {
    let is_path = model.contains('/') && !Path::new(&model).is_absolute();
    if is_path { table.dir_of(key).join(model).display().to_string() } else { model }
}

/// Reads the intervals and variants of a model between which the governor may choose.
fn read_levels(table: &TableReader<'_>, model: &str, interval: u32) -> ModelLevels {
    let interval_max = table.integer("interval_max", 1..=INTERVAL_MAX).map(as_u32);
    if let Some(interval_max) = interval_max.filter(|interval_max| *interval_max <= interval) {
        let cause = format!("{interval_max} is not above the interval, which is {interval}");
        table.fault("interval_max", &codes::KEY_RANGE, cause, "choose a greater one, or remove the key");
    }
    let variants = listed_once(table, "variants").into_iter();
    let mut variants: Vec<String> = variants.map(|variant| located(table, "variants", variant)).collect();
    if variants.iter().any(|variant| variant == model) {
        let cause = format!("`{model}` is the model itself");
        table.fault("variants", &codes::REFERENCE, cause, "list only the lighter models");
    }
    if !variants.is_empty() {
        variants.insert(0, model.to_owned());
    }
    let of_max = |interval_max| ModelLevels::intervals(interval, interval_max);
    ModelLevels { intervals: interval_max.map(of_max).unwrap_or_default(), variants }
}

fn read_objects(table: &TableReader<'_>) -> Option<ObjectSelectionSpec> {
    if !table.has("on") {
        return None;
    }
    let table = table.table("on");
    let objects = ObjectSelectionSpec {
        model: table.text_required("model"),
        classes: listed_once(&table, "classes"),
        side_min: table.integer("side_min", 1..=SIDE_MAX).map_or(ObjectSelectionSpec::SIDE_MIN, as_u32),
        count_max: table.integer("count_max", 1..=COUNT_MAX).map_or(ObjectSelectionSpec::COUNT_MAX, as_usize),
    };
    table.finish();
    Some(objects)
}

/// Checks that the objects of a secondary model come from another model, which operates on whole frames.
fn check_objects(top: &TableReader<'_>, models: &[BoardModel]) {
    for model in models {
        let Some(on) = &model.on else { continue };
        let cause = match models.iter().find(|other| other.name == on.model) {
            None => {
                format!("model `{}` operates on objects of `{}`, which is not defined", model.name, on.model)
            }
            Some(other) if other.on.is_some() => {
                format!(
                    "model `{}` operates on objects of a model that operates on objects itself",
                    model.name
                )
            }
            Some(_) => continue,
        };
        let next = "name a [[model]] that operates on whole frames";
        top.fault("model", &codes::REFERENCE, cause, next);
    }
}

/// Checks that the board is in a cluster if models or streams need one, and that the models of the streams that serve the
/// cluster are executed here.
fn check_seats<'a>(
    top: &TableReader<'_>,
    models: &[BoardModel],
    serving: impl Iterator<Item = &'a BoardStream>,
) {
    let is_member = top.has("cluster");
    let next = "add it (docs/board-files.md)";
    for model in models.iter().filter(|_| !is_member) {
        if let Some(seat) = &model.seat {
            let (model, seat) = (&model.name, &seat.name);
            let cause = format!("model `{model}` has seat `{seat}`, but the board file has no [cluster]");
            top.fault("model", &codes::REFERENCE, cause, next);
        }
    }
    for stream in serving {
        let name = &stream.name;
        if !is_member {
            let cause = format!("stream `{name}` has source cluster://, but the board file has no [cluster]");
            top.fault("stream", &codes::REFERENCE, cause, next);
        }
        for model in stream.models.iter().map(|model| &models[*model]) {
            if let Some(seat) = &model.seat {
                let (model, seat) = (&model.name, &seat.name);
                let cause = format!(
                    "stream `{name}` lists model `{model}` for the cluster, which seat `{seat}` executes"
                );
                let next = "remove `seat` from the model, or the model from the stream";
                top.fault("stream", &codes::REFERENCE, cause, next);
            }
        }
    }
}

struct NamedSink {
    name: String,
    /// `None` where it is missing or unknown, which is a fault.
    kind: Option<SinkKind>,
    path: String,
}

fn read_sink(table: TableReader<'_>, kinds: &[SinkKind]) -> NamedSink {
    let name = read_entry_name(&table);
    let choices: Vec<(&str, SinkKind)> = kinds.iter().map(|kind| (kind.name, *kind)).collect();
    let kind = table.choice("kind", &choices);
    if !table.has("kind") {
        table.missing("kind", &format!("write {}", SinkKind::names_of(kinds)));
    }
    let path = table.text_required("path");
    table.finish();
    NamedSink { name, kind, path }
}

/// Stream of the file, or the fault of its source.
struct StreamEntry {
    name: String,
    /// Paths of its sinks.
    paths: Vec<PathBuf>,
    stream: Result<BoardStream, SourceFault>,
}

impl StreamEntry {
    /// Whether its models infer images of other boards.
    fn serves_the_cluster(&self) -> bool {
        self.stream.as_ref().is_ok_and(|stream| matches!(stream.source.kind(), SourceKind::Cluster))
    }
}

fn read_stream(
    table: TableReader<'_>,
    schemes: &[Scheme],
    lanes: usize,
    models: &[BoardModel],
    sinks: &[NamedSink],
) -> StreamEntry {
    let name = read_entry_name(&table);
    let source = SourceUri::parse_with(&table.text_required("source"), schemes);
    let model_names: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
    let chosen = indices(&table, "models", &model_names);
    if !table.has("models") {
        table.missing("models", "list the names of the models it runs through");
    }
    check_order(&table, models, &chosen);
    let sink_names: Vec<&str> = sinks.iter().map(|s| s.name.as_str()).collect();
    let chosen_sinks = indices(&table, "sinks", &sink_names);
    let millis = |key| table.integer(key, 0..=MILLIS_MAX).map(|n| Duration::from_millis(n.unsigned_abs()));
    let lane = read_lane(&table, lanes);
    let drop = table.choice_of("drop");
    let queue_frames = table.integer("queue_frames", 1..=QUEUE_FRAMES_MAX).map(as_usize);
    let batch_wait = millis("batch_wait_ms");
    let latency_max = millis("latency_ms_max");
    let frames_max = table.integer("frames_max", 1..=i64::MAX).map(i64::unsigned_abs);
    let reconnect_attempts = table.integer("reconnect_attempts", 1..=1_000_000).map(as_u32);
    let stall = table.integer("stall_ms", STALL_MS_MIN..=MILLIS_MAX);
    let stall = stall.map(|n| Duration::from_millis(n.unsigned_abs()));
    let track = read_track(&table);
    let chosen_sinks = || chosen_sinks.iter().map(|&index| &sinks[index]);
    let paths = chosen_sinks().map(|sink| path_for(&name, sink)).collect();
    let spec = |sink: &NamedSink| Some(SinkSpec { kind: sink.kind?, path: path_for(&name, sink) });
    let sinks = chosen_sinks().filter_map(spec).collect();
    let written = written(&table, "source");
    table.finish();
    let stream = match source {
        Ok(source) => Ok(BoardStream {
            lane,
            drop,
            queue_frames: queue_frames.unwrap_or(BoardStream::QUEUE_FRAMES),
            batch_wait: batch_wait.unwrap_or(BoardStream::BATCH_WAIT),
            latency_max,
            frames_max,
            reconnect_attempts,
            stall: stall.unwrap_or(BoardStream::STALL),
            track,
            sinks,
            written,
            ..BoardStream::new(name.clone(), source, chosen)
        }),
        Err(fault) => Err(SourceFault { stream: name.clone(), track, fault: written.fault(fault) }),
    };
    StreamEntry { name, paths, stream }
}

fn written(table: &TableReader<'_>, key: &str) -> Written {
    Written::at(table.spot(key).line())
}

/// Reads the lane that a stream names. It must be below `lanes`.
fn read_lane(table: &TableReader<'_>, lanes: usize) -> Option<usize> {
    let lane = table.integer("lane", 0..=LANES_MAX - 1).map(as_usize)?;
    if lane < lanes {
        return Some(lane);
    }
    let cause = format!("lanes are counted from 0, and `lanes` is {lanes}");
    let next = format!("choose a smaller one, or set lanes = {}", lane + 1);
    table.fault("lane", &codes::KEY_RANGE, cause, next);
    None
}

/// Checks that a model that operates on objects comes after the one that detects them.
fn check_order(table: &TableReader<'_>, models: &[BoardModel], chosen: &[usize]) {
    for (place, &index) in chosen.iter().enumerate() {
        let Some(on) = &models[index].on else { continue };
        if !chosen[..place].iter().any(|before| models[*before].name == on.model) {
            let cause = format!("`{}` operates on the objects of `{}`", models[index].name, on.model);
            table.fault("models", &codes::REFERENCE, cause, format!("put `{}` before it", on.model));
        }
    }
}

fn path_for(stream: &str, sink: &NamedSink) -> PathBuf {
    PathBuf::from(sink.path.replace("{stream}", stream))
}

/// Reads object tracking, which `track = true` or any zone, line or setting of the tracker enables.
fn read_track(table: &TableReader<'_>) -> Option<TrackSpec> {
    let wanted = table.boolean("track");
    let zones: Vec<Shape> =
        table.tables("zone").into_iter().map(|shape| read_shape(shape, "corners")).collect();
    let lines: Vec<Shape> = table.tables("line").into_iter().map(|shape| read_shape(shape, "ends")).collect();
    check_unique(table, "zone", zones.iter().map(|zone| zone.name.as_str()));
    check_unique(table, "line", lines.iter().map(|line| line.name.as_str()));
    let tracker = table.has("tracker").then(|| read_tracker(table.table("tracker")));
    let asked = !zones.is_empty() || !lines.is_empty() || tracker.is_some();
    if wanted == Some(false) && asked {
        let cause = "zones, lines and [stream.tracker] need tracking";
        table.fault("track", &codes::KEY_RANGE, cause, "set track = true, or remove them");
    }
    let tracker = tracker.unwrap_or_default();
    wanted.unwrap_or(asked).then_some(TrackSpec { tracker, zones, lines })
}

fn read_tracker(table: TableReader<'_>) -> TrackerSpec {
    let ratio = |key| table.float(key, 0.0..=1.0).map(|n| n as f32);
    let tracker = TrackerSpec {
        score_high: ratio("score_high"),
        score_low: ratio("score_low"),
        score_new: ratio("score_new"),
        iou_min: ratio("iou_min"),
        iou_min_low: ratio("iou_min_low"),
        lost_max: table.integer("lost_ms_max", 1..=600_000).map(|n| Duration::from_millis(n.unsigned_abs())),
        confirm_hits: table.integer("confirm_hits", 1..=CONFIRM_HITS_MAX).map(as_u32),
        across_classes: table.boolean("across_classes"),
    };
    table.finish();
    tracker
}

fn read_shape(table: TableReader<'_>, key: &'static str) -> Shape {
    let name = read_entry_name(&table);
    let numbers = table.floats(key);
    let (least, next) = match key {
        "ends" => (4, "write ends = [x1, y1, x2, y2] as fractions of the frame, 0 to 1"),
        _ => (6, "write corners = [x1, y1, x2, y2, x3, y3, ...] as fractions of the frame, 0 to 1"),
    };
    let right = numbers.len().is_multiple_of(2)
        && numbers.len() >= least
        && (key != "ends" || numbers.len() == least);
    if !table.has(key) {
        table.missing(key, next);
    } else if !right {
        table.fault(
            key,
            &codes::KEY_RANGE,
            format!("it has {}", count(numbers.len() as u64, "number")),
            next,
        );
    }
    let written = written(&table, key);
    table.finish();
    let points = numbers.chunks_exact(2).map(|pair| (pair[0] as f32, pair[1] as f32)).collect();
    Shape { name, points, written }
}

fn indices(table: &TableReader<'_>, key: &'static str, names: &[&str]) -> Vec<usize> {
    let mut found = Vec::new();
    for name in listed_once(table, key) {
        match names.iter().position(|known| *known == name) {
            Some(index) => found.push(index),
            None => {
                let next = match names {
                    [] => "define it first".to_owned(),
                    names => format!("use one of {}", names.join(", ")),
                };
                table.fault(key, &codes::REFERENCE, format!("there is no `{name}`"), next);
            }
        }
    }
    found
}

fn check_shared_paths(top: &TableReader<'_>, streams: &[StreamEntry]) {
    let mut writers: BTreeMap<&Path, &str> = BTreeMap::new();
    for stream in streams {
        for path in stream.paths.iter().filter(|path| *path != Path::new("-")) {
            if let Some(other) = writers.insert(path, &stream.name) {
                let (path, name) = (path.display(), &stream.name);
                let (cause, next) = if other == name {
                    (
                        format!("stream `{name}` writes {path} twice"),
                        "list each sink once, with a path of its own",
                    )
                } else {
                    (
                        format!("streams `{other}` and `{name}` both write to {path}"),
                        "put {stream} into the sink's path",
                    )
                };
                top.fault("sink", &codes::REFERENCE, cause, next);
            }
        }
    }
}

fn as_u32(n: i64) -> u32 {
    u32::try_from(n).expect("the range was checked to be positive and small")
}

fn as_usize(n: i64) -> usize {
    usize::try_from(n).expect("the range was checked not to be negative")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endings, SinkDescriptor, StandardOutput};
    use expect_test::{Expect, expect};

    const fn sink(name: &'static str) -> SinkDescriptor {
        let (endings, standard_output) = (Endings::OfText("txt"), StandardOutput::Allowed);
        SinkDescriptor { name, content: "text", endings, standard_output, reads_pixels: false }
    }
    static SINKS: [SinkDescriptor; 4] = [sink("jsonl"), sink("mp4"), sink("mp4-h265"), sink("framemd5")];

    fn check(text: &str, expected: Expect) {
        check_with(&[], text, expected);
    }

    fn check_with(schemes: &[Scheme], text: &str, expected: Expect) {
        let sinks = SINKS.each_ref().map(SinkKind::new);
        let engines = &["ort-cpu", "tract"];
        let known = Capabilities { engines, default_engines: engines, sinks: &sinks, schemes };
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        std::fs::write(&path, text).expect("write");
        let shown = match load(&path, &known, &Vars::new()) {
            Ok(board) => format!(
                "{} {:?} {:?}",
                board.name,
                board.models.iter().map(|m| (&m.name, m.batch)).collect::<Vec<_>>(),
                board.streams.iter().map(|s| (&s.name, &s.models, &s.sinks)).collect::<Vec<_>>()
            ),
            Err(faults) => faults.to_string().replace(&format!("{}/", dir.path().display()), ""),
        };
        expected.assert_eq(&shown);
    }

    fn governor(text: &str) -> Option<crate::GovernorSpec> {
        let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\n";
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        std::fs::write(&path, format!("version = 1\n{text}{stream}")).expect("write");
        let known = Capabilities::default();
        load(&path, &known, &Vars::new()).expect("a board").governor
    }

    #[test]
    fn a_board_that_names_no_engine_has_the_default_ones() {
        let known = Capabilities {
            engines: &["gpu", "cpu", "slow"],
            default_engines: &["cpu", "slow"],
            ..Capabilities::default()
        };
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        let engines = |inference: &str| {
            let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\n";
            std::fs::write(&path, format!("version = 1\n{inference}{stream}")).expect("write");
            load(&path, &known, &Vars::new()).expect("a board").inference.engines
        };
        assert_eq!(engines(""), ["cpu", "slow"]);
        assert_eq!(engines("[inference]\nthreads = 2\n"), ["cpu", "slow"]);
        assert_eq!(engines("[inference]\nengines = ['gpu']\n"), ["gpu"]);
    }

    #[test]
    fn a_governor_has_limits_with_their_units() {
        use crate::GovernorActuator::{CpuClock, GpuClock, Interval, ModelVariant, PowerMode};
        let spec =
            governor("[governor]\npower_limit = '15 W'\ntemperature_limit = '80.5 °C'\np99 = '0.1 s'\n");
        let spec = spec.expect("it is on");
        let limits = (spec.power_limit, spec.temperature_limit, spec.p99);
        let expected = (
            Some(orinoco_core::Watts::from_units(15)),
            Some(orinoco_core::Celsius::from_milli(80_500)),
            Some(Duration::from_millis(100)),
        );
        assert_eq!(limits, expected);
        let actuators = vec![PowerMode, GpuClock, Interval, ModelVariant];
        assert_eq!((spec.modes, spec.actuators, spec.helper), (None, actuators, None));
        let text = "[governor]\ntemperature_limit = '80C'\nmodes = ['15W']\nactuators = ['cpu-clock']\nhelper = 'h'\n";
        let spec = governor(text).expect("it is on");
        assert_eq!((spec.modes, spec.actuators), (Some(vec!["15W".to_owned()]), vec![CpuClock]));
        assert_eq!(spec.helper, Some("h".into()));
        assert_eq!(governor(""), None, "it is off by default");
        assert_eq!(governor("[governor]\nenabled = false\npower_limit = '15 W'\n"), None);
    }

    #[test]
    fn a_model_has_levels_between_which_the_governor_chooses() {
        let text = |keys: &str| {
            format!(
                "version = 1\n[[model]]\nname = 'm'\nmodel = 'large'\n{keys}[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = ['m']\n"
            )
        };
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        let levels = |keys: &str| {
            std::fs::write(&path, text(keys)).expect("write");
            let known = Capabilities::default();
            let levels = load(&path, &known, &Vars::new()).expect("a board").models.remove(0).levels;
            format!("{:?} {:?}", levels.intervals, levels.variants)
                .replace(&dir.path().display().to_string(), "DIR")
        };
        assert_eq!(levels(""), "[] []");
        assert_eq!(
            levels("interval = 2\ninterval_max = 8\nvariants = ['small', './tiny']\n"),
            r#"[2, 4, 8] ["large", "small", "DIR/./tiny"]"#
        );
        check(
            &text("interval = 2\ninterval_max = 2\nvariants = ['large', 'small', 'small']\n"),
            expect![[r#"
                b.toml:6: key `model[0].interval_max`: 2 is not above the interval, which is 2; choose a greater one, or remove the key
                b.toml:7: key `model[0].variants`: `small` is listed more than once; list it once
                b.toml:7: key `model[0].variants`: `large` is the model itself; list only the lighter models"#]],
        );
    }

    #[test]
    fn faults_of_a_governor_are_all_reported() {
        let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\n";
        let governor = |keys: &str| format!("version = 1\n[governor]\n{keys}{stream}");
        check(
            &governor(
                "power_limit = 15\ntemperature_limit = '80 F'\np99 = '0 ms'\nmodes = []\n\
                 actuators = ['fan', 'gpu-clock', 'gpu-clock']\nhelper = ''\nwatts = 3\n",
            ),
            expect![[r#"
                b.toml:3: key `governor.power_limit`: it is a whole number; write a string in quotes
                b.toml:4: key `governor.temperature_limit`: `80 F` is not a number with its unit; write temperature_limit = "80 °C"
                b.toml:5: key `governor.p99`: `0 ms` is outside 1 ms to 60000 ms; write p99 = "100 ms"
                b.toml:6: key `governor.modes`: the list is empty or has an empty name; list names of power modes (`orinoco board detect` shows them), or remove the key
                b.toml:7: key `governor.actuators`: no actuator is called `fan`; use power-mode, gpu-clock, cpu-clock, interval, model-variant
                b.toml:7: key `governor.actuators`: `gpu-clock` is listed more than once; list it once
                b.toml:8: key `governor.helper`: the path has 0 bytes; write the path of a socket, of at most 107 bytes
                b.toml:9: key `governor.watts`: unknown key; use one of power_limit, temperature_limit, p99, modes, actuators, helper, enabled"#]],
        );
        check(
            &governor("power_limit = '1 kW'\n"),
            expect![[
                r#"b.toml:3: key `governor.power_limit`: `1 kW` is not a number with its unit; write power_limit = "15 W""#
            ]],
        );
        check(
            &governor("power_limit = '600 W'\nactuators = []\n"),
            expect![[r#"
            b.toml:3: key `governor.power_limit`: `600 W` is outside 1 W to 500 W; write power_limit = "15 W"
            b.toml:4: key `governor.actuators`: the list is empty; use power-mode, gpu-clock, cpu-clock, interval, model-variant"#]],
        );
        check(
            &governor(""),
            expect![
                "b.toml:2: key `governor.enabled`: [governor] has no limit and no p99 target; set power_limit, temperature_limit or p99, or enabled = false"
            ],
        );
    }

    #[test]
    fn names_become_indices() {
        check(
            "version = 1\n[[model]]\nname = 'a'\n[[model]]\nname = 'b'\nbatch = 4\n[[sink]]\nname = 's'\nkind = 'jsonl'\n\
             path = '{stream}.jsonl'\n[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = ['b', 'a']\nsinks = ['s']\n",
            expect![[
                r#"b [("a", 1), ("b", 4)] [("x", [1, 0], [SinkSpec { kind: jsonl, path: "x.jsonl" }])]"#
            ]],
        );
    }

    #[test]
    fn every_fault_is_named_with_its_line() {
        check(
            "version = 1\nlanes = 0\n[inference]\nengines = ['cuda']\n[[model]]\nname = 'a'\n[[model]]\nname = 'a'\n\
             [[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = ['c']\ndrop = 'none'\n[[stream]]\nname = 'y'\n",
            expect![[r#"
                b.toml:4: key `inference.engines`: no engine is called `cuda`; use one of ort-cpu, tract
                b.toml:2: key `lanes`: 0 is outside its range; choose 1 to 16
                b.toml:5: key `model`: the name `a` is used more than once; give each one a name of its own (check inherited files too)
                b.toml:12: key `stream[0].models`: there is no `c`; use one of a, a
                b.toml:13: key `stream[0].drop`: `none` is not one of the choices; use one of drop-oldest, drop-newest, block
                b.toml:14: key `stream[1].source`: it is missing; add it
                b.toml:14: key `stream[1].models`: it is missing; list the names of the models it runs through"#]],
        );
    }

    fn check_control(text: &str, expected: Expect) {
        check_of(text, |board| format!("{:?}", board.control), &expected);
    }

    /// Checks a part of a board with one stream and `text`, or its faults.
    fn check_of(text: &str, part: fn(Board) -> String, expected: &Expect) {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\n";
        std::fs::write(&path, format!("version = 1\n{stream}{text}")).expect("write");
        let known = Capabilities::default();
        let shown = match load(&path, &known, &Vars::new()) {
            Ok(board) => part(board),
            Err(faults) => faults.to_string().replace(&format!("{}/", dir.path().display()), ""),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn the_control_socket_has_its_usual_path_another_or_none() {
        check_control(
            "",
            expect!["ControlSpec { socket: Usual, listen: None, nv_inference_metrics: false }"],
        );
        check_control(
            "[control]\nsocket = false\nlisten = '127.0.0.1:8002'\nnv_inference_metrics = true\n",
            expect!["ControlSpec { socket: Off, listen: Some(127.0.0.1:8002), nv_inference_metrics: true }"],
        );
        check_control(
            "[control]\nsocket = 'run/a.sock'\nlisten = '[::1]:0'\n",
            expect![[
                r#"ControlSpec { socket: At("run/a.sock"), listen: Some([::1]:0), nv_inference_metrics: false }"#
            ]],
        );
    }

    #[test]
    fn the_control_socket_is_of_this_machine() {
        check_control(
            "[control]\nsocket = true\nlisten = '0.0.0.0:8002'\nport = 3\n",
            expect![[r#"
            b.toml:7: key `control.socket`: it is true; write a string in quotes, or false
            b.toml:8: key `control.listen`: `0.0.0.0:8002` is not a loopback address; use 127.0.0.1:8002 or [::1]:8002; to reach it from another machine, forward the port (ssh -L)
            b.toml:9: key `control.port`: unknown key; use one of socket, listen, nv_inference_metrics"#]],
        );
        check_control(
            "[control]\nsocket = ''\nlisten = 'localhost:8002'\n",
            expect![[r#"
            b.toml:7: key `control.socket`: the path is empty; write a path, or socket = false for no socket
            b.toml:8: key `control.listen`: `localhost:8002` is not an IP address with a port; write listen = "127.0.0.1:8002""#]],
        );
        check_control(
            &format!("[control]\nsocket = '/{}'\nlisten = 8002\n", "x".repeat(107)),
            expect![[r#"
            b.toml:7: key `control.socket`: the path has 108 bytes; choose one of at most 107 bytes
            b.toml:8: key `control.listen`: it is a whole number; write a string in quotes"#]],
        );
    }

    #[test]
    fn sensors_can_be_switched_off_and_read_more_often() {
        let check =
            |text, expected: Expect| check_of(text, |board| format!("{:?}", board.sensors), &expected);
        check("", expect!["SensorsSpec { enabled: true, power_interval: 100ms }"]);
        check(
            "[sensors]\nenabled = false\n",
            expect!["SensorsSpec { enabled: false, power_interval: 100ms }"],
        );
        check(
            "[sensors]\npower_interval_ms = 20\n",
            expect!["SensorsSpec { enabled: true, power_interval: 20ms }"],
        );
        check(
            "[sensors]\nenabled = 'no'\npower_interval_ms = 19\nrate = 3\n",
            expect![[r#"
                b.toml:8: key `sensors.power_interval_ms`: 19 is outside its range; choose 20 to 1000
                b.toml:7: key `sensors.enabled`: it is a text; write true or false
                b.toml:9: key `sensors.rate`: unknown key; use one of power_interval_ms, enabled"#]],
        );
        check(
            "[sensors]\npower_interval_ms = 1001\n",
            expect![
                "b.toml:7: key `sensors.power_interval_ms`: 1001 is outside its range; choose 20 to 1000"
            ],
        );
    }

    #[test]
    fn names_can_be_shown() {
        check(
            "version = 1\n[[stream]]\nname = ''\nsource = 'test://ball'\nmodels = []\n\
             [[stream]]\nname = \"a\\u0000\"\nsource = 'test://ball'\nmodels = []\n",
            expect![[r#"
                b.toml:3: key `stream[0].name`: it is empty or holds a control character; write a plain name
                b.toml:7: key `stream[1].name`: it is empty or holds a control character; write a plain name"#]],
        );
    }

    #[test]
    fn models_on_objects_are_checked() {
        check(
            "version = 1\n[[model]]\nname = 'a'\n[[model]]\nname = 'b'\non = { model = 'a' }\n\
             [[model]]\nname = 'c'\non = { model = 'b', side = 3 }\n[[model]]\nname = 'd'\non = { model = 'x' }\n\
             [[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = ['b', 'a']\n",
            expect![[r#"
                b.toml:9: key `model[2].on.side`: unknown key; did you mean `side_min`?
                b.toml:2: key `model`: model `c` operates on objects of a model that operates on objects itself; name a [[model]] that operates on whole frames
                b.toml:2: key `model`: model `d` operates on objects of `x`, which is not defined; name a [[model]] that operates on whole frames
                b.toml:16: key `stream[0].models`: `b` operates on the objects of `a`; put `a` before it"#]],
        );
    }

    #[test]
    fn schemes_of_other_sources_are_named_by_the_caller() {
        let text = "version = 1\n[[stream]]\nname = 'x'\nsource = 'gige://cam'\nmodels = []\n";
        check_with(&[Scheme { name: "gige", is_live: true }], text, expect![[r#"b [] [("x", [], [])]"#]]);
        check(
            text,
            expect![
                "b.toml:4: gige://cam: `gige://` is not a kind of source; use file://, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball, or a plain path"
            ],
        );
    }

    #[test]
    fn kinds_of_sink_are_named_by_the_caller() {
        let sink = |kind: &str| {
            format!(
                "version = 1\n[[sink]]\nname = 's'\n{kind}path = 'o'\n[[sink]]\nname = 't'\nkind = 'mp4'\npath = 'o'\n\
                 [[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\nsinks = ['s', 't']\n"
            )
        };
        check(
            &sink("kind = 'avi'\n"),
            expect![[r#"
                b.toml:4: key `sink[0].kind`: `avi` is not one of the choices; use one of jsonl, mp4, mp4-h265, framemd5
                b.toml:2: key `sink`: stream `x` writes o twice; list each sink once, with a path of its own"#]],
        );
        check(
            &sink(""),
            expect![[r#"
            b.toml:2: key `sink[0].kind`: it is missing; write jsonl, mp4, mp4-h265 or framemd5
            b.toml:2: key `sink`: stream `x` writes o twice; list each sink once, with a path of its own"#]],
        );
    }

    #[test]
    fn a_source_is_read_once_the_rest_is_right() {
        let streams = "[[stream]]\nname = 'x'\nsource = 'ftp://u:secret@host/a'\nmodels = []\n\
                       [[stream]]\nname = 'y'\nsource = 'test://ball'\nmodels = []\n\
                       [[stream]]\nname = 'z'\nsource = 'test://ball?fps=0'\nmodels = []\n";
        check(
            &format!("version = 1\n{streams}"),
            expect![[r#"
            b.toml:4: ftp://u:***@host/a: `ftp://` is not a kind of source; use file://, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball, or a plain path
            b.toml:12: test://ball?fps=0: `fps=0` is not valid; write a whole number from 1 to 1000"#]],
        );
        check(
            &format!("version = 1\nlanes = 0\n{streams}[[stream]]\nname = 'w'\nmodels = []\n"),
            expect![[r#"
            b.toml:2: key `lanes`: 0 is outside its range; choose 1 to 16
            b.toml:15: key `stream[3].source`: it is missing; add it"#]],
        );
    }

    #[test]
    fn a_stall_takes_longer_than_a_look() {
        check(
            "version = 1\n[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\nstall_ms = 0\n",
            expect!["b.toml:6: key `stream[0].stall_ms`: 0 is outside its range; choose 200 to 60000"],
        );
    }

    #[test]
    fn a_tracker_is_for_objects_that_are_followed() {
        check(
            "version = 1\n[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\ntrack = false\n\
             [stream.tracker]\nscore_high = 2.0\nlost_max = 3\n",
            expect![[r#"
                b.toml:8: key `stream[0].tracker.score_high`: 2 is outside its range; choose 0 to 1
                b.toml:9: key `stream[0].tracker.lost_max`: unknown key; did you mean `lost_ms_max`?
                b.toml:6: key `stream[0].track`: zones, lines and [stream.tracker] need tracking; set track = true, or remove them"#]],
        );
    }

    #[test]
    fn two_streams_do_not_write_one_file() {
        check(
            "version = 1\n[[model]]\nname = 'a'\n[[sink]]\nname = 's'\nkind = 'mp4'\npath = 'o.mp4'\n\
             [[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = ['a']\nsinks = ['s']\n\
             [[stream]]\nname = 'y'\nsource = 'test://ball'\nmodels = ['a']\nsinks = ['s']\n",
            expect![
                "b.toml:4: key `sink`: streams `x` and `y` both write to o.mp4; put {stream} into the sink's path"
            ],
        );
    }

    #[test]
    fn a_stream_does_not_write_a_file_twice() {
        check(
            "version = 1\n[[sink]]\nname = 's'\nkind = 'jsonl'\npath = 'o'\n[[sink]]\nname = 't'\nkind = 'framemd5'\n\
             path = 'o'\n[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\nsinks = ['s', 't']\n",
            expect![
                "b.toml:2: key `sink`: stream `x` writes o twice; list each sink once, with a path of its own"
            ],
        );
    }

    #[test]
    fn a_lane_is_one_of_the_boards() {
        let board = |lanes: u32, lane: i64| {
            format!(
                "version = 1\nlanes = {lanes}\n[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\nlane = {lane}\n"
            )
        };
        check(
            &board(1, 1),
            expect![
                "b.toml:7: key `stream[0].lane`: lanes are counted from 0, and `lanes` is 1; choose a smaller one, or set lanes = 2"
            ],
        );
        check(
            &board(2, 2),
            expect![
                "b.toml:7: key `stream[0].lane`: lanes are counted from 0, and `lanes` is 2; choose a smaller one, or set lanes = 3"
            ],
        );
        check(
            &board(2, -1),
            expect!["b.toml:7: key `stream[0].lane`: -1 is outside its range; choose 0 to 15"],
        );
        check(&board(2, 1), expect![[r#"b [] [("x", [], [])]"#]]);
    }
    #[test]
    fn nothing_is_listed_twice() {
        check(
            "version = 1\n[inference]\nengines = ['tract', 'ort-cpu', 'tract']\nrequire = ['tract', 'tract']\n\
             [[model]]\nname = 'a'\n[[model]]\nname = 'b'\non = { model = 'a', classes = ['x', 'y', 'x'] }\n\
             [[sink]]\nname = 's'\nkind = 'jsonl'\npath = '-'\n\
             [[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = ['a', 'b', 'a']\nsinks = ['s', 's', 's']\n",
            expect![[r#"
                b.toml:3: key `inference.engines`: `tract` is listed more than once; list it once
                b.toml:4: key `inference.require`: `tract` is listed more than once; list it once
                b.toml:9: key `model[1].on.classes`: `x` is listed more than once; list it once
                b.toml:17: key `stream[0].models`: `a` is listed more than once; list it once
                b.toml:18: key `stream[0].sinks`: `s` is listed more than once; list it once"#]],
        );
    }

    #[test]
    fn two_of_a_name_are_refused_wherever_names_are_given() {
        let zone = "[[stream.zone]]\nname = 'z'\ncorners = [0, 0, 1, 0, 1, 1]\n";
        let line = "[[stream.line]]\nname = 'l'\nends = [0, 0, 1, 1]\n";
        let stream =
            format!("[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\n{zone}{zone}{line}{line}");
        let named = |table: &str, rest: &str| format!("[[{table}]]\nname = 'n'\n{rest}").repeat(2);
        check(
            &format!(
                "version = 1\n{}{}{}{stream}",
                named("model", ""),
                named("sink", "kind = 'jsonl'\npath = '-'\n"),
                named("stream", "source = 'test://ball'\nmodels = []\n")
            ),
            expect![[r#"
                b.toml:2: key `model`: the name `n` is used more than once; give each one a name of its own (check inherited files too)
                b.toml:6: key `sink`: the name `n` is used more than once; give each one a name of its own (check inherited files too)
                b.toml:26: key `stream[2].zone`: the name `z` is used more than once; give each one a name of its own (check inherited files too)
                b.toml:32: key `stream[2].line`: the name `l` is used more than once; give each one a name of its own (check inherited files too)
                b.toml:14: key `stream`: the name `n` is used more than once; give each one a name of its own (check inherited files too)"#]],
        );
        // Names of zones and lines are independent of each other and of those of other streams.
        let one = |name: &str| {
            format!("[[stream]]\nname = '{name}'\nsource = 'test://ball'\nmodels = []\n{zone}{line}")
        };
        check(
            &format!("version = 1\n{}{}", one("x"), one("y")),
            expect![[r#"b [] [("x", [], []), ("y", [], [])]"#]],
        );
    }
}
