//! Comparison with reference outputs: every engine runs the same models on the same inputs.

use std::path::{Path, PathBuf};

use ndarray::ArrayD;
use orinoco_infer::{Engine, EngineContext, EngineError, Options, Scratch, Session, SessionSpec, by_name};

use crate::support::{
    array, data, engines_here, max_difference, mean_difference, one_node, one_node_from_to, open,
    reason_to_ignore, say, shapes, values,
};

/// Whether `IGNORED` lists the model for this engine. If so, checks that the engine refuses the model as unsupported.
fn is_ignored(engine: &dyn Engine, data: &Path, model: &str) -> bool {
    let Some(reason) = reason_to_ignore(engine, model) else { return false };
    let name = engine.name();
    say(&format!("ignored: {model} on {name}: {reason}"));
    let prepared = engine.prepare(&model_file(data, model), &EngineContext::default());
    let bound =
        prepared.and_then(|prepared| prepared.session(&SessionSpec::new(&shapes(prepared.inputs(), 1))));
    let error = bound.err().unwrap_or_else(|| panic!("{model} now runs on {name}: take it out of the list"));
    assert!(matches!(error, EngineError::Unsupported(_)), "{error:?}");
    true
}

/// Returns the engines on this machine for which the model is not ignored.
fn engines_for(data: &Path, model: &str) -> Vec<&'static dyn Engine> {
    engines_here().into_iter().filter(|engine| !is_ignored(*engine, data, model)).collect()
}

/// Conversion of an image's bytes to the floats of a model's input, by (channel, byte).
type Normalise = fn(usize, f32) -> f32;

#[derive(Clone, Copy)]
enum Order {
    /// Axes in planar order: batch, channel, height, width.
    Planar,
    /// Axes in the order of the file: height, width, channel.
    Interleaved,
}

/// Model with stored inputs and outputs.
struct Case {
    model: &'static str,
    /// Name of the folder with the references.
    refs: &'static str,
    files: &'static [&'static str],
    order: Order,
    normalise: Normalise,
    /// Names of the arrays in the reference, in the order of the model's outputs.
    outputs: &'static [&'static str],
    /// Measure of the difference from the reference.
    measure: Measure,
    /// Maximum value of the measure.
    tolerance: f32,
}

/// Function that reduces the difference of two tensors to a number.
type Measure = fn(&[f32], &[f32]) -> f32;

/// Three times the largest mean measured here (0.0099, ONNX Runtime on FastestDet); a broken engine is off by 1 and
/// more.
const INT8_MEAN_MAX: f32 = 0.03;

