use super::*;
use crate::Quiet;
use orinoco_api::ModelSummary;
use orinoco_core::{ComputeUnit, Joules, LaneId, ModelId, Nanos, Signal, StreamId, TimeSpan, WallTime};
use orinoco_telemetry::energy::{
    Covers, EnergyReport, Estimate, Figure, Losses, ModelEnergy, NotMeasured, RailEnergy, StageEnergy,
    StreamEnergy, TotalEnergy,
};
use orinoco_telemetry::{DropCause, MetricKind, MetricValue, SourceState, Stage};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// Clock that the test sets.
#[derive(Default)]
struct Set(Mutex<u64>);

impl Clock for Set {
    fn now(&self) -> Nanos {
        Nanos(*self.0.lock().expect("not poisoned"))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_unix_nanos(1_700_000_000 * SECOND)
    }

    fn signal(&self) -> Arc<dyn Signal> {
        unreachable!("nobody waits")
    }
}

/// Run of one stream `gate` with one model `person` on lane 0.
struct Run {
    clock: Arc<Set>,
    telemetry: Telemetry,
    monitor: Monitor,
    stream: StreamId,
    model: ModelId,
}

impl Run {
    fn new() -> Self {
        let (clock, telemetry) = (Arc::new(Set::default()), Telemetry::default());
        let events = Arc::new(EventLog::new(Arc::new(Quiet), clock.clone()));
        let monitor = Monitor::new(clock.clone(), telemetry.clone(), events, "yard");
        let model = telemetry.add_model();
        monitor.directory_mut().add_model(model, person());
        let mut run = Self { clock, telemetry, monitor, stream: StreamId(0), model };
        run.stream = run.join("gate");
        run
    }

    fn at(&self, nanos: u64) {
        *self.clock.0.lock().expect("not poisoned") = nanos;
    }

    fn join(&self, name: &str) -> StreamId {
        let stream = self.telemetry.add_stream(name);
        let (name, source) = (name.to_owned(), "rtsp://camera/1".to_owned());
        let listed = ListedStream { name, source, lane: 0, models: vec![self.model] };
        self.monitor.directory_mut().join(stream, listed);
        self.telemetry.stream(stream).state(SourceState::Live, Nanos(0));
        stream
    }

    /// Takes a frame through the pipeline, with an inference of 10 ms.
    fn frame(&self, seq: u64) {
        let (now, stream) = (self.clock.now(), self.telemetry.stream(self.stream));
        stream.emitter().arrival(seq, now);
        let lane = self.telemetry.lane(LaneId(0));
        lane.took(1, now);
        let end = now + Duration::from_millis(10);
        let stages = [(Stage::Infer, TimeSpan::new(now, end))];
        self.telemetry.model(self.model).batch(&lane, ComputeUnit::Cpu, [self.stream].into_iter(), &stages);
        lane.finished(1, end);
        let mut emitter = stream.emitter();
        emitter.stage(seq, Stage::Infer, TimeSpan::new(now, end));
        emitter.stage(seq, Stage::Total, TimeSpan::new(now, end));
        emitter.result(seq, 2, None, end);
        drop(emitter);
        self.at(end.0);
    }

    fn end_stream(&self) {
        let mut directory = self.monitor.directory_mut();
        let fold = self.telemetry.remove_stream(self.stream).expect("it is there");
        directory.end(self.stream, &fold);
    }

    /// Returns the value of a metric for these labels.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<MetricValue> {
        let metrics = self.monitor.metrics(true);
        let metric = metrics.into_iter().find(|metric| metric.name == name)?;
        let wanted = |of: &[(&'static str, String)]| {
            of.iter().map(|(n, v)| (*n, v.as_str())).eq(labels.iter().copied())
        };
        metric.series.into_iter().find(|series| wanted(&series.labels)).map(|series| series.value)
    }
}

fn person() -> ModelSummary {
    let summary = r#"{"name": "person", "file": "models/person/3/model.onnx", "engine": "tract",
                      "engine_version": "0.22", "batch": 4, "pictures": 0, "replays": 0, "stages": [],
                      "refused": []}"#;
    serde_json::from_str(summary).expect("it is one")
}

