"""In the style of the guide "Multi-GPU Training for ComFormer": torchrun's variables decide whether training is distributed, batch size
per GPU, no weight decay on biases, OneCycleLR, evaluation over all ranks, checkpoints of rank 0."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from crash import crash_once

N_EPOCHS = 3


class Structures(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.features = torch.randn(count, 12, generator=generator)
        self.labels = self.features.sum(dim=1, keepdim=True)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.features[index], self.labels[index]


def group_decay(model):
    decay, no_decay = [], []
    for name, parameter in model.named_parameters():
        (no_decay if "bias" in name or "norm" in name else decay).append(parameter)
    return [{"params": no_decay, "weight_decay": 0}, {"params": decay}]


def train_from_list(distributed=False, batch_size=8, random_seed=42):
    rank = int(os.environ.get("RANK", 0))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    if distributed and world_size == 1:
        print("WORLD_SIZE=1: training on one device")
        distributed = False
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if distributed:
        dist.init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo", init_method="env://", rank=rank, world_size=world_size)
    torch.manual_seed(random_seed)
    train, test = Structures(96, 1), Structures(32, 2)
    sampler = DistributedSampler(train, num_replicas=world_size, rank=rank, shuffle=True, seed=random_seed) if distributed else None
    loader = DataLoader(train, batch_size=batch_size, sampler=sampler, shuffle=sampler is None)
    test_loader = DataLoader(test, batch_size=batch_size,
                             sampler=DistributedSampler(test, num_replicas=world_size, rank=rank, shuffle=False) if distributed else None)
    net = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.LayerNorm(32), torch.nn.SiLU(), torch.nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.AdamW(group_decay(net), lr=0.001 * world_size, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.001 * world_size, epochs=N_EPOCHS, steps_per_epoch=len(loader), pct_start=0.3)
    start = 0
    if os.path.exists("checkpoint.pt"):
        state = torch.load("checkpoint.pt", map_location=device)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        start = state["epoch"]
    model = DistributedDataParallel(net, device_ids=[local_rank] if device.type == "cuda" else None) if distributed else net
    if rank == 0:
        print(f"starts at epoch {start} with {world_size} ranks", flush=True)
    for epoch in range(start, N_EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        if epoch == 1:
            crash_once(rank)
        model.train()
        for features, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(features.to(device)), labels.to(device)).backward()
            optimizer.step()
            scheduler.step()
        model.eval()
        error = torch.zeros(2)
        with torch.no_grad():
            for features, labels in test_loader:
                error += torch.tensor([(net(features) - labels).abs().sum().item(), float(len(labels))])
        if distributed:
            dist.all_reduce(error)
        if rank == 0:
            state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "epoch": epoch + 1}
            torch.save(state, "checkpoint.pt.new")
            os.replace("checkpoint.pt.new", "checkpoint.pt")
            print(f"epoch {epoch}: MAE {error[0] / error[1]:.6f}", flush=True)
    if rank == 0:
        torch.save(net.state_dict(), "model.pt")
    if distributed:
        dist.barrier()
        dist.destroy_process_group()


train_from_list(distributed="RANK" in os.environ)