/// Tolerances are ten times the difference of the reference engine from itself with graph optimisations off, and at
/// least 1e-4.
const CASES: &[Case] = &[
    Case {
        model: "yolox_nano",
        refs: "yolox_nano",
        files: &["astronaut_group", "dog_bicycle_truck", "horse_cart"],
        order: Order::Planar,
        normalise: |_, x| x,
        outputs: &["out_output"],
        measure: max_difference,
        tolerance: 2.3e-3,
    },
    Case {
        model: "fastestdet",
        refs: "fastestdet",
        files: &["astronaut_group", "dog_bicycle_truck", "horse_cart"],
        order: Order::Planar,
        normalise: |_, x| x / 255.0,
        outputs: &["out_758"],
        measure: max_difference,
        tolerance: 5e-4,
    },
    Case {
        model: "ultraface_rfb320",
        refs: "ultraface_rfb320",
        files: &["astronaut_group", "cricket_man", "grace_hopper"],
        order: Order::Planar,
        normalise: |_, x| (x - 127.0) / 128.0,
        outputs: &["out_scores", "out_boxes"],
        measure: max_difference,
        tolerance: 1e-4,
    },
    Case {
        model: "squeezenet1.0_fp32",
        refs: "squeezenet1.0_fp32",
        files: &["goldfish", "mug", "tabby_cat"],
        order: Order::Planar,
        normalise: |channel, x| x - [104.0, 117.0, 123.0][channel],
        outputs: &["out_softmaxout_1"],
        measure: max_difference,
        tolerance: 1e-4,
    },
    // The weights are exactly those of the fp32 model. Ten bits of mantissa leave an error of about 1e-3 of a
    // probability, and an engine that also computes in f16 has a few times that over 26 layers.
    Case {
        model: "squeezenet1.0_fp16",
        refs: "squeezenet1.0_fp32",
        // Only one file, because tract takes seconds on a CPU without f16 arithmetic.
        files: &["goldfish"],
        order: Order::Planar,
        normalise: |channel, x| x - [104.0, 117.0, 123.0][channel],
        outputs: &["out_softmaxout_1"],
        measure: max_difference,
        tolerance: 1e-2,
    },
    // INT8: engines round at different places, over up to 70 layers. One logit may differ by 2, but not all of them.
    Case {
        model: "yolox_nano_int8_qdq",
        refs: "yolox_nano_int8_qdq",
        files: &["dog_bicycle_truck"],
        order: Order::Planar,
        normalise: |_, x| x,
        outputs: &["out_output"],
        measure: mean_difference,
        tolerance: INT8_MEAN_MAX,
    },
    Case {
        model: "fastestdet_int8_qdq",
        refs: "fastestdet_int8_qdq",
        files: &["dog_bicycle_truck"],
        order: Order::Planar,
        normalise: |_, x| x / 255.0,
        outputs: &["out_758"],
        measure: mean_difference,
        tolerance: INT8_MEAN_MAX,
    },
    Case {
        model: "ultraface_rfb320_int8_qdq",
        refs: "ultraface_rfb320_int8_qdq",
        files: &["cricket_man"],
        order: Order::Planar,
        normalise: |_, x| (x - 127.0) / 128.0,
        outputs: &["out_scores", "out_boxes"],
        measure: mean_difference,
        tolerance: INT8_MEAN_MAX,
    },
    Case {
        model: "squeezenet1.0_int8_qdq",
        refs: "squeezenet1.0_int8_qdq",
        files: &["goldfish"],
        order: Order::Planar,
        normalise: |channel, x| x - [104.0, 117.0, 123.0][channel],
        outputs: &["out_softmaxout_1"],
        measure: mean_difference,
        tolerance: INT8_MEAN_MAX,
    },
];

fn to_floats(image: &ArrayD<u8>, order: Order, normalise: Normalise) -> Vec<f32> {
    let (area, channels) = (image.shape()[0] * image.shape()[1], image.shape()[2]);
    let pixels = image.as_slice().expect("references are stored row by row");
    let value =
        |pixel: usize, channel: usize| normalise(channel, f32::from(pixels[pixel * channels + channel]));
    match order {
        Order::Planar => (0..channels).flat_map(|c| (0..area).map(move |p| value(p, c))).collect(),
        Order::Interleaved => (0..area).flat_map(|p| (0..channels).map(move |c| value(p, c))).collect(),
    }
}

fn model_file(data: &Path, model: &str) -> PathBuf {
    data.join("models").join(format!("{model}.onnx"))
}

fn reference(data: &Path, refs: &str, file: &str) -> PathBuf {
    data.join("refs").join(refs).join(format!("{file}.npz"))
}

/// Executes twice on the same input, and checks that the second run gives the same bits.
fn run_twice(session: &mut dyn Session, outputs: usize) -> Vec<Vec<f32>> {
    session.run().unwrap();
    let first: Vec<Vec<f32>> = (0..outputs).map(|index| values(session, index)).collect();
    session.run().unwrap();
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for (index, first) in first.iter().enumerate() {
        assert_eq!(bits(first), bits(&values(session, index)), "output {index} changed from run to run");
    }
    first
}

