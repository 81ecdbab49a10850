//! Invalid files: every engine reports each of them in one sentence, and none panics or aborts.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]

use std::path::Path;
use std::time::{Duration, Instant};

use orinoco_core::codes;
use orinoco_infer::{
    ChosenEngine, Engine, EngineContext, EngineError, EngineOrder, ProbeInputs, SessionSpec, TensorMemory,
    choose,
};
use orinoco_model::{ModelFileError, Repository};
use orinoco_tests::onnx::{Attribute, Graph, element};

use crate::support::{Seeded, data, engines_here, one_node, reason_to_ignore, say, shapes};

/// Prepares, binds and executes a model, and returns the first error.
fn attempt(engine: &dyn Engine, file: &Path) -> Result<(), EngineError> {
    let prepared = engine.prepare(file, &EngineContext::default())?;
    let mut session = prepared.session(&SessionSpec::new(&shapes(prepared.inputs(), 1)))?;
    session.run()
}

/// Asserts that the fault of `file` is about it, and fits on one line of a terminal.
fn assert_is_a_sentence(error: &EngineError, file: &Path) {
    let fault = error.diagnosis(file);
    assert_eq!(fault.subject, file.display().to_string());
    let text = fault.to_string();
    assert!(!text.contains('\n') && fault.cause.chars().count() <= 220, "{text}");
    assert!(!fault.cause.contains("onnxruntime_src") && !fault.cause.contains("panicked"), "{text}");
}

/// Checks the error that every engine reports for a file with this content.
fn check(content: &[u8], is_expected: impl Fn(&EngineError) -> bool) {
    let file = tempfile::NamedTempFile::with_suffix(".onnx").unwrap();
    std::fs::write(file.path(), content).unwrap();
    for engine in engines_here() {
        let error = attempt(engine, file.path()).unwrap_err();
        assert_is_a_sentence(&error, file.path());
        assert!(is_expected(&error), "{}: {error:?}", engine.name());
    }
}

#[test]
fn a_file_that_is_no_model_is_named_so() {
    check(b"", |error| matches!(error, EngineError::File(ModelFileError::Empty)));
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n";
    check(pointer, |error| matches!(error, EngineError::File(ModelFileError::LfsPointer)));
    let is_not_onnx = |error: &EngineError| matches!(error, EngineError::Unreadable(why) if why.starts_with("the file is not ONNX"));
    check(b"\xff\xd8\xff\xe0 not a model but an image", is_not_onnx);
    check(b"[model]\nname = \"a text file\"\n", is_not_onnx);
}

#[test]
fn an_operator_that_is_lacking_is_named() {
    check(
        &one_node("FooBar", 1, &["2"]),
        |error| matches!(error, EngineError::Unsupported(why) if why.contains("FooBar")),
    );
}

#[test]
fn a_file_that_is_not_there_is_named_so() {
    let folder = tempfile::tempdir().unwrap();
    for engine in engines_here() {
        for file in [folder.path().join("none.onnx"), folder.path().to_owned()] {
            let error = attempt(engine, &file).unwrap_err();
            assert_is_a_sentence(&error, &file);
            let is_missing = matches!(error, EngineError::File(ModelFileError::Open(_)));
            assert!(is_missing, "{}: {error:?}", engine.name());
        }
    }
}

/// A cut at the end of a field leaves a graph that parses. An engine must then execute it, or report an error.
#[test]
fn truncated_files_are_refused_in_a_sentence() {
    const SEED: u64 = 20_260_101;
    const CUTS: usize = 100;
    const TIME_MAX: Duration = Duration::from_secs(60);
    let Some(data) = data() else { return };
    let mut chance = Seeded(SEED);
    let started = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.onnx");
    for model in ["fastestdet", "mnist_8", "kws_dscnn_int8", "silero_vad_16k_op15"] {
        let whole = std::fs::read(data.join(format!("models/{model}.onnx"))).unwrap();
        for _ in 0..CUTS / 4 {
            let length = chance.below(whole.len());
            std::fs::write(&file, &whole[..length]).unwrap();
            for engine in engines_here() {
                if let Err(error) = attempt(engine, &file) {
                    assert_is_a_sentence(&error, &file);
                }
            }
        }
    }
    say(&format!("{CUTS} cuts, seed {SEED}: {:?}", started.elapsed()));
    assert!(started.elapsed() < TIME_MAX);
}

/// Flipped bits reach deeper than cuts: they pass the parser and reach the graph.
#[test]
fn damaged_files_are_refused_in_a_sentence_or_run() {
    const SEED: u64 = 20_260_102;
    const COPIES: usize = 60;
    let Some(data) = data() else { return };
    let mut chance = Seeded(SEED);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("damaged.onnx");
    let (mut ran, mut refused) = (0, 0);
    for model in ["mnist_8", "kws_dscnn_f32"] {
        let whole = std::fs::read(data.join(format!("models/{model}.onnx"))).unwrap();
        for _ in 0..COPIES / 2 {
            let mut damaged = whole.clone();
            for _ in 0..4 {
                damaged[chance.below(whole.len())] ^= 1 << chance.below(8);
            }
            std::fs::write(&file, &damaged).unwrap();
            for engine in engines_here() {
                match attempt(engine, &file) {
                    Ok(()) => ran += 1,
                    Err(error) => {
                        refused += 1;
                        let fault = error.diagnosis(&file);
                        assert_eq!(fault.subject, file.display().to_string());
                        assert!(!fault.to_string().contains('\n'), "{fault}");
                    }
                }
            }
        }
    }
    say(&format!("{COPIES} damaged copies, seed {SEED}: {ran} ran, {refused} were refused"));
}

