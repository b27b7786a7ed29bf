#!/usr/bin/env python3
"""Writes sampler_goldens.json with PyTorch's own torch.utils.data.DistributedSampler.

Needs Python with torch. Run: python3 tests/data/make_sampler_goldens.py
"""
import json
import pathlib

import torch
from torch.utils.data import DistributedSampler

CASES = [
    # size, world_size, seed, epoch, drop_last, shuffle
    (1, 1, 0, 0, False, True),
    (1, 4, 0, 0, False, True),
    (1, 4, 0, 0, True, True),
    (2, 5, 7, 3, False, True),
    (3, 8, 1, 0, True, True),
    (3, 8, 1, 0, False, False),
    (10, 1, 0, 0, False, True),
    (10, 2, 0, 0, False, True),
    (10, 3, 0, 0, False, True),
    (10, 3, 0, 0, True, True),
    (10, 3, 0, 1, False, True),
    (10, 4, 42, 5, True, True),
    (11, 4, 42, 5, False, False),
    (11, 4, 42, 5, True, False),
    (12, 4, 42, 5, True, True),
    (101, 7, 1234567, 17, False, True),
    (101, 7, 1234567, 17, True, True),
    (128, 2, 2**31, 2, False, True),
    (60000, 2, 0, 0, False, True),
    (60000, 7, 13, 4, True, True),
    (100003, 4, 3, 1, False, True),
]
WHOLE = 200  # up to this size every index is kept, above it the ends and a sum that notices any exchange


def ranks_of(size, world_size, seed, epoch, drop_last, shuffle):
    for rank in range(world_size):
        sampler = DistributedSampler(
            range(size), num_replicas=world_size, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last
        )
        sampler.set_epoch(epoch)
        indices = list(sampler)
        assert len(indices) == len(sampler)
        entry = {"count": len(indices)}
        if size <= WHOLE:
            entry["indices"] = indices
        else:
            entry["head"], entry["tail"] = indices[:20], indices[-20:]
            entry["weighted_sum"] = sum((i + 1) * index for i, index in enumerate(indices))
        yield entry


names = ("size", "world_size", "seed", "epoch", "drop_last", "shuffle")
golden = {
    "torch": torch.__version__,
    "cases": [dict(zip(names, case), ranks=list(ranks_of(*case))) for case in CASES],
}
path = pathlib.Path(__file__).with_name("sampler_goldens.json")
path.write_text(json.dumps(golden) + "\n")