#[test]
fn outputs_are_those_of_the_reference() {
    let Some(data) = data() else { return };
    for engine in engines_here() {
        for case in CASES.iter().filter(|case| !is_ignored(engine, &data, case.model)) {
            let (_, mut session) = open(engine, &model_file(&data, case.model), 1);
            let mut worst: f32 = 0.0;
            for file in case.files {
                let reference = reference(&data, case.refs, file);
                let floats = to_floats(&array::<u8>(&reference, "input_u8"), case.order, case.normalise);
                session.input(0).host().data.copy_from_f32(&floats);
                let ours = run_twice(session.as_mut(), case.outputs.len());
                for (ours, name) in ours.iter().zip(case.outputs) {
                    let expected = array::<f32>(&reference, name);
                    worst = worst.max((case.measure)(ours, expected.as_slice().unwrap()));
                }
            }
            println!("{} {}: differs by {worst:e} of {:e}", engine.name(), case.model, case.tolerance);
            assert!(worst <= case.tolerance, "{} {}: {worst}", engine.name(), case.model);
        }
    }
}

/// DeepLab's reference contains the class of each pixel, and the logits of every eighth pixel.
#[test]
fn segmentation_is_that_of_the_reference() {
    const CLASSES: usize = 21;
    const SIDE: usize = 257;
    let Some(data) = data() else { return };
    for engine in engines_here() {
        if is_ignored(engine, &data, "deeplabv3_mnv2_257") {
            continue;
        }
        let (_, mut session) = open(engine, &model_file(&data, "deeplabv3_mnv2_257"), 1);
        for file in ["dog_bicycle_truck", "horse_cart", "tabby_cat"] {
            let reference = reference(&data, "deeplabv3_mnv2_257", file);
            let image = array::<u8>(&reference, "input_u8");
            session
                .input(0)
                .host()
                .data
                .copy_from_f32(&to_floats(&image, Order::Interleaved, |_, x| x / 127.5 - 1.0));
            session.run().unwrap();
            let ours = values(session.as_ref(), 0);
            let logits = |x: usize, y: usize| &ours[(y * SIDE + x) * CLASSES..][..CLASSES];
            let eighth: Vec<f32> = (0..SIDE * SIDE)
                .map(|pixel| (pixel % SIDE, pixel / SIDE))
                .filter(|(x, y)| x % 8 == 0 && y % 8 == 0)
                .flat_map(|(x, y)| logits(x, y))
                .copied()
                .collect();
            let worst = max_difference(&eighth, array::<f32>(&reference, "out_stride8").as_slice().unwrap());
            let best =
                |logits: &[f32]| (0..CLASSES).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
            let classes = array::<u8>(&reference, "argmax_u8");
            let wrong = classes.iter().enumerate();
            let wrong =
                wrong.filter(|(pixel, class)| best(logits(pixel % SIDE, pixel / SIDE)) != **class as usize);
            let wrong = wrong.count();
            println!("{} deeplabv3 {file}: differs by {worst:e}, {wrong} pixels", engine.name());
            // If two classes are within the tolerance of each other, either is right.
            assert!(worst <= 5e-4 && wrong <= 3, "{} {file}: {worst}, {wrong} pixels", engine.name());
        }
    }
}

/// CNTK's digit model takes values that are not scaled: logits reach 5000, so the tolerance is relative to that.
#[test]
fn digits_are_those_of_the_reference() {
    let Some(data) = data() else { return };
    let reference = reference(&data, "mnist_8", "rendered_digits");
    let (images, expected) =
        (array::<u8>(&reference, "input_u8"), array::<f32>(&reference, "out_Plus214_Output_0"));
    for engine in engines_for(&data, "mnist_8") {
        let (prepared, mut session) = open(engine, &model_file(&data, "mnist_8"), 1);
        // The file lists its initialisers as inputs, as was usual at its time.
        assert_eq!(prepared.inputs().len(), 1, "{}: {:?}", engine.name(), prepared.inputs());
        for (image, expected) in images.outer_iter().zip(expected.outer_iter()) {
            let floats: Vec<f32> = image.iter().map(|x| f32::from(*x)).collect();
            session.input(0).host().data.f32().unwrap().copy_from_slice(&floats);
            session.run().unwrap();
            let worst = max_difference(&values(session.as_ref(), 0), expected.as_slice().unwrap());
            assert!(worst < 5000.0 * 1e-5, "{}: {worst}", engine.name());
        }
    }
}

