"""torch.save and fsync of a model and its AdamW, for scripts/bench: seconds that a save blocks training."""
import json
import os
import sys
import time

import torch

from models import MODELS


def main():
    name, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    model = MODELS[name][0]()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    seconds = []
    for _ in range(count):
        begin = time.monotonic()
        with open(path, "wb") as file:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        seconds.append(time.monotonic() - begin)
    print(json.dumps({"seconds": seconds}))


main()
