//! Object tracking during a run: ids in the results, and counts in the summary.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs;

use orinoco_api::Summary;
use orinoco_tests::{assert_one_sentence, engines, orinoco, results, root, shared};

#[test]
fn a_person_keeps_an_id_and_is_counted_once() {
    let Some(video) = shared("video/one-by-one-person-detection.mp4") else { return };
    let Some(engine) = engines().into_iter().find(|engine| *engine == "ort-cpu") else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let (board, model) = (dir.path().join("board.toml"), root().join("tests/models/yolox_nano"));
    let text = format!(
        "version = 1\n[inference]\nengines = ['{engine}']\n[[model]]\nname = 'm'\nmodel = '{}'\n\
         [[sink]]\nname = 'out'\nkind = 'jsonl'\npath = '-'\n\
         [[stream]]\nname = 's'\nsource = '{video}'\nmodels = ['m']\nsinks = ['out']\nframes_max = 200\n\
         [[stream.zone]]\nname = 'everything'\ncorners = [0, 0, 1, 0, 1, 1, 0, 1]\n",
        model.display()
    );
    fs::write(&board, text).expect("written");
    let done = orinoco(&["run", "--json", "--board"]).arg(&board).output().expect("starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let seen: Vec<u64> =
        results(&done).iter().flat_map(|line| &line.detections).filter_map(|found| found.track_id).collect();
    assert!(seen.len() > 100 && seen.iter().all(|id| *id == 1), "{seen:?}");
    let stdout = String::from_utf8_lossy(&done.stdout);
    let summary =
        stdout.lines().find_map(|line| serde_json::from_str::<Summary>(line).ok()).expect("a summary");
    let tracked = summary.streams[0].tracked.clone().expect("objects are followed");
    assert_eq!(tracked.objects, 1);
    let zone = &tracked.zones[0];
    assert_eq!(zone.inside, zone.appeared + zone.entered - zone.left - zone.vanished);
    assert_eq!(zone.appeared + zone.entered, 1, "{zone:?}");
}

#[test]
fn weak_detections_and_crossings_are_in_the_results_as_the_summary_counts_them() {
    let Some(video) = shared("video/one-by-one-person-detection.mp4") else { return };
    let Some(engine) = engines().into_iter().find(|engine| *engine == "ort-cpu") else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let (board, model) = (dir.path().join("board.toml"), root().join("tests/models/yolox_nano"));
    let text = format!(
        "version = 1\n[inference]\nengines = ['{engine}']\n[[model]]\nname = 'm'\nmodel = '{}'\nscore_threshold = 0.1\n\
         [[sink]]\nname = 'out'\nkind = 'jsonl'\npath = '-'\n\
         [[stream]]\nname = 's'\nsource = '{video}'\nmodels = ['m']\nsinks = ['out']\nframes_max = 300\n\
         [stream.tracker]\nscore_high = 0.5\nscore_low = 0.1\n\
         [[stream.zone]]\nname = 'left'\ncorners = [0, 0, 0.5, 0, 0.5, 1, 0, 1]\n\
         [[stream.line]]\nname = 'middle'\nends = [0.5, 0, 0.5, 1]\n",
        model.display()
    );
    fs::write(&board, text).expect("written");
    let done = orinoco(&["run", "--json", "--board"]).arg(&board).output().expect("starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let lines = results(&done);
    let detections: Vec<_> = lines.iter().flat_map(|line| &line.detections).collect();
    let stray = detections.iter().find(|found| found.score < 0.5 && found.track_id.is_none());
    assert!(stray.is_none(), "{stray:?}");
    let stdout = String::from_utf8_lossy(&done.stdout);
    let summary =
        stdout.lines().find_map(|line| serde_json::from_str::<Summary>(line).ok()).expect("a summary");
    let stream = &summary.streams[0];
    assert_eq!(stream.detections, detections.len() as u64);
    let tracked = stream.tracked.clone().expect("objects are tracked");
    let zones =
        |event: &str| lines.iter().flat_map(|line| &line.zones).filter(|zone| zone.event == event).count();
    let crossed =
        |way: &str| lines.iter().flat_map(|line| &line.lines).filter(|line| line.direction == way).count();
    let (zone, line) = (&tracked.zones[0], &tracked.lines[0]);
    assert_eq!([zones("entered"), zones("left")].map(|count| count as u64), [zone.entered, zone.left]);
    assert_eq!([crossed("a_to_b"), crossed("b_to_a")].map(|count| count as u64), [line.a_to_b, line.b_to_a]);
    assert!(line.a_to_b + line.b_to_a > 0, "somebody walks through: {tracked:?}");
}

#[test]
fn shapes_that_are_none_are_told() {
    let check = |shape: &str, words: &[&str]| {
        let dir = tempfile::tempdir().expect("temporary folder");
        let board = dir.path().join("board.toml");
        let text = "version = 1\n[[stream]]\nname = 's'\nsource = 'test://ball?frames=1'\nmodels = []\n";
        fs::write(&board, format!("{text}{shape}")).expect("written");
        let refused = orinoco(&["run", "--board"]).arg(&board).output().expect("starts");
        assert_one_sentence(&refused, 2, "E0106", words);
    };
    check("[[stream.zone]]\nname = 'z'\ncorners = [0.1, 0.2, 0.3]\n", &["board.toml:8", "it has 3 numbers"]);
    check("[[stream.line]]\nname = 'l'\nends = [0.5, 0.5, 0.5, 0.5]\n", &["line l", "in one place"]);
    check("[[stream.zone]]\nname = 'z'\ncorners = [0, 0, 2, 0, 2, 2]\n", &["zone z"]);
    check("track = false\n[[stream.line]]\nname = 'l'\nends = [0, 0, 1, 1]\n", &["track", "tracking"]);
}
