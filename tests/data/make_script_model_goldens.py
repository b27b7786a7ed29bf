#!/usr/bin/env python3
"""Writes script_model.pt, a scripted image classifier, and script_model_goldens.safetensors: three SGD steps with it.

Needs Python with torch and safetensors. Run: python3 tests/data/make_script_model_goldens.py
"""
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional


class Small(nn.Module):
    """Nested names, BatchNorm's buffers, a frozen parameter, and a branch that only a script can have."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU())
        self.scale = nn.Parameter(torch.full((4, 1, 1), 0.5), requires_grad=False)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.features(x) * self.scale
        pooled = x.mean([2, 3]) if self.training else x.amax([2, 3])
        return self.head(pooled)


torch.manual_seed(0)
directory = pathlib.Path(__file__).parent
script = torch.jit.script(Small())
script.save(str(directory / "script_model.pt"))
image, label = torch.randn(6, 1, 9, 9), torch.arange(6) % 3
tensors = {"image": image, "label": label, "before.eval": script.eval()(image).detach()}
optimizer = torch.optim.SGD([p for p in script.parameters() if p.requires_grad], lr=0.1)
script.train()
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = functional.cross_entropy(script(image), label)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
tensors["loss"] = torch.stack(losses)
tensors["after.eval"] = script.eval()(image).detach()
for key, value in script.state_dict().items():
    tensors[f"after.{key}"] = value.clone()
path = directory / "script_model_goldens.safetensors"
save_file(tensors, path, metadata={"torch": torch.__version__})
path.chmod(0o644)