#[test]
fn a_status_shows_streams_models_and_lanes() {
    let run = Run::new();
    assert!(run.monitor.status().ready);
    (0..20).for_each(|seq| run.frame(seq));
    run.telemetry.stream(run.stream).drop_frame(20, DropCause::DropOldest, Nanos(0));
    let status = run.monitor.status();
    let (stream, model, lane) = (&status.streams[0], &status.models[0], &status.lanes[0]);
    assert_eq!((&*status.board, status.healthy, status.streams_ended), ("yard", true, 0));
    assert_eq!(
        (&*stream.name, &*stream.state, &stream.models[..]),
        ("gate", "live", &["person".to_owned()][..])
    );
    assert_eq!((stream.frames_in, stream.frames_out, stream.detections), (20, 20, 40));
    assert_eq!((&*stream.dropped[0].cause, stream.dropped[0].frames), ("drop-oldest", 1));
    let total = stream.window.iter().find(|stage| stage.stage == "total").expect("it has samples");
    assert!((9_900.0..=10_100.0).contains(&total.p50_us) && total.count == 20, "{total:?}");
    assert_eq!((model.inferences, model.images, model.window.len(), model.stages.len()), (20, 20, 1, 1));
    assert_eq!((lane.batches, lane.stuck, lane.executing_ms), (20, false, None));
    assert!((lane.busy_s - 0.2).abs() < 1e-9);
    assert!(status.energy.not_measured.is_some());
}

#[test]
fn the_window_forgets_and_the_run_does_not() {
    let run = Run::new();
    (0..5).for_each(|seq| run.frame(seq));
    run.at(300 * SECOND);
    let status = run.monitor.status();
    assert_eq!((status.streams[0].window.len(), status.streams[0].stages.len()), (0, 2));
    assert_eq!(status.streams[0].fps, 0.0);
    assert!(status.streams[0].silence_ms.expect("a frame was finished") > 299e3);
}

#[test]
fn totals_keep_what_a_stream_had_and_its_series_end() {
    let run = Run::new();
    (0..7).for_each(|seq| run.frame(seq));
    let total = || run.value("orinoco_frames_out_total", &[]);
    let of_stream = || run.value("orinoco_stream_frames_out_total", &[("stream", "gate")]);
    assert_eq!((total(), of_stream()), (Some(MetricValue::Number(7.0)), Some(MetricValue::Number(7.0))));
    run.end_stream();
    assert_eq!((total(), of_stream()), (Some(MetricValue::Number(7.0)), None));
    let dropped = run.value("orinoco_frames_dropped_total", &[("cause", "drop-oldest")]);
    assert_eq!(dropped, Some(MetricValue::Number(0.0)), "a total is there from the start");
}

#[test]
fn a_name_that_joins_before_its_old_stream_has_ended_is_one_series() {
    let run = Run::new();
    run.frame(0);
    let model = run.telemetry.add_model();
    run.monitor.directory_mut().add_model(model, person());
    let stream = run.join("gate");
    measure_energy(&run, &[run.model, model], &[run.stream, stream]);
    let metrics = run.monitor.metrics(true);
    for metric in &metrics {
        let labels: BTreeSet<_> = metric.series.iter().map(|series| series.labels.clone()).collect();
        assert_eq!(labels.len(), metric.series.len(), "{}", metric.name);
    }
    let energy = run.value("orinoco_stream_energy_per_frame_joules", &[("stream", "gate")]);
    assert!(energy.is_some(), "the energy of the latest stream is shown");
    let total = run.value("orinoco_frames_out_total", &[]);
    assert_eq!(total, Some(MetricValue::Number(1.0)), "the total has both");
}

#[test]
fn names_of_native_metrics_follow_prometheus() {
    let run = Run::new();
    run.frame(0);
    let metrics = run.monitor.metrics(false);
    let names: BTreeSet<_> = metrics.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), metrics.len());
    for metric in &metrics {
        let name = metric.name;
        assert!(name.starts_with("orinoco_") && metric.help.ends_with('.'), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
    }
    let version = [("model", "person"), ("version", "3")];
    assert_eq!(run.value("nv_inference_exec_count", &version), Some(MetricValue::Number(1.0)));
    assert!(!names.iter().any(|name| name.starts_with("nv_")), "only by choice");
}

#[test]
fn a_lane_that_hangs_is_not_healthy_and_the_dump_names_its_stage() {
    let run = Run::new();
    (0..3).for_each(|seq| run.frame(seq));
    let lane = run.telemetry.lane(LaneId(0));
    run.telemetry.stream(run.stream).emitter().arrival(3, run.clock.now());
    lane.took(1, run.clock.now());
    lane.current_stage().of(run.model).enter(Stage::Postprocess);
    run.at(run.clock.now().0 + 20 * SECOND);
    assert!(run.monitor.is_healthy(), "20 s are within the bound");
    run.at(run.clock.now().0 + 20 * SECOND);
    assert!(!run.monitor.is_healthy() && !run.monitor.status().healthy);
    let dump = run.monitor.dump("stuck");
    assert_eq!(dump.stuck.len(), 1, "its stream waits for it: {:?}", dump.stuck);
    assert_eq!((&*dump.stuck[0].part, &*dump.stuck[0].stage), ("lane 0", "postprocess"));
    assert!((dump.stuck[0].since_s - 40.0).abs() < 0.1);
    let took = dump.trace.iter().rfind(|entry| entry.kind == "lane").expect("it is in the trace");
    assert_eq!((took.lane, took.what.as_deref()), (Some(0), Some("took")));
    assert_eq!(dump.trace_lost, 0);
    assert_eq!(run.monitor.dump("request").trace, dump.trace, "a dump takes nothing from the next");
}

