//! Sums of many f16 numbers. An engine that adds them in f16 loses small terms of a large sum without an error. An
//! engine must compute every graph that it accepts as it would in f32, within the precision of f16; it may refuse a
//! graph with a reason.
#![allow(clippy::print_stdout, reason = "the measured errors, shown with --nocapture")]

use half::f16;
use orinoco_infer::{Engine, EngineContext, EngineError, SessionSpec, engines};
use orinoco_tests::onnx::{Attribute, Graph, element};

/// Maximum error of a result, as a share of the largest one. Neighbouring f16 numbers differ by a 1024th of their
/// value; a sum that is off by more than two such steps has lost terms.
const ERROR_MAX: f64 = 2.0 / 1024.0;
/// Minimum of the value that errors are compared with: f16 has no step finer than a 16 millionth.
const SMALLEST: f64 = 1e-3;

/// Sum: a graph of one operator over `count` numbers of an element type, with the shape of its input. All weights are
/// 1.
struct Case {
    name: &'static str,
    graph: fn(count: usize, kind: i32) -> Option<Shaped>,
}

/// Graph, and the shape of its input.
type Shaped = (Graph, Vec<usize>);

fn side(count: usize) -> Option<i64> {
    let side = (count as f64).sqrt().round() as usize;
    (side * side == count).then_some(side as i64)
}

/// Adds a constant of ones with this shape and element type.
fn ones(graph: Graph, name: &str, shape: &[i64], kind: i32) -> Graph {
    let count: i64 = shape.iter().product();
    let one: &[u8] = if kind == element::F16 { &[0x00, 0x3c] } else { &[0, 0, 0x80, 0x3f] };
    graph.constant(name, kind, shape, one.repeat(usize::try_from(count).expect("a size")))
}

fn reduce(operator: &str, count: usize, kind: i32, axes: &[i64], shape: &[i64], out: &[i64]) -> Shaped {
    let graph = Graph::new().input("x", kind, shape).output("y", kind, out);
    let given = if operator == "ReduceSum" {
        graph.ints("axes", &[axes.len() as i64], axes).node(operator, &["x", "axes"], &["y"], &[])
    } else {
        graph.node(operator, &["x"], &["y"], &[("axes", Attribute::Ints(axes.to_vec()))])
    };
    let shape: Vec<usize> = shape.iter().map(|size| usize::try_from(*size).expect("a size")).collect();
    assert_eq!(shape.iter().product::<usize>() % count, 0);
    (given, shape)
}

macro_rules! reduces {
    ($($name:literal),*) => {
        vec![$(
            Case { name: concat!($name, " of the last axis"), graph: |count, kind| {
                let n = count as i64;
                Some(reduce($name, count, kind, &[-1], &[1, 2, n], &[1, 2, 1]))
            } },
            Case { name: concat!($name, " of the first axis"), graph: |count, kind| {
                let n = count as i64;
                Some(reduce($name, count, kind, &[0], &[n, 2], &[1, 2]))
            } },
            Case { name: concat!($name, " of two axes"), graph: |count, kind| {
                let side = side(count)?;
                Some(reduce($name, count, kind, &[2, 3], &[1, 2, side, side], &[1, 2, 1, 1]))
            } },
        )*]
    };
}

fn pool(operator: &str, count: usize, kind: i32) -> Option<Shaped> {
    let side = side(count)?;
    let graph = Graph::new().input("x", kind, &[1, 2, side, side]).output("y", kind, &[1, 2, 1, 1]);
    let attributes = match operator {
        "AveragePool" => vec![("kernel_shape", Attribute::Ints(vec![side, side]))],
        "LpPool" => vec![("kernel_shape", Attribute::Ints(vec![side, side])), ("p", Attribute::Int(2))],
        _ => Vec::new(),
    };
    let size = usize::try_from(side).expect("a size");
    Some((graph.node(operator, &["x"], &["y"], &attributes), vec![1, 2, size, size]))
}

