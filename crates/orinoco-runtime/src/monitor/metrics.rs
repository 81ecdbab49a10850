//! Metrics of a run, in native units, made from the directory, the folds and the latest readings.
//!
//! Labels are names of the board file, so a series ends with its stream or model. Totals without labels count what has ended,
//! too, and never go back.

use orinoco_api::GovernorStatus;
use orinoco_core::{ComputeUnit, LaneId};
use orinoco_telemetry::energy::{EnergyReport, StageEnergy, TotalEnergy};
use orinoco_telemetry::{
    DropCause, LaneFold, Metric, MetricKind, MetricValue, MissCause, ModelFold, SourceState, Stage,
    StreamFold,
};

use super::directory::{Directory, Totals};
use super::readings::{Latest, joules};
use super::status::{MODEL_STAGES, stage_of};
use super::view::View;
use crate::memory::resident_bytes;

use MetricKind::{Counter, Gauge, Histogram};

/// Returns all metrics. A metric without series is left out.
pub(super) fn of(view: &View, nv_inference: bool) -> Vec<Metric> {
    let readings = view.readings.latest();
    let directory = view.directory();
    let mut metrics = run(view, &directory);
    metrics.extend(streams(view, &directory));
    metrics.extend(models(view, &directory));
    metrics.extend(lanes(view, directory.lanes));
    if nv_inference {
        metrics.extend(nv_inference_metrics(view, &directory));
    }
    metrics.extend(energy(&directory, &readings));
    drop(directory);
    metrics.extend(sensors(&readings));
    metrics.extend(view.governor().iter().flat_map(governor));
    metrics.retain(|metric| !metric.series.is_empty());
    metrics
}

fn number(name: &'static str, kind: MetricKind, help: &'static str, value: f64) -> Metric {
    let mut metric = Metric::new(name, kind, help);
    metric.add(&[], MetricValue::Number(value));
    metric
}

/// Metrics of the whole run.
fn run(view: &View, directory: &Directory) -> Vec<Metric> {
    let mut totals = directory.ended;
    for id in directory.streams.keys() {
        view.telemetry.stream(*id).read(|fold| totals.add(fold));
    }
    let mut info = Metric::new("orinoco_build_info", Gauge, "Version of the program; the value is always 1.");
    info.add(
        &[("version", env!("CARGO_PKG_VERSION")), ("board", &directory.board)],
        MetricValue::Number(1.0),
    );
    let uptime = view.now().since(view.started).as_secs_f64();
    let mut dropped = Metric::new(
        "orinoco_frames_dropped_total",
        Counter,
        "Dropped frames of all streams, also of those that have ended, by cause.",
    );
    for cause in DropCause::ALL {
        let frames = totals.dropped[cause as usize];
        dropped.add(&[("cause", cause.name())], MetricValue::Number(frames as f64));
    }
    let mut metrics = vec![
        info,
        number("orinoco_uptime_seconds", Gauge, "Time since the start of the run.", uptime),
        number("orinoco_streams", Gauge, "Streams that have not ended.", directory.streams.len() as f64),
        dropped,
    ];
    metrics.extend(of_totals(&totals, directory.ended.streams));
    let bytes = [
        (
            "orinoco_process_resident_memory_bytes",
            "Resident memory of the process.",
            Some(resident_bytes()).filter(|bytes| *bytes > 0),
        ),
        (
            "orinoco_memory_planned_bytes",
            "Memory that the admitted plan needs.",
            directory.memory.map(|m| m.0),
        ),
        ("orinoco_memory_budget_bytes", "Memory budget of the board.", directory.memory.map(|m| m.1)),
    ];
    metrics.extend(
        bytes.into_iter().filter_map(|(name, help, bytes)| Some(number(name, Gauge, help, bytes? as f64))),
    );
    metrics
}

fn of_totals(totals: &Totals, ended: u64) -> Vec<Metric> {
    [
        ("orinoco_streams_ended_total", "Streams that have ended.", ended),
        (
            "orinoco_frames_in_total",
            "Frames that the sources delivered or reported as lost.",
            totals.frames_in,
        ),
        ("orinoco_frames_out_total", "Frames that went through every model and sink.", totals.frames_out),
        ("orinoco_frames_late_total", "Frames later than their stream's bound.", totals.late),
        ("orinoco_detections_total", "Objects that all models found.", totals.detections),
        ("orinoco_reconnects_total", "Times that a source had to be opened again.", totals.reconnects),
    ]
    .into_iter()
    .map(|(name, help, count)| number(name, Counter, help, count as f64))
    .collect()
}

