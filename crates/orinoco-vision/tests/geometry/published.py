"""The geometry of published preprocessing, written from each project's own arithmetic, for tests/geometry/main.rs.

Reads lines `rule width height model_width model_height` and answers each with `width height left top`: the size of the
resized image and its left top corner in the model's input. Nothing here is shared with the Rust code.

  yolox        YOLOX, yolox/data/data_augment.py, preproc (commit 05b20c859d7f)
  ultralytics  Ultralytics, ultralytics/data/augment.py, LetterBox with auto=False, center=True; YOLOv5 and YOLOv7 alike
  nvinfer      DeepStream, gst-nvinfer's get_converted_buffer with maintain-aspect-ratio and symmetric-padding
  stretch      cv2.resize, and torchvision's Resize of two sides
  torchvision  Resize(shorter) and CenterCrop of torchvision/transforms/functional.py; `model_width` is the shorter side,
               the cut is a square of `model_height`
"""

import sys


def yolox(width, height, model_width, model_height):
    r = min(model_height / height, model_width / width)
    return int(width * r), int(height * r), 0, 0


def ultralytics(width, height, model_width, model_height):
    r = min(model_height / height, model_width / width)
    new_unpad = int(round(width * r)), int(round(height * r))
    dw, dh = model_width - new_unpad[0], model_height - new_unpad[1]
    dw /= 2
    dh /= 2
    return new_unpad[0], new_unpad[1], int(round(dw - 0.1)), int(round(dh - 0.1))


def nvinfer(width, height, model_width, model_height):
    hdest = model_width * height / float(width)
    wdest = model_height * width / float(height)
    if hdest <= model_height:
        dest = model_width, int(hdest)
    else:
        dest = int(wdest), model_height
    return dest[0], dest[1], (model_width - dest[0]) // 2, (model_height - dest[1]) // 2


def stretch(_width, _height, model_width, model_height):
    return model_width, model_height, 0, 0


def torchvision(width, height, shorter, crop):
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = shorter, int(shorter * long / short)
    new_w, new_h = (new_short, new_long) if width <= height else (new_long, new_short)
    padding_ltrb = (crop - new_w) // 2 if crop > new_w else 0, (crop - new_h) // 2 if crop > new_h else 0
    # A side that was filled has the length of the cut, so that nothing is cut off it.
    crop_left, crop_top = int(round((max(new_w, crop) - crop) / 2.0)), int(round((max(new_h, crop) - crop) / 2.0))
    return new_w, new_h, padding_ltrb[0] - crop_left, padding_ltrb[1] - crop_top


RULES = {"yolox": yolox, "ultralytics": ultralytics, "nvinfer": nvinfer, "stretch": stretch, "torchvision": torchvision}


def main():
    answers = []
    for line in sys.stdin:
        rule, *sizes = line.split()
        answers.append("%d %d %d %d\n" % RULES[rule](*map(int, sizes)))
    sys.stdout.write("".join(answers))


main()
