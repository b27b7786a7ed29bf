#!/usr/bin/env python3
"""Writes powersgd_goldens.safetensors with PyTorch's own DDP and powerSGD_hook: the gradients of some steps of a small
model over two ranks, and what the gradient hooks fp16 and bf16 make of them.

After each step the parameters go half a gradient down.
Needs Python with torch, numpy and safetensors. Run: python3 tests/data/make_powersgd_goldens.py
"""
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

STEPS = 5
CASES = {
    # name: options of PowerSGDState, or another hook
    "rank1": {"start_powerSGD_iter": 2},
    "rank2": {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2, "min_compression_rate": 1.0},
    "rank4_qr": {"matrix_approximation_rank": 4, "start_powerSGD_iter": 2, "min_compression_rate": 0.5},
    "cold": {"start_powerSGD_iter": 0, "warm_start": False, "use_error_feedback": False, "random_seed": 7},
    "epsilon": {"start_powerSGD_iter": 3, "orthogonalization_epsilon": 1e-3, "min_compression_rate": 1.5},
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
}


def make_model():
    torch.manual_seed(11)
    # Two pairs of equal shapes that do not stand together, and one without a chance to be compressed.
    return torch.nn.Sequential(
        torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 12), torch.nn.Tanh(), torch.nn.Linear(12, 16),
        torch.nn.Tanh(), torch.nn.Linear(16, 2))


def work(rank, directory, file):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    torch.set_num_threads(1)
    out = {f"model.{name}": value.detach().clone() for name, value in make_model().named_parameters()}
    for step in range(STEPS):
        torch.manual_seed(100 + step)
        out[f"x.{step}"] = torch.randn(2, 8, 12)  # by rank
    for name, options in CASES.items():
        model = make_model()
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if isinstance(options, dict):
            state = powerSGD_hook.PowerSGDState(None, **options)
            ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            ddp.register_comm_hook(None, options)
        for step in range(STEPS):
            ddp(out[f"x.{step}"][rank]).square().mean().backward()
            for parameter, value in model.named_parameters():
                out[f"{name}.{step}.{parameter}"] = value.grad.clone()
            with torch.no_grad():
                for value in model.parameters():
                    value -= 0.5 * value.grad
            model.zero_grad()
    if rank == 0:
        save_file(out, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    target = pathlib.Path(__file__).with_name("powersgd_goldens.safetensors")
    with tempfile.TemporaryDirectory() as temporary:
        mp.spawn(work, args=(temporary, target), nprocs=2)