fn cases() -> Vec<Case> {
    let mut cases = reduces!(
        "ReduceMean",
        "ReduceSum",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp"
    );
    cases.extend([
        Case { name: "GlobalAveragePool", graph: |count, kind| pool("GlobalAveragePool", count, kind) },
        Case { name: "GlobalLpPool", graph: |count, kind| pool("GlobalLpPool", count, kind) },
        Case { name: "AveragePool", graph: |count, kind| pool("AveragePool", count, kind) },
        Case { name: "LpPool", graph: |count, kind| pool("LpPool", count, kind) },
        Case {
            name: "MatMul",
            graph: |count, kind| {
                let n = count as i64;
                let graph = ones(Graph::new(), "w", &[n, 3], kind);
                let graph = graph.input("x", kind, &[2, n]).output("y", kind, &[2, 3]);
                Some((graph.node("MatMul", &["x", "w"], &["y"], &[]), vec![2, count]))
            },
        },
        Case {
            name: "Gemm",
            graph: |count, kind| {
                let n = count as i64;
                let graph = ones(Graph::new(), "w", &[3, n], kind);
                let graph = graph.input("x", kind, &[1, n]).output("y", kind, &[1, 3]);
                let transposed = [("transB", Attribute::Int(1))];
                Some((graph.node("Gemm", &["x", "w"], &["y"], &transposed), vec![1, count]))
            },
        },
        Case {
            name: "Conv of points",
            graph: |count, kind| {
                let n = count as i64;
                let graph = ones(Graph::new(), "w", &[3, n, 1, 1], kind);
                let graph = graph.input("x", kind, &[1, n, 4, 4]).output("y", kind, &[1, 3, 4, 4]);
                Some((graph.node("Conv", &["x", "w"], &["y"], &[]), vec![1, count, 4, 4]))
            },
        },
        Case {
            name: "Conv of a window",
            graph: |count, kind| {
                let side = side(count)?;
                let graph = ones(Graph::new(), "w", &[3, 1, side, side], kind);
                let graph = graph.input("x", kind, &[1, 1, side, side]).output("y", kind, &[1, 3, 1, 1]);
                let size = usize::try_from(side).expect("a size");
                Some((graph.node("Conv", &["x", "w"], &["y"], &[]), vec![1, 1, size, size]))
            },
        },
        Case {
            name: "Conv of each channel",
            graph: |count, kind| {
                let side = side(count)?;
                let graph = ones(Graph::new(), "w", &[2, 1, side, side], kind);
                let graph = graph.input("x", kind, &[1, 2, side, side]).output("y", kind, &[1, 2, 1, 1]);
                let size = usize::try_from(side).expect("a size");
                let group = [("group", Attribute::Int(2))];
                Some((graph.node("Conv", &["x", "w"], &["y"], &group), vec![1, 2, size, size]))
            },
        },
        Case {
            name: "Conv of channels",
            graph: |count, kind| {
                let channels = (count % 9 == 0).then_some(count as i64 / 9)?;
                let graph = ones(Graph::new(), "w", &[4, channels, 3, 3], kind);
                let graph = graph.input("x", kind, &[1, channels, 6, 6]).output("y", kind, &[1, 4, 4, 4]);
                let size = usize::try_from(channels).expect("a size");
                Some((graph.node("Conv", &["x", "w"], &["y"], &[]), vec![1, size, 6, 6]))
            },
        },
        Case {
            name: "ConvTranspose",
            graph: |count, kind| {
                let n = count as i64;
                let graph = ones(Graph::new(), "w", &[n, 2, 2, 2], kind);
                let graph = graph.input("x", kind, &[1, n, 4, 4]).output("y", kind, &[1, 2, 8, 8]);
                let strides = [("strides", Attribute::Ints(vec![2, 2]))];
                Some((graph.node("ConvTranspose", &["x", "w"], &["y"], &strides), vec![1, count, 4, 4]))
            },
        },
        Case {
            name: "MatMul of one row",
            graph: |count, kind| {
                let n = count as i64;
                let graph = ones(Graph::new(), "w", &[n, 1], kind);
                let graph = graph.input("x", kind, &[1, n]).output("y", kind, &[1, 1]);
                Some((graph.node("MatMul", &["x", "w"], &["y"], &[]), vec![1, count]))
            },
        },
        Case {
            name: "MatMul of itself",
            graph: |count, kind| {
                let n = count as i64;
                let graph = Graph::new().input("x", kind, &[2, 3, n]).output("y", kind, &[2, 3, 3]);
                let turned = [("perm", Attribute::Ints(vec![0, 2, 1]))];
                let graph = graph.node("Transpose", &["x"], &["turned"], &turned);
                Some((graph.node("MatMul", &["x", "turned"], &["y"], &[]), vec![2, 3, count]))
            },
        },
        Case {
            name: "Einsum of two matrices",
            graph: |count, kind| {
                let n = count as i64;
                let graph = ones(Graph::new(), "w", &[n, 3], kind);
                let graph = graph.input("x", kind, &[2, n]).output("y", kind, &[2, 3]);
                let equation = [("equation", Attribute::Str("ij,jk->ik"))];
                Some((graph.node("Einsum", &["x", "w"], &["y"], &equation), vec![2, count]))
            },
        },
        Case {
            name: "Einsum of two rows",
            graph: |count, kind| {
                let n = count as i64;
                let graph = ones(Graph::new(), "w", &[2, n], kind);
                let graph = graph.input("x", kind, &[2, n]).output("y", kind, &[2]);
                let equation = [("equation", Attribute::Str("ij,ij->i"))];
                Some((graph.node("Einsum", &["x", "w"], &["y"], &equation), vec![2, count]))
            },
        },
        Case {
            name: "Einsum",
            graph: |count, kind| {
                let n = count as i64;
                let graph = Graph::new().input("x", kind, &[2, n]).output("y", kind, &[2]);
                Some((
                    graph.node("Einsum", &["x"], &["y"], &[("equation", Attribute::Str("ij->i"))]),
                    vec![2, count],
                ))
            },
        },
        Case {
            name: "CumSum",
            graph: |count, kind| {
                let n = count as i64;
                let graph =
                    Graph::new().input("x", kind, &[2, n]).output("y", kind, &[2, n]).ints("axis", &[], &[1]);
                Some((graph.node("CumSum", &["x", "axis"], &["y"], &[]), vec![2, count]))
            },
        },
        Case {
            name: "Softmax",
            graph: |count, kind| {
                let n = count as i64;
                let graph = Graph::new().input("x", kind, &[2, n]).output("y", kind, &[2, n]);
                Some((graph.node("Softmax", &["x"], &["y"], &[]), vec![2, count]))
            },
        },
        Case {
            name: "LogSoftmax",
            graph: |count, kind| {
                let n = count as i64;
                let graph = Graph::new().input("x", kind, &[2, n]).output("y", kind, &[2, n]);
                Some((graph.node("LogSoftmax", &["x"], &["y"], &[]), vec![2, count]))
            },
        },
        Case {
            name: "LayerNormalization",
            graph: |count, kind| {
                let n = count as i64;
                let graph = ones(Graph::new(), "scale", &[n], kind);
                let graph = graph.input("x", kind, &[2, n]).output("y", kind, &[2, n]);
                Some((graph.node("LayerNormalization", &["x", "scale"], &["y"], &[]), vec![2, count]))
            },
        },
        Case {
            name: "InstanceNormalization",
            graph: |count, kind| {
                let side = side(count)?;
                let graph = ones(ones(Graph::new(), "scale", &[2], kind), "bias", &[2], kind);
                let graph =
                    graph.input("x", kind, &[1, 2, side, side]).output("y", kind, &[1, 2, side, side]);
                let size = usize::try_from(side).expect("a size");
                let node = graph.node("InstanceNormalization", &["x", "scale", "bias"], &["y"], &[]);
                Some((node, vec![1, 2, size, size]))
            },
        },
        Case {
            name: "LpNormalization",
            graph: |count, kind| {
                let n = count as i64;
                let graph = Graph::new().input("x", kind, &[2, n]).output("y", kind, &[2, n]);
                Some((graph.node("LpNormalization", &["x"], &["y"], &[]), vec![2, count]))
            },
        },
    ]);
    cases
}