#[test]
fn choosing_blames_the_file_and_not_the_engines() {
    let names = engines_here().iter().map(|engine| engine.name().to_owned()).collect::<Vec<_>>();
    let order = EngineOrder::among(&engines_here(), &names, &[]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "not a model").unwrap();
    let choose = |file: &Path| {
        choose(&order, file, &EngineContext::default(), &|inputs, _| {
            Ok(ProbeInputs { shapes: shapes(inputs, 1), constants: Vec::new() })
        })
    };
    let fault = choose(file.path()).err().unwrap();
    assert_eq!(fault.code.id, codes::MODEL_PARSE.id, "{fault}");
    let fault = choose(Path::new("/no/such/model.onnx")).err().unwrap();
    assert_eq!(fault.code.id, codes::FILE_MISSING.id, "{fault}");
    std::fs::write(file.path(), one_node("FooBar", 1, &["2"])).unwrap();
    let fault = choose(file.path()).err().unwrap();
    assert_eq!(fault.code.id, codes::ENGINE_UNAVAILABLE.id, "{fault}");
    std::fs::write(file.path(), one_node("Relu", 1, &["n", "2"])).unwrap();
    let mut chosen = choose(file.path()).unwrap();
    assert_eq!((chosen.name, chosen.refused.len()), (names[0].as_str(), 0));
    let session = |chosen: &mut ChosenEngine| chosen.session(TensorMemory::Host, None).unwrap();
    let (mut proved, mut another) = (session(&mut chosen), session(&mut chosen));
    assert_eq!(proved.output(0).host().shape, [1, 2]);
    proved.run().unwrap();
    another.run().unwrap();
}

#[cfg(feature = "cuda")]
#[test]
fn a_node_that_a_gpu_would_compute_wrongly_is_refused() {
    let graph = Graph::new()
        .input("x", element::F32, &[1, 1, 4, 4])
        .output("y", element::F32, &[1, 1, 6, 6])
        .floats("scales", &[4], &[1.0, 1.0, 1.5, 1.5])
        .node("Upsample", &["x", "scales"], &["y"], &[]);
    let file = tempfile::NamedTempFile::with_suffix(".onnx").unwrap();
    std::fs::write(file.path(), graph.file()).unwrap();
    let engine = orinoco_infer::by_name("ort-cuda").unwrap();
    let error = engine.prepare(file.path(), &EngineContext::default()).err().expect("it is refused");
    assert!(matches!(&error, EngineError::Unsupported(why) if why.contains("Upsample")), "{error:?}");
}

#[test]
fn a_constant_that_picks_a_branch_is_there_when_the_model_is_probed() {
    // The branch that zeros select reads beyond its tensor, like that of silero-vad's official export.
    let branch = |index: i64| {
        let gather = [("axis", Attribute::Int(1))];
        let graph = Graph::new().ints("index", &[1], &[index]);
        let graph =
            graph.node("Gather", &["x", "index"], &["taken"], &gather).output("taken", element::F32, &[1, 1]);
        Attribute::Graph(graph)
    };
    let graph = Graph::new()
        .input("x", element::F32, &[1, 4])
        .input("sr", element::I64, &[])
        .output("y", element::F32, &[1, 1])
        .ints("rate", &[], &[16_000])
        .node("Equal", &["sr", "rate"], &["is_known"], &[])
        .node("If", &["is_known"], &["y"], &[("then_branch", branch(0)), ("else_branch", branch(9))]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.onnx"), graph.file()).unwrap();
    let toml = folder.path().join("model.toml");
    let text = "version = 1\nname = 'm'\nfile = 'm.onnx'\n[input]\nname = 'x'\nkind = 'audio'\nwindow = 4\n\
                [[constant]]\ninput = 'sr'\nvalue = [16000]\n[output]\nhead = 'raw'\n";
    std::fs::write(&toml, text).unwrap();
    let model = Repository { roots: Vec::new(), data: Vec::new() }.describe(&toml.display().to_string());
    let model = model.unwrap().expect("it is described");
    let engines = engines_here().into_iter().filter(|engine| reason_to_ignore(*engine, "m").is_none());
    for engine in engines {
        let names = [engine.name().to_owned()];
        let order = EngineOrder::among(&engines_here(), &names, &[]).unwrap();
        let choose = |with_constants: bool| {
            choose(&order, &model.file, &EngineContext::default(), &|inputs, outputs| {
                let binding = model.bind(inputs, outputs, 1)?;
                let probe = ProbeInputs::new(&model, &binding);
                let constants = if with_constants { probe.constants } else { Vec::new() };
                Ok(ProbeInputs { constants, ..probe })
            })
        };
        // On CUDA, Gather gives 0 for an index out of range instead of an error, so the wrong branch runs without a fault.
        if names[0] != "ort-cuda" {
            let fault = choose(false).err().unwrap_or_else(|| panic!("{}: zeros pick the other", names[0]));
            assert_eq!(fault.code.id, codes::ENGINE_UNAVAILABLE.id, "{fault}");
        }
        let mut chosen = choose(true).unwrap_or_else(|fault| panic!("{fault}"));
        chosen.session(TensorMemory::Host, None).and_then(|mut session| session.run()).unwrap();
    }
}
