//! Cases whose figures follow by hand: an ideal sensor, and models of constant power.

use std::time::Duration;

use orinoco_core::{ComputeUnit, Joules, LaneId, ModelId, Nanos, Rng, StreamId, TimeSpan, Watts};
use orinoco_telemetry::energy::{
    Averaging, BaselineSource, Covers, EnergyMeter, EnergyReport, Figure, IdlePower, MeterSettings,
    ModelEnergy, NotMeasured, Rail, Sensor, SettingsError, StreamItems,
};
use orinoco_telemetry::{BatchRecord, ResultRecord, Stage};

const MS: u64 = 1_000_000;

/// Readings, one every 10 ms, each the mean of the 10 ms before.
const STEP_MS: u64 = 10;

/// Noise of each reading, in watts: plus and minus this.
const NOISE: f64 = 0.05;

fn settings() -> MeterSettings {
    let rail = |name: &str, is_in_total| Rail {
        name: name.into(),
        resolution: Watts::from_milli(1),
        gain_tolerance: 0.0,
        is_in_total,
        is_mean: false,
    };
    MeterSettings {
        rails: vec![rail("VDD_GPU", true), rail("VDD_SOC", false)],
        covers: Covers::NamedRails,
        // The update is as good as at once, so that a reading is the 10 ms before it.
        sensor: Sensor {
            update_period: Duration::from_micros(1),
            averaging: Averaging::Window(Duration::from_millis(STEP_MS)),
            clock_tolerance: 0.0,
        },
        sample_period: Duration::from_millis(STEP_MS),
        idle: None,
        lateness_max: Duration::from_millis(500),
        columns_max: 8,
    }
}

/// A meter that is fed window by window.
struct Bench {
    meter: EnergyMeter,
    rng: Rng,
    now_ms: u64,
}

/// A model's work in a window of [`STEP_MS`]: it starts with the window.
#[derive(Clone, Copy)]
struct Work {
    model: u32,
    busy_ms: u64,
    watts: f64,
    /// Items of the streams 0 and 1.
    items: [u32; 2],
}

impl Bench {
    fn new(settings: MeterSettings) -> Self {
        let meter = EnergyMeter::new(settings, Nanos(0)).expect("the settings are right");
        Self { meter, rng: Rng::with_seed(11), now_ms: 0 }
    }

    /// Passes one window, with an idle power of 5 W.
    fn window(&mut self, works: &[Work]) {
        self.window_of(0.0, works);
    }

    /// Passes one window in which something uses `more` watts than what is known to run.
    fn window_of(&mut self, more: f64, works: &[Work]) {
        let start = Nanos(self.now_ms * MS);
        let mut power = 5.0 + more + NOISE * (2.0 * self.rng.f64() - 1.0);
        for work in works.iter().filter(|work| work.busy_ms > 0) {
            power += work.watts * work.busy_ms as f64 / STEP_MS as f64;
            let record = BatchRecord {
                lane: LaneId(work.model),
                model: ModelId(work.model),
                stage: Stage::Infer,
                unit: ComputeUnit::Cpu,
                span: TimeSpan::new(start, start + Duration::from_millis(work.busy_ms)),
                items: work.items.iter().sum(),
                was_suspended: false,
            };
            let items =
                |stream: u32| StreamItems { stream: StreamId(stream), items: work.items[stream as usize] };
            self.meter.add_batch(&record, &[items(0), items(1)]);
        }
        self.now_ms += STEP_MS;
        self.meter.add_reading(
            Nanos(self.now_ms * MS),
            &[Some(Watts::from_f64(power)), Some(Watts::from_units(1))],
        );
    }

