"""DistributedDataParallel at its best settings, for scripts/bench: one rank, started by torchrun.

Batches are gathered from memory by one index_select, without a DataLoader; no .item(), no logging, no metrics.
"""
import argparse
import json
import resource
import time

import torch
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import sedd
from models import MODELS


def status_kb(key):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ":"))


def write_record(path, marks, cpu_marks):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    record = {
        "marks_ns": marks,
        "cpu_marks_ns": cpu_marks,
        "peak_rss_kb": status_kb("VmHWM"),
        "minor_faults": usage.ru_minflt,
    }
    with open(path, "w", encoding="ascii") as file:
        json.dump(record, file)


def make_optimizer(name, kind, parameters):
    options = {"fused": True} if kind == "fused" else {"foreach": True}
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **options)
    return torch.optim.AdamW(parameters, lr=1e-3, **options)


def made(name, samples):
    """The model, its inputs and labels, and what gives the loss of both."""
    if name == "sedd":
        inputs, labels = torch.rand((samples, 1 + sedd.LENGTH)), torch.randint(sedd.TOKENS, (samples, sedd.LENGTH))
        return sedd.Sedd(), inputs, labels, lambda model, x, y: model(x, y)
    make, shape, outputs = MODELS[name]
    model = make()
    inputs, labels = torch.randn((samples, *shape)), torch.randint(outputs, (samples,))
    return model, inputs, labels, lambda model, x, y: functional.cross_entropy(model(x), y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=[*MODELS, "sedd"], required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw")
    parser.add_argument("--kernels", choices=["fused", "foreach"], default="fused")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--record", required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    model, inputs, labels, loss_of = made(args.model, args.samples)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    optimizer = make_optimizer(args.optimizer, args.kernels, ddp.parameters())
    order = torch.randperm(args.samples)[rank::world]
    batches = order.split(args.batch)[: order.numel() // args.batch]

    marks, cpu_marks = [], []

    def mark():
        marks.append(time.monotonic_ns())
        cpu_marks.append(time.process_time_ns())

    for step in range(args.steps):
        mark()
        index = batches[step % len(batches)]
        x = inputs.index_select(0, index)
        if args.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        loss = loss_of(ddp, x, labels.index_select(0, index))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    mark()
    if rank == 0:
        write_record(args.record, marks, cpu_marks)
    distributed.barrier()
    distributed.destroy_process_group()


main()