/// Name, explanation and value of a counter of one stream or model.
type CounterOf<T> = (&'static str, &'static str, fn(&T) -> u64);

const STREAM_COUNTERS: [CounterOf<StreamFold>; 5] = [
    ("orinoco_stream_frames_in_total", "Frames that the source delivered or reported as lost.", |fold| {
        fold.frames_in
    }),
    ("orinoco_stream_frames_out_total", "Frames that went through every model and sink.", |fold| {
        fold.frames_out
    }),
    ("orinoco_stream_frames_late_total", "Frames later than the stream's bound.", |fold| fold.late),
    ("orinoco_stream_detections_total", "Objects that all models found.", |fold| fold.detections),
    ("orinoco_stream_reconnects_total", "Times that the source had to be opened again.", |fold| {
        fold.reconnects
    }),
];

const MODEL_COUNTERS: [CounterOf<ModelFold>; 4] = [
    ("orinoco_model_inferences_total", "Inferences, each of one batch.", |fold| fold.inferences),
    ("orinoco_model_images_total", "Images: frames, and objects in frames.", |fold| fold.items),
    ("orinoco_model_graph_fallbacks_total", "CUDA graphs that the driver refused.", |fold| {
        fold.graph_fallbacks
    }),
    ("orinoco_model_not_finite_total", "Values in outputs that were not finite.", |fold| fold.not_finite),
];

fn streams(view: &View, directory: &Directory) -> Vec<Metric> {
    let mut counters = STREAM_COUNTERS.map(|(name, help, _)| Metric::new(name, Counter, help));
    let mut dropped = Metric::new("orinoco_stream_frames_dropped_total", Counter, "Dropped frames by cause.");
    let mut late = Metric::new(
        "orinoco_stream_frames_late_by_stage_total",
        Counter,
        "Late frames by the stage that took the longest share of their time.",
    );
    let mut live = Metric::new(
        "orinoco_stream_live",
        Gauge,
        "Whether the source delivers frames: 1 if it does, else 0.",
    );
    let mut stages = Metric::new(
        "orinoco_stream_stage_duration_seconds",
        Histogram,
        "Time of a frame in a stage; of stage total, from its slot to the end of its sinks.",
    );
    for (id, listed) in directory.streams_by_name() {
        let stream = view.telemetry.stream(id);
        let name = listed.name.as_str();
        let (values, by_cause, by_stage, is_live) = stream.read(|fold| {
            let by_cause = DropCause::ALL.map(|cause| fold.dropped(cause));
            let by_stage = Stage::ALL.map(|stage| fold.late_in(stage));
            let is_live = fold.state == Some(SourceState::Live);
            (STREAM_COUNTERS.map(|(.., value)| value(fold)), by_cause, by_stage, is_live)
        });
        for (metric, value) in counters.iter_mut().zip(values) {
            metric.add(&[("stream", name)], MetricValue::Number(value as f64));
        }
        for (cause, frames) in DropCause::ALL.into_iter().zip(by_cause).filter(|(_, frames)| *frames > 0) {
            dropped.add(&[("stream", name), ("cause", cause.name())], MetricValue::Number(frames as f64));
        }
        for (stage, frames) in Stage::ALL.into_iter().zip(by_stage).filter(|(_, frames)| *frames > 0) {
            late.add(&[("stream", name), ("stage", stage.name())], MetricValue::Number(frames as f64));
        }
        live.add(&[("stream", name)], MetricValue::Number(f64::from(u8::from(is_live))));
        for stage in Stage::ALL {
            let durations = stream.read(|fold| fold.buckets(stage)).durations();
            if durations.count > 0 {
                let labels = [("stream", name), ("stage", stage.name())];
                stages.add(&labels, MetricValue::Durations(durations));
            }
        }
    }
    counters.into_iter().chain([dropped, late, live, stages]).collect()
}