    /// Passes windows while model 0 executes one image of stream 0 at 10 W, which is known at the end, in three stages. Model 1
    /// executes in some of the windows, at 4 W for 4 ms.
    fn slow_batch(&mut self, windows: u64) {
        let start = Nanos(self.now_ms * MS);
        for _ in 0..windows {
            let busy_ms = if self.rng.bool() { 4 } else { 0 };
            self.window_of(10.0, &[Work { items: [0, 1], ..work(1, busy_ms, 4.0) }]);
        }
        let end = Nanos(self.now_ms * MS);
        let steps = [start, start + Duration::from_millis(10), end - Duration::from_millis(10), end];
        for (stage, span) in
            [Stage::Preprocess, Stage::Infer, Stage::Postprocess].into_iter().zip(steps.windows(2))
        {
            let record = BatchRecord {
                lane: LaneId(0),
                model: ModelId(0),
                stage,
                unit: ComputeUnit::Cpu,
                span: TimeSpan::new(span[0], span[1]),
                items: 1,
                was_suspended: false,
            };
            self.meter.add_batch(&record, &[StreamItems { stream: StreamId(0), items: 1 }]);
        }
        let record = ResultRecord { stream: StreamId(0), seq: 0, detections: 0, late_in: None, at: end };
        self.meter.add_frame(&record);
    }

    /// Passes windows in some of which model 1 executes, at 4 W for 4 ms. Returns how often.
    fn fast_batches(&mut self, windows: u64) -> u64 {
        let mut count = 0;
        for _ in 0..windows {
            let busy_ms = if self.rng.bool() { 4 } else { 0 };
            count += busy_ms / 4;
            self.window(&[Work { items: [0, 1], ..work(1, busy_ms, 4.0) }]);
        }
        count
    }

    fn report(&mut self) -> EnergyReport {
        self.meter.settle(Nanos(self.now_ms * MS));
        self.meter.report()
    }
}

fn work(model: u32, busy_ms: u64, watts: f64) -> Work {
    Work { model, busy_ms, watts, items: [1, 0] }
}

/// Value in joules, with its half-width. The wanted value must be within twice the error bar: one in 20 is outside of it once,
/// and there are many checks.
fn check(figure: Figure, wanted: f64) -> (f64, f64) {
    let estimate = figure.unwrap_or_else(|reason| panic!("{reason}"));
    let (energy, half_width) = (estimate.energy.to_f64(), estimate.half_width.to_f64());
    assert!(
        (energy - wanted).abs() <= 2.0 * half_width.max(1e-6),
        "{energy} J +- {half_width} J instead of {wanted} J"
    );
    (energy, half_width)
}

fn of_model(report: &EnergyReport, model: u32) -> &ModelEnergy {
    report.models.iter().find(|energy| energy.model == ModelId(model)).expect("it ran")
}

#[test]
fn streams_share_a_batch_by_their_items() {
    let mut bench = Bench::new(settings());
    let mut inferences = 0;
    for _ in 0..2_000 {
        let busy_ms = if bench.rng.bool() { 4 } else { 0 };
        bench.window(&[Work { model: 0, busy_ms, watts: 10.0, items: [3, 1] }]);
        if busy_ms > 0 {
            inferences += 4;
            for (stream, frames) in [(0, 3), (1, 1)] {
                for seq in 0..frames {
                    let stream = StreamId(stream);
                    let at = Nanos(bench.now_ms * MS);
                    bench.meter.add_frame(&ResultRecord { stream, seq, detections: 0, late_in: None, at });
                }
            }
        }
    }
    let report = bench.report();
    let model = of_model(&report, 0);
    // 10 W for 4 ms, over 4 images.
    let (_, half_width) = check(model.per_item, 0.01);
    assert!(half_width < 0.0003, "{half_width} J");
    assert_eq!(model.items, inferences);
    assert_eq!(report.streams.len(), 2);
    let total: f64 =
        report.streams.iter().map(|stream| stream.total.expect("measured").energy.to_f64()).sum();
    assert!((total / model.total.expect("measured").energy.to_f64() - 1.0).abs() < 1e-3);
    for (stream, share) in report.streams.iter().zip([3, 1]) {
        assert_eq!(stream.frames, inferences / 4 * share);
        check(stream.per_frame, 0.01);
        check(stream.stages[0].per_item, 0.01);
    }
}

