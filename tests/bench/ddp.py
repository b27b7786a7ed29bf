#!/usr/bin/env python3
"""scripts/bench ddp: the library oarlock::ddp in its own training loop, 2 ranks of one thread on one machine, compared with

  per-gradient  an all-reduce of every gradient after the backward pass, as NVIDIA's TorchFort and most programs with
                LibTorch do, in the same loop
  Python        torch.nn.parallel.DistributedDataParallel at its best settings, started by torchrun

in interleaved rounds. All use SGD in one fused kernel. Two rows bound what any scheme over Gloo can reach: the step without
averaging, and the same plus one all-reduce of all gradients, which is the sum if no core is left to overlap them.
"""
import sys

from figures import Figure
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


if __name__ == "__main__":
    try:
        trainer.run_benchmarks("ddp", __doc__, NAMES, Bench, Bench.rounds)
    except trainer.Failed as error:
        sys.exit(f"error: {error}")
