"""A script for Lightning with checkpoints. It runs under `oarlock launch`, torchrun, or alone in each pod:

    PYTHONPATH=python oarlock launch --nproc 2 -- python3 examples/lightning/train.py --epochs 20
"""
import argparse
import os

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import oarlock


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.layers(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    epochs = parser.parse_args().epochs
    L.seed_everything(0)
    inputs = torch.randn(4096, 16)
    dataset = TensorDataset(inputs, inputs @ torch.randn(16, 1))

    ranks_per_node = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    # After SIGTERM, all ranks stop at the same step, and save_on_exception saves it.
    checkpoints = ModelCheckpoint(os.environ.get("OARLOCK_CHECKPOINT_DIR", "checkpoints"), every_n_train_steps=100, save_last=True,
                                  save_on_exception=True)
    trainer = L.Trainer(strategy="ddp", devices=ranks_per_node, num_nodes=int(os.environ.get("WORLD_SIZE", 1)) // ranks_per_node,
                        max_epochs=epochs, log_every_n_steps=10, callbacks=[checkpoints, oarlock.LightningCallback()],
                        logger=False, enable_progress_bar=False)
    trainer.fit(Regression(), DataLoader(dataset, batch_size=64, shuffle=True), ckpt_path="last")


if __name__ == "__main__":
    main()
