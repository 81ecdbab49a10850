//! Compares the figures of `orinoco_eval::mot` with those of TrackEval and py-motmetrics (see vectors.py).

use orinoco_eval::mot::{PEDESTRIAN, Report, Row, Rules, Sequence, evaluate};
use serde::Deserialize;

/// Maximum difference of figures: the programs sum in different orders.
const APART_MAX: f64 = 1e-9;

#[derive(Deserialize)]
struct Vectors {
    combined: Figures,
    cases: Vec<Case>,
    challenges: Vec<Challenge>,
}

/// Files in the exchange format, evaluated by the rules of the challenge `name`.
#[derive(Deserialize)]
struct Challenge {
    name: String,
    trackeval: Figures,
    truth: String,
    found: String,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    trackeval: Figures,
    motmetrics: Option<Motmetrics>,
    truth: Vec<Object>,
    found: Vec<Object>,
}

/// Object: frame, id, class, bounds.
#[derive(Deserialize)]
struct Object(u32, u64, u32, [f64; 4]);

#[derive(Deserialize)]
struct Figures {
    hota: HotaFigures,
    clear: ClearFigures,
    identity: IdentityFigures,
}

#[derive(Deserialize)]
struct HotaFigures {
    hota: f64,
    det_a: f64,
    ass_a: f64,
    loc_a: f64,
    det_re: f64,
    det_pr: f64,
    ass_re: f64,
    ass_pr: f64,
}

#[derive(Deserialize)]
struct ClearFigures {
    hits: u64,
    misses: u64,
    strays: u64,
    switches: u64,
    fragmentations: u64,
    mostly_tracked: u64,
    partly_tracked: u64,
    mostly_lost: u64,
    mota: f64,
    motp: f64,
}

#[derive(Deserialize)]
struct IdentityFigures {
    hits: u64,
    misses: u64,
    strays: u64,
    idf1: f64,
    idp: f64,
    idr: f64,
}

#[derive(Deserialize)]
struct Motmetrics {
    idf1: f64,
    idp: f64,
    idr: f64,
    /// Absent where py-motmetrics' definition of CLEAR MOT counts otherwise.
    mota: Option<f64>,
    motp: Option<f64>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("vectors.json")).expect("as vectors.py wrote it")
}

#[test]
fn figures_are_those_of_trackeval_and_motmetrics() {
    let vectors = vectors();
    let mut combined = Report::default();
    let mut clear_compared = 0;
    for case in &vectors.cases {
        let report = evaluate(&sequence(&case.truth), &sequence(&case.found));
        check(&case.name, &report, &case.trackeval);
        combined += &report;
        if let Some(other) = &case.motmetrics {
            let near = |what, ours: Option<f64>, theirs| near(&case.name, what, ours.unwrap_or(0.0), theirs);
            near("motmetrics idf1", report.identity.idf1(), other.idf1);
            near("motmetrics idp", report.identity.idp(), other.idp);
            near("motmetrics idr", report.identity.idr(), other.idr);
            if let (Some(mota), Some(motp)) = (other.mota, other.motp) {
                near("motmetrics mota", report.clear.mota(), mota);
                near("motmetrics motp", report.clear.motp(), motp);
                clear_compared += 1;
            }
        }
    }
    assert!(clear_compared >= 5, "py-motmetrics' CLEAR MOT was compared in {clear_compared} cases only");
    check("combined", &combined, &vectors.combined);
}

#[test]
fn the_challenges_rules_are_those_of_trackeval() {
    for Challenge { name, trackeval, truth, found } in vectors().challenges {
        let read = |text: &str| Sequence::parse(text, &name).expect("as vectors.py wrote it");
        let (truth, found) = (read(&truth), read(&found));
        let (judged, counted) = Rules::of(&format!("{name}-02")).apply(&truth, &found);
        assert!(counted.rows().len() < found.rows().len(), "{name}: what lies on distractors is left out");
        assert!(judged.rows().iter().all(|row| row.class == PEDESTRIAN && row.confidence == 1.0));
        check(&name, &evaluate(&judged, &counted), &trackeval);
        let other = Rules::of(if name == "MOT20" { "MOT17-02" } else { "MOT20-02" }).apply(&truth, &found);
        assert_ne!(other.1, counted, "{name}: the challenges differ in their distractors");
    }
}

fn sequence(objects: &[Object]) -> Sequence {
    let row = |&Object(frame, id, class, bounds): &Object| Row {
        frame,
        id,
        class,
        bounds,
        confidence: 1.0,
        visibility: 1.0,
    };
    Sequence::new(objects.iter().map(row).collect()).expect("ids are unique in a frame")
}

fn check(case: &str, ours: &Report, theirs: &Figures) {
    let (hota, clear, identity) = (&ours.hota, &ours.clear, &ours.identity);
    let near = |what, ours, theirs| near(case, what, ours, theirs);
    near("hota", hota.hota(), theirs.hota.hota);
    near("det_a", hota.det_a(), theirs.hota.det_a);
    near("ass_a", hota.ass_a(), theirs.hota.ass_a);
    near("loc_a", hota.loc_a(), theirs.hota.loc_a);
    near("det_re", hota.det_re(), theirs.hota.det_re);
    near("det_pr", hota.det_pr(), theirs.hota.det_pr);
    near("ass_re", hota.ass_re(), theirs.hota.ass_re);
    near("ass_pr", hota.ass_pr(), theirs.hota.ass_pr);
    let equal = |what: &str, ours: u64, theirs: u64| assert_eq!(ours, theirs, "{case}: {what}");
    equal("hits", clear.hits, theirs.clear.hits);
    equal("misses", clear.misses, theirs.clear.misses);
    equal("strays", clear.strays, theirs.clear.strays);
    equal("switches", clear.switches, theirs.clear.switches);
    equal("fragmentations", clear.fragmentations, theirs.clear.fragmentations);
    equal("mostly tracked", clear.mostly_tracked, theirs.clear.mostly_tracked);
    equal("partly tracked", clear.partly_tracked, theirs.clear.partly_tracked);
    equal("mostly lost", clear.mostly_lost, theirs.clear.mostly_lost);
    // Without labelled boxes TrackEval divides by one; here the figure is absent.
    if let Some(mota) = clear.mota() {
        near("mota", mota, theirs.clear.mota);
    }
    near("motp", clear.motp().unwrap_or(0.0), theirs.clear.motp);
    equal("identity hits", identity.hits, theirs.identity.hits);
    equal("identity misses", identity.misses, theirs.identity.misses);
    equal("identity strays", identity.strays, theirs.identity.strays);
    near("idf1", identity.idf1().unwrap_or(0.0), theirs.identity.idf1);
    near("idp", identity.idp().unwrap_or(0.0), theirs.identity.idp);
    near("idr", identity.idr().unwrap_or(0.0), theirs.identity.idr);
}

fn near(case: &str, what: &str, ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() < APART_MAX, "{case}: {what} is {ours} here and {theirs} there");
}
