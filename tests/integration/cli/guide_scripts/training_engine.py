"""In the style of the guide to the TrainingEngine: setup_distributed(), SyncBatchNorm where the backend has it, samplers for training and
validation, metrics reduced over the ranks, StepLR, an average of the weights, last and best checkpoints with map_location."""
import copy
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from crash import crash_once


class TrainingEngine:
    def __init__(self, model, device, distributed, local_rank, world_size, ema_decay=0.99):
        self.device, self.distributed, self.world_size = device, distributed, world_size
        self.rank = dist.get_rank() if distributed else 0
        if distributed and device.type == "cuda":
            model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
        self.model = DDP(model, device_ids=[local_rank] if device.type == "cuda" else None) if distributed else model
        self.ema, self.ema_decay, self.epoch, self.best = copy.deepcopy(model), ema_decay, 0, 0.0

    @staticmethod
    def setup_distributed(rank, world_size, backend):
        dist.init_process_group(backend, rank=rank, world_size=world_size)

    @staticmethod
    def cleanup_distributed():
        dist.destroy_process_group()

    def unwrapped(self):
        return self.model.module if self.distributed else self.model

    def reduce_tensor(self, tensor):
        tensor = tensor.clone()
        if self.distributed:
            dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
            tensor /= self.world_size
        return tensor

    def save(self, name, optimizer, scheduler):
        if self.rank != 0:
            return
        state = {"model": self.unwrapped().state_dict(), "ema": self.ema.state_dict(), "optimizer": optimizer.state_dict(),
                 "scheduler": scheduler.state_dict(), "epoch": self.epoch, "best": self.best}
        torch.save(state, name + ".new")
        os.replace(name + ".new", name)

    def load(self, name, optimizer, scheduler):
        state = torch.load(name, map_location=self.device)
        self.unwrapped().load_state_dict(state["model"])
        self.ema.load_state_dict(state["ema"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        self.epoch, self.best = state["epoch"], state["best"]

    def train(self, train_loader, val_loader, optimizer, criterion, scheduler, num_epochs):
        if os.path.exists("last.pt"):
            self.load("last.pt", optimizer, scheduler)
        if self.rank == 0:
            print(f"starts at epoch {self.epoch} with {self.world_size} ranks", flush=True)
        while self.epoch < num_epochs:
            if self.distributed:
                train_loader.sampler.set_epoch(self.epoch)
            if self.epoch == 1:
                crash_once(self.rank)
            self.model.train()
            for inputs, targets in train_loader:
                optimizer.zero_grad()
                criterion(self.model(inputs.to(self.device)), targets.to(self.device)).backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimizer.step()
                with torch.no_grad():
                    for average, current in zip(self.ema.parameters(), self.model.parameters()):
                        average.lerp_(current, 1 - self.ema_decay)
            scheduler.step()
            self.epoch += 1
            accuracy = self.validate(val_loader)
            if accuracy > self.best:
                self.best = accuracy
                self.save("best.pt", optimizer, scheduler)
            self.save("last.pt", optimizer, scheduler)
            if self.rank == 0:
                print(f"epoch {self.epoch}: accuracy {accuracy:.4f}", flush=True)

    def validate(self, val_loader):
        self.ema.eval()
        with torch.no_grad():
            right = [(self.ema(inputs).argmax(1) == targets).float().mean() for inputs, targets in val_loader]
        return self.reduce_tensor(torch.stack(right).mean()).item()


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    TrainingEngine.setup_distributed(rank, world_size, "nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    images, labels = torch.randn(128, 3, 8, 8), torch.randint(10, (128,))
    train, validation = TensorDataset(images[:96], labels[:96]), TensorDataset(images[96:], labels[96:])
    train_loader = DataLoader(train, batch_size=8, sampler=DistributedSampler(train, num_replicas=world_size, rank=rank), num_workers=1)
    val_loader = DataLoader(validation, batch_size=8, sampler=DistributedSampler(validation, num_replicas=world_size, rank=rank, shuffle=False))
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
                                torch.nn.Flatten(), torch.nn.Linear(8, 10)).to(device)
    engine = TrainingEngine(model=model, device=device, distributed=True, local_rank=local_rank, world_size=world_size)
    optimizer = torch.optim.Adam(engine.model.parameters(), lr=0.001 * world_size)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
    engine.train(train_loader=train_loader, val_loader=val_loader, optimizer=optimizer, criterion=torch.nn.CrossEntropyLoss(), scheduler=scheduler,
                 num_epochs=3)
    if rank == 0:
        torch.save(engine.unwrapped().state_dict(), "model.pt")
    dist.barrier()
    TrainingEngine.cleanup_distributed()


if __name__ == "__main__":
    main()
