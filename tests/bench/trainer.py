#!/usr/bin/env python3
"""scripts/bench trainer: this engine compared with Python's DistributedDataParallel, in interleaved pairs.

Both train 2 ranks of one thread on one machine: theirs over Gloo, ours in memory that they share (and once over Gloo,
as between machines). Ours is the whole engine, started by `oarlock launch` with its metrics served; theirs is
tests/bench/rival/ddp.py, started by torchrun. Both note when each step begins.
"""
import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import recovery
import slow_mlflow
from figures import Figure, table, write_json

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

from reserved_port import ReservedPort  # noqa: E402

RANKS = 2


class Case:
    """One model: its batch per rank, its steps, and which kernels serve the rival best."""

    def __init__(self, model, batch, steps, kernels, goal, channels_last=False):
        self.model, self.batch, self.steps, self.goal = model, batch, steps, goal
        self.kernels, self.channels_last = kernels, channels_last


CASES = {
    "small": Case("small", 32, 600, "fused", 0.6),
    "mlp": Case("mlp", 128, 24, "fused", 1.0),
    "cnn": Case("cnn", 64, 24, "fused", 1.0, channels_last=True),
    "resnet_like": Case("resnet_like", 32, 20, "fused", 1.0, channels_last=True),
    "resnet": Case("resnet", 8, 10, "fused", 1.0, channels_last=True),
    "sedd": Case("sedd", 8, 20, "fused", 1.0),
}

OURS = """\
task: bench
seed: 1
steps: {steps}
threads: 1
batch: {{size: {batch}, per: device}}
optimizer: {{name: adamw, lr: 0.001, weight_decay: 0.01}}
loader: {{threads: 0}}
ddp: {{static_graph: true, shared_memory: {shared_memory}}}
cuda: {{channels_last: {channels_last}}}
data: {{samples: {samples}, record: {record}}}
model: {{name: {model}}}
"""


