"""In the style of the guide "Multi-GPU Distributed Training Guide for GEARS": env:// rendezvous, DistributedSampler with drop_last,
unwrapped checkpoints of rank 0, resume from the newest one. It reads nothing of its launcher but torchrun's variables."""
import glob
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from crash import crash_once

EPOCHS = 3


def set_seed(seed=42):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def setup_ddp():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def save_checkpoint(model, optimizer, epoch, path):
    checkpoint = {
        'epoch': epoch,
        'model_state_dict': model.module.state_dict(),
        'optimizer_state_dict': optimizer.state_dict(),
    }
    torch.save(checkpoint, path + '.tmp')
    os.replace(path + '.tmp', path)


def newest_checkpoint():
    return max(glob.glob('checkpoint_epoch_*.pt'), default=None)


def train():
    set_seed()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dataset = TensorDataset(torch.randn(104, 20), torch.randn(104, 1))
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True, num_workers=1)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * world_size, weight_decay=5e-4)
    first = 0
    if newest_checkpoint():
        checkpoint = torch.load(newest_checkpoint())
        model.load_state_dict(checkpoint['model_state_dict'])
        optimizer.load_state_dict(checkpoint['optimizer_state_dict'])
        first = checkpoint['epoch'] + 1
    model = DDP(model, find_unused_parameters=False, broadcast_buffers=False)
    if rank == 0:
        print(f"starts at epoch {first} with {world_size} ranks", flush=True)
    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)
        if epoch == 1:
            crash_once(rank)
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        if rank == 0:
            save_checkpoint(model, optimizer, epoch, f'checkpoint_epoch_{epoch}.pt')
            print(f"epoch {epoch}: loss {total / len(loader):.6f}", flush=True)
        dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), 'model.pt')


if __name__ == '__main__':
    setup_ddp()
    try:
        train()
        dist.barrier()
    finally:
        dist.destroy_process_group()
