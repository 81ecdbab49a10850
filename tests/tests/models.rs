//! Classes, class maps and sounds of every shared model, compared with references from other programs. An engine
//! reports by itself that it does not support a model; the suite of `orinoco-infer` contains the list.
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they compared")]

use std::fs::File;
use std::path::Path;

use ndarray::{ArrayD, OwnedRepr};
use ndarray_npy::{NpzReader, ReadableElement};
use orinoco_api::ResultLine;
use orinoco_tests::{engines, orinoco, results, root, shared};
use serde_json::Value;

/// Exit code of a run that every engine refused: `E0302`.
const REFUSED: i32 = 3;

/// Returns the results of `infer` for `files`; `None` if the engine refuses the model, because it does not support it.
fn infer(model: &str, engine: &str, files: &[String]) -> Option<Vec<ResultLine>> {
    let described = format!("tests/models/{model}");
    let output = orinoco(&["infer", "--json", "--model", &described, "--engine", engine])
        .args(files)
        .output()
        .expect("orinoco starts");
    if output.status.code() == Some(REFUSED) {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("E0302") && said.contains("refused"), "{model} on {engine}: {said}");
        println!("ignored: {model} on {engine}: {}", said.trim());
        return None;
    }
    assert!(output.status.success(), "{model} on {engine}: {}", String::from_utf8_lossy(&output.stdout));
    Some(results(&output))
}

fn array<T: ReadableElement>(file: &str, name: &str) -> ArrayD<T> {
    let mut npz = NpzReader::new(File::open(file).expect("readable")).expect("an npz file");
    npz.by_name::<OwnedRepr<T>, _>(name).unwrap_or_else(|why| panic!("{name} of {file}: {why}"))
}

/// Returns `[(class, probability)]` of each image, best first.
fn top5(refs: &str) -> Vec<(String, Vec<(u32, f32)>)> {
    let all: Value = serde_json::from_str(&std::fs::read_to_string(refs).expect("readable")).expect("JSON");
    let class = |row: &Value| Some((row["idx"].as_u64()? as u32, row["p"].as_f64()? as f32));
    let rows = all.as_object().expect("images").iter();
    rows.map(|(name, rows)| (name.clone(), rows.as_array().expect("rows").iter().filter_map(class).collect()))
        .collect()
}

#[test]
fn photos_are_classified_as_by_the_reference() {
    /// Minimum probability: below it, the order of classes is noise.
    const SCORE_MIN: f32 = 0.01;
    for (model, whole) in
        [("squeezenet1.0_fp32", true), ("squeezenet1.0_fp16", true), ("squeezenet1.0_int8_qdq", false)]
    {
        let refs = shared(&format!("refs/{model}/top5.json"));
        let (Some(refs), Some(images)) = (refs, shared("images")) else { return };
        let wanted = top5(&refs);
        let files: Vec<String> = wanted.iter().map(|(name, _)| format!("{images}/{name}")).collect();
        for engine in engines() {
            let Some(lines) = infer(model, engine, &files) else { continue };
            for (line, (name, wanted)) in lines.iter().zip(&wanted) {
                let found: Vec<u32> = line.classes.iter().map(|class| class.class_id).collect();
                // The reference of the 8-bit model computes in floats, but engines compute in integers: only its first
                // class counts.
                let counted = wanted.iter().filter(|(_, p)| *p > SCORE_MIN);
                let counted = counted.take(if whole { 5 } else { 1 });
                let wanted: Vec<u32> = counted.map(|(class, _)| *class).collect();
                assert_eq!(found[..wanted.len()], wanted, "{model} on {engine}: {name}");
            }
            println!("{model} on {engine}: {} photos", lines.len());
        }
    }
}

#[test]
fn pixels_are_classified_as_by_the_reference() {
    const MODEL: &str = "deeplabv3_mnv2_257";
    for name in ["dog_bicycle_truck", "horse_cart", "tabby_cat"] {
        let refs = shared(&format!("refs/{MODEL}/{name}.npz"));
        let (Some(refs), Some(image)) = (refs, shared(&format!("images/{name}.jpg"))) else { return };
        let wanted = array::<u8>(&refs, "argmax_u8");
        for engine in engines() {
            let Some(lines) = infer(MODEL, engine, std::slice::from_ref(&image)) else { continue };
            let mask = lines[0].mask.as_ref().expect("a map of classes");
            let found = mask.runs.iter().flat_map(|[class, cells]| (0..*cells).map(move |_| *class));
            let same = found.zip(&wanted).filter(|(found, wanted)| *found == u32::from(**wanted)).count();
            let share = same as f64 / wanted.len() as f64;
            println!("{MODEL} on {engine}: {name}: {:.2} % of pixels", 100.0 * share);
            assert!(share >= 0.99, "{engine}: {name}: {share}");
        }
    }
}

