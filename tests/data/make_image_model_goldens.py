#!/usr/bin/env python3
"""Writes image_model_goldens.safetensors: the image classifiers in PyTorch, one forward and backward each.

Needs Python with torch and safetensors. Run: python3 tests/data/make_image_model_goldens.py
"""
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 3, 3, padding=1)
        self.conv2 = nn.Conv2d(3, 4, 3, padding=1)
        self.fc1 = nn.Linear(4 * 2 * 3, 6)
        self.fc2 = nn.Linear(6, 5)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(9 * 13, 7)
        self.fc2 = nn.Linear(7, 6)
        self.fc3 = nn.Linear(6, 5)

    def forward(self, x):
        return self.fc3(functional.relu(self.fc2(functional.relu(self.fc1(x.flatten(1))))))


torch.manual_seed(0)
image, label = torch.randn(8, 1, 9, 13), torch.arange(8) % 5
tensors = {"image": image, "label": label}
for name, model in (("cnn", Cnn()), ("mlp", Mlp())):
    logits = model(image)
    loss = functional.cross_entropy(logits, label)
    loss.backward()
    tensors[f"{name}.logits"], tensors[f"{name}.loss"] = logits.detach(), loss.detach()
    for key, parameter in model.named_parameters():
        tensors[f"{name}.parameter.{key}"] = parameter.detach()
        tensors[f"{name}.gradient.{key}"] = parameter.grad

path = pathlib.Path(__file__).with_name("image_model_goldens.safetensors")
save_file(tensors, path, metadata={"torch": torch.__version__})
path.chmod(0o644)
