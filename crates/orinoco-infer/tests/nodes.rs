//! ONNX's own tests of its operators (from the Python package `onnx`), on every engine. An engine may refuse a model
//! with a reason. It must compute every model that it accepts as the test requires, except for the lines of
//! `nodes_wrong.txt`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the counts, shown with --nocapture")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use half::f16;
use orinoco_infer::{
    Elements, ElementsMut, Engine, EngineContext, EngineError, Session, SessionSpec, engines,
};
use orinoco_tests::onnx::TensorProto;

/// Tolerances of `onnx.backend.test.runner`.
const RELATIVE: f64 = 1e-3;
const ABSOLUTE: f64 = 1e-7;

/// Elements of a stored tensor, of the element types that Orinoco supports.
#[derive(Debug)]
enum Stored {
    F32(Vec<f32>),
    F16(Vec<f16>),
    U8(Vec<u8>),
    I8(Vec<i8>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    Bool(Vec<bool>),
}

fn shape(tensor: &TensorProto) -> Vec<usize> {
    tensor.dims.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect()
}

fn stored(tensor: &TensorProto) -> Option<Stored> {
    let raw = tensor.raw_data.as_deref().unwrap_or_default();
    let ints = || tensor.int32_data.iter().copied();
    let is_raw = !raw.is_empty();
    Some(match tensor.data_type {
        1 if is_raw => Stored::F32(raw.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        1 => Stored::F32(tensor.float_data.clone()),
        2 if is_raw => Stored::U8(raw.to_vec()),
        2 => Stored::U8(ints().map(|n| n as u8).collect()),
        3 if is_raw => Stored::I8(raw.iter().map(|b| *b as i8).collect()),
        3 => Stored::I8(ints().map(|n| n as i8).collect()),
        6 if is_raw => Stored::I32(raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()),
        6 => Stored::I32(ints().collect()),
        7 if is_raw => Stored::I64(raw.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
        7 => Stored::I64(tensor.int64_data.clone()),
        9 if is_raw => Stored::Bool(raw.iter().map(|b| *b != 0).collect()),
        9 => Stored::Bool(ints().map(|n| n != 0).collect()),
        10 if is_raw => Stored::F16(raw.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b)).collect()),
        10 => Stored::F16(ints().map(|n| f16::from_bits(n as u16)).collect()),
        _ => return None,
    })
}

/// Writes a stored tensor into an input. Returns whether type and number of elements are the same.
fn write(target: ElementsMut<'_>, source: &Stored) -> bool {
    fn copy<T: Copy>(target: &mut [T], source: &[T]) -> bool {
        let fits = target.len() == source.len();
        if fits {
            target.copy_from_slice(source);
        }
        fits
    }
    match (target, source) {
        (ElementsMut::F32(target), Stored::F32(source)) => copy(target, source),
        (ElementsMut::F16(target), Stored::F16(source)) => copy(target, source),
        (ElementsMut::U8(target), Stored::U8(source)) => copy(target, source),
        (ElementsMut::I8(target), Stored::I8(source)) => copy(target, source),
        (ElementsMut::I32(target), Stored::I32(source)) => copy(target, source),
        (ElementsMut::I64(target), Stored::I64(source)) => copy(target, source),
        (ElementsMut::Bool(target), Stored::Bool(source)) => copy(target, source),
        _ => false,
    }
}

/// Whether an output equals the stored one, within the tolerances.
fn same(ours: Elements<'_>, theirs: &Stored) -> bool {
    fn close(a: f64, b: f64) -> bool {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= ABSOLUTE + RELATIVE * b.abs()
    }
    fn all<T: Copy>(ours: &[T], theirs: &[T], same: impl Fn(T, T) -> bool) -> bool {
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| same(*a, *b))
    }
    match (ours, theirs) {
        (Elements::F32(a), Stored::F32(b)) => all(a, b, |a, b| close(f64::from(a), f64::from(b))),
        (Elements::F16(a), Stored::F16(b)) => all(a, b, |a, b| close(a.to_f64(), b.to_f64())),
        (Elements::U8(a), Stored::U8(b)) => a == b.as_slice(),
        (Elements::I8(a), Stored::I8(b)) => a == b.as_slice(),
        (Elements::I32(a), Stored::I32(b)) => a == b.as_slice(),
        (Elements::I64(a), Stored::I64(b)) => a == b.as_slice(),
        (Elements::Bool(a), Stored::Bool(b)) => a == b.as_slice(),
        _ => false,
    }
}

/// Known wrong results: lines of `engine test reason`, in which the test may contain one `*`.
const WRONG: &str = include_str!("nodes_wrong.txt");

/// Whether a line of [`WRONG`] permits a wrong result of the engine for this test.
fn is_known(engine: &str, test: &str) -> bool {
    let lines = WRONG.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).any(|(of, rest)| {
        let pattern = rest.split(' ').next().unwrap_or_default();
        of == engine
            && match pattern.split_once('*') {
                Some((before, after)) => test.starts_with(before) && test.ends_with(after),
                None => test == pattern,
            }
    })
}