/// A graph with a dynamic batch axis is bound at two sizes, and gives the reference's output for each item.
#[test]
fn a_dynamic_axis_can_be_fixed_at_any_size() {
    let Some(data) = data() else { return };
    let reference = |file| reference(&data, "kws_dscnn_f32", file);
    let files = [reference("mfcc_marvin_unknown"), reference("mfcc_mlperf_sample_on")];
    let inputs: Vec<f32> = files.iter().flat_map(|file| array::<f32>(file, "input")).collect();
    let expected: Vec<f32> = files.iter().flat_map(|file| array::<f32>(file, "out_Identity")).collect();
    for engine in engines_for(&data, "kws_dscnn_f32") {
        let prepared =
            engine.prepare(&model_file(&data, "kws_dscnn_f32"), &EngineContext::default()).unwrap();
        for batch in [1, 2] {
            let mut session = prepared.session(&SessionSpec::new(&shapes(prepared.inputs(), batch))).unwrap();
            let (input, expected) = (&inputs[..batch * 490], &expected[..batch * 12]);
            session.input(0).host().data.copy_from_f32(input);
            let ours = run_twice(session.as_mut(), 1);
            assert_eq!(session.output(0).host().shape, [batch, 12]);
            let worst = max_difference(&ours[0], expected);
            assert!(worst < 1e-4, "{} batch {batch}: {worst}", engine.name());
        }
    }
}

/// Inputs and outputs are integers.
#[test]
fn int8_keywords_are_those_of_the_reference() {
    let Some(data) = data() else { return };
    for engine in engines_here() {
        if is_ignored(engine, &data, "kws_dscnn_int8") {
            continue;
        }
        let (_, mut session) = open(engine, &model_file(&data, "kws_dscnn_int8"), 1);
        for file in ["mfcc_marvin_unknown", "mfcc_mlperf_sample_on"] {
            let reference = reference(&data, "kws_dscnn_int8", file);
            let input: Vec<f32> = array::<i8>(&reference, "input").iter().map(|x| f32::from(*x)).collect();
            let expected: Vec<f32> =
                array::<i8>(&reference, "out_Identity").iter().map(|x| f32::from(*x)).collect();
            session.input(0).host().data.copy_from_f32(&input);
            let ours = run_twice(session.as_mut(), 1);
            let worst = max_difference(&ours[0], &expected);
            println!("{} kws_dscnn_int8 {file}: differs by {worst} of 255 steps", engine.name());
            // Difference of one rounding step, because an engine may fuse operations that the graph separates.
            assert!(worst <= 1.0, "{} {file}: {worst}", engine.name());
        }
    }
}

/// The model has three inputs, one of them i64, and an implicit state.
#[test]
fn voice_activity_follows_the_reference() {
    const CHUNKS: usize = 60;
    let Some(data) = data() else { return };
    let wav = std::fs::read(data.join("audio/speech_60s_16k.wav")).unwrap();
    // The file has a canonical header of 44 bytes, followed by 16-bit mono samples.
    let samples = wav[44..].chunks_exact(2).map(|b| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32768.0);
    let samples: Vec<f32> = std::iter::repeat_n(0.0, 64).chain(samples).collect();
    for model in ["silero_vad_16k_static", "silero_vad_16k_op15"] {
        let expected = array::<f32>(&reference(&data, model, "speech_60s_16k"), "prob_per_512_samples");
        for engine in engines_here().into_iter().filter(|engine| !is_ignored(*engine, &data, model)) {
            let prepared = engine.prepare(&model_file(&data, model), &EngineContext::default()).unwrap();
            let shapes = vec![vec![1, 576], vec![2, 1, 128], vec![]];
            let mut session = prepared.session(&SessionSpec::new(&shapes)).unwrap();
            session.input(2).host().data.copy_from_f32(&[16000.0]);
            let mut ours = Vec::new();
            for chunk in 0..CHUNKS {
                session.input(0).host().data.copy_from_f32(&samples[chunk * 512..][..576]);
                session.run().unwrap();
                ours.extend(values(session.as_ref(), 0));
                let state = values(session.as_ref(), 1);
                session.input(1).host().data.copy_from_f32(&state);
            }
            let worst = max_difference(&ours, &expected.as_slice().unwrap()[..CHUNKS]);
            println!("{} {model}: differs by {worst:e}", engine.name());
            assert!(worst < 1e-4, "{} {model}: {worst}", engine.name());
        }
    }
}

