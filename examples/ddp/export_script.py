"""Writes the TorchScript module that examples/ddp/script.cc trains: images [n, 1, 12, 12] to logits [n, 3].

  export_script.py FILE
"""
import sys

import torch
from torch import nn

torch.manual_seed(1)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
torch.jit.script(net).save(sys.argv[1])
