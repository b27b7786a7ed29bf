#!/usr/bin/env python3
"""Writes resnet_goldens.safetensors: the residual networks of image_classification in PyTorch, narrow ones.

Of each model: its parameters and buffers as initialized from a seed; then a forward and backward in training mode
(logits, loss, gradients, running statistics) and a forward in evaluation mode, all in double precision and rounded at
the end: dozens of batch norms over a few numbers each would show the rounding of single precision otherwise.
ResnetLike is the guide's ResNetModel; Resnet is torchvision's, whose names, order of construction and initialization
it has.

Needs Python with torch and safetensors. Run: python3 tests/data/make_resnet_goldens.py
"""
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

SEED, CLASSES = 7, 5


def conv(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class ResnetLike(nn.Module):
    def __init__(self, channels, width, classes):
        super().__init__()
        self.conv1, self.bn1 = conv(channels, width, 7, 2), nn.BatchNorm2d(width)
        self.layer1 = self.layer(width, width, 1)
        self.layer2 = self.layer(width, 2 * width, 2)
        self.layer3 = self.layer(2 * width, 4 * width, 2)
        self.fc = nn.Linear(4 * width, classes)

    @staticmethod
    def layer(inputs, outputs, stride):
        return nn.Sequential(conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU(),
                             conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, x):
        x = functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, 1), nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 1, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1, 1), nn.BatchNorm2d(4 * width)
        self.downsample = downsample

    def forward(self, x):
        y = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):
    def __init__(self, block, depths, channels, width, classes, stem="imagenet"):
        super().__init__()
        self.pools = stem == "imagenet"
        self.conv1 = conv(channels, width, 7, 2) if self.pools else conv(channels, width, 3, 1)
        self.bn1, inputs = nn.BatchNorm2d(width), width
        for i, depth in enumerate(depths):
            setattr(self, f"layer{i + 1}", self.layer(block, inputs, width << i, 1 if i == 0 else 2, depth))
            inputs = (width << i) * block.expansion
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def layer(block, inputs, width, stride, depth):
        outputs, downsample = width * block.expansion, None
        if stride != 1 or inputs != outputs:
            downsample = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        blocks = [block(inputs, width, stride, downsample)]
        return nn.Sequential(*blocks, *(block(outputs, width, 1, None) for _ in range(depth - 1)))

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = functional.max_pool2d(x, 3, 2, 1) if self.pools else x
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


# Name -> (model, shape of a batch)
CASES = {
    "resnet_like": (lambda: ResnetLike(1, 4, CLASSES), (8, 1, 28, 28)),
    "resnet18": (lambda: Resnet(BasicBlock, (2, 2, 2, 2), 3, 2, CLASSES, "cifar"), (8, 3, 16, 16)),
    "resnet50": (lambda: Resnet(Bottleneck, (3, 4, 6, 3), 3, 2, CLASSES), (8, 3, 64, 64)),
}


def images(shape):
    """Exact in float32, so that the test makes the same."""
    i = torch.arange(torch.Size(shape).numel())
    return ((i * i * 37 + i * 11) % 101 - 50).float().div(25).reshape(shape)


def single(value):
    return value.float() if value.dtype == torch.float64 else value


def main():
    assert sum(p.numel() for p in ResnetLike(3, 64, 10).parameters()) == 1193546
    assert sum(p.numel() for p in Resnet(BasicBlock, (2, 2, 2, 2), 3, 64, 1000).parameters()) == 11689512
    assert sum(p.numel() for p in Resnet(Bottleneck, (3, 4, 6, 3), 3, 64, 1000).parameters()) == 25557032
    out, order = {}, {"torch": torch.__version__}
    for name, (make, shape) in CASES.items():
        torch.manual_seed(SEED)
        model = make()
        order[name] = ",".join(key for key, _ in model.named_parameters())
        for key, value in model.state_dict().items():
            out[f"{name}.state.{key}"] = value.clone()
        image = images(shape)
        label = torch.arange(shape[0]) % CLASSES
        model, image = model.double(), image.double()
        logits = model(image)
        loss = functional.cross_entropy(logits, label)
        loss.backward()
        out[f"{name}.logits"], out[f"{name}.loss"] = logits.detach(), loss.detach()
        for key, value in model.named_parameters():
            out[f"{name}.gradient.{key}"] = value.grad
        for key, value in model.named_buffers():
            out[f"{name}.buffer.{key}"] = value.clone()
        out[f"{name}.eval_logits"] = model.eval()(image).detach()
    path = pathlib.Path(__file__).with_name("resnet_goldens.safetensors")
    save_file({key: single(value).contiguous() for key, value in out.items()}, path, metadata=order)
    path.chmod(0o644)


if __name__ == "__main__":
    main()
