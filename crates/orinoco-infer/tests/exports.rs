//! Models exported by PyTorch and torchvision with random weights, with both exporters of PyTorch. An engine either
//! computes the same outputs as PyTorch, or refuses the model with a reason.
#![allow(clippy::print_stdout, reason = "what ran and what was refused, shown with --nocapture")]

use std::fs::File;
use std::path::Path;
use std::process::Command;

use ndarray::{ArrayD, OwnedRepr};
use ndarray_npy::NpzReader;
use orinoco_infer::{Engine, EngineContext, EngineError, SessionSpec, engines};

/// Maximum difference from PyTorch's output, as a share of its largest value.
const DIFFERENCE_MAX: f32 = 1e-3;
/// Maximum difference of an f16 model, as a share of the largest value: f16 has ten bits of mantissa.
const HALF_DIFFERENCE_MAX: f32 = 2e-2;

/// Runs the export script, and returns the names of the models that it wrote into `folder`; `None` if its Python
/// packages are missing.
fn export(folder: &Path) -> Option<Vec<String>> {
    let python = std::env::var("ORINOCO_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_it = Command::new(&python).args(["-c", "import torchvision, onnxscript"]).output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        println!("skipped: torchvision and onnxscript are not installed (ORINOCO_PYTHON names the Python)");
        return None;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/export_models.py");
    let output = Command::new(&python).arg(script).arg(folder).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are plain");
    Some(
        text.lines().filter(|line| folder.join(format!("{line}.npz")).is_file()).map(str::to_owned).collect(),
    )
}

fn arrays(npz: &Path, kind: &str) -> Vec<ArrayD<f32>> {
    let mut npz = NpzReader::new(File::open(npz).expect("readable")).expect("an npz file");
    let mut arrays = Vec::new();
    while let Ok(array) = npz.by_name::<OwnedRepr<f32>, _>(&format!("{kind}_{}", arrays.len())) {
        arrays.push(array);
    }
    arrays
}

/// Returns the maximum difference over all outputs, or the reason why the engine does not run the model.
fn difference(engine: &dyn Engine, folder: &Path, name: &str) -> Result<f32, String> {
    let npz = folder.join(format!("{name}.npz"));
    let (inputs, outputs) = (arrays(&npz, "in"), arrays(&npz, "out"));
    let file = folder.join(format!("{name}.onnx"));
    let cause = |error: EngineError| error.diagnosis(&file).cause;
    let prepared = engine.prepare(&file, &EngineContext::default()).map_err(cause)?;
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|array| array.shape().to_vec()).collect();
    let mut session = prepared.session(&SessionSpec::new(&shapes)).map_err(cause)?;
    for (index, array) in inputs.iter().enumerate() {
        session.input(index).host().data.copy_from_f32(array.as_slice().expect("stored row by row"));
    }
    session.run().map_err(cause)?;
    let mut worst: f32 = 0.0;
    for (index, expected) in outputs.iter().enumerate() {
        let mut ours = Vec::new();
        let output = session.output(index).host();
        assert_eq!(output.shape, expected.shape(), "{name} on {}: output {index}", engine.name());
        output.data.to_f32(&mut ours);
        let top = expected.iter().map(|value| value.abs()).fold(f32::MIN_POSITIVE, f32::max);
        let differ = ours.iter().zip(expected).map(|(a, b)| (a - b).abs() / top);
        worst = differ.fold(worst, |worst, next| if next.is_nan() { f32::INFINITY } else { worst.max(next) });
    }
    Ok(worst)
}

#[test]
fn exported_models_give_what_pytorch_gives() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(names) = export(folder.path()) else { return };
    assert!(names.len() >= 15, "only {names:?} were exported");
    for engine in engines() {
        if let Err(why) = engine.check(&EngineContext::default()) {
            println!("skipped: {}: {why}", engine.name());
            continue;
        }
        let mut ran = 0;
        for name in &names {
            match difference(engine, folder.path(), name) {
                Ok(worst) => {
                    ran += 1;
                    println!("{} {name}: differs by {worst:e}", engine.name());
                    let most = if name.ends_with("fp16") { HALF_DIFFERENCE_MAX } else { DIFFERENCE_MAX };
                    assert!(worst <= most, "{} {name}: {worst}", engine.name());
                }
                Err(why) => {
                    println!("{} {name}: refused: {why}", engine.name());
                    assert!(!why.is_empty(), "a refusal has a reason");
                }
            }
        }
        println!("{}: {ran} of {} ran", engine.name(), names.len());
    }
}
