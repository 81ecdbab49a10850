"""Writes vectors.json: small sequences, and what TrackEval and py-motmetrics say of them.

    pip install trackeval==1.3.0 motmetrics==1.4.0
    python vectors.py > vectors.json

Coordinates are quarters of a pixel, so that every program computes the same overlaps to the last bit. Boxes of one
frame never coincide: which of two equal pairs is taken is not defined, and the programs differ.
"""
import contextlib
import io
import json
import pathlib
import random
import sys
import tempfile

import motmetrics
import numpy as np
import trackeval
from trackeval.datasets._base_dataset import _BaseDataset

FRAMES = 24


def walk(rng, ident, klass, frames):
    """An object that walks straight: rows of frame, id, class, box."""
    x, y = rng.uniform(0, 160), rng.uniform(0, 80)
    vx, vy = rng.uniform(-5, 5), rng.uniform(-3, 3)
    w, h = rng.uniform(14, 30), rng.uniform(20, 50)
    return [[f, ident, klass, [x + vx * f, y + vy * f, w, h]] for f in frames]


def quarters(rows):
    return [[f, i, c, [round(v * 4) / 4 for v in b]] for f, i, c, b in rows]


def scene(rng, objects, classes=1, jitter=1.5, misses=0.1, strays=0.1, switches=0.05):
    """Truth, and what a poor tracker made of it."""
    truth, found, fresh = [], [], 1000
    for ident in range(objects):
        first = rng.randrange(0, FRAMES // 2)
        last = rng.randrange(first + 2, FRAMES + 1)
        rows = walk(rng, ident, rng.randrange(1, classes + 1), range(first, last))
        truth += rows
        name = ident
        for f, _, c, box in rows:
            if rng.random() < switches:
                name, fresh = fresh, fresh + 1
            if rng.random() >= misses:
                found.append([f, name, c, [v + rng.gauss(0, jitter) for v in box]])
            if rng.random() < strays:
                stray = [rng.uniform(0, 160), rng.uniform(0, 80), rng.uniform(5, 30), rng.uniform(5, 50)]
                found.append([f, fresh, c, stray])
                fresh += 1
    return truth, found


def swapped(rng):
    """Two objects whose ids are exchanged, back and forth."""
    truth = walk(rng, 1, 1, range(FRAMES)) + walk(rng, 2, 1, range(FRAMES))
    other = {1: 2, 2: 1}
    return truth, [[f, other[i] if (f // 5) % 2 else i, c, [b[0] + 0.5 * i, *b[1:]]] for f, i, c, b in truth]


def crowd(rng):
    """Many objects on one spot: every pair overlaps, and the best match of a frame is not the best of the video."""
    truth, found = [], []
    for f in range(FRAMES):
        for ident in range(8):
            box = lambda spread: [50 + rng.uniform(-spread, spread), 50 + rng.uniform(-spread, spread), 30, 40]
            truth.append([f, ident, 1, box(6)])
            found.append([f, ident % 5 + (f // 8) * 5 if ident < 5 else ident + 50, 1, box(6)])
    return truth, found


def borderline(rng):
    """Overlaps of exactly 1/2, 1/4 and 3/4: thresholds are reached, not passed."""
    truth, found = [], []
    for f in range(FRAMES):
        for ident, width in enumerate([8, 4, 12]):
            truth.append([f, ident, 1, [100 * ident, 0, 16, 16]])
            found.append([f, ident + (f > 9), 1, [100 * ident, 0, width, 16]])
    return truth, found


def gaps(rng):
    """Frames without labels, frames without boxes, objects that are away for a while."""
    truth, found = scene(rng, 4)
    truth = [row for row in truth if row[0] not in (3, 4, 11)]
    return truth, [row for row in found if row[0] not in (4, 7, 8, 15)]


def chain(rng):
    """Boxes in a row, each overlapping its neighbours, found half a step aside: a greedy match leaves one out."""
    truth = [[f, i, 1, [i * 10, 0, 20, 20]] for f in range(FRAMES) for i in range(6)]
    found = [[f, i, 1, [i * 10 + (4.75 if f % 3 else 5.25), 0, 20, 20]] for f in range(FRAMES) for i in range(5)]
    return truth, found


def sequences():
    rng = random.Random(20240611)
    yield "clean", scene(rng, 5, jitter=0.5, misses=0, strays=0, switches=0)
    yield "noisy", scene(rng, 6)
    yield "worse", scene(rng, 6, jitter=4, misses=0.3, strays=0.3, switches=0.2)
    yield "ids change", scene(rng, 5, switches=0.5)
    yield "classes", scene(rng, 6, classes=3)
    yield "swapped", swapped(rng)
    yield "crowd", crowd(rng)
    yield "borderline", borderline(rng)
    yield "gaps", gaps(rng)
    yield "chain", chain(rng)
    truth, found = scene(rng, 3)
    yield "nothing found", (truth, [])
    yield "nothing labelled", ([], found)
    # Everything apart: no pair at all.
    yield "apart", (truth, [[f, i, c, [b[0] + 1000, *b[1:]]] for f, i, c, b in truth])


def challenge(rng):
    """Lines of gt.txt with every class of MOTChallenge, some of them not to be judged, and of a tracker that follows what
    it likes."""
    truth, found = [], []
    for ident in range(1, 25):
        klass = 1 if ident % 2 else 1 + ident // 2
        rows = walk(rng, ident, klass, range(1, FRAMES + 1))
        zeros = klass != 1 or ident < 5
        truth += [[f, i, *box, 0 if zeros and f % 3 else 1, klass, 1] for f, i, _, box in quarters(rows)]
        if rng.random() < 0.8:
            rows = [[f, i + 100, 1, [v + rng.gauss(0, 1.5) for v in box]] for f, i, _, box in rows if rng.random() < 0.9]
            found += [[f, i, *box, 0.9, -1, -1, -1] for f, i, _, box in quarters(rows)]
    return ["".join(",".join(map(str, row)) + "\n" for row in rows) for rows in (truth, found)]


def by_challenge(benchmark, truth, found, metrics):
    """What TrackEval says of the two files, its preprocessing included."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in [("gt/seq/gt/gt.txt", truth), ("trackers/tracker/data/seq.txt", found)]:
            file = pathlib.Path(folder, name)
            file.parent.mkdir(parents=True)
            file.write_text(text)
        dataset = trackeval.datasets.MotChallenge2DBox({
            "GT_FOLDER": f"{folder}/gt", "TRACKERS_FOLDER": f"{folder}/trackers", "BENCHMARK": benchmark,
            "SKIP_SPLIT_FOL": True, "SEQ_INFO": {"seq": FRAMES}, "PRINT_CONFIG": False})
        data = dataset.get_preprocessed_seq_data(dataset.get_raw_seq_data("tracker", "seq"), "pedestrian")
    return [metric.eval_sequence(data) for metric in metrics]


def prepared(truth, found):
    """One class as TrackEval's metrics want it."""
    ids = lambda rows: {ident: index for index, ident in enumerate(sorted({row[1] for row in rows}))}
    truth_ids, found_ids = ids(truth), ids(found)
    data = {"num_gt_ids": len(truth_ids), "num_tracker_ids": len(found_ids), "num_gt_dets": len(truth),
            "num_tracker_dets": len(found), "num_timesteps": FRAMES, "gt_ids": [], "tracker_ids": [],
            "similarity_scores": []}
    for f in range(FRAMES):
        t, p = [row for row in truth if row[0] == f], [row for row in found if row[0] == f]
        data["gt_ids"].append(np.array([truth_ids[row[1]] for row in t], dtype=int))
        data["tracker_ids"].append(np.array([found_ids[row[1]] for row in p], dtype=int))
        boxes = lambda rows: np.array([row[3] for row in rows], dtype=float).reshape(-1, 4)
        data["similarity_scores"].append(_BaseDataset._calculate_box_ious(boxes(t), boxes(p)))
    return data


def by_trackeval(metric, classes):
    results = {str(index): metric.eval_sequence(data) for index, data in enumerate(classes)}
    return metric.combine_classes_det_averaged(results), results


def figures(combined):
    hota, clear, identity = combined
    mean = lambda field: float(np.mean(hota[field]))
    return {
        "hota": {f: mean(n) for f, n in [("hota", "HOTA"), ("det_a", "DetA"), ("ass_a", "AssA"), ("loc_a", "LocA"),
                                         ("det_re", "DetRe"), ("det_pr", "DetPr"), ("ass_re", "AssRe"),
                                         ("ass_pr", "AssPr")]},
        "clear": {f: int(clear[n]) for f, n in [("hits", "CLR_TP"), ("misses", "CLR_FN"), ("strays", "CLR_FP"),
                                                ("switches", "IDSW"), ("fragmentations", "Frag"),
                                                ("mostly_tracked", "MT"), ("partly_tracked", "PT"),
                                                ("mostly_lost", "ML")]}
        | {"mota": float(clear["MOTA"]), "motp": float(clear["MOTP"])},
        "identity": {f: int(identity[n]) for f, n in [("hits", "IDTP"), ("misses", "IDFN"), ("strays", "IDFP")]}
        | {"idf1": float(identity["IDF1"]), "idp": float(identity["IDP"]), "idr": float(identity["IDR"])},
    }


def by_motmetrics(truth, found, combined):
    """Of one class. py-motmetrics prefers the pair that was made last, however long ago; TrackEval the one of the frame
    before. Where that changes a count, CLEAR MOT is left out here."""
    accumulator = motmetrics.MOTAccumulator(auto_id=True)
    data = prepared(truth, found)
    for t, p, overlaps in zip(data["gt_ids"], data["tracker_ids"], data["similarity_scores"]):
        distances = np.where(overlaps >= 0.5, 1 - overlaps, np.nan)
        accumulator.update(t, p, distances)
    names = ["idf1", "idp", "idr", "mota", "motp", "num_switches", "num_misses", "num_false_positives"]
    row = motmetrics.metrics.create().compute(accumulator, metrics=names, name="s").loc["s"]
    result = {name: float(row[name]) for name in ("idf1", "idp", "idr")}
    clear = combined[1]
    if [row[n] for n in names[5:]] == [clear[n] for n in ("IDSW", "CLR_FN", "CLR_FP")]:
        result |= {"mota": float(row["mota"])}
        if np.isfinite(row["motp"]):
            result |= {"motp": 1 - float(row["motp"])}
    return result


def main():
    metrics = [trackeval.metrics.HOTA(), trackeval.metrics.CLEAR({"PRINT_CONFIG": False}),
               trackeval.metrics.Identity({"PRINT_CONFIG": False})]
    cases, all_results = [], [{}, {}, {}]
    for name, (truth, found) in sequences():
        truth, found = quarters(truth), quarters(found)
        klasses = sorted({row[2] for row in truth + found})
        of = lambda rows, klass: [row for row in rows if row[2] == klass]
        classes = [prepared(of(truth, k), of(found, k)) for k in klasses]
        combined = [by_trackeval(metric, classes)[0] for metric in metrics]
        for results, one in zip(all_results, combined):
            results[name] = one
        case = {"name": name, "trackeval": figures(combined)}
        if len(klasses) == 1 and truth and found:
            case["motmetrics"] = by_motmetrics(truth, found, combined)
        cases.append(case | {"truth": truth, "found": found})
    rng = random.Random(20170321)
    challenges = []
    for benchmark in ["MOT17", "MOT20"]:
        truth, found = challenge(rng)
        results = by_challenge(benchmark, truth, found, metrics)
        challenges.append({"name": benchmark, "trackeval": figures(results), "truth": truth, "found": found})
    total = [metric.combine_sequences(results) for metric, results in zip(metrics, all_results)]
    made = "written by vectors.py with trackeval 1.3.0 and motmetrics 1.4.0; rows are frame, id, class, [x, y, w, h]"
    # One row of text for each case's rows: short, and a change shows where it is.
    print('{"made": ' + json.dumps(made) + ',\n"combined": ' + json.dumps(figures(total)) + ',\n"cases": [')
    lines = lambda cases: ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in cases)
    print(lines(cases))
    print('],\n"challenges": [')
    print(lines(challenges))
    print("]}")


with contextlib.redirect_stdout(io.StringIO()) as text:
    main()
sys.stdout.write(text.getvalue())