#[test]
fn a_split_that_the_readings_do_not_show_is_called_shared() {
    // Both models always run together, for 4 and 2 ms.
    let mut together = Bench::new(settings());
    for _ in 0..2_000 {
        let count = u64::from(together.rng.bool());
        together.window(&[work(0, 4 * count, 10.0), work(1, 2 * count, 4.0)]);
    }
    let report = together.report();
    let estimates = [0, 1].map(|model| of_model(&report, model).per_item.expect("measured"));
    for estimate in estimates {
        assert!(estimate.shared > 0.95, "{estimate:?}");
    }
    // 48 mJ by busy time: 32 and 16 mJ. The error bar holds the true 40 and 8 mJ.
    check(of_model(&report, 0).per_item, 0.040);
    check(of_model(&report, 1).per_item, 0.008);
    let both = estimates.map(|estimate| estimate.energy.to_f64());
    assert!((both[0] - 0.032).abs() < 0.001 && (both[1] - 0.016).abs() < 0.001, "{both:?}");

    let mut apart = Bench::new(settings());
    for _ in 0..2_000 {
        let counts = [apart.rng.bool(), apart.rng.bool()].map(u64::from);
        apart.window(&[work(0, 4 * counts[0], 10.0), work(1, 2 * counts[1], 4.0)]);
    }
    let report = apart.report();
    for (model, energy) in [(0, 0.040), (1, 0.008)] {
        let (_, half_width) = check(of_model(&report, model).per_item, energy);
        assert!(half_width < 0.03 * energy, "{half_width}");
        assert!(of_model(&report, model).per_item.expect("measured").shared < 0.01);
    }
}

#[test]
fn a_load_that_never_changes_is_not_measured_without_an_idle_power() {
    let mut bench = Bench::new(settings());
    (0..2_000).for_each(|_| bench.window(&[work(0, 5, 10.0)]));
    let report = bench.report();
    assert!(of_model(&report, 0).per_item.is_err(), "{:?}", of_model(&report, 0).per_item);
    assert_eq!(report.baseline, Err(NotMeasured::NeverIdle));

    let idle = IdlePower { power: Watts::from_units(5), half_width: Watts::from_milli(50) };
    let mut bench = Bench::new(MeterSettings { idle: Some(idle), ..settings() });
    (0..2_000).for_each(|_| bench.window(&[work(0, 5, 10.0)]));
    let report = bench.report();
    let (_, half_width) = check(of_model(&report, 0).per_item, 0.05);
    // 50 mW are 1 % of the mean power of 5 W above the baseline.
    assert!((0.0005..0.0015).contains(&half_width), "{half_width} J");
    let baseline = report.baseline.expect("given");
    assert_eq!((baseline.power, baseline.source), (idle.power, BaselineSource::Given));
}

#[test]
fn another_power_mode_starts_the_measurement_again_and_totals_go_on() {
    let mut bench = Bench::new(settings());
    let pass = |bench: &mut Bench, watts: f64| {
        for _ in 0..1_500 {
            let count = u64::from(bench.rng.bool());
            bench.window(&[work(0, 5 * count, watts)]);
        }
    };
    pass(&mut bench, 10.0);
    let before = bench.report();
    check(of_model(&before, 0).per_item, 0.05);
    let items = of_model(&before, 0).items as f64;
    bench.meter.restart(Nanos(bench.now_ms * MS));
    let empty = bench.report();
    assert_eq!(of_model(&empty, 0).per_item, Err(NotMeasured::NoItems));
    check(of_model(&empty, 0).total, 0.05 * items);
    assert_eq!(empty.baseline, Err(NotMeasured::NeverIdle));
    pass(&mut bench, 6.0);
    let after = bench.report();
    check(of_model(&after, 0).per_item, 0.03);
    check(of_model(&after, 0).total, 0.05 * items + 0.03 * of_model(&after, 0).items as f64);
    assert!(after.total.energy > before.total.energy);
    check_baseline(&after);
}

