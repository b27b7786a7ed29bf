#!/usr/bin/env python3
"""scripts/bench ddp: the library oarlock::ddp in its own training loop, 2 ranks of one thread on one machine, compared with

  per-gradient  an all-reduce of every gradient after the backward pass, as NVIDIA's TorchFort and most programs with
                LibTorch do, in the same loop
  Python        torch.nn.parallel.DistributedDataParallel at its best settings, started by torchrun

in interleaved rounds. All use SGD in one fused kernel. Two rows bound what any scheme over Gloo can reach: the step without
averaging, and the same plus one all-reduce of all gradients, which is the sum if no core is left to overlap them.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from figures import Figure, table, write_json
import trainer

NAMES = ["small", "mlp", "cnn", "resnet"]
SCHEMES = ["shared-memory", "gloo", "per-gradient", "python", "none", "only"]
LABELS = {"shared-memory": "shared memory", "gloo": "Gloo", "none": "no averaging", "none + only": "no averaging + all-reduce"}


class Bench(trainer.Bench):
    def scheme(self, case, scheme):
        if scheme == "python":
            return self.theirs(case, "--optimizer", "sgd")
        record = self.directory / "ours.json"
        return self.timed([self.bin / "oarlock", "launch", "--nproc", str(trainer.RANKS), "--", self.bin / "oarlock-bench-ddp",
                           case.model, str(case.batch), str(self.steps(case)), str(case.channels_last).lower(), scheme, record],
                          record)

    def rounds(self, name):
        case = trainer.CASES[name]
        goals = {("shared-memory", "per-gradient"): 0.7, ("gloo", "per-gradient"): 0.7, ("shared-memory", "python"): 0.8,
                 ("gloo", "python"): 0.5 if name == "small" else 1.0, ("none", "per-gradient"): 0.7, ("none", "python"): 0.8,
                 ("none + only", "per-gradient"): 0.7, ("none + only", "python"): 0.5 if name == "small" else 1.0}
        figures = {(ours, theirs): Figure(f"{name}: {LABELS[ours]} / {theirs}", "ms", goal) for (ours, theirs), goal in goals.items()}
        for number in range(self.pairs):
            order = SCHEMES[number % len(SCHEMES):] + SCHEMES[: number % len(SCHEMES)]
            ms = {scheme: self.scheme(case, scheme).step * 1e3 for scheme in order}
            ms["none + only"] = ms["none"] + ms["only"]
            for (ours, theirs), figure in figures.items():
                figure.add(ms[ours], ms[theirs])
        return list(figures.values())


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/bench ddp", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
        epilog="examples:\n  scripts/bench ddp\n  scripts/bench ddp --pairs 7 --only small,mlp --json ddp.json")
    parser.add_argument("--bin", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="rounds (default 3)")
    parser.add_argument("--only", default=",".join(NAMES), metavar="NAME,...", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--json", metavar="FILE", help="write every figure of every round")
    parser.add_argument("--smoke", action="store_true", help="one round of a few steps: whether it works, not how fast")
    args = parser.parse_args()
    names = args.only.split(",")
    for name in names:
        if name not in NAMES:
            parser.error(f"unknown benchmark '{name}'; there are: {', '.join(NAMES)}")
    if args.pairs < 1:
        parser.error("--pairs must be at least 1")
    if args.smoke:
        args.pairs = 1
    figures = []
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as directory:
        bench = Bench(args, directory)
        for name in names:
            print(f"{name} ...", file=sys.stderr, flush=True)
            figures += bench.rounds(name)
    print(table(figures))
    if args.json:
        write_json(args.json, figures, {"ranks": trainer.RANKS, "pairs": args.pairs})


if __name__ == "__main__":
    try:
        main()
    except trainer.Failed as error:
        sys.exit(f"error: {error}")