fn models(view: &View, directory: &Directory) -> Vec<Metric> {
    let mut counters = MODEL_COUNTERS.map(|(name, help, _)| Metric::new(name, Counter, help));
    let mut stages = Metric::new(
        "orinoco_model_stage_duration_seconds",
        Histogram,
        "Time of a batch in a stage of its model.",
    );
    let mut remote = Metric::new(
        "orinoco_model_remote_images_total",
        Counter,
        "Images that another seat of the cluster inferred.",
    );
    let mut missed = Metric::new(
        "orinoco_model_missed_images_total",
        Counter,
        "Images that another seat of the cluster should have inferred and did not, by cause.",
    );
    for (id, listed) in directory.models_by_name() {
        let model = view.telemetry.model(id);
        let labels = [("model", listed.name.as_str()), ("engine", listed.engine.as_str())];
        let values = model.read(|fold| MODEL_COUNTERS.map(|(.., value)| value(fold)));
        for (metric, value) in counters.iter_mut().zip(values) {
            metric.add(&labels, MetricValue::Number(value as f64));
        }
        if let Some(of_seat) = &listed.remote {
            let (counts, labels) =
                (model.read(|fold| fold.remote), [labels[0], ("seat", of_seat.seat.as_str())]);
            remote.add(&labels, MetricValue::Number(counts.images as f64));
            for cause in MissCause::ALL {
                let [model, seat] = labels;
                missed.add(
                    &[model, seat, ("cause", cause.name())],
                    MetricValue::Number(counts.missed(cause) as f64),
                );
            }
        }
        for stage in MODEL_STAGES {
            let durations = model.read(|fold| stage_of(fold, stage).buckets()).durations();
            if durations.count > 0 {
                let [model, engine] = labels;
                stages.add(&[model, engine, ("stage", stage.name())], MetricValue::Durations(durations));
            }
        }
    }
    counters.into_iter().chain([stages, remote, missed]).collect()
}

fn lanes(view: &View, lanes: usize) -> Vec<Metric> {
    let mut batches = Metric::new("orinoco_lane_batches_total", Counter, "Batches that the lane took.");
    let mut requests =
        Metric::new("orinoco_lane_requests_total", Counter, "Clients' requests that the lane executed.");
    let mut busy = Metric::new(
        "orinoco_lane_busy_seconds_total",
        Counter,
        "Time for which models kept a unit of the lane busy.",
    );
    for lane in 0..lanes {
        let fold = view.telemetry.lane(LaneId::from_index(lane)).read(LaneFold::clone);
        let name = lane.to_string();
        batches.add(&[("lane", &name)], MetricValue::Number(fold.batches as f64));
        requests.add(&[("lane", &name)], MetricValue::Number(fold.requests as f64));
        for (unit, label) in [(ComputeUnit::Cpu, "cpu"), (ComputeUnit::Gpu, "gpu")] {
            let seconds = fold.busy(unit).as_secs_f64();
            busy.add(&[("lane", &name), ("unit", label)], MetricValue::Number(seconds));
        }
    }
    vec![batches, requests, busy]
}

/// The names that Triton Inference Server uses, with its units. They break Prometheus's rules (`_us`, no `_total`), so they are
/// there by choice only.
fn nv_inference_metrics(view: &View, directory: &Directory) -> Vec<Metric> {
    let names: [(&'static str, &'static str); 6] = [
        ("nv_inference_request_success", "Images that were inferred; Triton counts requests."),
        ("nv_inference_count", "Images that were inferred."),
        ("nv_inference_exec_count", "Executions of the model, each of one batch."),
        ("nv_inference_compute_input_duration_us", "Time of preprocessing, in microseconds."),
        ("nv_inference_compute_infer_duration_us", "Time of inference, in microseconds."),
        ("nv_inference_compute_output_duration_us", "Time of postprocessing, in microseconds."),
    ];
    let mut metrics = names.map(|(name, help)| Metric::new(name, Counter, help));
    for (id, listed) in directory.models_by_name() {
        let model = view.telemetry.model(id);
        let (items, inferences, buckets) = model.read(|fold| {
            (
                fold.items as f64,
                fold.inferences as f64,
                MODEL_STAGES.map(|stage| stage_of(fold, stage).buckets()),
            )
        });
        let [input, infer, output] = buckets.map(|buckets| (buckets.durations().sum * 1e6).round());
        let values = [items, items, inferences, input, infer, output];
        for (metric, value) in metrics.iter_mut().zip(values) {
            let labels = [("model", listed.name.as_str()), ("version", version_of(&listed.file))];
            metric.add(&labels, MetricValue::Number(value));
        }
    }
    metrics.into()
}

