#!/usr/bin/env python3
"""Writes schedule_goldens.json with PyTorch's own torch.optim.lr_scheduler: the learning rate of every step.

Needs Python with torch. Run: python3 tests/data/make_schedule_goldens.py
"""
import json
import pathlib
import warnings

import torch
from torch.optim import lr_scheduler as s

warnings.simplefilter("ignore")  # the optimizer is not stepped
LR, STEPS, WARMUP = 0.3, 40, 6

MAIN = {
    # name: (scheduler over n intervals, configuration)
    "constant": (lambda o, n: s.ConstantLR(o, factor=1.0), "{name: constant"),
    "step": (lambda o, n: s.StepLR(o, 7, gamma=0.5), "{name: step, step_size: 7, gamma: 0.5"),
    "multistep": (lambda o, n: s.MultiStepLR(o, [3, 4, 20], gamma=0.2), "{name: multistep, milestones: [3, 4, 20], gamma: 0.2"),
    "exponential": (lambda o, n: s.ExponentialLR(o, 0.93), "{name: exponential, gamma: 0.93"),
    "linear": (lambda o, n: s.LinearLR(o, 1.0, 0.1, n), "{name: linear, min_ratio: 0.1"),
    "linear_length": (lambda o, n: s.LinearLR(o, 1.0, 0.0, 15), "{name: linear, length: 15"),
    "cosine": (lambda o, n: s.CosineAnnealingLR(o, n), "{name: cosine"),
    "cosine_ratio": (lambda o, n: s.CosineAnnealingLR(o, n, eta_min=LR * 0.01), "{name: cosine, min_ratio: 0.01"),
    "onecycle": (lambda o, n: s.OneCycleLR(o, LR, n), "{name: onecycle"),
    "onecycle_linear": (
        lambda o, n: s.OneCycleLR(o, LR, n, pct_start=0.45, div_factor=10, final_div_factor=100, anneal_strategy="linear"),
        "{name: onecycle, pct_start: 0.45, div_factor: 10, final_div_factor: 100, anneal: linear",
    ),
    "onecycle_momentum": (
        lambda o, n: s.OneCycleLR(o, LR, n, base_momentum=0.5, max_momentum=0.9),
        "{name: onecycle, base_momentum: 0.5, max_momentum: 0.9",
    ),
}


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR, momentum=0.9)


def values(opt, scheduler, key="lr"):
    out = []
    for _ in range(STEPS):
        out.append(opt.param_groups[0][key])
        scheduler.step()
    return out


schedules = []
for name, (make, config) in MAIN.items():
    opt = optimizer()
    schedules.append({"name": name, "config": config + "}", "warmup": 0, "rates": values(opt, make(opt, STEPS))})
    if name.startswith("onecycle"):
        opt = optimizer()
        schedules[-1]["momentum"] = values(opt, make(opt, STEPS), "momentum")
        continue  # it sets the rates of the optimizer by itself, which SequentialLR does not expect
    opt = optimizer()
    warmup = s.LinearLR(opt, 0.2, 1.0, WARMUP)
    both = s.SequentialLR(opt, [warmup, make(opt, STEPS - WARMUP)], [WARMUP])
    config += f", warmup_steps: {WARMUP}, warmup_start_factor: 0.2}}"
    schedules.append({"name": name + "_after_warmup", "config": config, "warmup": WARMUP, "rates": values(opt, both)})

# By epoch, 5 steps each, with the warm-up chained on top.
opt = optimizer()
warmup, step = s.LinearLR(opt, 0.2, 1.0, WARMUP), s.StepLR(opt, 2, gamma=0.5)
chained = []
for i in range(STEPS):
    chained.append(opt.param_groups[0]["lr"])
    warmup.step()
    if i % 5 == 4:
        step.step()
schedules.append({
    "name": "step_by_epoch",
    "config": f"{{name: step, interval: epoch, step_size: 2, gamma: 0.5, warmup_steps: {WARMUP}, warmup_start_factor: 0.2}}",
    "warmup": WARMUP,
    "steps_per_epoch": 5,
    "rates": chained,
})

METRICS = [5.0, 4.0, 3.9999, 3.99985, 3.5, 3.6, 3.7, 3.51, 3.6, 3.4, 3.4, 3.4, 3.4, 3.4, 3.4, 3.39, 3.4, 3.4, 3.4, 3.4]
PLATEAUS = [
    ("{patience: 2}", dict(patience=2)),
    ("{patience: 0, factor: 0.5, cooldown: 2, min_lr: 0.02}", dict(patience=0, factor=0.5, cooldown=2, min_lr=0.02)),
    ("{mode: max, patience: 1, threshold_mode: abs, threshold: 0.2, eps: 0.05}",
     dict(mode="max", patience=1, threshold_mode="abs", threshold=0.2, eps=0.05)),
    ("{patience: 3, threshold_mode: rel, threshold: 0.05}", dict(patience=3, threshold=0.05)),
    ("{mode: max, patience: 2, threshold_mode: rel, threshold: 0.5}", dict(mode="max", patience=2, threshold=0.5)),
]
plateaus = []
for config, options in PLATEAUS:
    opt = optimizer()
    plateau = s.ReduceLROnPlateau(opt, **options)
    after = []
    for metric in METRICS:
        plateau.step(metric)
        after.append(opt.param_groups[0]["lr"])
    plateaus.append({"config": config, "rates": after})

golden = {
    "torch": torch.__version__,
    "lr": LR,
    "schedules": schedules,
    "metrics": METRICS,
    "plateaus": plateaus,
}
pathlib.Path(__file__).with_name("schedule_goldens.json").write_text(json.dumps(golden) + "\n")
