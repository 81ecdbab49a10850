"""Evaluates every set of a JSON list with pycocotools; prints the twelve figures and the AP of each class."""
import contextlib
import io
import json
import sys

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def evaluate(one):
    coco = COCO()
    coco.dataset = {
        "images": [{"id": index} for index in range(one["images"])],
        "annotations": [
            {"id": index + 1, "image_id": t["image"], "category_id": t["class"], "bbox": t["bounds"],
             "area": t["area"], "iscrowd": int(t["crowd"])}
            for index, t in enumerate(one["truth"])
        ],
        "categories": [{"id": index} for index in range(one["classes"])],
        "info": {},
    }
    coco.createIndex()
    found = [
        {"image_id": f["image"], "category_id": f["class"], "bbox": f["bounds"], "score": f["score"]}
        for f in one["found"]
    ]
    evaluation = COCOeval(coco, coco.loadRes(found), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    precision = evaluation.eval["precision"][:, :, :, 0, 2]
    classes = [precision[:, :, k] for k in range(one["classes"])]
    means = [float(p[p > -1].mean()) if (p > -1).any() else -1.0 for p in classes]
    return {"stats": [float(value) for value in evaluation.stats], "classes": means}


def main():
    sets = json.load(open(sys.argv[1]))
    results = []
    with contextlib.redirect_stdout(io.StringIO()):
        for one in sets:
            results.append(evaluate(one))
    json.dump(results, sys.stdout)


main()
