"""AP50, precision and recall on the held-back frames, against the teacher's labels.

  python evaluate.py --video vtest.avi [--model 1/model.onnx] [--json]
  python evaluate.py --detections results.jsonl [--json]

The second form judges a runtime instead of the ONNX file. Each line is one object with `seq` (the frame's
index, from 0) and `detections: [{score, box: [x1, y1, x2, y2], label}]` in source pixels; a frame without a
line counts as a frame without detections. Let the runtime report scores down to 0.01 for a full AP.
"""
import argparse
import json
import pathlib
import time
import tomllib

import numpy as np

from scene import HERE, HEIGHT, STRIDE, TRAIN_FRACTION, WIDTH, clip, frames, iou, nms, prepare, read_labels

SCORE_MIN, IOU_MATCH = 0.01, 0.5
FRAME_COUNT, SOURCE_WIDTH, SOURCE_HEIGHT = 795, 768, 576  # of vtest.avi
FIRST_HELD_BACK = int(FRAME_COUNT * TRAIN_FRACTION)


def main():
    args = arguments()
    manifest = tomllib.loads((HERE / "model.toml").read_text())["output"]
    if args.detections:
        found, ms = read_detections(args.detections), None
    else:
        found, ms = detect(args.video, args.model, manifest["iou_threshold"])
    threshold = args.threshold or manifest["score_threshold"]
    result = judge(found, read_labels(args.labels), threshold)
    if ms is not None:
        result["ms_per_frame"] = round(ms, 2)
    print(json.dumps(result) if args.json else "\n".join(f"{key:>13} {value}" for key, value in result.items()))


def detect(video, model, iou_threshold):
    """Runs the ONNX file on the held-back frames with one thread. Returns {frame: boxes} and the median ms."""
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    found, spent = {}, []
    for index, bgr in enumerate(frames(video)):
        if index < FIRST_HELD_BACK:
            continue
        tensor = prepare(bgr).transpose(2, 0, 1)[None].astype(np.float32) / 255
        start = time.perf_counter()
        heatmap, size, offset = session.run(["heatmap", "size", "offset"], {"images": tensor})
        spent.append((time.perf_counter() - start) * 1e3)
        boxes = nms(decode(heatmap[0, 0], size[0], offset[0]), iou_threshold)
        boxes[:, :4] *= np.array([bgr.shape[1] / WIDTH, bgr.shape[0] / HEIGHT] * 2, np.float32)
        found[index] = boxes
    return found, float(np.median(spent))


def decode(heatmap, size, offset, score_min=SCORE_MIN):
    """Peaks (cells equal to the maximum of their 3x3 neighbourhood) to boxes in input pixels."""
    rows, columns = heatmap.shape
    padded = np.pad(heatmap, 1, constant_values=-1)
    around = [padded[y:y + rows, x:x + columns] for y in range(3) for x in range(3)]
    y, x = np.nonzero((heatmap == np.max(around, axis=0)) & (heatmap >= score_min))
    centre = (np.stack((x, y), 1) + offset[:, y, x].T) * STRIDE
    half = size[:, y, x].T / 2
    return np.concatenate((centre - half, centre + half, heatmap[y, x][:, None]), 1)


def read_detections(path):
    """The runtime's results as {frame: boxes}; only label `person`."""
    found = {}
    for line in filter(str.strip, path.read_text().splitlines()):
        record = json.loads(line)
        boxes = [[*d["box"], d["score"]] for d in record["detections"] if d.get("label", "person") == "person"]
        found[record["seq"]] = np.array(boxes, np.float32).reshape(-1, 5)
    return found


def judge(found, labels, threshold):
    """AP50 over all scores from SCORE_MIN, precision and recall at `threshold`."""
    scores, hits, people = [], [], 0
    for frame in range(FIRST_HELD_BACK, FRAME_COUNT):
        truth = labels.get(frame, np.zeros((0, 5), np.float32))
        boxes = clip(found.get(frame, np.zeros((0, 5), np.float32)), SOURCE_WIDTH, SOURCE_HEIGHT)
        boxes = boxes[boxes[:, 4] >= SCORE_MIN]
        boxes = boxes[np.argsort(-boxes[:, 4], kind="stable")]
        people += len(truth)
        scores.extend(boxes[:, 4])
        hits.extend(match(boxes, truth))
    scores, hits = np.array(scores), np.array(hits, bool)
    kept = hits[scores >= threshold]
    return {
        "ap50": round(average_precision(scores, hits, people), 4),
        "precision": round(float(kept.mean()) if len(kept) else 0.0, 4),
        "recall": round(float(kept.sum() / people), 4),
        "threshold": threshold,
        "frames": FRAME_COUNT - FIRST_HELD_BACK,
        "people": people,
        "detections": len(kept),
    }


def match(boxes, truth):
    """For each box, best score first: does it take a label that no better box took, at IoU 0.5 or more?"""
    free, hits = np.ones(len(truth), bool), []
    for box in boxes:
        overlap = np.where(free, iou(box, truth), -1)
        best = int(overlap.argmax()) if len(truth) else -1
        hit = best >= 0 and overlap[best] >= IOU_MATCH
        if hit:
            free[best] = False
        hits.append(hit)
    return hits


def average_precision(scores, hits, people):
    """COCO: the mean over 101 recalls of the best precision at that recall or a higher one."""
    order = np.argsort(-scores, kind="stable")
    true = np.cumsum(hits[order])
    recall, precision = true / people, true / np.arange(1, len(true) + 1)
    best = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    return float(best[np.searchsorted(recall, np.linspace(0, 1, 101), side="left")].mean())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--video", type=pathlib.Path)
    source.add_argument("--detections", type=pathlib.Path, help="JSON lines of a runtime")
    parser.add_argument("--model", type=pathlib.Path, default=HERE / "1" / "model.onnx")
    parser.add_argument("--labels", type=pathlib.Path, default=HERE / "labels.csv")
    parser.add_argument("--threshold", type=float, help="instead of model.toml's")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