/// Returns the version of a model by the folder of its file, `<name>/<version>/model.onnx`; 1 where it has none, as in Triton.
fn version_of(file: &str) -> &str {
    let folder = file.rsplit('/').nth(1).unwrap_or_default();
    let is_version = !folder.is_empty() && folder.bytes().all(|byte| byte.is_ascii_digit());
    if is_version { folder } else { "1" }
}

/// Energy of models and streams. The figures are estimates, which may fall, so they are gauges; the board and its rails have
/// counters.
fn energy(directory: &Directory, readings: &Latest) -> Vec<Metric> {
    let Ok(report) = &readings.energy else { return Vec::new() };
    let mut metrics = energy_of_models(directory, report);
    metrics.extend(energy_of_streams(directory, report));
    metrics.extend(energy_of_board(&report.total));
    let mut of_rails =
        Metric::new("orinoco_rail_energy_joules_total", Counter, "Energy since the start of the run.");
    for rail in report.rails.iter().filter(|rail| rail.power.is_some()) {
        of_rails.add(&[("rail", &rail.name)], MetricValue::Number(rail.energy.to_f64()));
    }
    metrics.push(of_rails);
    metrics
}

/// Counters of the rails that are added up; none where the board measures no power.
fn energy_of_board(total: &TotalEnergy) -> Vec<Metric> {
    if total.rails.is_empty() {
        return Vec::new();
    }
    let help = "Energy since the start of the run, of the rails that are added up.";
    let missing = "Time for which no energy was counted, because readings were missing.";
    vec![
        number("orinoco_energy_joules_total", Counter, help, total.energy.to_f64()),
        number("orinoco_energy_unmeasured_seconds_total", Counter, missing, total.unmeasured.as_secs_f64()),
    ]
}

fn energy_of_models(directory: &Directory, report: &EnergyReport) -> Vec<Metric> {
    let mut of_models = Metric::new(
        "orinoco_model_energy_per_image_joules",
        Gauge,
        "Energy of one image above the idle power of the board.",
    );
    let mut bars = Metric::new(
        "orinoco_model_energy_per_image_half_width_joules",
        Gauge,
        "Half-width of the 95 % interval of the energy of one image.",
    );
    let mut totals = Metric::new(
        "orinoco_model_energy_joules",
        Gauge,
        "Energy of all images above the idle power of the board, without what could not be measured.",
    );
    let mut stages = Metric::new(
        "orinoco_model_stage_energy_per_image_joules",
        Gauge,
        "Energy of one image in a stage, above the idle power of the board.",
    );
    for (id, listed) in directory.models_by_name() {
        let Some(model) = report.models.iter().find(|model| model.model == id) else { continue };
        if let Ok(figure) = &model.per_item {
            of_models.add(&[("model", &listed.name)], MetricValue::Number(figure.energy.to_f64()));
            bars.add(&[("model", &listed.name)], MetricValue::Number(figure.half_width.to_f64()));
        }
        if let Some(joules) = joules(&model.total) {
            totals.add(&[("model", &listed.name)], MetricValue::Number(joules));
        }
        add_stages(&mut stages, ("model", &listed.name), &model.stages);
    }
    vec![of_models, bars, totals, stages]
}

fn energy_of_streams(directory: &Directory, report: &EnergyReport) -> Vec<Metric> {
    let mut of_streams = Metric::new(
        "orinoco_stream_energy_per_frame_joules",
        Gauge,
        "Energy of one frame in all models above the idle power of the board.",
    );
    let mut totals = Metric::new(
        "orinoco_stream_energy_joules",
        Gauge,
        "Energy of all frames in all models above the idle power of the board, without what could not be measured.",
    );
    let mut stages = Metric::new(
        "orinoco_stream_stage_energy_per_frame_joules",
        Gauge,
        "Energy of one frame in a stage of all models, above the idle power of the board.",
    );
    for (id, listed) in directory.streams_by_name() {
        let Some(stream) = report.streams.iter().find(|stream| stream.stream == id) else { continue };
        if let Ok(figure) = &stream.per_frame {
            of_streams.add(&[("stream", &listed.name)], MetricValue::Number(figure.energy.to_f64()));
        }
        if let Some(joules) = joules(&stream.total) {
            totals.add(&[("stream", &listed.name)], MetricValue::Number(joules));
        }
        add_stages(&mut stages, ("stream", &listed.name), &stream.stages);
    }
    vec![of_streams, totals, stages]
}