#[test]
fn speech_is_heard_as_by_the_reference() {
    for model in ["silero_vad_16k_op15", "silero_vad_16k_static"] {
        for name in ["how_are_you_doing", "marvin_1s_16k_stereo", "speech_60s_16k"] {
            let refs = shared(&format!("refs/{model}/{name}.npz"));
            let (Some(refs), Some(sound)) = (refs, shared(&format!("audio/{name}.wav"))) else { return };
            let wanted = array::<f32>(&refs, "prob_per_512_samples");
            for engine in engines() {
                let Some(lines) = infer(model, engine, std::slice::from_ref(&sound)) else { continue };
                assert_eq!(lines.len(), wanted.len(), "{model} on {engine}: windows of {name}");
                let differ =
                    lines.iter().zip(&wanted).map(|(line, wanted)| (line.classes[0].score - wanted).abs());
                let worst = differ.fold(0.0, f32::max);
                println!("{model} on {engine}: {name}: differs by {worst:e}");
                assert!(worst < 1e-3, "{engine}: {name}: {worst}");
            }
        }
    }
}

#[test]
fn a_keyword_is_heard_as_by_the_reference() {
    for model in ["kws_dscnn_f32", "kws_dscnn_int8"] {
        let Some(sound) = shared("audio/marvin_1s_16k_stereo.wav") else { return };
        for engine in engines() {
            let Some(lines) = infer(model, engine, std::slice::from_ref(&sound)) else { continue };
            let best = &lines[0].classes[0];
            println!("{model} on {engine}: {} {:.3}", best.label, best.score);
            assert_eq!(best.label, "unknown", "{model} on {engine}");
        }
    }
}