/// A super-resolution model takes an image and gives a larger one. Its reference is stored as f16, which this suite
/// does not read. Instead, the test checks that the output, reduced to the input's size, differs from the input by less
/// than 0.02 on average.
#[test]
fn super_resolution_keeps_the_image() {
    const SIDE: usize = 224;
    let Some(data) = data() else { return };
    let luma = array::<u8>(&reference(&data, "super_resolution_10", "tabby_cat"), "input_u8");
    let luma: Vec<f32> = luma.iter().map(|x| f32::from(*x) / 255.0).collect();
    for engine in engines_for(&data, "super_resolution_10") {
        let (_, mut session) = open(engine, &model_file(&data, "super_resolution_10"), 1);
        session.input(0).host().data.copy_from_f32(&luma);
        session.run().unwrap();
        assert_eq!(session.output(0).host().shape, [1, 1, 3 * SIDE, 3 * SIDE]);
        let large = values(session.as_ref(), 0);
        let block = |x: usize, y: usize| (0..9).map(move |i| (3 * y + i / 3) * 3 * SIDE + 3 * x + i % 3);
        let mean = |pixel: usize| block(pixel % SIDE, pixel / SIDE).map(|at| large[at]).sum::<f32>() / 9.0;
        let shrunk: Vec<f32> = (0..SIDE * SIDE).map(mean).collect();
        let difference = mean_difference(&shrunk, &luma);
        println!("{} super_resolution_10: the mean pixel moved by {difference}", engine.name());
        assert!(difference < 0.02, "{}: {difference}", engine.name());
    }
}

/// Passes each element type that Orinoco supports through a graph that changes nothing, by its number in ONNX.
#[test]
fn every_element_type_is_carried() {
    let folder = tempfile::tempdir().unwrap();
    for (number, name) in [(1, "f32"), (10, "f16"), (2, "u8"), (3, "i8"), (6, "i32"), (7, "i64"), (9, "bool")]
    {
        let file = folder.path().join(format!("{name}.onnx"));
        std::fs::write(&file, one_node("Identity", number, &["n", "3"])).unwrap();
        for engine in engines_here() {
            let (prepared, mut session) = open(engine, &file, 2);
            assert_eq!(format!("{}", prepared.inputs()[0]), format!("x {name}[?,3]"), "{}", engine.name());
            let written = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0];
            session.input(0).host().data.copy_from_f32(&written);
            assert_eq!(run_twice(session.as_mut(), 1), [written], "{} {name}", engine.name());
            // The output keeps its values when the next input is written.
            session.input(0).host().data.copy_from_f32(&[0.0; 6]);
            assert_eq!(values(session.as_ref(), 0), written, "{} {name}", engine.name());
            assert_eq!(session.input(0).host().data.f32().is_some(), name == "f32");
            assert_eq!(session.output(0).host().data.f32().is_some(), name == "f32");
        }
    }
}

#[test]
fn a_type_that_is_not_carried_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), one_node("Identity", 11, &["2"])).unwrap();
    for engine in engines_here() {
        let prepared = engine.prepare(file.path(), &EngineContext::default()).unwrap();
        assert_eq!(prepared.inputs()[0].element, None);
        let error = prepared.session(&SessionSpec::new(&[vec![2]])).err().unwrap();
        let expected = "tensor `x` has an unsupported data type";
        let is_expected = matches!(&error, EngineError::Unsupported(why) if why == expected);
        assert!(is_expected, "{}: {error:?}", engine.name());
    }
}

