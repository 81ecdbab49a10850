//! `orinoco eval` on sequences in MOTChallenge's layout.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use orinoco_tests::{assert_one_sentence, engines, orinoco, shared};
use serde_json::Value;

/// Maximum difference from a value that was computed by hand, which is a sum of a few fractions.
const APART_MAX: f64 = 1e-9;

fn run(arguments: &[&str]) -> Output {
    orinoco(&[&["eval"], arguments].concat()).output().expect("orinoco starts")
}

/// Returns the report of `eval` with these arguments.
fn eval(arguments: &[&str]) -> Value {
    let output = run(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[track_caller]
fn check(figures: &Value, expected: &[(&str, f64)]) {
    for (name, expected) in expected {
        let figure = figures[name].as_f64().unwrap_or(f64::NAN);
        assert!((figure - expected).abs() < APART_MAX, "{name} is {figure}, not {expected}: {figures}");
    }
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// Returns boxes of 10 by 10 pixels as lines of MOTChallenge's format. A row has frame, id, left edge, and the columns
/// from the confidence on.
fn lines(rows: &[(u32, u32, u32, &str)]) -> String {
    rows.iter().map(|(frame, id, x, rest)| format!("{frame},{id},{x},0,10,10,{rest}\n")).collect()
}

/// Writes a ground truth with two pedestrians in four frames, a sitting person, and a pedestrian in one frame who is
/// not to be evaluated.
fn write_hand_made(dir: &Path) {
    write(dir, "seqinfo.ini", "[Sequence]\nname=hand\nframeRate=10\nseqLength=4\n");
    let truth = (1..=4)
        .flat_map(|frame| [(frame, 1, 0, "1,1,1"), (frame, 2, 100, "1,1,1"), (frame, 3, 200, "0,7,1")]);
    write(dir, "gt/gt.txt", &lines(&truth.chain([(1, 4, 300, "0,1,1")]).collect::<Vec<_>>()));
}

/// Returns results that have the first pedestrian under two ids, miss the second one once, and contain the sitting
/// person and the pedestrian who is not evaluated.
fn hand_made_results() -> String {
    let (first, second) =
        ((1..=4).map(|frame| (frame, 10 + frame / 3, 0)), [1, 2, 4].map(|frame| (frame, 20, 100)));
    let sitting = (1..=4).map(|frame| (frame, 30, 200));
    let all = first.chain(second).chain(sitting).chain([(1, 40, 300)]);
    lines(&all.map(|(frame, id, x)| (frame, id, x, "0.9,-1,-1,-1")).collect::<Vec<_>>())
}

/// Results with 7 of 8 labelled boxes and 1 false positive. The association accuracy is 2/4 for four matches and
/// 3/4 for the other three.
#[test]
fn results_of_another_tracker_are_evaluated() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let one = dir.path().join("set/one");
    write_hand_made(&one);
    let results = write(dir.path(), "found/one.txt", &hand_made_results());
    let report = eval(&["--dataset", &one.display().to_string(), "--results", &results]);
    assert_eq!((&report["schema"], &report["images"]), (&"orinoco.eval/1".into(), &4.into()));
    assert_eq!((&report["results"], &report["model"]), (&results.clone().into(), &Value::Null));
    let counts = [("switches", 1.0), ("fragmentations", 1.0), ("fp", 1.0), ("fn", 1.0)];
    let shares =
        [("mota", 0.625), ("motp", 1.0), ("idf1", 0.625), ("idp", 0.625), ("idr", 0.625), ("loca", 1.0)];
    let hota = [("deta", 7.0 / 9.0), ("assa", 4.25 / 7.0), ("hota", (4.25f64 / 9.0).sqrt())];
    let tracks = [("tracks_found", 4.0), ("tracks_labelled", 2.0)];
    check(&report, &[&counts[..], &shares, &hota, &tracks].concat());

    // The other sequence of the set is tracked perfectly. In the combined figures counts are added up; ratios are not
    // averaged.
    let other = dir.path().join("set/other");
    let rows = lines(&[(1, 1, 0, "1,1,1"), (2, 1, 0, "1,1,1")]);
    write(&other, "seqinfo.ini", "[Sequence]\nseqLength=2\n");
    write(&other, "gt/gt.txt", &rows);
    write(dir.path(), "found/other.txt", &rows);
    let set = ["--dataset", &dir.path().join("set").display().to_string(), "--results"].map(str::to_owned);
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let found = dir.path().join("found").display().to_string();
    let report = eval(&[&set[..], &[&found]].concat());
    assert_eq!((&report["images"], report["sequences"][1]["name"].as_str()), (&6.into(), Some("other")));
    check(&report["sequences"][0], &[("mota", 0.625), ("images", 4.0)]);
    check(&report["sequences"][1], &[("mota", 1.0), ("hota", 1.0)]);
    check(
        &report,
        &[("mota", 0.7), ("idf1", 0.7), ("hota", (6.25f64 / 11.0).sqrt()), ("tracks_labelled", 3.0)],
    );
    let text = run(&[&set[..], &[&found]].concat()).stdout;
    let text = String::from_utf8_lossy(&text);
    let combined = text.lines().find(|line| line.starts_with("combined")).expect("a row for all");
    assert!(text.contains("ID switches") && combined.contains(" 0.7000 "), "{text}");

    // With the first two frames only, both pedestrians are found, under one id each.
    let report = eval(&[&set[..], &[&found, "--limit", "2"]].concat());
    check(&report, &[("idf1", 2.0 * 6.0 / 13.0), ("fp", 1.0), ("fn", 0.0), ("images", 4.0)]);
}

/// Writes a sequence in which the camera pans over a photo with pedestrians, by a few pixels per frame.
fn write_pan(dir: &Path, photo: &str) {
    let photo = image::open(photo).expect("a photo");
    fs::create_dir_all(dir.join("img1")).expect("made");
    for frame in 0..PAN_FRAMES {
        let image = photo.crop_imm(4 * frame, 0, photo.width() - 4 * PAN_FRAMES, photo.height());
        image.save(dir.join(format!("img1/{:06}.png", frame + 1))).expect("written");
    }
}

const PAN_FRAMES: u32 = 10;
/// First frame in which two ids are exchanged.
const SWAPPED_FROM: u32 = 6;

/// Lines of a results file, by frame and id.
type Lines = BTreeMap<(u32, u32), String>;

fn read(file: &Path) -> Lines {
    let text = fs::read_to_string(file).expect("readable");
    let row = |line: &str| {
        let mut columns = line.splitn(3, ',');
        let mut number = || columns.next().and_then(|text| text.parse().ok()).expect("a number");
        let key = (number(), number());
        (key, columns.next().expect("a box").to_owned())
    };
    text.lines().map(row).collect()
}

/// Returns the number of frames that contain an object, before and after the exchange.
fn halves(lines: &Lines, id: u32) -> (u32, u32) {
    let frames = |half: std::ops::RangeInclusive<u32>| {
        lines.keys().filter(|(frame, known)| *known == id && half.contains(frame)).count() as u32
    };
    (frames(1..=SWAPPED_FROM - 1), frames(SWAPPED_FROM..=PAN_FRAMES))
}

/// Uses the tracker's own results as the ground truth, so that the tracker is always right. After an exchange of two
/// ids halfway, it is wrong about two objects, once each.
#[test]
fn a_followed_sequence_is_evaluated() {
    let Some(images) = shared("images") else { return };
    let Some(engine) = engines().into_iter().next() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let sequence = dir.path().join("pan");
    write_pan(&sequence, &format!("{images}/pedestrians.jpg"));
    let saved = dir.path().join("found.txt");
    let (dataset, file) = (sequence.display().to_string(), saved.display().to_string());
    let model = ["--model", "tests/models/yolox_nano", "--engine", engine, "--dataset", &dataset];
    let report = eval(&[&model[..], &["--save-results", &file]].concat());
    assert!(report["hota"].is_null() && report["files"][0] == file, "nothing is labelled yet: {report}");

    let truth = sequence.join("gt/gt.txt");
    write(&sequence, "gt/gt.txt", &fs::read_to_string(&saved).expect("it was written"));
    let followed = read(&saved);
    let ids: std::collections::BTreeSet<u32> = followed.keys().map(|(_, id)| *id).collect();
    println!("{} boxes of {} people", followed.len(), ids.len());
    let right =
        ["hota", "deta", "assa", "loca", "mota", "motp", "idf1", "idp", "idr"].map(|name| (name, 1.0));
    let wrong = ["switches", "fragmentations", "fp", "fn"].map(|name| (name, 0.0));
    let tracks = ["tracks_found", "tracks_labelled"].map(|name| (name, ids.len() as f64));
    let perfect = [&right[..], &wrong, &tracks].concat();
    let report = eval(&model);
    check(&report, &perfect);
    assert!(report["engine"].as_str().is_some_and(|name| name.starts_with(engine)), "{report}");
    check(&eval(&["--dataset", &dataset, "--results", &file]), &perfect);

    let both: Vec<u32> =
        ids.iter().copied().filter(|id| halves(&followed, *id).0.min(halves(&followed, *id).1) > 0).collect();
    let [a, b] = both[..2] else { panic!("{both:?}") };
    let exchange = |(frame, id): &(u32, u32)| match *id {
        id if *frame < SWAPPED_FROM => id,
        id if id == a => b,
        id if id == b => a,
        id => id,
    };
    let swapped: String =
        followed.iter().map(|(key, rest)| format!("{},{},{rest}\n", key.0, exchange(key))).collect();
    fs::write(&truth, swapped).expect("written");
    // Each of the two objects keeps the id of one half. IDF1 counts the assignment that is better for both together, as
    // a share of all boxes.
    let ((a1, a2), (b1, b2)) = (halves(&followed, a), halves(&followed, b));
    let lost = f64::from((a1 + a2 + b1 + b2) - (a1 + b1).max(a2 + b2));
    let idf1 = 1.0 - lost / followed.len() as f64;
    assert!(idf1 < 1.0);
    let expected = [("switches", 2.0), ("idf1", idf1), ("fp", 0.0), ("fn", 0.0)];
    check(&eval(&model), &expected);
    let report = eval(&[&model[..], &["--against", engine]].concat());
    check(&report["against"], &expected);
}

#[test]
fn damaged_sequences_are_told() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let sequence = dir.path().join("hand");
    write_hand_made(&sequence);
    let dataset = sequence.display().to_string();
    let results = write(dir.path(), "found.txt", &hand_made_results());
    let refused = |arguments: &[&str], code: &str, words: &[&str]| {
        assert_one_sentence(&run(&[&["--dataset", &dataset], arguments].concat()), 2, code, words);
    };
    let person = ["--model", "person-nano"];
    refused(&person, "E0602", &["hand", "no images in img1", "fetch"]);
    refused(&["--results", &format!("{results}x")], "E0101", &["found.txtx"]);
    refused(&[&person[..], &["--plots", "p"]].concat(), "E0602", &["--plots"]);
    let inside = format!("{results}/a/b.txt");
    refused(&[&person[..], &["--save-results", &inside]].concat(), "E0501", &["found.txt/a"]);
    let late = write(dir.path(), "late.txt", "5,1,0,0,9,9,1\n");
    refused(&["--results", &late], "E0602", &["late.txt", "frame 5", "1 to 4"]);
    let empty = write(dir.path(), "empty.txt", "");
    refused(&["--results", &empty], "E0602", &["empty.txt", "no rows"]);
    fs::create_dir(sequence.join("img1")).expect("made");
    write(&sequence, "img1/000002.jpg", "no image");
    refused(&person, "E0602", &["img1", "frame 1 is missing"]);
    fs::rename(sequence.join("img1/000002.jpg"), sequence.join("img1/000001.jpg")).expect("renamed");
    refused(&person, "E0602", &["img1", "1 to 1", "seqLength"]);
    write(&sequence, "seqinfo.ini", "[Sequence]\nseqLength=1\n");
    refused(&person, "E0602", &["gt.txt", "frame 2", "1 to 1"]);
    write(&sequence, "gt/gt.txt", "1,1,0,0,9,9,1,1,1\n");
    refused(&person, "E0407", &["000001.jpg"]);
    write(&sequence, "gt/gt.txt", "");
    refused(&person, "E0602", &["gt.txt", "no rows"]);
    fs::remove_file(sequence.join("gt/gt.txt")).expect("removed");
    refused(&person, "E0101", &["gt.txt", "labels"]);

    let images = dir.path().join("images");
    write(&images, "cat/1.jpg", "");
    let output = run(&["--dataset", &images.display().to_string(), "--results", &results]);
    assert_one_sentence(&output, 2, "E0602", &["images", "--results"]);
    // The command line requires one of the two options, and accepts only one.
    let both = ["--dataset", &dataset, "--results", "a", "--model", "b"];
    for (arguments, words) in [(&both[..2], "--model"), (&both, "cannot be used with")] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{output:?}");
    }
}
