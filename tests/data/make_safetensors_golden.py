#!/usr/bin/env python3
"""Writes golden.safetensors with Python's own safetensors package: every dtype, odd shapes, odd names.

Needs Python with torch and safetensors. Run: python3 tests/data/make_safetensors_golden.py
The metadata has one key only, because the package writes several in no particular order.
"""
import pathlib

import safetensors
import torch
from safetensors.torch import save_file

values = torch.tensor([0, 1, 2, 3, 4, 5], dtype=torch.float32)
tensors = {"f32": values / 4, "bool": values.bool()}
for dtype in (
    torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
    torch.float16, torch.bfloat16, torch.float64, torch.complex64,
):
    tensors[str(dtype).removeprefix("torch.")] = values.to(dtype)
for dtype in (
    torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz, torch.float8_e8m0fnu,
):
    tensors[str(dtype).removeprefix("torch.")] = torch.tensor([1, 2, 4, 8], dtype=torch.float32).to(dtype)
tensors["int64_limits"] = torch.tensor([-(2**63), 2**63 - 1])
tensors["matrix"] = torch.arange(12, dtype=torch.float32).reshape(3, 4)
tensors["scalar"] = torch.tensor(2.5)
tensors["empty"] = torch.zeros(0, 3)
tensors['conv "1".weight\n\u00e9'] = torch.tensor([7], dtype=torch.int32)

path = pathlib.Path(__file__).with_name("golden.safetensors")
save_file(tensors, path, metadata={"written_by": f"safetensors {safetensors.__version__}, torch {torch.__version__}"})
