//! Support for the tests of engines: test data, the engines on this machine, and small models written for a test.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;

use ndarray::{ArrayD, OwnedRepr};
use ndarray_npy::{NpzReader, ReadableElement};
use orinoco_core::{Dim, TensorDesc};
use orinoco_infer::{Engine, EngineContext, Prepared, Session, SessionSpec, engines};

use crate::toy::Toy;

/// Returns the reason why the engine does not run a model, if there is one.
pub(crate) fn reason_to_ignore(engine: &dyn Engine, model: &str) -> Option<&'static str> {
    let line = engine.exceptions().iter().find(|exception| [model, "*"].contains(&exception.model));
    line.map(|exception| exception.reason)
}

/// Prints a line to the terminal, which the test harness does not capture.
pub(crate) fn say(text: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Returns the folder of the shared test data, if this checkout has it.
pub(crate) fn data() -> Option<PathBuf> {
    static TOLD: Once = Once::new();
    let shared = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let root = std::env::var_os("ORINOCO_DATA").map_or_else(shared, PathBuf::from);
    let found = root.join("models").is_dir();
    if !found {
        TOLD.call_once(|| say("skipped: shared test data not found"));
    }
    found.then_some(root)
}

/// Returns the engines that run on this machine. ONNX Runtime may not be installed.
pub(crate) fn engines_here() -> Vec<&'static dyn Engine> {
    static TOLD: Once = Once::new();
    static NO_GPU: Once = Once::new();
    let mut here = engines();
    here.push(&Toy);
    here.retain(|engine| match engine.check(&EngineContext::default()) {
        Ok(_) => true,
        Err(why) if engine.name() == "ort-cpu" => {
            TOLD.call_once(|| say(&format!("skipped: ONNX Runtime not found ({why})")));
            false
        }
        Err(why) if engine.name() == "ort-cuda" => {
            NO_GPU.call_once(|| say(&format!("skipped: ort-cuda ({why})")));
            false
        }
        Err(why) => panic!("{} must run everywhere, but: {why}", engine.name()),
    });
    here
}

/// Returns the shape of each input, with `size` for every dynamic axis.
pub(crate) fn shapes(inputs: &[TensorDesc], size: usize) -> Vec<Vec<usize>> {
    let axis = |dim: &Dim| if let Dim::Fixed(n) = dim { *n } else { size };
    inputs.iter().map(|input| input.shape.iter().map(axis).collect()).collect()
}

/// Opens a model with its dynamic axes fixed to `size`.
pub(crate) fn open(engine: &dyn Engine, file: &Path, size: usize) -> (Box<dyn Prepared>, Box<dyn Session>) {
    let prepared = engine.prepare(file, &EngineContext::default()).unwrap();
    let session = prepared.session(&SessionSpec::new(&shapes(prepared.inputs(), size))).unwrap();
    (prepared, session)
}

/// Returns an output as f32.
pub(crate) fn values(session: &dyn Session, output: usize) -> Vec<f32> {
    let mut values = Vec::new();
    session.output(output).host().data.to_f32(&mut values);
    values
}

/// Returns the maximum absolute difference. Panics on different lengths, and on values that are not finite.
pub(crate) fn max_difference(ours: &[f32], reference: &[f32]) -> f32 {
    assert_eq!(ours.len(), reference.len());
    assert!(ours.iter().all(|x| x.is_finite()));
    ours.iter().zip(reference).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Returns the mean absolute difference. Panics like [`max_difference`].
pub(crate) fn mean_difference(ours: &[f32], reference: &[f32]) -> f32 {
    assert_eq!(ours.len(), reference.len());
    assert!(ours.iter().all(|x| x.is_finite()));
    ours.iter().zip(reference).map(|(a, b)| (a - b).abs()).sum::<f32>() / ours.len() as f32
}

/// Returns one array of an `.npz` file, row-major.
pub(crate) fn array<T: ReadableElement>(file: &Path, name: &str) -> ArrayD<T> {
    let mut npz = NpzReader::new(std::fs::File::open(file).unwrap()).unwrap();
    let array = npz.by_name::<OwnedRepr<T>, _>(name);
    array.unwrap_or_else(|why| panic!("{name} of {}: {why}", file.display()))
}

/// Pseudo-random numbers that are the same for the same seed (splitmix64).
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// Returns an ONNX file with one node `y = operator(x)`, where x and y have the element type with the number `element`
/// in ONNX. An axis is a number, or a name for a dynamic one.
pub(crate) fn one_node(operator: &str, element: u64, axes: &[&str]) -> Vec<u8> {
    one_node_from_to(operator, (element, axes), (element, axes))
}

/// Returns an ONNX file with one node `y = operator(x)`, where x and y have their own element type and axes.
pub(crate) fn one_node_from_to(operator: &str, x: (u64, &[&str]), y: (u64, &[&str])) -> Vec<u8> {
    let text = |number, text: &str| bytes(number, text.as_bytes());
    let dimension = |axis: &&str| bytes(1, &axis.parse().map_or_else(|_| text(2, axis), |n| int(1, n)));
    let value = |name, (element, axes): (u64, &[&str])| {
        let shape = axes.iter().flat_map(dimension).collect::<Vec<u8>>();
        let tensor = [int(1, element), bytes(2, &shape)].concat();
        [text(1, name), bytes(2, &bytes(1, &tensor))].concat()
    };
    let node = [text(1, "x"), text(2, "y"), text(3, "the node"), text(4, operator)].concat();
    let (x, y) = (value("x", x), value("y", y));
    let graph = [bytes(1, &node), text(2, "graph"), bytes(11, &x), bytes(12, &y)].concat();
    [int(1, 8), bytes(7, &graph), bytes(8, &int(2, 17))].concat()
}

/// Returns a protobuf field with a length.
fn bytes(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// Returns a protobuf field with a number.
fn int(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut coded = Vec::new();
    while value >= 0x80 {
        coded.push(value as u8 | 0x80);
        value >>= 7;
    }
    coded.push(value as u8);
    coded
}