#[test]
fn a_stuck_source_and_a_stuck_sink_are_told_apart() {
    let stage = |frames_in_work: u64| {
        let run = Run::new();
        (0..3).for_each(|seq| run.frame(seq));
        for seq in 3..3 + frames_in_work {
            run.telemetry.stream(run.stream).emitter().arrival(seq, run.clock.now());
        }
        run.at(run.clock.now().0 + 40 * SECOND);
        assert!(run.monitor.is_healthy(), "only the stream is stuck");
        let stuck = run.monitor.dump("request").stuck;
        assert_eq!((stuck.len(), &*stuck[0].part), (1, "stream gate"));
        stuck[0].stage.clone()
    };
    assert_eq!((stage(0), stage(2)), ("capture".to_owned(), "sink".to_owned()));
}

/// Returns the names of metrics in a text, without the endings that belong to parts of histograms.
fn names_in(text: &str) -> BTreeSet<&str> {
    let is_name = |byte: char| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == '_';
    let words = text.split(|byte: char| !is_name(byte));
    let names = words.filter(|word| word.starts_with("orinoco_") || word.starts_with("nv_inference_"));
    let whole = |name| ["_bucket", "_sum", "_count"].iter().find_map(|end| str::strip_suffix(name, end));
    names.map(|name| whole(name).unwrap_or(name)).collect()
}

#[test]
fn every_metric_is_documented_and_the_dashboard_and_the_alerts_ask_for_no_other() {
    const PAGE: &str = include_str!("../../../../docs/metrics.md");
    let run = Run::new();
    run.frame(0);
    run.telemetry.stream(run.stream).drop_frame(1, DropCause::DropOldest, Nanos(0));
    run.monitor.directory_mut().set_memory(1, 2);
    measure_energy(&run, &[run.model], &[run.stream]);
    let documented: BTreeSet<&str> = names_in(PAGE);
    for metric in run.monitor.metrics(true) {
        let name = metric.name.strip_suffix("_count").unwrap_or(metric.name);
        assert!(documented.contains(name), "{} is not in docs/metrics.md", metric.name);
    }
    let asked = [
        include_str!("../../../../docs/grafana/orinoco.json"),
        include_str!("../../../../docs/prometheus/alerts.yml"),
    ];
    for name in asked.into_iter().flat_map(names_in) {
        assert!(documented.contains(name), "{name} is asked for, and not in docs/metrics.md");
    }
}

/// Measured energy in joules, with a half-width of 10 %.
fn energy_of(joules: f64) -> Figure {
    let energy = Joules::from_f64(joules);
    let bar = Joules::from_f64(0.1 * joules);
    Ok(Estimate { energy, half_width: bar, statistical: bar, systematic: Joules::ZERO, shared: 0.0 })
}

/// Sets a report in which an image of each model takes 0.5 J, 0.4 J of it for the inference; its preprocessing is not measured.
fn measure_energy(run: &Run, models: &[ModelId], streams: &[StreamId]) {
    let stages = |infer| {
        vec![
            StageEnergy { stage: Stage::Preprocess, per_item: Err(NotMeasured::TooUncertain) },
            StageEnergy { stage: Stage::Infer, per_item: energy_of(infer) },
        ]
    };
    let of_model = |model: &ModelId| ModelEnergy {
        model: *model,
        items: 1,
        per_item: energy_of(0.5),
        total: energy_of(0.5),
        items_unmeasured: 0,
        stages: stages(0.4),
    };
    let of_stream = |stream: &StreamId| StreamEnergy {
        stream: *stream,
        frames: 1,
        per_frame: energy_of(0.6),
        total: energy_of(0.6),
        stages: stages(0.5),
    };
    let name: Arc<str> = Arc::from("VDD_IN");
    let (energy, unmeasured) = (Joules::from_units(9), Duration::ZERO);
    let report = EnergyReport {
        rails: vec![RailEnergy { name: name.clone(), energy, power: None, unmeasured }],
        total: TotalEnergy {
            covers: Covers::Input,
            rails: vec![name],
            energy,
            measured: unmeasured,
            unmeasured,
        },
        baseline: Err(NotMeasured::NeverIdle),
        models: models.iter().map(of_model).collect(),
        streams: streams.iter().map(of_stream).collect(),
        losses: Losses::default(),
    };
    run.monitor.readings().set(Latest { energy: Ok(Arc::new(report)), ..Latest::default() });
}

