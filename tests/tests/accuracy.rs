//! Accuracy of `orinoco eval` on labelled photos, compared with the values that the field's own tools measured.
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they measured")]

use orinoco_tests::{engines, orinoco, shared};
use serde_json::Value;

/// Returns the report of `eval` with these arguments.
fn eval(arguments: &[&str]) -> Value {
    let output = orinoco(&[&["eval", "--json"], arguments].concat()).output().expect("orinoco starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("a report")
}

fn ap(report: &Value) -> f64 {
    report["ap"].as_f64().expect("an average precision")
}

/// Settings of the reference: OpenCV's bilinear resize, every class of a box above 0.01, suppression at 0.65, evaluated
/// by pycocotools.
#[test]
fn coco_photos_are_evaluated_as_by_pycocotools() {
    let Some(dataset) = shared("coco-val128") else { return };
    for (model, wanted) in [("yolox_nano", 0.339), ("fastestdet", 0.196)] {
        let described = format!("tests/models/{model}");
        for engine in engines() {
            let setting = ["--resize", "bilinear", "--score", "0.01", "--iou", "0.65", "--engine", engine];
            let report = eval(&[&["--model", &described, "--dataset", &dataset], &setting[..]].concat());
            println!("{model} on {engine}: AP {:.4}, wanted {wanted}", ap(&report));
            assert!((ap(&report) - wanted).abs() <= 0.004, "{model} on {engine}: {}", ap(&report));
            assert_eq!(report["images"], 128);
        }
    }
}

/// Settings of the reference: Pillow's resize, the best class of each box for FastestDet, suppression at 0.45. Engines
/// round 8-bit arithmetic in two ways, and both were measured: integer kernels, and floats between the quantisers. An
/// engine must be close to one of them.
#[test]
fn quantised_models_keep_the_accuracy_measured_for_them() {
    let Some(dataset) = shared("coco_mini") else { return };
    let cases = [
        ("fastestdet", &["--single-label"][..], [0.2589, 0.2589], 0.004),
        ("fastestdet_int8_qdq", &["--single-label"], [0.2317, 0.2471], 0.02),
        ("yolox_nano", &[], [0.4367, 0.4367], 0.004),
        ("yolox_nano_int8_qdq", &[], [0.3172, 0.3243], 0.02),
    ];
    for (model, more, wanted, tolerance) in cases {
        let described = format!("tests/models/{model}");
        for engine in engines() {
            let setting = ["--resize", "bilinear-antialias", "--iou", "0.45", "--engine", engine];
            let report =
                eval(&[&["--model", &described, "--dataset", &dataset], &setting[..], more].concat());
            println!("{model} on {engine}: AP {:.4}, wanted one of {wanted:?}", ap(&report));
            let near = wanted.iter().any(|wanted| (ap(&report) - wanted).abs() <= tolerance);
            assert!(near, "{model} on {engine}: {}", ap(&report));
        }
    }
}

#[test]
fn two_engines_are_compared_image_by_image() {
    let Some(dataset) = shared("coco_mini") else { return };
    let here = engines();
    let [first, second] = here[..] else {
        println!("skipped: only one engine is here");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plots = folder.path().display().to_string();
    let report = eval(&[
        "--model",
        "tests/models/yolox_nano",
        "--dataset",
        &dataset,
        "--engine",
        first,
        "--against",
        second,
        "--limit",
        "8",
        "--plots",
        &plots,
    ]);
    assert_eq!(report["images"], 8);
    // In f32 both engines give the same results, except for the last digits.
    assert!((ap(&report) - ap(&report["against"])).abs() < 1e-3, "{report}");
    assert!(report["differences"].as_array().is_none_or(Vec::is_empty), "{report}");
    for file in ["precision_recall.svg", "confusion.svg"] {
        let svg = std::fs::read_to_string(folder.path().join(file)).expect("it was drawn");
        assert!(svg.contains("recall") || svg.contains("person"), "{file} says what it shows");
    }
}

/// The other kinds of dataset. They consist of shared photos, with labels for which the accuracy is roughly known.
#[test]
fn classes_and_masks_are_evaluated() {
    let Some(images) = shared("images") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let table = folder.path().join("table");
    std::fs::create_dir(&table).expect("writable");
    let rows = [("goldfish.jpg", 1), ("tabby_cat.jpg", 281), ("mug.jpg", 504)];
    let rows = rows.map(|(name, class)| {
        std::fs::copy(format!("{images}/{name}"), table.join(name)).expect("copied");
        format!("{name},{class}\n")
    });
    std::fs::write(table.join("labels.csv"), format!("file,label\n{}", rows.concat())).expect("writable");
    let dataset = table.display().to_string();
    let report = eval(&["--model", "tests/models/squeezenet1.0_fp32", "--dataset", &dataset]);
    // The reference's best class for the cat is 285, and 281 is among its best five.
    assert!(
        report["top5"].as_f64() >= report["top1"].as_f64() && report["top1"].as_f64() > Some(0.3),
        "{report}"
    );

    let masks = folder.path().join("masks");
    for part in ["images", "masks"] {
        std::fs::create_dir_all(masks.join(part)).expect("writable");
    }
    std::fs::copy(format!("{images}/tabby_cat.jpg"), masks.join("images/cat.jpg")).expect("copied");
    // The mask labels every pixel as cat (class 8 of VOC), so the IoU of "cat" is the share of the image that the model
    // takes for cat.
    image::GrayImage::from_pixel(100, 100, image::Luma([8]))
        .save(masks.join("masks/cat.png"))
        .expect("writable");
    let dataset = masks.display().to_string();
    let model = "tests/models/deeplabv3_mnv2_257";
    if !engines().contains(&"ort-cpu") {
        return;
    }
    let report = eval(&["--model", model, "--dataset", &dataset, "--engine", "ort-cpu"]);
    let cat = report["classes"].as_array().into_iter().flatten().find(|class| class["label"] == "cat");
    let iou = cat.and_then(|class| class["score"].as_f64()).expect("the class is labelled");
    assert!((0.5..1.0).contains(&iou) && report["pixel_accuracy"].as_f64() == Some(iou), "{report}");
}