fn check_baseline(report: &EnergyReport) {
    let baseline = report.baseline.expect("half of the windows are idle");
    assert!((baseline.power - Watts::from_units(5)).abs() <= baseline.half_width, "{baseline:?}");
    assert!(baseline.half_width < Watts::from_milli(20), "{baseline:?}");
}

#[test]
fn a_slow_model_is_measured_once_readings_wait_for_it() {
    // Batches of 2 s, with pauses of 1 to 3 s; readings wait for half a second at first.
    let mut bench = Bench::new(settings());
    for _ in 0..60 {
        let pause = 100 * (1 + bench.rng.usize(..3) as u64);
        bench.fast_batches(pause);
        bench.slow_batch(200);
    }
    let report = bench.report();
    assert_eq!(report.losses.batches_late, 1, "{:?}", report.losses);
    let slow = of_model(&report, 0);
    let (_, half_width) = check(slow.per_item, 20.0);
    assert!(half_width < 1.0, "{half_width} J");
    let (_, half_width) = check(of_model(&report, 1).per_item, 0.016);
    assert!(half_width < 0.002, "{half_width} J");
    let stream = report.streams.iter().find(|stream| stream.stream == StreamId(0)).expect("it had frames");
    check(stream.per_frame, 20.0);
    assert!(of_model(&report, 1).items_unmeasured > 0, "those before the first slow batch");
    let baseline = report.baseline.expect("it was idle");
    assert!((baseline.power.to_f64() - 5.0).abs() < 0.05, "{baseline:?}");
}

#[test]
fn one_slow_batch_after_a_long_time_takes_nothing_from_the_totals() {
    let mut bench = Bench::new(settings());
    let mut fast = bench.fast_batches(20_000);
    bench.slow_batch(100);
    fast += bench.fast_batches(100);
    let report = bench.report();
    assert_eq!((report.losses.batches_late, of_model(&report, 1).items_unmeasured), (1, 0));
    let inferences = of_model(&report, 1).items;
    assert!(inferences > fast, "{inferences} with those during the slow batch");
    check(of_model(&report, 1).total, 0.016 * inferences as f64);
}

#[test]
fn nothing_is_measured_next_to_a_model_that_takes_longer_than_readings_wait() {
    let mut bench = Bench::new(settings());
    for _ in 0..4 {
        bench.fast_batches(1_000);
        bench.slow_batch(9_000);
    }
    let report = bench.report();
    assert_eq!(report.losses.batches_late, 4);
    assert!(of_model(&report, 0).per_item.is_err(), "{report:?}");
    assert!(of_model(&report, 0).total.is_err() && of_model(&report, 1).total.is_err(), "{report:?}");
}

#[test]
fn a_fast_model_is_measured_while_readings_wait_long() {
    // Readings wait for 3 s, in which there are more batches than are kept.
    let mut bench = Bench::new(settings());
    bench.slow_batch(200);
    for _ in 0..4_000 {
        let busy_ms = if bench.rng.bool() { 2 } else { 0 };
        bench.window(&[work(1, busy_ms, 0.1); 120]);
    }
    let report = bench.report();
    check(of_model(&report, 1).per_item, 0.0002);
    assert!(report.losses.readings_skipped < 300, "{:?}", report.losses);
}

#[test]
fn models_come_and_go() {
    let mut bench = Bench::new(MeterSettings { columns_max: 2, ..settings() });
    for model in 0..6 {
        for _ in 0..1_000 {
            let counts = [bench.rng.bool(), bench.rng.bool()].map(u64::from);
            bench
                .window(&[work(100, 3 * counts[0], 8.0), work(model, 5 * counts[1], 4.0 + f64::from(model))]);
        }
        let report = bench.report();
        assert_eq!(report.models.len(), 2);
        check(of_model(&report, 100).per_item, 0.024);
        check(of_model(&report, model).per_item, 0.005 * (4.0 + f64::from(model)));
        assert_eq!(report.losses.batches_without_column, 0);
        bench.meter.remove_model(ModelId(model));
    }
    let report = bench.report();
    let items = of_model(&report, 100).total.expect("measured").energy.to_f64() / 0.024;
    assert!((2_800.0..3_200.0).contains(&items), "{items}");
}