class Failed(Exception):
    pass


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def environment():
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("OARLOCK_", "PET_"))}
    return {**keep, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_DISTRIBUTED_DEBUG": "OFF"}


class Result:
    """A run: seconds from its start to the end of the first step, seconds of a step, memory."""

    def __init__(self, started, record):
        marks = record["marks_ns"]
        gaps = [(b - a) / 1e9 for a, b in zip(marks, marks[1:])]
        self.first_step = (marks[1] - started) / 1e9
        settled = gaps[min(len(gaps) // 4, 50) : -1] or gaps  # the last gap holds the end of the run
        self.step = statistics.median(settled)
        self.mean_step = sum(settled) / len(settled)
        self.undisturbed_step = sorted(settled)[len(settled) // 10]  # others use this machine, too
        cpu = record["cpu_marks_ns"]
        skip = min(len(gaps) // 4, 50)
        self.step_cpu = (cpu[-2] - cpu[skip]) / 1e9 / max(len(cpu) - 2 - skip, 1)
        self.gaps = gaps
        self.rss_mb = record["peak_rss_kb"] / 1024
        self.faults = record["minor_faults"]


class Bench:
    def __init__(self, args, directory):
        self.bin, self.python, self.directory = pathlib.Path(args.bin), args.python, pathlib.Path(directory)
        self.pairs, self.quick = args.pairs, args.smoke

    def steps(self, case):
        return 6 if self.quick else case.steps

    def ours(self, case, extra="", ranks=RANKS, shared_memory=True):
        record, config = self.directory / "ours.json", self.directory / "trainer.yaml"
        samples = case.batch * ranks * self.steps(case)  # one epoch: no evaluation but the last
        config.write_text(OURS.format(steps=self.steps(case), batch=case.batch, samples=samples, record=record,
                                      model=case.model, channels_last=str(case.channels_last).lower(),
                                      shared_memory=str(shared_memory).lower()) + extra)
        command = [self.bin / "oarlock", "launch", "--nproc", str(ranks), "--",
                   self.bin / "oarlock-bench-trainer", "--config", config, "--metrics-port", "auto"]
        return self.timed(command, record)

    def theirs(self, case, *options):
        record, port = self.directory / "theirs.json", ReservedPort()
        # The static rendezvous: one TCPStore and no agent's negotiation, which is torchrun's quickest start.
        command = [self.python, "-m", "torch.distributed.run", "--nnodes", "1", "--node-rank", "0", "--nproc-per-node",
                   str(RANKS), "--rdzv-backend", "static", "--master-addr", "127.0.0.1", "--master-port",
                   str(port.number), HERE / "rival" / "ddp.py", "--model", case.model, "--steps",
                   str(self.steps(case)), "--batch", str(case.batch), "--samples", str(case.batch * RANKS * self.steps(case)),
                   "--kernels", case.kernels, "--record", record, *options]
        if case.channels_last:
            command.append("--channels-last")
        with port:
            return self.timed(command, record)

    def timed(self, command, record):
        record.unlink(missing_ok=True)
        started = time.monotonic_ns()
        run(command, env=environment())
        return Result(started, json.loads(record.read_text()))

    def pairs_of(self, ours, theirs, pairs=None):
        """Ours and theirs in turn, the first of a pair changing from pair to pair."""
        for pair in range(pairs or self.pairs):
            if pair % 2:
                b = theirs()
                a = ours()
            else:
                a = ours()
                b = theirs()
            yield a, b

    def model(self, name):
        case = CASES[name]
        step = Figure(f"step, {name}", "ms", case.goal)
        undisturbed = Figure(f"step, {name}, 10th percentile", "ms", case.goal)
        cpu = Figure(f"step, {name}, processor time", "ms", case.goal)
        rss = Figure(f"RSS per rank, {name}", "MiB", 0.35)
        start = Figure("start to first step", "s", 0.15)
        as_on_two_machines = Figure(f"step, {name}, over Gloo as between machines", "ms", case.goal)
        with_gloo = name in ("small", "mlp")
        for a, b in self.pairs_of(lambda: self.ours(case), lambda: self.theirs(case)):
            step.add(a.step * 1e3, b.step * 1e3)
            undisturbed.add(a.undisturbed_step * 1e3, b.undisturbed_step * 1e3)
            cpu.add(a.step_cpu * 1e3, b.step_cpu * 1e3)
            rss.add(a.rss_mb, b.rss_mb)
            start.add(a.first_step, b.first_step)
            if with_gloo:
                as_on_two_machines.add(self.ours(case, shared_memory=False).step * 1e3, b.step * 1e3)
        return ([start] if name == "small" else []) + [step, undisturbed, cpu] + ([as_on_two_machines, rss] if with_gloo else [])

    def loader(self):
        size, epochs = ("2000", "1") if self.quick else ("10000", "5")
        figures = {
            (items, key): Figure(f"loader, {size_text}, {text}", "items/s", goal, at_least=True)
            for items, size_text in (("small", "784 B"), ("large", "12 KiB"))
            for key, text, goal in (("per_item_0", "per item", 20), ("per_item_2", "per item, 2 workers", 20),
                                    ("vectorized_0", "vectorized", 4), ("vectorized_2", "vectorized, 2 workers", 4))
        }
        ours = lambda: json.loads(run([self.bin / "oarlock-bench-loader", size, epochs]))
        theirs = lambda: json.loads(run([self.python, HERE / "rival" / "loader.py", size, epochs]))
        for a, b in self.pairs_of(ours, theirs):
            for (items, key), figure in figures.items():
                figure.add(a[items]["threads_2" if key.endswith("_2") else "threads_0"], b[items][key])
        return list(figures.values())

    def checkpoint(self):
        """The cost of a save: the duration of its first two steps, during which the state is copied, minus that of later
        steps; compared with torch.save and fsync, which block training. Once with an idle core, once with two ranks
        that keep both cores busy, so that the save competes with the steps."""
        every, case = 8, CASES["mlp"]
        directory = self.directory / "checkpoints"
        figures = {1: Figure("stall of a checkpoint, a core to spare", "ms", 0.02),
                   RANKS: Figure("stall of a checkpoint, no core to spare", "ms", 0.02)}

        def ours(ranks):
            run(["rm", "-rf", directory])
            extra = f"checkpoint: {{dir: {directory}, every_steps: {every}, keep: 1}}\n"
            result = self.ours(Case(case.model, 64, (2 if self.quick else 7) * every, case.kernels, 0), extra, ranks)
            gaps = result.gaps[every - 1 : -2]
            plain = statistics.median(gap for i, gap in enumerate(gaps) if i % every > every // 2)
            return statistics.median(gaps[i] + gaps[i + 1] - 2 * plain for i in range(0, len(gaps) - 1, every))

        def theirs():
            path = self.directory / "theirs.pt"
            return statistics.median(json.loads(run([self.python, HERE / "rival" / "save.py", case.model, path,
                                                     "1" if self.quick else "4"]))["seconds"])

        for ranks, figure in figures.items():
            for a, b in self.pairs_of(lambda: ours(ranks), theirs):
                figure.add(max(a, 0) * 1e3, b * 1e3)
        return list(figures.values())

    def telemetry(self):
        """The cost of metrics, progress and log per step, compared with the small step itself."""
        figure = Figure("metrics, progress, log / small step", "us", 0.01)
        for _ in range(self.pairs):
            cost = json.loads(run([self.bin / "oarlock-bench-telemetry", "1000" if self.quick else "200000"]))
            figure.add(cost["nanoseconds_per_step"] / 1e3, self.ours(CASES["small"]).step * 1e6)
        return [figure]

    def tracking(self):
        """The cost of experiment tracking with a point after every step. First the processor time of tracking per step, of all
        threads, which is precise on a busy machine, too: with all cores in use, a step takes so much longer at most. Then the
        small step itself, tracked and not tracked: the mean of a run, because a write every 250 ms is not in the median. A
        ratio so close to 1 needs more pairs than the others."""
        with slow_mlflow.SlowServer(seconds=10) as slow, slow_mlflow.SlowServer(seconds=0) as quick:
            destinations = {"TensorBoard": None, "all, MLflow answers immediately": quick, "all, MLflow takes 10 s per answer": slow}
            figures = [self.tracking_processor_time(name, server) for name, server in destinations.items()]
            figures += [self.tracked_step(name, server) for name, server in destinations.items()]
            if slow.requests == 0 or quick.requests == 0 or (quick.batches == 0 and not self.quick):
                raise Failed("nothing was reported to the MLflow server")
        return figures

    def tracking_processor_time(self, name, server):
        case, directory = CASES["small"], self.directory / "tracked"
        figure = Figure(f"processor time of tracking ({name}) / small step", "us", 0.01)
        for _ in range(self.pairs):
            run(["rm", "-rf", directory])
            step = self.ours(case, "log: {every_steps: 1}\n").mean_step
            cost = json.loads(run([self.bin / "oarlock-bench-tracking", "100" if self.quick else "4000", str(round(step * 1e6)), directory,
                                   *([f"http://127.0.0.1:{server.server_port}"] if server else [])]))
            figure.add((cost["training_thread_ns"] + cost["other_threads_ns"]) / 1e3, step * 1e6)
        return figure

    def tracked_step(self, name, server):
        directory = self.directory / "tracked"
        figure = Figure(f"small step, tracked ({name}) / not tracked", "ms", 1.01)
        sinks = "tensorboard: {enabled: true}"
        if server:
            sinks += f", wandb: {{enabled: true}}, mlflow: {{enabled: true, uri: 'http://127.0.0.1:{server.server_port}'}}"

        def run_with(sections):
            run(["rm", "-rf", directory])
            extra = f"log: {{every_steps: 1}}\ncheckpoint: {{dir: {directory}, every_epochs: 0}}\n{sections}"
            return self.ours(CASES["small"], extra).mean_step * 1e3

        tracked = f"tracking: {{finish_timeout_seconds: 0, {sinks}}}\n"
        for a, b in self.pairs_of(lambda: run_with(tracked), lambda: run_with(""), 1 if self.quick else max(self.pairs, 25)):
            figure.add(a, b)
        return figure

    def recovery(self):
        """From the SIGKILL of a rank to the next new step, compared with torchrun elastic that has a snapshot of each step."""
        case, samples = CASES["small"], 64 * CASES["small"].batch
        figure = Figure("next new step after SIGKILL of a rank", "s", 0.1)
        made = 0

        def directory():
            nonlocal made
            made += 1
            path = self.directory / f"recovery-{made}"
            path.mkdir()
            return path

        def ours(rank):
            return recovery.Ours(self.bin, environment(), directory(), case.model, case.batch, samples).seconds_to_new_step(rank)

        def theirs(rank):
            """Returns None if torchrun does not recover in time."""
            script = HERE / "rival" / "elastic.py"
            try:
                return recovery.Theirs(self.python, script, environment(), directory(), case.model, case.batch, samples).seconds_to_new_step(rank)
            except recovery.NotRecovered as error:
                print(f"torchrun did not recover from the loss of rank {rank}", file=sys.stderr, flush=True)
                failed.append(error)
                return None

        failed = []
        for rank in range(1 if self.quick else RANKS):
            for a, b in self.pairs_of(functools.partial(ours, rank), functools.partial(theirs, rank)):
                print(f"rank {rank}: ours {a:.2f} s, theirs {'none' if b is None else f'{b:.2f} s'}", file=sys.stderr, flush=True)
                if b is not None:
                    figure.add(a, b)
        if not figure.theirs and not self.quick:
            raise failed[0]
        return [figure] if figure.theirs else []


NAMES = ["small", "mlp", "cnn", "resnet_like", "resnet", "sedd", "loader", "checkpoint", "telemetry", "tracking", "recovery"]


def run_benchmarks(program, description, names, bench_class, figures_of):
    """The command line of a benchmark whose parts have `names`; figures_of(bench, name) returns the figures of a part."""
    parser = argparse.ArgumentParser(
        prog=f"scripts/bench {program}", formatter_class=argparse.RawDescriptionHelpFormatter, description=description,
        epilog=f"examples:\n  scripts/bench {program}\n  scripts/bench {program} --pairs 7 --only small,mlp --json bench.json")
    parser.add_argument("--bin", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="runs of each side (default 3)")
    parser.add_argument("--only", default=",".join(names), metavar="NAME,...", help=f"of {', '.join(names)}")
    parser.add_argument("--json", metavar="FILE", help="write every figure of every pair")
    parser.add_argument("--smoke", action="store_true", help="one pair of a few steps: whether it works, not how fast")
    args = parser.parse_args()
    selected = args.only.split(",")
    for name in selected:
        if name not in names:
            parser.error(f"unknown benchmark '{name}'; there are: {', '.join(names)}")
    if args.pairs < 1:
        parser.error("--pairs must be at least 1")
    if args.smoke:
        args.pairs = 1

    figures = []
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as directory:
        bench = bench_class(args, directory)
        for name in selected:
            print(f"{name} ...", file=sys.stderr, flush=True)
            figures += figures_of(bench, name)
    print(table(figures))
    if args.json:
        write_json(args.json, figures, {"ranks": RANKS, "pairs": args.pairs})


def main():
    run_benchmarks("trainer", __doc__, NAMES, Bench,
                   lambda bench, name: bench.model(name) if name in CASES else getattr(bench, name)())


if __name__ == "__main__":
    try:
        main()
    except (Failed, recovery.Failed) as error:
        sys.exit(f"error: {error}")