enum FrameResult {
    Passed,
    /// The engine refuses the model, or Orinoco does not support one of its element types.
    Refused(String),
    Wrong(String),
}

/// Reads the stored tensors `<kind>_0.pb`, `<kind>_1.pb`, .. of a test; `None` if one has an unsupported element type.
fn tensors(case: &Path, kind: &str) -> Option<Vec<(Vec<usize>, Stored)>> {
    let file = |index: usize| case.join(format!("{kind}_{index}.pb"));
    let files = (0..).map(file).take_while(|file| file.is_file());
    files
        .map(|file| {
            let tensor = TensorProto::read(&file)?;
            Some((shape(&tensor), stored(&tensor)?))
        })
        .collect()
}

/// Name prefixes of tests whose operators have outputs with a length that depends on the input. They first run on
/// zeros, like the probe inference of every model: a session must not keep the shapes of that run.
const FINDERS: [&str; 4] = ["test_compress_", "test_nonmaxsuppression_", "test_nonzero_", "test_unique_"];

fn run(engine: &dyn Engine, case: &Path) -> FrameResult {
    let (Some(inputs), Some(outputs)) = (tensors(case, "input"), tensors(case, "output")) else {
        return FrameResult::Refused("tensors of a type that Orinoco does not carry".to_owned());
    };
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|(shape, _)| shape.clone()).collect();
    let file = case.join("model.onnx");
    let cause = |error: EngineError| error.diagnosis(&file).cause;
    let bound = engine.prepare(&file, &EngineContext::default());
    let session = bound.and_then(|prepared| {
        let open = prepared.outputs().len();
        prepared.session(&SessionSpec::new(&shapes)).map(|session| (session, open))
    });
    let (mut session, open): (Box<dyn Session>, usize) = match session {
        Ok(session) => session,
        Err(error) => return FrameResult::Refused(cause(error)),
    };
    let name = case.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let finds = FINDERS.iter().any(|finder| name.starts_with(finder));
    if finds && let Err(error) = session.run() {
        return FrameResult::Refused(cause(error));
    }
    for (index, (_, stored)) in inputs.iter().enumerate() {
        if !write(session.input(index).host().data, stored) {
            return FrameResult::Refused("an input is of another type than its test".to_owned());
        }
    }
    match session.run() {
        Ok(()) => {}
        Err(error) if finds => return FrameResult::Wrong(format!("after a run on zeros: {}", cause(error))),
        Err(error) => return FrameResult::Refused(cause(error)),
    }
    if open != outputs.len() {
        return FrameResult::Wrong(format!("{open} outputs for {}", outputs.len()));
    }
    for (index, (shape, stored)) in outputs.iter().enumerate() {
        let seen = session.output(index).host();
        if seen.shape != shape.as_slice() {
            return FrameResult::Wrong(format!("output {index} is {:?} for {shape:?}", seen.shape));
        }
        if !same(seen.data, stored) {
            return FrameResult::Wrong(format!("output {index} differs"));
        }
    }
    FrameResult::Passed
}

/// Writes the tests of the Python package into `folder`, and returns their folders; `None` if the package is missing.
fn cases(folder: &Path) -> Option<Vec<PathBuf>> {
    let python = std::env::var("ORINOCO_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_it = Command::new(&python).args(["-c", "import onnx"]).output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        println!("skipped: the Python package onnx is not installed (ORINOCO_PYTHON names the Python)");
        return None;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node_cases.py");
    let output = Command::new(&python).arg(script).arg(folder).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let entries = std::fs::read_dir(folder).expect("the script wrote into it");
    let mut cases: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    cases.sort();
    Some(cases)
}

#[test]
fn operators_compute_what_onnx_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(cases) = cases(folder.path()) else { return };
    for engine in engines() {
        if let Err(why) = engine.check(&EngineContext::default()) {
            println!("skipped: {}: {why}", engine.name());
            continue;
        }
        let (mut passed, mut wrong) = (0, Vec::new());
        let mut refused: BTreeMap<String, usize> = BTreeMap::new();
        for case in &cases {
            let name = case.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            match run(engine, case) {
                FrameResult::Passed => passed += 1,
                FrameResult::Refused(why) => *refused.entry(why).or_default() += 1,
                FrameResult::Wrong(why) => wrong.push((name, why)),
            }
        }
        let count: usize = refused.values().sum();
        println!(
            "{}: {passed} passed, {count} refused, {} wrong of {}",
            engine.name(),
            wrong.len(),
            cases.len()
        );
        let mut reasons: Vec<(String, usize)> = refused.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reasons.iter().take(8).for_each(|(why, count)| println!("  refused {count}: {why}"));
        let unknown: Vec<&(String, String)> =
            wrong.iter().filter(|(name, _)| !is_known(engine.name(), name)).collect();
        assert!(unknown.is_empty(), "{} computes wrongly: {unknown:#?}", engine.name());
    }
}