/// Adds the energies of the stages that are measured.
fn add_stages(metric: &mut Metric, subject: (&'static str, &str), stages: &[StageEnergy]) {
    for StageEnergy { stage, per_item } in stages {
        if let Ok(figure) = per_item {
            let labels = [subject, ("stage", stage.name())];
            metric.add(&labels, MetricValue::Number(figure.energy.to_f64()));
        }
    }
}

/// Readings of the board's sensors. What is not known has no series.
fn sensors(readings: &Latest) -> Vec<Metric> {
    let sensors = &readings.sensors;
    let rails = sensors.rails.iter().map(|rail| (&rail.name, rail.watts));
    let zones = sensors.temperatures.iter().map(|zone| (&zone.name, zone.celsius));
    let clocks = sensors.clocks.iter().map(|clock| (&clock.name, clock.mhz.map(|mhz| mhz * 1e6)));
    let loads = sensors.clocks.iter().map(|clock| (&clock.name, clock.load));
    let fans = sensors.fans.iter().map(|fan| (&fan.name, fan.duty));
    let mut metrics = vec![
        gauges("orinoco_rail_power_watts", "Power of a rail.", "rail", rails),
        gauges("orinoco_temperature_celsius", "Temperature of a thermal zone or sensor.", "zone", zones),
        gauges("orinoco_clock_hertz", "Present frequency of a device or group of cores.", "device", clocks),
        gauges("orinoco_device_load_ratio", "Share of its time that a device was in use.", "device", loads),
        gauges("orinoco_fan_duty_ratio", "Duty cycle of a fan, 0 to 1.", "fan", fans),
    ];
    let single = [
        ("orinoco_cpu_load_ratio", "Share of the processor's time that was in use.", sensors.cpu_load),
        ("orinoco_machine_memory_bytes", "Memory of the machine.", readings.machine_bytes.map(|b| b as f64)),
        (
            "orinoco_machine_memory_available_bytes",
            "Memory of the machine that programs can still take.",
            readings.available_bytes.map(|b| b as f64),
        ),
    ];
    metrics
        .extend(single.into_iter().filter_map(|(name, help, value)| Some(number(name, Gauge, help, value?))));
    metrics
}

/// State of the governor.
fn governor(governor: &GovernorStatus) -> Vec<Metric> {
    let is = |states: &[&str]| f64::from(u8::from(states.contains(&governor.state.as_str())));
    let mut steps = Metric::new("orinoco_governor_steps_total", Counter, "Steps of the governor.");
    for (direction, count) in [("up", governor.steps_up), ("down", governor.steps_down)] {
        steps.add(&[("direction", direction)], MetricValue::Number(count as f64));
    }
    let limiting =
        "Whether the governor lowers the power or keeps it low: 1 for a limit or a missing sensor, else 0.";
    vec![
        number(
            "orinoco_governor_available",
            Gauge,
            "Whether the governor can change power settings: 1 if its helper answers, else 0.",
            1.0 - is(&["unavailable"]),
        ),
        number("orinoco_governor_limiting", Gauge, limiting, is(&["limiting", "blind", "exhausted"])),
        number(
            "orinoco_governor_slow",
            Gauge,
            "1 if a stream misses its target latency and the governor cannot make it faster within its limits of power and temperature, else 0.",
            is(&["slow"]),
        ),
        steps,
    ]
}

fn gauges<'a>(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    values: impl Iterator<Item = (&'a String, Option<f64>)>,
) -> Metric {
    let mut metric = Metric::new(name, Gauge, help);
    for (subject, value) in values {
        if let Some(value) = value {
            metric.add(&[(label, subject)], MetricValue::Number(value));
        }
    }
    metric
}
