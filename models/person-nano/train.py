"""Trains person-nano on the first 80 % of the video and writes 1/model.onnx.

  python train.py --video vtest.avi [--epochs 30]

A depthwise-separable network down to stride 16, one step up to stride 8, three heads: the chance that a cell
holds a person's centre, the person's width and height, and where in the cell the centre lies.
"""
import argparse
import pathlib
import time

import cv2
import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

from scene import HERE, HEIGHT, STRIDE, TRAIN_FRACTION, WIDTH, clip, frames, prepare, read_labels

SEED, BATCH, RATE_MAX = 7, 12, 2e-3
SIZE_UNIT = 32.0  # input pixels; keeps the size head near 1
ROWS, COLUMNS = HEIGHT // STRIDE, WIDTH // STRIDE


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    images, labels = load(args.video, args.labels)
    model = PersonNano()
    print(f"{len(images)} frames, {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    export(train(model, images, labels, args.epochs), args.out)


def load(video, labels):
    """The training frames as model inputs, and their boxes in input pixels."""
    sources = list(frames(video))
    sources = sources[:int(len(sources) * TRAIN_FRACTION)]
    height, width = sources[0].shape[:2]
    scale = np.array([WIDTH / width, HEIGHT / height] * 2 + [1], np.float32)
    by_frame, none = read_labels(labels), np.zeros((0, 5), np.float32)
    boxes = [by_frame.get(index, none) * scale for index in range(len(sources))]
    return [prepare(bgr) for bgr in sources], boxes


# --- the network ---

def conv(inputs, outputs, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Separable(nn.Module):
    """A depthwise and a pointwise convolution, nothing between them, and a shortcut where the shape stays."""

    def __init__(self, inputs, outputs, stride=1, kernel=3):
        super().__init__()
        depthwise = nn.Conv2d(inputs, inputs, kernel, stride, kernel // 2, groups=inputs, bias=False)
        self.body = nn.Sequential(depthwise, conv(inputs, outputs, 1))
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.shortcut else self.body(x)


class PersonNano(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 3, 2), Separable(16, 32, 2), Separable(32, 32))
        self.stride8 = nn.Sequential(Separable(32, 80, 2), Separable(80, 80), Separable(80, 80), Separable(80, 80))
        self.stride16 = nn.Sequential(
            Separable(80, 160, 2), Separable(160, 160, kernel=5), Separable(160, 160, kernel=5),
            Separable(160, 160, kernel=5), conv(160, 80, 1))
        self.merge = nn.Sequential(Separable(80, 80, kernel=5), Separable(80, 80, kernel=5))
        self.heatmap = nn.Sequential(Separable(80, 80), nn.Conv2d(80, 1, 1))
        self.box = nn.Sequential(Separable(80, 80), Separable(80, 80))
        self.size, self.offset = nn.Conv2d(80, 2, 1), nn.Conv2d(80, 2, 1)
        nn.init.constant_(self.heatmap[1].bias, -4.0)  # people are rare: start near 2 %
        nn.init.constant_(self.size.bias, 1.0)

    def forward(self, images):
        """Returns heatmap logits, size in SIZE_UNITs and offset in cells."""
        fine = self.stride8(self.stem(images))
        coarse = F.interpolate(self.stride16(fine), scale_factor=2.0, mode="nearest")
        x = self.merge(fine + coarse)
        box = self.box(x)
        return self.heatmap(x), F.relu(self.size(box)), torch.sigmoid(self.offset(box))


class Deployed(nn.Module):
    """The graph as it is shipped: sigmoid on the heatmap, size in input pixels (the unit goes into the weights)."""

    def __init__(self, model):
        super().__init__()
        self.model = model.eval()
        with torch.no_grad():
            model.size.weight *= SIZE_UNIT
            model.size.bias *= SIZE_UNIT

    def forward(self, images):
        heatmap, size, offset = self.model(inputs)
        return torch.sigmoid(heatmap), size, offset


# --- images and targets ---

def jitter(image, boxes, random):
    """A training example: the frame flipped, moved, relit and compressed by chance."""
    if random.random() < 0.7:
        image, boxes = move(image, boxes, random)
    if random.random() < 0.5:
        image, boxes = image[:, ::-1], boxes.copy()
        boxes[:, [0, 2]] = WIDTH - boxes[:, [2, 0]]
    image = relight(np.ascontiguousarray(image), random)
    if random.random() < 0.3:
        noise = random.standard_normal(image.shape, np.float32) * random.uniform(1, 6)
        image = np.clip(image + noise, 0, 255).astype(np.uint8)
    if random.random() < 0.3:
        quality = int(random.integers(40, 95))
        image = cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)
    return image, boxes


def relight(image, random):
    """Changes contrast and brightness, sometimes for each colour by itself."""
    gain = random.uniform(0.75, 1.3, 3 if random.random() < 0.3 else 1)
    levels = np.arange(256)[:, None] * gain + random.uniform(-25, 25)
    table = np.clip(levels, 0, 255).astype(np.uint8) * np.ones((1, 3), np.uint8)
    return cv2.LUT(image, table[None])


def move(image, boxes, random):
    """Scales about a random point, the same for both axes but a few percent, and shifts."""
    scale = random.uniform(0.8, 1.3) * random.uniform(0.95, 1.05, 2)
    slack = np.array([WIDTH, HEIGHT]) * (1 - scale)
    shift = slack * random.uniform(0, 1, 2) + random.uniform(-8, 8, 2)
    matrix = np.array([[scale[0], 0, shift[0]], [0, scale[1], shift[1]]])
    image = cv2.warpAffine(image, matrix, (WIDTH, HEIGHT), borderValue=(114, 114, 114))
    moved = boxes.copy()
    moved[:, :4] = boxes[:, :4] * np.tile(scale, 2) + np.tile(shift, 2)
    area = np.prod(moved[:, 2:4] - moved[:, :2], axis=1)
    cut = moved.copy()
    cut[:, :4] = moved[:, :4].clip(0, [WIDTH, HEIGHT] * 2)
    seen = np.prod(cut[:, 2:4] - cut[:, :2], axis=1) > 0.3 * area
    return image, clip(cut[seen], WIDTH, HEIGHT)


def targets(boxes):
    """Heatmap with a Gaussian per person, and for each cell near a centre the box and its weight."""
    heat = np.zeros((ROWS, COLUMNS), np.float32)
    box, weight = np.zeros((4, ROWS, COLUMNS), np.float32), np.zeros((ROWS, COLUMNS), np.float32)
    rows, columns = np.mgrid[:ROWS, :COLUMNS]
    for x1, y1, x2, y2, _ in boxes:
        cx, cy, width, height = (x1 + x2) / 2 / STRIDE, (y1 + y2) / 2 / STRIDE, x2 - x1, y2 - y1
        column, row = min(int(cx), COLUMNS - 1), min(int(cy), ROWS - 1)
        spread_x, spread_y = max(width / STRIDE / 6, 0.5), max(height / STRIDE / 6, 0.5)
        bump = np.exp(-((columns - column) ** 2 / spread_x ** 2 + (rows - row) ** 2 / spread_y ** 2) / 2)
        near = (bump > 0.1) & (bump > weight)
        box[:, near] = np.array([x1, y1, x2, y2])[:, None]
        weight[near] = bump[near]
        heat = np.maximum(heat, bump)
    return heat.astype(np.float32), box, weight


def batches(images, labels, random):
    """One epoch, shuffled."""
    order = random.permutation(len(images))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = [jitter(images[i], labels[i], random) for i in order[start:start + BATCH]]
        inputs = np.stack([image.transpose(2, 0, 1) for image, _ in chosen])
        maps = [np.stack(part) for part in zip(*(targets(boxes) for _, boxes in chosen))]
        yield torch.from_numpy(inputs).float() / 255, *map(torch.from_numpy, maps)


# --- the loss and the loop ---

def heat_loss(logits, heat):
    """CenterNet's focal loss: certain only at centres, forgiving next to them."""
    chance = logits.sigmoid().clamp(1e-4, 1 - 1e-4)
    centre = heat == 1
    hit = -((1 - chance) ** 2 * chance.log())[centre].sum()
    miss = -((1 - heat) ** 4 * chance ** 2 * (1 - chance).log())[~centre].sum()
    return (hit + miss) / centre.sum().clamp(min=1)


def box_loss(size, offset, box, weight):
    """1 - GIoU plus a little L1 on the size, near centres only."""
    rows, columns = torch.meshgrid(torch.arange(ROWS), torch.arange(COLUMNS), indexing="ij")
    centre = (offset + torch.stack((columns, rows))) * STRIDE
    half = size * SIZE_UNIT / 2
    low, high = centre - half, centre + half
    inner = (torch.minimum(high, box[:, 2:]) - torch.maximum(low, box[:, :2])).clamp(min=0).prod(1)
    outer = (torch.maximum(high, box[:, 2:]) - torch.minimum(low, box[:, :2])).prod(1)
    wanted = box[:, 2:] - box[:, :2]
    union = (high - low).prod(1) + wanted.prod(1) - inner
    giou = inner / (union + 1e-6) - (outer - union) / (outer + 1e-6)
    extent = (size - wanted / SIZE_UNIT).abs().sum(1)
    return ((1 - giou + 0.2 * extent) * weight).sum() / weight.sum().clamp(min=1)


def train(model, images, labels, epochs):
    """Returns the running average of the weights, which is better than the last ones."""
    random = np.random.default_rng(SEED)
    steps = epochs * (len(images) // BATCH)
    optimiser = torch.optim.AdamW(model.parameters(), RATE_MAX, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE_MAX, steps, pct_start=0.1)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.995), use_buffers=True)
    start = time.monotonic()
    for epoch in range(epochs):
        model.train()
        losses = []
        for inputs, heat, box, weight in batches(images, labels, random):
            logits, size, offset = model(inputs)
            parts = heat_loss(logits[:, 0], heat), box_loss(size, offset, box, weight)
            optimiser.zero_grad()
            sum(parts).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()
            schedule.step()
            average.update_parameters(model)
            losses.append([float(part.detach()) for part in parts])
        heat, box = np.mean(losses, axis=0)
        print(f"epoch {epoch + 1}/{epochs}: heat {heat:.3f} box {box:.3f}, {time.monotonic() - start:.0f} s", flush=True)
    return average.module


def export(model, path):
    """A single file, opset 17, batch norms folded into the convolutions, only `batch` left open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    outputs = ["heatmap", "size", "offset"]
    torch.onnx.export(
        Deployed(model).eval(), (torch.zeros(1, 3, HEIGHT, WIDTH),), str(path), dynamo=False, opset_version=17,
        input_names=["images"], output_names=outputs, dynamic_axes={name: {0: "batch"} for name in ["images", *outputs]})
    onnx.checker.check_model(onnx.load(path), full_check=True)
    print(f"{path}: {path.stat().st_size} bytes")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", required=True, type=pathlib.Path)
    parser.add_argument("--labels", type=pathlib.Path, default=HERE / "labels.csv")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "1" / "model.onnx")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
