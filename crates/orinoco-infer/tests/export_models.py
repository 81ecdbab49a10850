"""Exports models with random weights as people do, with the inputs and outputs that PyTorch itself gives.

Below the folder named: <name>.onnx and <name>.npz with in_0, in_1, .. and out_0, out_1, ..; prints one name a line.
"""
import pathlib
import sys
import warnings

import numpy as np
import torch
import torchvision
from torch import nn

FOLDER = pathlib.Path(sys.argv[1])


class YoloStyle(nn.Module):
    """An anchor-free head over three strides, decoded in the graph: [n, 4 + classes, cells]."""

    def __init__(self, classes=3, bins=8):
        super().__init__()
        widths = (16, 32, 48)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.SiLU())
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.SiLU())
            for a, b in zip((16,) + widths, widths))
        self.heads = nn.ModuleList(nn.Conv2d(width, 4 * bins + classes, 1) for width in widths)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.mix = nn.Conv2d(48, 32, 1)
        self.bins, self.classes = bins, classes

    def forward(self, x):
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        features[1] = features[1] + self.mix(self.up(features[2]))
        boxes, scores = [], []
        for stride, feature, head in zip((8, 16, 32), features, self.heads):
            y = head(feature)
            n, _, h, w = y.shape
            distances = y[:, : 4 * self.bins].view(n, 4, self.bins, h * w).softmax(2)
            distances = (distances * torch.arange(self.bins, dtype=y.dtype).view(1, 1, -1, 1)).sum(2)
            ys, xs = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            centres = torch.stack((xs, ys)).view(1, 2, -1)
            low, high = centres - distances[:, :2], centres + distances[:, 2:]
            boxes.append(torch.cat(((low + high) / 2, high - low), 1) * stride)
            scores.append(y[:, 4 * self.bins:].sigmoid().view(n, self.classes, h * w))
        return torch.cat((torch.cat(boxes, 2), torch.cat(scores, 2)), 1)


class Recurrent(nn.Module):
    """A convolution over time, an LSTM and a GRU, whose states are inputs and outputs."""

    def __init__(self):
        super().__init__()
        self.front, self.lstm = nn.Conv1d(8, 16, 3, padding=1), nn.LSTM(16, 24, batch_first=True)
        self.gru, self.out = nn.GRU(24, 12, batch_first=True), nn.Linear(12, 4)

    def forward(self, x, h, c):
        y, (h, c) = self.lstm(self.front(x).transpose(1, 2), (h, c))
        y, _ = self.gru(y)
        return self.out(y).softmax(-1), h, c


class UNet(nn.Module):
    """Down, up by a transposed convolution, and a skip."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GELU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.out = nn.Sequential(nn.GroupNorm(1, 11), nn.PReLU(), nn.Conv2d(11, 4, 1))

    def forward(self, x):
        return self.out(torch.cat((self.up(self.down(x)), x), 1))


class Attention(nn.Module):
    """Queries over an encoded image, as detection transformers have them."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 16, 16)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True)
        self.queries = nn.Parameter(torch.randn(1, 10, 32))
        self.logits, self.boxes = nn.Linear(32, 5), nn.Linear(32, 4)

    def forward(self, x):
        memory = self.encoder(self.patches(x).flatten(2).transpose(1, 2))
        y = self.decoder(self.queries.expand(x.shape[0], -1, -1), memory)
        return self.logits(y), self.boxes(y).sigmoid()


def models():
    """(name, model, inputs, settings of the export)"""
    vision = torchvision.models
    image = torch.rand(1, 3, 96, 96)
    vit = vision.VisionTransformer(image_size=64, patch_size=16, num_layers=2, num_heads=2, hidden_dim=64, mlp_dim=96,
                                   num_classes=10)
    nn.init.normal_(vit.heads[-1].weight)
    state = torch.zeros(1, 1, 24)
    yield "resnet18", vision.resnet18(num_classes=20), (image,), {}
    yield "resnet18_opset11", vision.resnet18(num_classes=20), (image,), {"opset_version": 11, "dynamo": False}
    yield "mobilenet_v3_small", vision.mobilenet_v3_small(num_classes=20), (image,), {}
    yield "mobilenet_v3_opset13", vision.mobilenet_v3_small(num_classes=20), (image,), {
        "opset_version": 13, "dynamo": False}
    batch = {"dynamic_shapes": ({0: torch.export.Dim("batch", min=1, max=8)},)}
    yield "shufflenet_dynamic_batch", vision.shufflenet_v2_x0_5(num_classes=20), (torch.rand(2, 3, 96, 96),), batch
    yield "efficientnet_b0", vision.efficientnet_b0(num_classes=20), (image,), {}
    yield "regnet_external_data", vision.regnet_y_400mf(num_classes=20), (image,), {"external_data": True}
    yield "convnext_tiny", vision.convnext_tiny(num_classes=20), (torch.rand(1, 3, 64, 64),), {}
    yield "vit", vit, (torch.rand(1, 3, 64, 64),), {}
    deeplab = vision.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    yield "deeplabv3", FirstOutput(deeplab), (torch.rand(2, 3, 96, 96),), {}
    lraspp = vision.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    yield "lraspp_opset13", FirstOutput(lraspp), (image,), {"opset_version": 13, "dynamo": False}
    ssdlite = vision.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    yield "ssdlite", ListedOutput(ssdlite), (torch.rand(1, 3, 320, 320),), {"opset_version": 17, "dynamo": False}
    yield "yolo_style", YoloStyle(), (torch.rand(1, 3, 96, 96),), {}
    yield "yolo_style_opset12", YoloStyle(), (torch.rand(1, 3, 96, 96),), {"opset_version": 12, "dynamo": False}
    yield "yolo_style_fp16", YoloStyle().half(), (torch.rand(1, 3, 96, 96).half(),), {}
    yield "recurrent", Recurrent(), (torch.rand(1, 8, 20), state, state), {"opset_version": 17, "dynamo": False}
    yield "unet", UNet(), (image,), {}
    yield "attention", Attention(), (torch.rand(1, 3, 64, 64),), {}


class FirstOutput(nn.Module):
    """Of a dictionary of outputs the one called `out`."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)["out"]


class ListedOutput(nn.Module):
    """Boxes, scores and labels of one image."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        found = self.model(list(x.unbind(0)))[0]
        return found["boxes"], found["scores"], found["labels"]


def settle(model, inputs):
    """Lets every normalisation see the inputs once: with statistics of 0 and 1 deep outputs would vanish."""
    model.eval()
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        model(*(torch.cat((value, value.flip(-1))) if value.dim() == 4 else value for value in inputs))
    model.eval()


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(7)
    for name, model, inputs, settings in models():
        settle(model, inputs)
        file = FOLDER / f"{name}.onnx"
        settings = {"external_data": False, "verbose": False, **settings}
        if settings.get("dynamo") is False:
            settings.pop("external_data")
        try:
            with torch.no_grad():
                outputs = model(*inputs)
                torch.onnx.export(model, inputs, str(file), **settings)
        except Exception as why:  # an exporter that cannot is not what is tested
            print(f"{name}: {type(why).__name__}: {str(why).splitlines()[0]}", file=sys.stderr)
            continue
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        arrays = {f"in_{i}": value.float().numpy() for i, value in enumerate(inputs)}
        arrays |= {f"out_{i}": value.float().numpy() for i, value in enumerate(outputs)}
        np.savez(FOLDER / f"{name}.npz", **arrays)
        print(name, flush=True)


main()
