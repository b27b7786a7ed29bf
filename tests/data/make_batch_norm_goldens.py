#!/usr/bin/env python3
"""Writes batch_norm_goldens.safetensors with PyTorch's own BatchNorm1d, 2d and 3d.

Per case: the input of two training steps and of an evaluation, the gradients given to the outputs, and what comes out.
Needs Python with torch and safetensors. Run: python3 tests/data/make_batch_norm_goldens.py
"""
import pathlib

import torch
from safetensors.torch import save_file

CASES = {
    # name: (class, shape, options)
    "1d": (torch.nn.BatchNorm1d, (6, 3), {}),
    "1d_length": (torch.nn.BatchNorm1d, (4, 3, 5), {"momentum": 0.3}),
    "2d": (torch.nn.BatchNorm2d, (3, 4, 2, 3), {"eps": 1e-3}),
    "2d_average": (torch.nn.BatchNorm2d, (3, 4, 2, 3), {"momentum": None}),
    "2d_plain": (torch.nn.BatchNorm2d, (3, 4, 2, 3), {"affine": False}),
    "2d_stateless": (torch.nn.BatchNorm2d, (3, 4, 2, 3), {"track_running_stats": False}),
    "3d": (torch.nn.BatchNorm3d, (2, 3, 2, 2, 2), {}),
}


def main():
    out = {}
    for seed, (name, (kind, shape, options)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        module = kind(shape[1], **options)
        if module.affine:
            with torch.no_grad():
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-1, 1)
            out[f"{name}.weight"] = module.weight.detach().clone()
            out[f"{name}.bias"] = module.bias.detach().clone()
        for step in range(3):
            at = f"{name}.{step}"
            module.train(step < 2)
            x = (torch.randn(shape) * 2 + 3).requires_grad_()
            gradient = torch.randn(shape)
            module.zero_grad()
            y = module(x)
            y.backward(gradient)
            out[f"{at}.x"], out[f"{at}.dy"] = x.detach(), gradient
            out[f"{at}.y"], out[f"{at}.dx"] = y.detach(), x.grad
            for parameter, value in module.named_parameters():
                out[f"{at}.d{parameter}"] = value.grad.clone()
            for buffer, value in module.named_buffers():
                out[f"{at}.{buffer}"] = value.clone()
    save_file({key: value.contiguous() for key, value in out.items()},
              pathlib.Path(__file__).with_name("batch_norm_goldens.safetensors"))


if __name__ == "__main__":
    main()
