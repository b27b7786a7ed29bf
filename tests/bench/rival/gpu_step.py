"""PyTorch on one GPU, for scripts/bench gpu: seconds of a training step, eager or as one CUDA graph; a line of JSON for each case.

A case is MODEL:BATCH:GRAPH:LAST, where GRAPH and LAST are 0 or 1, and LAST means channels_last.
"""
import argparse
import json
import time

import torch
from torch.nn import functional

from models import MODELS

WARM_UP = 20


def seconds_of_step(name, batch_size, graphs, channels_last, steps, samples):
    make, shape, outputs = MODELS[name]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = make().cuda().to(memory_format=layout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=graphs)
    inputs = torch.randn((samples, *shape)).pin_memory()
    labels = torch.randint(outputs, (samples,)).pin_memory()

    def batch():
        index = torch.randint(samples, (batch_size,))
        x = inputs.index_select(0, index).pin_memory().cuda(non_blocking=True)
        y = labels.index_select(0, index).pin_memory().cuda(non_blocking=True)
        return (x.contiguous(memory_format=layout) if channels_last else x), y

    def step(x, y):
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step(*batch())
        stream.synchronize()
        if graphs:
            x, y = batch()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                step(x, y)
        torch.cuda.synchronize()
        begin = time.monotonic()
        for _ in range(steps):
            new_x, new_y = batch()
            if graphs:
                x.copy_(new_x)
                y.copy_(new_y)
                graph.replay()
            else:
                step(new_x, new_y)
        torch.cuda.synchronize()
    return (time.monotonic() - begin) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", metavar="CASE")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    args = parser.parse_args()
    # PyTorch's own defaults allow TF32 in convolutions only; the engine's in nothing.
    torch.backends.cudnn.allow_tf32 = False
    for case in args.cases:
        model, batch, graphs, channels_last = case.split(":")
        seconds = seconds_of_step(model, int(batch), graphs == "1", channels_last == "1", args.steps, args.samples)
        print(json.dumps({"case": case, "seconds": seconds}), flush=True)


main()
