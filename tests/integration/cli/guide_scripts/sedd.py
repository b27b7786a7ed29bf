"""In the style of the guide to DDP training of SEDD on UniRef50: learning rate and warm-up scaled by the number of ranks, gradient accumulation
with no_sync(), gradient_as_bucket_view, iterations instead of epochs, snapshots by rank 0."""
import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from crash import crash_once

parser = argparse.ArgumentParser()
parser.add_argument("--work_dir", default=".")
parser.add_argument("--n_iters", type=int, default=12)
args = parser.parse_args()

BASE_LR, BASE_WARMUP, ACCUM, SNAPSHOT_FREQ = 5e-5, 4, 2, 4


def endless(loader):
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main():
    dist.init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo")
    rank, world_size, local_rank = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)
    sequences = torch.randint(26, (256, 16))
    dataset = TensorDataset(sequences)
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True), num_workers=1)
    model = torch.nn.Sequential(torch.nn.Embedding(27, 32), torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Linear(32, 26)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=BASE_LR * world_size, betas=(0.9, 0.999), weight_decay=0.01)
    step, snapshot = 0, os.path.join(args.work_dir, "snapshot.pt")
    if os.path.exists(snapshot):
        state = torch.load(snapshot, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    ddp = DDP(model, device_ids=[local_rank] if device.type == "cuda" else None, find_unused_parameters=False, gradient_as_bucket_view=True)
    if rank == 0:
        print(f"starts at step {step} with {world_size} ranks", flush=True)
    batches = endless(loader)
    while step < args.n_iters:
        if step == 6:
            crash_once(rank)
        for group in optimizer.param_groups:
            group["lr"] = BASE_LR * world_size * min(1.0, (step + 1) / (BASE_WARMUP * world_size))
        optimizer.zero_grad()
        for micro in range(ACCUM):
            (tokens,) = next(batches)
            tokens = tokens.to(device)
            masked = torch.where(torch.rand(tokens.shape) < 0.15, torch.full_like(tokens, 26), tokens)
            with ddp.no_sync() if micro + 1 < ACCUM else contextlib.nullcontext():
                loss = torch.nn.functional.cross_entropy(ddp(masked).flatten(0, 1), tokens.flatten()) / ACCUM
                loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        step += 1
        if rank == 0 and step % SNAPSHOT_FREQ == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, snapshot + ".new")
            os.replace(snapshot + ".new", snapshot)
            print(f"step {step}: loss {loss.item() * ACCUM:.6f}", flush=True)
        dist.barrier()
    if rank == 0:
        torch.save(model.state_dict(), os.path.join(args.work_dir, "model.pt"))
    dist.barrier()
    dist.destroy_process_group()


main()
