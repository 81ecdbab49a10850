use expect_test::expect;
use orinoco_api::{
    Accuracy, BatchThroughput, CardBoard, CardEnergy, CardMemory, CardPower, CardVersions, ClockStatus,
    MODEL_CARD_SCHEMA, TemperatureStatus, ThrottleStatus, UnknownValue, WarmUp,
};

use super::super::compare;
use super::*;

/// Returns a card with every figure; none of them was measured.
pub(in super::super) fn example(engine: &str) -> ModelCard {
    let stage = |stage: &str, us: f64| StageSummary {
        stage: stage.to_owned(),
        count: 1754,
        p50_us: us,
        p90_us: us + 100.0,
        p99_us: us + 200.0,
        p999_us: us + 300.0,
        max_us: us + 400.0,
    };
    let conditions = |mhz: f64, celsius: f64| Conditions {
        clocks: vec![ClockStatus {
            name: "cpu 0-5".into(),
            mhz: Some(mhz),
            max_mhz: Some(1728.0),
            load: None,
        }],
        temperatures: vec![TemperatureStatus {
            name: "tj-thermal".into(),
            celsius: Some(celsius),
            limit_celsius: None,
        }],
        throttling: vec![ThrottleStatus { name: "oc3".into(), count: Some(0) }],
        unknown: vec![UnknownValue { value: "gpu".into(), why: "its file is missing".into() }],
    };
    let batch = |batch: usize, images_per_s: f64| BatchThroughput {
        batch,
        inferences: 1754,
        images_per_s,
        p50_us: 5700.0 * batch as f64,
    };
    ModelCard {
        schema: MODEL_CARD_SCHEMA.into(),
        model: "person-nano".into(),
        sha256: "00".into(),
        engine: engine.into(),
        precision: Some("fp32".into()),
        threads: 1,
        board: CardBoard {
            name: "a board".into(),
            profile: None,
            power_mode: Some("15W".into()),
            processor: Some("a processor".into()),
            cores: 6,
        },
        versions: CardVersions {
            orinoco: "0.1.0".into(),
            engine: "1.2.3".into(),
            kernel: Some("5.15".into()),
            l4t: Some("36.4.3".into()),
            jetpack: Some("6.2".into()),
        },
        measured_at: "2026-11-23T02:10:00Z".into(),
        seconds: 10.0,
        input: "noise, NV12 1280x720".into(),
        accuracy: Measured::Value(Accuracy {
            metric: "AP".into(),
            value: 0.4,
            source: "coco".into(),
            images: 28,
            figures: None,
            differences: None,
        }),
        latency_us: Measured::Value(Latency {
            count: 1754,
            p50: 5700.0,
            p90: 5900.0,
            p99: 6100.0,
            p999: 7000.0,
            max: 8000.0,
            stages: vec![stage("preprocess", 700.0), stage("infer", 4990.0), stage("postprocess", 10.0)],
        }),
        throughput: vec![batch(1, 175.0), batch(2, 200.0)],
        throughput_limit: None,
        memory_bytes: Measured::Value(CardMemory {
            peak: 24 << 20,
            steady: 20 << 20,
            process_peak: 60 << 20,
            device_peak: None,
        }),
        power_w: Measured::Value(CardPower {
            idle: Uncertain { value: 4.5, half_width: 0.05 },
            busy: Measured::Value(Uncertain { value: 7.7, half_width: 0.12 }),
            rails: vec!["VDD_IN".into()],
            covers: "input".into(),
            gain_tolerance: 0.01,
            readings: 1500,
        }),
        energy_mj: Measured::Value(CardEnergy {
            value: 18.2,
            half_width: 0.4,
            statistical: 0.3,
            systematic: 0.2,
            inferences: 1700,
        }),
        warm_up: WarmUp { load_us: 120_000.0, first_us: 6_500.0, discarded: 10 },
        before: conditions(1728.0, 45.2),
        after: conditions(1510.0, 51.8),
    }
}

/// Removes the escape sequences of bold headings.
fn plain(text: &str) -> String {
    text.replace("\x1b[1m", "").replace("\x1b[0m", "")
}