#[test]
fn a_shape_that_does_not_fit_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), one_node("Relu", 1, &["n", "3"])).unwrap();
    for engine in engines_here() {
        let prepared = engine.prepare(file.path(), &EngineContext::default()).unwrap();
        for shapes in [vec![], vec![vec![2, 4]], vec![vec![2]], vec![vec![2, 3], vec![2, 3]]] {
            let error = prepared.session(&SessionSpec::new(&shapes)).err().unwrap();
            assert!(matches!(error, EngineError::Shapes(_)), "{}: {error:?}", engine.name());
        }
    }
}

/// Bound tensors keep their addresses: the next run reads the memory that a lane wrote into.
#[test]
fn ort_tensors_do_not_move() {
    let Some(data) = data() else { return };
    let engine = by_name("ort-cpu").unwrap();
    if !engines_here().iter().any(|here| here.name() == engine.name()) {
        return;
    }
    let (_, mut session) = open(engine, &model_file(&data, "fastestdet"), 1);
    let mut places = || {
        session.run().unwrap();
        let input = session.input(0).host().data.f32().unwrap().as_ptr();
        (input, session.output(0).host().data.f32().unwrap().as_ptr())
    };
    let first = places();
    assert!((0..3).all(|_| places() == first));
    assert!(first.0.addr() % 64 == 0 && first.1.addr() % 64 == 0, "tensors are aligned for SIMD");
}

/// An output's length may depend on the input: it is empty in the probe inference. Between runs, no part of it lies in
/// the lane's memory.
#[test]
fn ort_outputs_have_the_shape_of_their_run() {
    let engine = by_name("ort-cpu").unwrap();
    if !engines_here().iter().any(|here| here.name() == engine.name()) {
        return;
    }
    let file = tempfile::NamedTempFile::with_suffix(".onnx").unwrap();
    let find = one_node_from_to("NonZero", (1, &["2", "3"]), (7, &["2", "found"]));
    std::fs::write(file.path(), find).unwrap();
    let context = EngineContext::new(Options { shared_scratch: true, ..Options::default() });
    let prepared = engine.prepare(file.path(), &context).unwrap();
    let (shapes, scratch) = (shapes(prepared.inputs(), 1), Scratch::new(1 << 20).unwrap());
    let wanted = SessionSpec { scratch: Some((&scratch, "finder")), ..SessionSpec::new(&shapes) };
    let mut session = prepared.session(&wanted).unwrap();
    session.run().unwrap();
    assert_eq!(scratch.usage().allocations, 0, "the run that binds it keeps out of the scratch");
    let runs: [(&[f32; 6], &[f32]); 5] = [
        (&[0.0; 6], &[]),
        (&[0.0, 5.0, 0.0, 0.0, 0.0, 7.0], &[0.0, 1.0, 1.0, 2.0]),
        (&[3.0, 0.0, 0.0, 4.0, 0.0, 0.0], &[0.0, 1.0, 0.0, 0.0]),
        (&[1.0; 6], &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0]),
        (&[0.0; 6], &[]),
    ];
    for (input, found) in runs {
        session.input(0).host().data.copy_from_f32(input);
        session.run().unwrap();
        assert_eq!(session.output(0).host().shape, [2, found.len() / 2]);
        assert_eq!(values(session.as_ref(), 0), found);
        assert_eq!(scratch.usage().held, 0, "{:?}", scratch.usage());
    }
    assert!(scratch.usage().allocations > 0, "it computes in the scratch");
}

