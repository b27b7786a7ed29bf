"""In the style of the guide "Distributed training with QuantumGrav": initialize_ddp() with torchrun's variables, a log line with the rank,
early stopping that rank 0 decides and broadcasts, validation and checkpoints on rank 0, cleanup in finally."""
import logging
import os
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

from crash import crash_once

CONFIG = {
    "training": {"seed": 42, "num_epochs": 3, "batch_size": 8, "learning_rate": 0.001, "weight_decay": 5e-5, "num_workers": 1, "drop_last": True},
    "parallel": {"world_size": 3, "find_unused_parameters": False},
    "early_stopping": {"patience": 5},
}


def setup_logging(rank):
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format=f"[RANK {rank}] %(asctime)s %(levelname)s %(name)s: %(message)s")


def initialize_ddp(rank, worldsize, backend):
    if dist.is_initialized():
        raise RuntimeError("the process group is initialized already")
    dist.init_process_group(backend, rank=rank, world_size=worldsize)


def cleanup_ddp():
    if dist.is_initialized():
        dist.destroy_process_group()


class TrainerDDP:
    def __init__(self, rank, config):
        self.rank, self.config = rank, config
        self.logger = logging.getLogger(__name__)
        torch.manual_seed(config["training"]["seed"])
        self.model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config["training"]["learning_rate"],
                                           weight_decay=config["training"]["weight_decay"])
        self.best, self.waited, self.epoch = float("inf"), 0, 0
        self.path = pathlib.Path("model_current_best.pt")
        if self.path.exists():
            state = torch.load(self.path)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.best, self.waited, self.epoch = state["best"], state["waited"], state["epoch"]
        self.ddp = DDP(self.model, find_unused_parameters=config["parallel"]["find_unused_parameters"])

    def prepare_dataloaders(self):
        world = self.config["parallel"]["world_size"]
        generator = torch.Generator().manual_seed(1)
        data = TensorDataset(torch.randn(160, 16, generator=generator), torch.randint(4, (160,), generator=generator))
        train, validation, test = random_split(data, [96, 32, 32], generator=torch.Generator().manual_seed(2))
        sampler = DistributedSampler(train, num_replicas=world, rank=self.rank, shuffle=True)
        options = self.config["training"]
        return (DataLoader(train, batch_size=options["batch_size"], sampler=sampler, num_workers=options["num_workers"], drop_last=options["drop_last"]),
                DataLoader(validation, batch_size=32), DataLoader(test, batch_size=32))

    def loss_over(self, loader):
        self.model.eval()
        with torch.no_grad():
            return sum(torch.nn.functional.cross_entropy(self.model(x), y).item() for x, y in loader) / len(loader)

    def run_training(self, train_loader, validation_loader):
        if self.rank == 0:
            print(f"starts at epoch {self.epoch} with {dist.get_world_size()} ranks", flush=True)
        for epoch in range(self.epoch, self.config["training"]["num_epochs"]):
            train_loader.sampler.set_epoch(epoch)
            if epoch == 1:
                crash_once(self.rank)
            self.ddp.train()
            for x, y in train_loader:
                self.optimizer.zero_grad()
                torch.nn.functional.cross_entropy(self.ddp(x), y).backward()
                self.optimizer.step()
            dist.barrier()
            stop = torch.zeros(1)
            if self.rank == 0:
                loss = self.loss_over(validation_loader)
                self.waited = 0 if loss < self.best else self.waited + 1
                self.best = min(self.best, loss)
                stop += self.waited > self.config["early_stopping"]["patience"]
                self.logger.info("Validation: loss=%.6f", loss)
                self.save(epoch + 1)
            dist.broadcast(stop, 0)
            if stop.item() > 0:
                break

    def save(self, epoch):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "best": self.best, "waited": self.waited, "epoch": epoch}
        temporary = self.path.with_suffix(".new")
        torch.save(state, temporary)
        temporary.replace(self.path)


def main():
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    setup_logging(rank)
    logger = logging.getLogger(__name__)
    try:
        initialize_ddp(rank=rank, worldsize=world_size, backend="nccl" if torch.cuda.is_available() else "gloo")
        CONFIG["parallel"]["world_size"] = world_size
        trainer = TrainerDDP(rank=rank, config=CONFIG)
        train_loader, validation_loader, test_loader = trainer.prepare_dataloaders()
        trainer.run_training(train_loader, validation_loader)
        if rank == 0:
            logger.info("Test: loss=%.6f", trainer.loss_over(test_loader))
            torch.save(trainer.model.state_dict(), "model.pt")
        dist.barrier()
    finally:
        cleanup_ddp()


if __name__ == "__main__":
    main()
