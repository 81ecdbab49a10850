"""The video, its labels and the boxes in them: what label.py, train.py and evaluate.py share.

Boxes are float arrays of rows `x1 y1 x2 y2 score`. Labels are kept in source pixels; the model
works on a plain stretch to WIDTH x HEIGHT, so a frame of 768x576 is halved exactly.
"""
import csv
import pathlib

import cv2
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT, STRIDE = 384, 288, 8
TRAIN_FRACTION = 0.8  # the first part of the video trains, the rest is held back


def frames(path):
    """Yields every frame as BGR bytes."""
    video, count = cv2.VideoCapture(str(path)), 0
    while True:
        ok, bgr = video.read()
        if not ok:
            break
        count += 1
        yield bgr
    if count == 0:
        raise SystemExit(f"no frame could be read from {path}")


def prepare(bgr):
    """The model's input image: RGB bytes, stretched. For an exact halving this is the 2x2 mean."""
    small = cv2.resize(bgr, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_BGR2RGB)


def read_labels(path):
    """labels.csv as {frame: boxes}; a frame without people has no entry."""
    labels = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            box = [float(row[key]) for key in ("x1", "y1", "x2", "y2", "score")]
            labels.setdefault(int(row["frame"]), []).append(box)
    return {frame: np.array(boxes, np.float32) for frame, boxes in labels.items()}


def clip(boxes, width, height):
    """Cuts boxes at the frame's border and drops those with nothing left."""
    out = boxes.copy()
    out[:, 0:4:2] = out[:, 0:4:2].clip(0, width)
    out[:, 1:4:2] = out[:, 1:4:2].clip(0, height)
    return out[(out[:, 2] > out[:, 0]) & (out[:, 3] > out[:, 1])]


def iou(box, others):
    """Intersection over union of one box with each of the others."""
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:4], others[:, 2:4])
    shared = np.prod((high - low).clip(0), axis=1)
    areas = np.prod(others[:, 2:4] - others[:, :2], axis=1)
    return shared / (np.prod(box[2:4] - box[:2]) + areas - shared + 1e-9)


def nms(boxes, iou_threshold):
    """Greedy suppression; the result is sorted best first."""
    rest, kept = boxes[np.argsort(-boxes[:, 4], kind="stable")], []
    while len(rest):
        kept.append(rest[0])
        rest = rest[1:][iou(rest[0], rest[1:]) <= iou_threshold]
    return np.array(kept, np.float32).reshape(-1, 5)