/// A process has one ONNX Runtime. Contexts share it, but neither their options nor their end affect one another.
#[test]
fn contexts_do_not_break_one_another() {
    let engine = by_name("ort-cpu").unwrap();
    let one = EngineContext::default();
    let Ok(info) = engine.check(&one) else { return };
    let library = info.library.expect("it was loaded from a file");
    let with_library = |path: &Path| {
        EngineContext::new(Options { ort_library: Some(path.to_owned()), ..Options::default() })
    };
    assert!(engine.check(&with_library(&library)).is_ok(), "it is the one that is loaded");
    let why = engine.check(&with_library(Path::new("/no/such/libonnxruntime.so"))).unwrap_err();
    let loaded = format!("because this process has already loaded {}", library.display());
    assert!(why.contains(&loaded), "{why}");

    let file = tempfile::NamedTempFile::with_suffix(".onnx").unwrap();
    std::fs::write(file.path(), one_node_from_to("NonZero", (1, &["2", "3"]), (7, &["2", "found"]))).unwrap();
    let other = EngineContext::new(Options { shared_scratch: true, ..Options::default() });
    let scratch = Scratch::new(1 << 20).unwrap();
    let open = |context: &EngineContext| {
        let prepared = engine.prepare(file.path(), context).unwrap();
        let shapes = shapes(prepared.inputs(), 1);
        let wanted = SessionSpec { scratch: Some((&scratch, "finder")), ..SessionSpec::new(&shapes) };
        let mut session = prepared.session(&wanted).unwrap();
        session.input(0).host().data.copy_from_f32(&[0.0, 5.0, 0.0, 0.0, 0.0, 7.0]);
        session
    };
    let (mut plain, mut sharing) = (open(&one), open(&other));
    drop((one, other));
    for run in 0..2 {
        plain.run().unwrap();
        assert_eq!(scratch.usage().allocations > 0, run > 0, "this context has not said that it shares");
        sharing.run().unwrap();
        sharing.run().unwrap();
        assert_eq!(values(plain.as_ref(), 0), values(sharing.as_ref(), 0));
    }
    assert!(engine.check(&EngineContext::default()).is_ok(), "a context that ends leaves it to the others");
}

/// Two lanes with a session each do not disturb one another.
#[test]
fn two_sessions_run_at_once() {
    const RUNS: usize = 10;
    let Some(data) = data() else { return };
    let images = ["dog_bicycle_truck", "horse_cart"].map(|file| {
        let image = array::<u8>(&reference(&data, "fastestdet", file), "input_u8");
        to_floats(&image, Order::Planar, |_, x| x / 255.0)
    });
    for engine in engines_for(&data, "fastestdet") {
        let prepared = engine.prepare(&model_file(&data, "fastestdet"), &EngineContext::default()).unwrap();
        let shapes = shapes(prepared.inputs(), 1);
        let alone = images.each_ref().map(|floats| {
            let mut session = prepared.session(&SessionSpec::new(&shapes)).unwrap();
            session.input(0).host().data.copy_from_f32(floats);
            session.run().unwrap();
            values(session.as_ref(), 0)
        });
        std::thread::scope(|scope| {
            for (floats, alone) in images.iter().zip(&alone) {
                let mut session = prepared.session(&SessionSpec::new(&shapes)).unwrap();
                scope.spawn(move || {
                    for _ in 0..RUNS {
                        session.input(0).host().data.copy_from_f32(floats);
                        session.run().unwrap();
                        assert_eq!(values(session.as_ref(), 0), *alone);
                    }
                });
            }
        });
    }
}

/// Several threads share the work, and the result stays within the tolerance of the reference.
#[test]
fn threads_change_the_time_and_not_the_result() {
    let Some(data) = data() else { return };
    let case = &CASES[1];
    let reference = reference(&data, case.refs, case.files[0]);
    let floats = to_floats(&array::<u8>(&reference, "input_u8"), case.order, case.normalise);
    for engine in engines_for(&data, case.model) {
        let context = EngineContext::new(Options { threads: 2, ..Options::default() });
        let prepared = engine.prepare(&model_file(&data, case.model), &context).unwrap();
        let mut session = prepared.session(&SessionSpec::new(&shapes(prepared.inputs(), 1))).unwrap();
        session.input(0).host().data.copy_from_f32(&floats);
        let ours = run_twice(session.as_mut(), 1);
        let expected = array::<f32>(&reference, case.outputs[0]);
        assert!(max_difference(&ours[0], expected.as_slice().unwrap()) <= case.tolerance);
    }
}
