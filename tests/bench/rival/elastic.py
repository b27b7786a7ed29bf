"""A script for torchrun elastic in the style of PyTorch's tutorial on fault tolerance: each process continues from the newest snapshot.

It saves a snapshot after every step, without fsync, so that a restart repeats as little as possible. Rank 0 appends the time of each
step to a file.
"""
import argparse
import os
import pathlib
import time

import torch
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from models import MODELS


def save(path, model, optimizer, step):
    temporary = path.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, temporary)
    os.replace(temporary, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    (args.directory / f"pid.{rank}").write_text(f"{os.getpid()}\n", encoding="ascii")
    torch.manual_seed(0)
    make, shape, outputs = MODELS[args.model]
    model = make()
    inputs, labels = torch.randn((args.samples, *shape)), torch.randint(outputs, (args.samples,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    snapshot, step = args.directory / "snapshot.pt", 0
    if snapshot.exists():
        state = torch.load(snapshot)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    order = torch.randperm(args.samples)[rank::world]
    batches = order.split(args.batch)[: order.numel() // args.batch]
    while step < args.steps:
        index = batches[step % len(batches)]
        functional.cross_entropy(ddp(inputs.index_select(0, index)), labels.index_select(0, index)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if rank == 0:
            with open(args.directory / "steps", "a", encoding="ascii") as file:
                file.write(f"{step} {time.time()}\n")
            save(snapshot, model, optimizer, step)
    distributed.destroy_process_group()


main()