#[test]
fn energy_is_shown_by_model_stream_and_stage() {
    let run = Run::new();
    run.frame(0);
    measure_energy(&run, &[run.model], &[run.stream]);
    let status = run.monitor.status();
    let (model, stream) = (&status.models[0], &status.streams[0]);
    let millijoules =
        |figure: &Option<orinoco_api::EnergyFigure>| figure.as_ref().and_then(|figure| figure.mj);
    assert_eq!(
        (millijoules(&model.energy_per_image), millijoules(&stream.energy_per_frame)),
        (Some(500.0), Some(600.0))
    );
    assert_eq!((model.energy_j, stream.energy_j), (Some(0.5), Some(0.6)));
    let number = |name, labels: &[(&str, &str)]| match run.value(name, labels) {
        Some(MetricValue::Number(value)) => value,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(number("orinoco_energy_joules_total", &[]), 9.0);
    assert_eq!(number("orinoco_energy_unmeasured_seconds_total", &[]), 0.0);
    assert_eq!(number("orinoco_model_energy_joules", &[("model", "person")]), 0.5);
    assert_eq!(number("orinoco_stream_energy_joules", &[("stream", "gate")]), 0.6);
    let shown = |stages: &[orinoco_api::StageEnergyFigure]| {
        let of = |stage: &orinoco_api::StageEnergyFigure| {
            format!("{} {:?} {:?}", stage.stage, stage.energy.mj, stage.energy.not_measured)
        };
        stages.iter().map(of).collect::<Vec<_>>()
    };
    let preprocess = "preprocess None Some(\"the error is as large as the energy\")";
    assert_eq!(shown(&model.energy_by_stage), [preprocess, "infer Some(400.0) None"]);
    assert_eq!(shown(&stream.energy_by_stage), [preprocess, "infer Some(500.0) None"]);
    let of_model = "orinoco_model_stage_energy_per_image_joules";
    let value = |stage| run.value(of_model, &[("model", "person"), ("stage", stage)]);
    assert_eq!((value("infer"), value("preprocess")), (Some(MetricValue::Number(0.4)), None));
    let of_stream = "orinoco_stream_stage_energy_per_frame_joules";
    let value = run.value(of_stream, &[("stream", "gate"), ("stage", "infer")]);
    assert_eq!(value, Some(MetricValue::Number(0.5)));
}

#[test]
fn ten_thousand_streams_leave_no_series_and_their_totals_stay() {
    let mut run = Run::new();
    let series =
        |run: &Run| run.monitor.metrics(true).iter().map(|metric| metric.series.len()).sum::<usize>();
    run.frame(0);
    let before = series(&run);
    for change in 1..=10_000_u32 {
        run.end_stream();
        run.stream = run.join(&format!("stream-{change}"));
        run.frame(0);
    }
    assert_eq!(series(&run), before);
    let total = run.value("orinoco_frames_out_total", &[]);
    assert_eq!(total, Some(MetricValue::Number(10_001.0)));
    assert_eq!(run.value("orinoco_streams_ended_total", &[]), Some(MetricValue::Number(10_000.0)));
}

#[test]
fn names_are_those_of_what_runs() {
    let run = Run::new();
    let left = run.join("door");
    run.telemetry.remove_stream(left);
    run.monitor.directory_mut().end(left, &orinoco_telemetry::StreamFold::default());
    let names = run.monitor.names();
    assert_eq!((names.board.as_str(), names.streams), ("yard", [(run.stream, "gate".to_owned())].into()));
    let named = ModelName { model: "person".to_owned(), engine: "tract".to_owned() };
    assert_eq!(names.models, [(run.model, named)].into());
}

#[test]
fn a_post_mortem_takes_no_record_from_a_subscriber() {
    let run = Run::new();
    let mut feed = run.monitor.subscribe_trace().expect("nobody reads it");
    assert!(run.monitor.subscribe_trace().is_none());
    run.frame(0);
    let dumped = run.monitor.dump("request").trace.len();
    assert_eq!(feed.read().records.len() + 1, dumped, "all but the state before the subscription");
}
