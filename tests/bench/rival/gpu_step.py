"""PyTorch on one GPU, for scripts/bench gpu: seconds of a training step, eager or as one CUDA graph; a line of JSON."""
import argparse
import json
import time

import torch
from torch.nn import functional

from models import MODELS

WARM_UP = 20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()

    make, shape, outputs = MODELS[args.model]
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    model = make().cuda().to(memory_format=layout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=args.graphs)
    inputs = torch.randn((args.samples, *shape)).pin_memory()
    labels = torch.randint(outputs, (args.samples,)).pin_memory()

    def batch():
        index = torch.randint(args.samples, (args.batch,))
        x = inputs.index_select(0, index).pin_memory().cuda(non_blocking=True)
        y = labels.index_select(0, index).pin_memory().cuda(non_blocking=True)
        return (x.contiguous(memory_format=layout) if args.channels_last else x), y

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
        if args.graphs:
            x, y = batch()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                step(x, y)
        torch.cuda.synchronize()
        begin = time.monotonic()
        for _ in range(args.steps):
            new_x, new_y = batch()
            if args.graphs:
                x.copy_(new_x)
                y.copy_(new_y)
                graph.replay()
            else:
                step(new_x, new_y)
        torch.cuda.synchronize()
    print(json.dumps({"seconds": (time.monotonic() - begin) / args.steps}))


main()