#[test]
fn a_card_is_a_few_tables() {
    expect![[r#"
        person-nano on ort-cpu 1.2.3, fp32, 1 thread
        a board, a processor, 6 cores, power mode 15W
        orinoco 0.1.0, JetPack 6.2, L4T 36.4.3, kernel 5.15, 2026-11-23T02:10:00Z

        figure    value              details
        accuracy  AP 0.4000          28 images of coco
        latency   5.70 ms            p99 6.10 ms, p99.9 7.00 ms, max 8.00 ms of 1754 inferences on noise, NV12 1280x720
        memory    24.0 MiB           peak; 20.0 MiB still in use afterwards; peak of the whole process 60.0 MiB
        power     7.70 ± 0.12 W      idle 4.50 ± 0.05 W; VDD_IN: the whole input; 1500 readings
        energy    18.200 ± 0.400 mJ  per inference above idle; 1700 inferences
        warm-up   6.50 ms            first inference; loaded in 120.00 ms, 10 inferences discarded as warm-up

        stage, ms      p50    p90    p99  p99.9    max
        preprocess   0.700  0.800  0.900   1.00   1.10
        infer         4.99   5.09   5.19   5.29   5.39
        postprocess  0.010  0.110  0.210  0.310  0.410
        total         5.70   5.90   6.10   7.00   8.00

        batch  images/s  p50 of a batch, ms  inferences
        1         175.0                5.70        1754
        2         200.0               11.40        1754

        board               before     after
        clock of cpu 0-5  1728 MHz  1510 MHz
        tj-thermal           45 °C     52 °C
        throttled by oc3         0         0

        gpu: its file is missing"#]].assert_eq(&plain(&text(&card(&example("ort-cpu")))));
}

#[test]
fn what_is_not_measured_has_its_reason() {
    let mut none = example("tract");
    none.accuracy = Measured::missing("no --dataset is given");
    none.power_w = Measured::missing("this machine has no power sensor");
    none.energy_mj = Measured::missing("this machine has no power sensor");
    none.throughput_limit = Some("the graph fixes its batch at 1".into());
    (none.before, none.after) = (Conditions::default(), Conditions::default());
    if let Measured::Value(latency) = &mut none.latency_us {
        latency.count = 999;
    }
    expect![[r#"
        person-nano on tract 1.2.3, fp32, 1 thread
        a board, a processor, 6 cores, power mode 15W
        orinoco 0.1.0, JetPack 6.2, L4T 36.4.3, kernel 5.15, 2026-11-23T02:10:00Z

        figure    value     details
        accuracy  -         not measured: no --dataset is given
        latency   5.70 ms   p99 6.10 ms, p99.9 7.00 ms, max 8.00 ms of 999 inferences on noise, NV12 1280x720
        memory    24.0 MiB  peak; 20.0 MiB still in use afterwards; peak of the whole process 60.0 MiB
        power     -         not measured: this machine has no power sensor
        energy    -         not measured, for the same reason as the power
        warm-up   6.50 ms   first inference; loaded in 120.00 ms, 10 inferences discarded as warm-up

        stage, ms      p50    p90    p99  p99.9    max
        preprocess   0.700  0.800  0.900   1.00   1.10
        infer         4.99   5.09   5.19   5.29   5.39
        postprocess  0.010  0.110  0.210  0.310  0.410
        total         5.70   5.90   6.10   7.00   8.00

        batch  images/s  p50 of a batch, ms  inferences
        1         175.0                5.70        1754
        2         200.0               11.40        1754

        no larger batches: the graph fixes its batch at 1
        p99.9 is the longest of fewer than 1000 inferences"#]]
    .assert_eq(&plain(&text(&card(&none))));
}

#[test]
fn a_card_is_markdown() {
    expect![[r#"
        # person-nano on ort-cpu 1.2.3, fp32, 1 thread

        a board, a processor, 6 cores, power mode 15W  
        orinoco 0.1.0, JetPack 6.2, L4T 36.4.3, kernel 5.15, 2026-11-23T02:10:00Z

        | figure | value | details |
        |---|---|---|
        | accuracy | AP 0.4000 | 28 images of coco |
        | latency | 5.70 ms | p99 6.10 ms, p99.9 7.00 ms, max 8.00 ms of 1754 inferences on noise, NV12 1280x720 |
        | memory | 24.0 MiB | peak; 20.0 MiB still in use afterwards; peak of the whole process 60.0 MiB |
        | power | 7.70 ± 0.12 W | idle 4.50 ± 0.05 W; VDD_IN: the whole input; 1500 readings |
        | energy | 18.200 ± 0.400 mJ | per inference above idle; 1700 inferences |
        | warm-up | 6.50 ms | first inference; loaded in 120.00 ms, 10 inferences discarded as warm-up |

        | stage, ms | p50 | p90 | p99 | p99.9 | max |
        |---|---:|---:|---:|---:|---:|
        | preprocess | 0.700 | 0.800 | 0.900 | 1.00 | 1.10 |
        | infer | 4.99 | 5.09 | 5.19 | 5.29 | 5.39 |
        | postprocess | 0.010 | 0.110 | 0.210 | 0.310 | 0.410 |
        | total | 5.70 | 5.90 | 6.10 | 7.00 | 8.00 |

        | batch | images/s | p50 of a batch, ms | inferences |
        |---|---:|---:|---:|
        | 1 | 175.0 | 5.70 | 1754 |
        | 2 | 200.0 | 11.40 | 1754 |

        | board | before | after |
        |---|---:|---:|
        | clock of cpu 0-5 | 1728 MHz | 1510 MHz |
        | tj-thermal | 45 °C | 52 °C |
        | throttled by oc3 | 0 | 0 |

        gpu: its file is missing
    "#]].assert_eq(&markdown(&card(&example("ort-cpu"))));
}

#[test]
fn cards_are_compared_row_by_row() {
    let mut other = example("tract");
    if let Measured::Value(latency) = &mut other.latency_us {
        latency.p50 *= 2.0;
    }
    other.energy_mj = Measured::missing("this machine has no power sensor");
    expect![[r#"
        person-nano on a board

        figure                       ort-cpu      tract    ratio
        accuracy                   AP 0.4000  AP 0.4000  +0.0000
        latency p50, ms                 5.70      11.40    2.000
        latency p99, ms                 6.10       6.10    1.000
        throughput, images/s           200.0      200.0    1.000
        peak memory                 24.0 MiB   24.0 MiB    1.000
        energy, mJ            18.200 ± 0.400          -        -

        energy not measured: this machine has no power sensor"#]]
    .assert_eq(&plain(&text(&comparison(&compare::comparison(&[example("ort-cpu"), other])))));
}
