"""Writes labels.csv: what the teacher (YOLOX-Nano, COCO class person) sees in every frame of the video.

  python label.py --video vtest.avi [--data DIR]

DIR holds `models/yolox_nano.onnx`; it defaults to $ORINOCO_DATA, else `../shared/data` next to the repository.
"""
import argparse
import csv
import os
import pathlib

import cv2
import numpy as np
import onnxruntime as ort

from scene import HERE, clip, frames, nms

SIZE, PERSON, SCORE_MIN, IOU_MAX = 416, 0, 0.3, 0.45


def main():
    args = arguments()
    teacher = ort.InferenceSession(str(args.data / "models" / "yolox_nano.onnx"))
    rows = 0
    with open(args.out, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["frame", "x1", "y1", "x2", "y2", "score"])
        for index, bgr in enumerate(frames(args.video)):
            boxes = people(teacher, bgr)
            out.writerows([index, *(f"{value:.2f}" for value in box)] for box in boxes)
            rows += len(boxes)
            if index % 100 == 99:
                print(f"{index + 1} frames, {rows} people", flush=True)
    print(f"{args.out}: {index + 1} frames, {rows} people")


def people(teacher, bgr):
    """The teacher's boxes for one frame, in source pixels."""
    image, ratio = letterbox(bgr)
    raw = teacher.run(None, {"images": image.transpose(2, 0, 1)[None].astype(np.float32)})[0][0]
    boxes = decode(raw)
    boxes[:, :4] /= ratio
    boxes = nms(boxes[boxes[:, 4] >= SCORE_MIN], IOU_MAX)
    return clip(boxes, bgr.shape[1], bgr.shape[0])


def letterbox(bgr):
    """Scales to fit, bilinear, and fills the right and the bottom with 114. Returns BGR bytes and the ratio."""
    ratio = min(SIZE / bgr.shape[0], SIZE / bgr.shape[1])
    height, width = int(bgr.shape[0] * ratio), int(bgr.shape[1] * ratio)
    out = np.full((SIZE, SIZE, 3), 114, np.uint8)
    out[:height, :width] = cv2.resize(bgr, (width, height), interpolation=cv2.INTER_LINEAR)
    return out, ratio


def decode(raw):
    """YOLOX rows (strides 8, 16, 32 in raster order) to person boxes in input pixels."""
    grids, strides = [], []
    for stride in (8, 16, 32):
        cells = np.arange(SIZE // stride)
        grids.append(np.stack(np.meshgrid(cells, cells), 2).reshape(-1, 2))
        strides.append(np.full((len(cells) ** 2, 1), stride))
    grid, stride = np.concatenate(grids), np.concatenate(strides)
    centre, size = (raw[:, :2] + grid) * stride, np.exp(raw[:, 2:4]) * stride
    score = raw[:, 4:5] * raw[:, 5 + PERSON:6 + PERSON]
    return np.concatenate((centre - size / 2, centre + size / 2, score), 1)


def arguments():
    shared = HERE.parents[2] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", required=True, type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("ORINOCO_DATA", shared))
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "labels.csv")
    args = parser.parse_args()
    args.data = pathlib.Path(args.data)
    return args


if __name__ == "__main__":
    main()
