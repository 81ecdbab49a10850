//! ONNX's own tests of its operators (the Python package `onnx` carries them), on every engine. An engine may refuse a
//! model, with a reason; what it takes it must compute as the tests say, except for the lines of `nodes_wrong.txt`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the counts, shown with --nocapture")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use half::f16;
use orinoco_infer::{Elements, ElementsMut, Engine, EngineContext, Session, SessionSpec, engines};
use orinoco_tests::onnx::TensorProto;

/// As `onnx.backend.test.runner` compares.
const RELATIVE: f64 = 1e-3;
const ABSOLUTE: f64 = 1e-7;

/// The elements of a stored tensor, of the types that Orinoco carries.
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

/// Writes a stored tensor; whether its type and number of elements are the input's.
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

/// Whether an output is the stored one.
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

/// Lines of `engine test why`, where a test may have a `*` in it.
const WRONG: &str = include_str!("nodes_wrong.txt");

/// Whether a line of [`WRONG`] lets the engine compute the test wrongly.
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
    /// The engine, or Orinoco's set of types, does not take it.
    Refused(String),
    Wrong(String),
}

/// The stored tensors `<kind>_0.pb`, `<kind>_1.pb`, .. of a test; `None` where one is no tensor of a carried type.
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

/// Tests of operators whose outputs are as long as what they find. They run on zeros first, as every model does when its
/// engine is proved: a session must not keep the shapes of that run.
const FINDERS: [&str; 4] = ["test_compress_", "test_nonmaxsuppression_", "test_nonzero_", "test_unique_"];

fn run(engine: &dyn Engine, case: &Path) -> FrameResult {
    let (Some(inputs), Some(outputs)) = (tensors(case, "input"), tensors(case, "output")) else {
        return FrameResult::Refused("tensors of a type that Orinoco does not carry".to_owned());
    };
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|(shape, _)| shape.clone()).collect();
    let bound = engine.prepare(&case.join("model.onnx"), &EngineContext::default());
    let session = bound.and_then(|prepared| {
        let open = prepared.outputs().len();
        prepared.session(&SessionSpec::new(&shapes)).map(|session| (session, open))
    });
    let (mut session, open): (Box<dyn Session>, usize) = match session {
        Ok(session) => session,
        Err(fault) => return FrameResult::Refused(fault.cause),
    };
    let name = case.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let finds = FINDERS.iter().any(|finder| name.starts_with(finder));
    if finds && let Err(fault) = session.run() {
        return FrameResult::Refused(fault.cause);
    }
    for (index, (_, stored)) in inputs.iter().enumerate() {
        if !write(session.input(index).host().data, stored) {
            return FrameResult::Refused("an input is of another type than its test".to_owned());
        }
    }
    match session.run() {
        Ok(()) => {}
        Err(fault) if finds => return FrameResult::Wrong(format!("after a run on zeros: {}", fault.cause)),
        Err(fault) => return FrameResult::Refused(fault.cause),
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

/// The tests, written into `folder` by the Python package that has them.
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