/// Returns the output of a case in one element type, or the reason why the engine refuses it; `None` if there is no
/// such case.
fn compute(
    engine: &dyn Engine,
    case: &Case,
    count: usize,
    kind: i32,
    fill: &dyn Fn(usize) -> f32,
) -> Option<Result<Vec<f32>, String>> {
    let (graph, shape) = (case.graph)(count, kind)?;
    let file = tempfile::Builder::new().suffix(".onnx").tempfile().expect("a temporary file");
    std::fs::write(file.path(), graph.file()).expect("written");
    let run = || {
        let prepared = engine.prepare(file.path(), &EngineContext::default())?;
        let mut session = prepared.session(&SessionSpec::new(&[shape]))?;
        let mut input = session.input(0).host().data;
        let values: Vec<f32> = (0..input.len()).map(|index| f16::from_f32(fill(index)).to_f32()).collect();
        input.copy_from_f32(&values);
        session.run()?;
        let mut output = Vec::new();
        session.output(0).host().data.to_f32(&mut output);
        Ok(output)
    };
    Some(run().map_err(|error: EngineError| error.diagnosis(file.path()).cause))
}

/// Returns pseudo-random numbers from 0 to 1, the same ones in each run.
fn noise(index: usize) -> f32 {
    let word = (index as u32).wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(0x9e37_79b9);
    (word >> 8) as f32 / 16_777_216.0
}

