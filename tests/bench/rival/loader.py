"""torch.utils.data.DataLoader over images in memory, for scripts/bench: samples per second as one line of JSON."""
import json
import sys
import time

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

BATCH = 64


class Images(Dataset):
    """With one index a sample, with a list of indices a batch."""

    def __init__(self, size, shape, dtype):
        self.images, self.labels = torch.zeros(size, *shape, dtype=dtype), torch.zeros(size, dtype=torch.long)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def rate(loader, size, epochs):
    begin = time.monotonic()
    for _ in range(epochs):
        for _ in loader:
            pass
    return size * epochs / (time.monotonic() - begin)


def figures(data, size, epochs):
    workers = {"num_workers": 2, "persistent_workers": True}

    def per_item(**options):
        return DataLoader(data, batch_size=BATCH, shuffle=True, **options)

    def vectorized(**options):
        return DataLoader(data, sampler=BatchSampler(RandomSampler(data), BATCH, False), batch_size=None, **options)

    rate(vectorized(), size, 1)
    return {
        "per_item_0": rate(per_item(), size, 1),
        "per_item_2": rate(per_item(**workers), size, 1),
        "vectorized_0": rate(vectorized(), size, epochs),
        "vectorized_2": rate(vectorized(**workers), size, epochs),
    }


def main():
    size, epochs = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    print(json.dumps({
        "small": figures(Images(size, (1, 28, 28), torch.uint8), size, epochs),
        "large": figures(Images(size, (3, 32, 32), torch.float32), size, epochs),
    }))


main()