#[test]
fn digits_are_read_as_by_the_reference() {
    const MODEL: &str = "mnist_8";
    let Some(refs) = shared("refs/mnist_8/rendered_digits.npz") else { return };
    let (images, logits) = (array::<u8>(&refs, "input_u8"), array::<f32>(&refs, "out_Plus214_Output_0"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files: Vec<String> = images
        .outer_iter()
        .enumerate()
        .map(|(index, image)| write_gray(&folder.path().join(format!("{index}.png")), &image.to_owned()))
        .collect();
    for engine in engines() {
        let lines = infer(MODEL, engine, &files).expect("every engine runs it");
        for (line, logits) in lines.iter().zip(logits.outer_iter()) {
            let best = (0u32..).zip(logits.iter()).max_by(|a, b| a.1.total_cmp(b.1)).expect("ten digits").0;
            assert_eq!(line.classes[0].class_id, best, "{engine}: {:?}", line.image);
        }
    }
}

/// Checks that the enlarged image, reduced again, equals the input. The suite of `orinoco-infer` compares engines on
/// the same model.
#[test]
fn an_image_is_enlarged() {
    const MODEL: &str = "super_resolution_10";
    let Some(refs) = shared(&format!("refs/{MODEL}/tabby_cat.npz")) else { return };
    let luma = array::<u8>(&refs, "input_u8");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = write_gray(&folder.path().join("luma.png"), &luma);
    for engine in engines() {
        let lines = infer(MODEL, engine, std::slice::from_ref(&file)).expect("every engine runs it");
        let tensor = &lines[0].tensors[0];
        assert_eq!(tensor.shape, [1, 672, 672]);
        let mean = |y: usize, x: usize| {
            let block = (0..9).map(|i| tensor.data[(3 * y + i / 3) * 672 + 3 * x + i % 3]);
            block.sum::<f32>() / 9.0
        };
        let moved =
            luma.indexed_iter().map(|(at, value)| (mean(at[0], at[1]) - f32::from(*value) / 255.0).abs());
        let moved = moved.sum::<f32>() / luma.len() as f32;
        println!("{MODEL} on {engine}: the mean pixel moved by {moved}");
        assert!(moved < 0.02, "{engine}: {moved}");
    }
}

fn write_gray(path: &Path, image: &ArrayD<u8>) -> String {
    let (height, width) = (image.shape()[0] as u32, image.shape()[1] as u32);
    let bytes = image.iter().copied().collect();
    let image = image::GrayImage::from_raw(width, height, bytes).expect("as many bytes as pixels");
    image.save(path).expect("writable");
    path.display().to_string()
}

/// Writes a description of every shared model with `init`. Most of them run, and every guess that differs from the real
/// description was marked as unsure.
#[test]
fn wrong_guesses_were_marked_unsure() {
    let Some(models) = shared("models") else { return };
    let names: Vec<String> = std::fs::read_dir(orinoco_tests::root().join("tests/models"))
        .expect("the descriptions of the shared models")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut ran = 0;
    for name in &names {
        let file = format!("{models}/{name}.onnx");
        let toml = folder.path().join(name).join("model.toml");
        let written = toml.display().to_string();
        let init =
            orinoco(&["models", "init", &file, "--output", &written]).output().expect("orinoco starts");
        assert!(init.status.success(), "{name}: {}", String::from_utf8_lossy(&init.stderr));
        let check = orinoco(&["models", "check", &written]).output().expect("orinoco starts");
        ran += usize::from(check.status.success());
        let guessed = std::fs::read_to_string(&toml).expect("init wrote it");
        let described = orinoco_tests::root().join("tests/models").join(name).join("model.toml");
        let described = std::fs::read_to_string(described).expect("readable");
        for (table, key, value) in keys(&described) {
            // Names, files and thresholds are not guesses. Neither are keys that only one of the descriptions contains.
            let free = [
                "name",
                "description",
                "license",
                "file",
                "sha256",
                "labels",
                "dtype",
                "input",
                "output",
                "shape",
            ];
            if free.contains(&key) || key.ends_with("threshold") {
                continue;
            }
            let guess = keys(&guessed).into_iter().find(|(of, other, _)| (*of, *other) == (table, key));
            let Some((_, _, guess)) = guess else { continue };
            let (guess, unsure) =
                guess.split_once("  # unsure").map_or((guess, false), |(guess, _)| (guess, true));
            assert!(unsure || same(guess, value), "{name}: {key} = {guess} for {value}, and it was sure");
        }
    }
    println!("{ran} of {} run as guessed", names.len());
    assert!(ran * 10 >= names.len() * 8);
}

/// Returns table, key and value of each line. The table is needed because input and output both have a `quant_scale`.
fn keys(toml: &str) -> Vec<(&str, &str, &str)> {
    let mut table = "";
    let lines = toml.lines().filter_map(|line| {
        table = if line.starts_with('[') { line } else { table };
        line.split_once(" = ").map(|(key, value)| (table, key, value))
    });
    lines.collect()
}

/// Whether both values are the same text, or the same number to six digits.
fn same(a: &str, b: &str) -> bool {
    let number = |text: &str| text.trim_matches(['[', ']']).parse::<f64>().ok();
    match (number(a), number(b)) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * a.abs(),
        _ => a == b,
    }
}

/// The probabilities of a classifier also serve as an embedding. It is a poor one, but sufficient to identify a
/// mirrored photo.
#[test]
fn a_gallery_names_what_is_seen() {
    let photos = ["tabby_cat", "goldfish", "elephants"].map(|name| shared(&format!("images/{name}.jpg")));
    let (Some(description), [Some(cat), Some(fish), Some(elephants)]) =
        (shared("models/squeezenet1.0_fp32.onnx"), photos)
    else {
        return;
    };
    let dir = tempfile::tempdir().expect("temporary folder");
    let toml =
        std::fs::read_to_string(root().join("tests/models/squeezenet1.0_fp32/model.toml")).expect("readable");
    let toml = toml.replace("models/squeezenet1.0_fp32.onnx", &description);
    let toml =
        toml.split("[output]").next().expect("has an output").to_owned() + "[output]\nhead = \"embedding\"\n";
    let model = dir.path().join("model.toml");
    std::fs::write(&model, toml).expect("writable");
    let known = dir.path().join("known");
    std::fs::create_dir_all(known.join("fish")).expect("makes folders");
    std::fs::copy(cat.as_str(), known.join("cat.jpg")).expect("copied");
    std::fs::copy(fish.as_str(), known.join("fish/1.jpg")).expect("copied");
    let mirrored = |file: &str, name: &str| {
        let path = dir.path().join(name);
        image::open(file).expect("a photo").fliph().save(&path).expect("writable");
        path.display().to_string()
    };
    let seen = [mirrored(&cat, "seen1.png"), mirrored(&fish, "seen2.png"), elephants];
    let gallery = |dir: &Path, files: &[String]| {
        let model = model.display().to_string();
        let dir = dir.display().to_string();
        let arguments = ["infer", "--json", "--model", &model, "--gallery", &dir, "--score", "0.5"];
        orinoco(&arguments).args(files).output().expect("starts")
    };
    let output = gallery(&known, &seen);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let best: Vec<Option<String>> =
        results(&output).iter().map(|line| line.classes.first().map(|class| class.label.clone())).collect();
    assert_eq!(best, [Some("cat".to_owned()), Some("fish".to_owned()), None]);

    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("makes a folder");
    let output = gallery(&empty, &seen);
    assert!(String::from_utf8_lossy(&output.stdout).contains("E0602"), "{output:?}");
}
