#!/usr/bin/env python3
"""Writes optim_goldens.safetensors with PyTorch's own optimizers, clipping, moving average and gradient scaler.

The parameters "a.weight" [5, 3], "a.bias" [5] and "scale" [] begin as initial/<name> and get the gradients
gradient/<step>/<name> ("scale" at even steps only). After each case they are <case>/<name>.

Needs Python with torch and safetensors. Run: python3 tests/data/make_optim_goldens.py
"""
import pathlib

import torch
from safetensors.torch import save_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS = 12
SHAPES = {"a.weight": (5, 3), "a.bias": (5,), "scale": ()}
OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.02, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    "adamw_amsgrad_maximize": lambda p: torch.optim.AdamW(p, lr=0.02, amsgrad=True, maximize=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd_decay": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1, maximize=True),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.05),
    "sgd_dampening": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.3),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "groups": lambda p: torch.optim.AdamW(
        [
            {"params": [p[1], p[2]], "weight_decay": 0.0},
            {"params": [p[0]], "lr": 0.004, "weight_decay": 0.2},
        ],
        lr=0.02,
    ),
}
CLIPS = {
    "clip_norm_small": lambda p: torch.nn.utils.clip_grad_norm_(p, 0.5),
    "clip_norm_large": lambda p: torch.nn.utils.clip_grad_norm_(p, 100.0),
    "clip_norm_inf": lambda p: torch.nn.utils.clip_grad_norm_(p, 0.5, norm_type=float("inf")),
    "clip_value": lambda p: torch.nn.utils.clip_grad_value_(p, 0.3),
}

torch.manual_seed(3)
out = {}
initial = {name: torch.randn(shape) for name, shape in SHAPES.items()}
gradients = [{name: torch.randn(shape) for name, shape in SHAPES.items()} for _ in range(STEPS)]
for name, tensor in initial.items():
    out[f"initial/{name}"] = tensor.clone()
for step, of_step in enumerate(gradients):
    for name, tensor in of_step.items():
        out[f"gradient/{step}/{name}"] = tensor.clone()


def fresh():
    return {name: torch.nn.Parameter(tensor.clone()) for name, tensor in initial.items()}


def give(parameters, step):
    for name, parameter in parameters.items():
        used = name != "scale" or step % 2 == 0
        parameter.grad = gradients[step][name].clone() if used else None


for case, make in OPTIMIZERS.items():
    parameters = fresh()
    optimizer = make(list(parameters.values()))
    for step in range(STEPS):
        give(parameters, step)
        optimizer.step()
    for name, parameter in parameters.items():
        out[f"{case}/{name}"] = parameter.detach().clone()

for case, clip in CLIPS.items():
    parameters = fresh()
    give(parameters, 0)
    norm = clip(list(parameters.values()))
    if norm is not None:
        out[f"{case}/norm"] = norm.reshape(1).clone()
    for name, parameter in parameters.items():
        out[f"{case}/{name}"] = parameter.grad.clone()


# AveragedModel copies the weights at its first update; afterwards it averages.
class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(initial["a.weight"].clone())


model = Holder()
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
average.update_parameters(model)
for step in range(STEPS):
    with torch.no_grad():
        model.weight.sub_(gradients[step]["a.weight"], alpha=0.1)
    average.update_parameters(model)
out["ema/weight"] = average.module.weight.detach().clone()
out["ema/model"] = model.weight.detach().clone()

# Score-Entropy-Discrete-Diffusion's warm-up: decay = min(decay, (1 + n) / (10 + n)) at update n, counted from 1.
shadow, weight = initial["a.weight"].clone(), initial["a.weight"].clone()
for step in range(STEPS):
    weight.sub_(gradients[step]["a.weight"], alpha=0.1)
    decay = min(0.45, (2 + step) / (11 + step))
    shadow.sub_((1.0 - decay) * (shadow - weight))
out["ema_warmup/weight"] = shadow

# The scaler on SGD: steps 3, 4 and 9 overflow.
parameters = fresh()
optimizer = torch.optim.SGD(parameters.values(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=3)
scales = []
for step in range(STEPS):
    scale = scaler.scale(torch.ones(())).item()
    give(parameters, step)
    for name, parameter in parameters.items():
        if parameter.grad is not None:
            parameter.grad.mul_(scale)
    if step in (3, 4, 9):
        parameters["a.bias"].grad[2] = float("inf") if step == 3 else float("nan")
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
out["scaler/scales"] = torch.tensor(scales)
for name, parameter in parameters.items():
    out[f"scaler/{name}"] = parameter.detach().clone()

save_file(out, pathlib.Path(__file__).with_name("optim_goldens.safetensors"), {"torch": torch.__version__})