#[test]
fn work_beyond_the_columns_has_a_place_together() {
    let mut bench = Bench::new(MeterSettings { columns_max: 1, ..settings() });
    bench.window(&[work(0, 5, 10.0)]);
    for _ in 0..2_000 {
        let counts = [(); 3].map(|()| u64::from(bench.rng.bool()));
        bench.window(&[
            work(0, 5 * counts[0], 10.0),
            work(1, 2 * counts[1], 6.0),
            work(2, 2 * counts[2], 6.0),
        ]);
    }
    let report = bench.report();
    check(of_model(&report, 0).per_item, 0.05);
    assert_eq!(of_model(&report, 1).per_item, Err(NotMeasured::NoItems));
    assert!(report.losses.batches_without_column > 1_500);
}

#[test]
fn counters_say_what_they_cover() {
    let mut bench = Bench::new(settings());
    (0..1_001).for_each(|_| bench.window(&[]));
    let report = bench.report();
    assert_eq!(
        (report.total.covers, report.total.rails.len(), &*report.total.rails[0]),
        (Covers::NamedRails, 1, "VDD_GPU")
    );
    assert_eq!(report.rails[1].energy, Joules::from_units(10));
    assert_eq!(report.total.energy, report.rails[0].energy);
    assert!((report.total.energy.to_f64() - 50.0).abs() < 0.1);
    // A rail that gives no readings stops the total, and not the other rail.
    for _ in 0..100 {
        bench.now_ms += STEP_MS;
        bench.meter.add_reading(Nanos(bench.now_ms * MS), &[None, Some(Watts::from_units(1))]);
    }
    bench.window(&[]);
    let after = bench.report();
    assert_eq!(after.total.energy, report.total.energy);
    assert_eq!(after.total.unmeasured, Duration::from_millis(1_010));
    assert_eq!(after.rails[1].energy, Joules::from_micro(11_010_000));
    assert_eq!(after.losses.readings_missing, 100);
}

#[test]
fn wrong_settings_are_refused() {
    let check = |change: &dyn Fn(&mut MeterSettings)| {
        let mut wrong = settings();
        change(&mut wrong);
        EnergyMeter::new(wrong, Nanos(0)).map(|_| ()).expect_err("they are wrong")
    };
    assert_eq!(check(&|settings| settings.rails[0].is_in_total = false), SettingsError::NoRail);
    assert_eq!(
        check(&|settings| settings.lateness_max = Duration::ZERO).to_string(),
        "`lateness_max` is 0 ms; it must be more than 0 and at most 10 s"
    );
    assert_eq!(
        check(&|settings| settings.rails[1].gain_tolerance = 1.5).to_string(),
        "the gain tolerance of rail `VDD_SOC` is 1.5; it must be a ratio, such as 0.01 for 1 %"
    );
    assert_eq!(check(&|settings| settings.columns_max = 33), SettingsError::Columns(33));
}

#[test]
fn batches_and_frames_allocate_nothing() {
    let mut bench = Bench::new(settings());
    (0..200).for_each(|_| bench.window(&[work(0, 4, 10.0)]));
    let at = Nanos(bench.now_ms * MS);
    let record = BatchRecord {
        lane: LaneId(0),
        model: ModelId(0),
        stage: Stage::Infer,
        unit: ComputeUnit::Cpu,
        span: TimeSpan::new(at, at + Duration::from_millis(3)),
        items: 2,
        was_suspended: false,
    };
    let streams = [StreamItems { stream: StreamId(0), items: 2 }];
    let frame = ResultRecord { stream: StreamId(0), seq: 0, detections: 0, late_in: None, at };
    // Readings that are attributed meanwhile, so that no span is lost, would allocate.
    bench.meter.settle(at);
    let counted = allocation_counter::measure(|| {
        for _ in 0..20_000 {
            bench.meter.add_batch(&record, &streams);
            bench.meter.add_frame(&frame);
        }
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