type Fill = (&'static str, fn(usize) -> f32);

const FILLS: [Fill; 6] = [
    ("0.784", |_| 0.784),
    ("0.61", |_| 0.61),
    ("12.3", |_| 12.3),
    ("0 to 1", noise),
    ("-1 to 1", |index| 2.0 * noise(index) - 1.0),
    ("one 64, then 0.02", |index| if index == 0 { 64.0 } else { 0.02 }),
];

/// Returns the maximum error of a case as a share of its largest result, or the reason why the engine refuses it;
/// `None` if there is no such case.
fn error_of(
    engine: &dyn Engine,
    case: &Case,
    count: usize,
    fill: &dyn Fn(usize) -> f32,
) -> Option<Result<f64, String>> {
    let half = match compute(engine, case, count, element::F16, fill)? {
        Ok(half) => half,
        Err(why) => return Some(Err(why)),
    };
    let full = match compute(engine, case, count, element::F32, fill)? {
        Ok(full) => full,
        Err(why) => return Some(Err(why)),
    };
    let size = full.iter().fold(SMALLEST, |most, value| f64::max(most, f64::from(value.abs())));
    let worst = half.iter().zip(&full).map(|(half, full)| {
        // A value that f16 cannot represent is infinite there, and one that is not a number in f32 cannot be compared.
        let is_held = full.abs() <= f16::MAX.to_f32();
        let error = (f64::from(*half) - f64::from(*full)).abs() / size;
        if !is_held {
            0.0
        } else if error.is_nan() {
            f64::INFINITY
        } else {
            error
        }
    });
    Some(Ok(worst.fold(0.0, f64::max)))
}

#[test]
fn sums_of_many_16_bit_numbers_are_right_or_refused() {
    let counts: &[usize] = match std::env::var_os("ORINOCO_TEST_LONG") {
        Some(_) => &[4, 16, 49, 64, 100, 169, 196, 256, 400, 576, 1024, 2304, 4096, 16_384],
        None => &[49, 256, 1024, 4096],
    };
    for engine in engines() {
        if let Err(why) = engine.check(&EngineContext::default()) {
            println!("skipped: {}: {why}", engine.name());
            continue;
        }
        let (mut wrong, mut taken, mut refused) = (Vec::new(), 0, Vec::new());
        for (case, count) in cases().iter().flat_map(|case| counts.iter().map(move |count| (case, *count))) {
            let mut worst: f64 = 0.0;
            for (named, fill) in FILLS {
                match error_of(engine, case, count, &fill) {
                    None => break,
                    Some(Err(why)) => {
                        refused.push(format!("{} of {count}: {why}", case.name));
                        break;
                    }
                    Some(Ok(error)) => {
                        taken += 1;
                        worst = worst.max(error);
                        if error > ERROR_MAX {
                            wrong.push(format!("{} of {count}, {named}: {error:.4}", case.name));
                        }
                    }
                }
            }
            if worst > ERROR_MAX / 4.0 {
                println!("{}: {} of {count}: {worst:.4}", engine.name(), case.name);
            }
        }
        println!("{}: {taken} sums taken, {} refused: {refused:#?}", engine.name(), refused.len());
        assert!(wrong.is_empty(), "{}: {wrong:#?}", engine.name());
        assert!(taken > 0, "{} takes some", engine.name());
    }
}

/// Common models end with a mean over the 7 by 7 to 14 by 14 cells that remain of a photo.
#[test]
fn small_means_and_long_rows_of_16_bit_numbers_are_not_refused() {
    for engine in engines().into_iter().filter(|engine| engine.check(&EngineContext::default()).is_ok()) {
        for (name, count) in [
            ("GlobalAveragePool", 49),
            ("GlobalAveragePool", 169),
            ("GlobalAveragePool", 196),
            ("ReduceMean of the last axis", 768),
            ("ReduceMean of two axes", 196),
            ("MatMul", 4096),
            ("Conv of points", 1024),
            ("Conv of channels", 576),
            ("Conv of each channel", 49),
            ("Softmax", 1024),
            ("LayerNormalization", 768),
        ] {
            let case = cases().into_iter().find(|case| case.name == name).expect("a case");
            let error = error_of(engine, &case, count, &noise).expect("it has this count");
            assert!(
                error.as_ref().is_ok_and(|error| *error < ERROR_MAX),
                "{} {name} {count}: {error:?}",
                engine.name()
            );
        }
    }
}
