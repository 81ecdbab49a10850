//! Compares the evaluator with COCO's own, on random sets with difficult cases: equal scores, boxes on top of one
//! another, crowds, empty images, areas on the edges of the ranges.
#![allow(clippy::print_stdout, reason = "tests say what they skip and which seed they used")]

use std::process::Command;

use orinoco_eval::coco::{FoundBox, Report, Truth, evaluate};
use serde_json::{Value, json};

const SETS: usize = 1000;
const SEED: u64 = 0x0123_4567_89ab_cdef;

/// splitmix64 (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn bounds(&mut self) -> [f64; 4] {
        // Sides around the edges of the area ranges, and sometimes 0.
        let sides = [0, 1, 8, 16, 31, 32, 33, 64, 95, 96, 97, 200];
        let mut side = || sides[self.below(sides.len() as u64) as usize] as f64;
        let (w, h) = (side(), side());
        [self.below(80) as f64 / 2.0, self.below(80) as f64 / 2.0, w, h]
    }
}

struct Set {
    images: usize,
    classes: usize,
    truth: Vec<Truth>,
    found: Vec<FoundBox>,
}

fn random_set(random: &mut Random) -> Set {
    let (images, classes) = (1 + random.below(5) as usize, 1 + random.below(4) as usize);
    let truth: Vec<Truth> = (0..random.below(25))
        .map(|_| {
            let bounds = random.bounds();
            let full = bounds[2] * bounds[3];
            let area = if random.below(2) == 0 { full } else { full * 0.6 };
            let crowd = random.below(6) == 0;
            let (image, class) =
                (random.below(images as u64) as usize, random.below(classes as u64) as usize);
            Truth { image, class, bounds, area, crowd }
        })
        .collect();
    // At least one box: pycocotools cannot load an empty list of results.
    let found = (0..1 + random.below(60))
        .map(|_| {
            let near = truth.get(random.below(truth.len() as u64 + 5) as usize);
            let shift = |random: &mut Random| random.below(9) as f64 - 4.0;
            let (image, class, bounds) = match near {
                Some(near) => {
                    let [x, y, w, h] = near.bounds;
                    (
                        near.image,
                        near.class,
                        [x + shift(random), y + shift(random), (w + shift(random)).max(0.0), h],
                    )
                }
                None => {
                    let image = random.below(images as u64) as usize;
                    (image, random.below(classes as u64) as usize, random.bounds())
                }
            };
            // Few different scores, so that there are many ties.
            FoundBox { image, class, score: random.below(12) as f64 / 12.0, bounds }
        })
        .collect();
    Set { images, classes, truth, found }
}

fn as_json(set: &Set) -> Value {
    let truth = |t: &Truth| json!({"image": t.image, "class": t.class, "bounds": t.bounds, "area": t.area, "crowd": t.crowd});
    let found =
        |f: &FoundBox| json!({"image": f.image, "class": f.class, "score": f.score, "bounds": f.bounds});
    json!({
        "images": set.images,
        "classes": set.classes,
        "truth": set.truth.iter().map(truth).collect::<Vec<_>>(),
        "found": set.found.iter().map(found).collect::<Vec<_>>(),
    })
}

/// Lists the figures in the order in which COCO prints them.
fn figures(report: &Report) -> Vec<Option<f64>> {
    let mut all = vec![report.ap, report.ap50, report.ap75];
    all.extend(report.ap_by_area.iter().chain(&report.recall).chain(&report.recall_by_area));
    all.extend(report.classes.iter().map(|class| class.ap));
    all
}

#[test]
fn it_equals_pycocotools() {
    let python = std::env::var("ORINOCO_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_it = Command::new(&python).args(["-c", "import pycocotools"]).output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        println!(
            "skipped: pycocotools is not installed (pip install pycocotools; ORINOCO_PYTHON names the Python)"
        );
        return;
    }
    println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    let sets: Vec<Set> = (0..SETS).map(|_| random_set(&mut random)).collect();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = serde_json::to_vec(&sets.iter().map(as_json).collect::<Vec<_>>()).expect("plain numbers");
    std::fs::write(file.path(), text).expect("writable");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference.py");
    let output = Command::new(&python).arg(script).arg(file.path()).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut compared = 0;
    for (index, (set, theirs)) in sets.iter().zip(&theirs).enumerate() {
        let ours = figures(&evaluate(&set.truth, &set.found, set.classes));
        let lists = [&theirs["stats"], &theirs["classes"]].into_iter().flat_map(|list| list.as_array());
        let theirs: Vec<f64> = lists.flatten().filter_map(Value::as_f64).collect();
        assert_eq!(ours.len(), theirs.len());
        for (figure, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let ours = ours.unwrap_or(-1.0);
            assert!((ours - theirs).abs() < 1e-6, "set {index}, figure {figure}: {ours} for {theirs}");
            compared += 1;
        }
    }
    println!("{compared} figures of {SETS} sets agree");
    assert!(compared >= SETS * 12);
}
