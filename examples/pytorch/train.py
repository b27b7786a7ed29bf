"""A DistributedDataParallel script with checkpoints. It runs under `oarlock launch`, torchrun, or alone in each pod:

    PYTHONPATH=python oarlock launch --nproc 2 -- python3 examples/pytorch/train.py --epochs 20
"""
import argparse
import os
import pathlib
import signal
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import oarlock


def save(path, state):
    """Replaces the file, which is complete at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    torch.save(state, temporary)
    temporary.replace(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    epochs = parser.parse_args().epochs
    checkpoint = pathlib.Path(os.environ.get("OARLOCK_CHECKPOINT_DIR", "checkpoints"), "checkpoint.pt")
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    if device.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(dist.get_default_backend_for_device(device))

    torch.manual_seed(0)
    inputs = torch.randn(4096, 16)
    dataset = TensorDataset(inputs, inputs @ torch.randn(16, 1))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    first = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"]
    step = first * len(loader)
    oarlock.report(step=step, target_steps=epochs * len(loader), checkpoint_step=step if first else None)
    if dist.get_rank() == 0:
        print(f"epochs {first} to {epochs} on {dist.get_world_size()} ranks", flush=True)

    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            # Reading the loss waits for a GPU, so it is not done in every step.
            oarlock.report(step=step, loss=loss if step % 10 == 0 else None)
        # SIGTERM may reach the ranks in different epochs; all stop after the same one.
        stop = torch.tensor(float(stopped.is_set()), device=device)
        dist.all_reduce(stop, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            save(checkpoint, {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1})
            oarlock.report(checkpoint_step=step)
        if stop:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
