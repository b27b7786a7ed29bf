#!/usr/bin/env python3
"""On a machine with a GPU: whole runs of oarlock-trainer. A bundle's `run` starts it.

The five tasks train as on the CPU, resume bit by bit, and run in mixed precision. Two ranks with NCCL share one GPU: each
calls itself another host (NCCL_HOSTID), so that NCCL connects them by TCP. One that is killed is replaced in place, and one
that is stopped is named by the other."""
import argparse
import collections
import concurrent.futures
import filecmp
import functools
import gzip
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

from reserved_port import ReservedPort  # noqa: E402, in the same directory in a bundle

# Configurations without dropout, whose random numbers differ between devices.
TASKS = {
    "image_classification": """\
task: image_classification
data: {{path: {data}/cifar, augment: {{crop_padding: 4, flip: true}}}}
model: {{name: resnet_like, width: 8}}
batch: {{size: 24, per: global}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.0001}}
ddp: {{sync_batch_norm: true}}
""",
    "protein_diffusion": """\
task: protein_diffusion
data: {{path: {data}/train.fasta, eval_path: {data}/eval.fasta, max_length: 64}}
model: {{tokens: 25, length: 32, hidden_size: 16, cond_dim: 8, n_blocks: 2, n_heads: 2, dropout: 0}}
batch: {{size: 24, per: global}}
optimizer: {{name: adamw, lr: 0.003, betas: [0.9, 0.999], weight_decay: 0.01}}
gradient: {{clip_norm: 1}}
ema: {{enabled: true, decay: 0.9995, warmup: true}}
curriculum: {{enabled: true, preschool_time: 10}}
""",
    "comformer": """\
task: comformer
data: {{path: {data}/crystals.extxyz, target_property: energy, max_neighbors: 6}}
model: {{conv_layers: 2, node_features: 8, edge_features: 8, fc_features: 8}}
batch: {{size: 16, per: global}}
optimizer: {{name: adamw, lr: 0.004, weight_decay: 1.0e-5, groups: [{{preset: no_decay}}]}}
ddp: {{find_unused_parameters: true, sync_batch_norm: true}}
""",
    "gears": """\
task: gears
data: {{path: {data}/cells.h5ad, gene2go: {data}/gene2go.json}}
model: {{hidden_size: 16, coexpress_threshold: 0.3}}
batch: {{size: 32, per: global}}
optimizer: {{name: adam, lr: 0.003, weight_decay: 5e-4}}
gradient: {{clip_value: 1.0}}
""",
    "causal_set": """\
task: causal_set
data: {{paths: [{data}/sets.zarr]}}
model:
  blocks: [{{conv: gcn, out: 8, dropout: 0}}, {{conv: gat, heads: 2, out: 8, dropout: 0}}, {{conv: sage, out: 8, dropout: 0}}]
  pooling: [mean, max, sum]
  tasks: [{{name: manifold_like, hidden: [6]}}, {{name: size, target: cset_size, loss: mse, outputs: 1, weight: 0.01}}]
batch: {{size: 24, per: global, drop_last: true}}
optimizer: {{name: sgd, lr: 0.002}}
gradient: {{clip_norm: 1}}
ddp: {{sync_batch_norm: true}}
""",
}
SEED = "seed: 5\nthreads: 1\nlog: {every_steps: 1}\n"
STEPS = 12
# The first loss differs by the rounding of one forward pass; later ones by that of the updates, which BatchNorm and
# Adam amplify where a gradient is close to zero.
FIRST_LOSS, LATER_LOSSES = 1e-4, 2e-2
# Eight bits of mantissa, over the depth of these networks.
HALF_LOSS = 5e-2
PEER_LOST, OUT_OF_MEMORY, UNAVAILABLE = 76, 71, 69
LONGEST = 150.0  # seconds of a run; most take a few


class Failed(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failed(text)


def environment(more=()):
    out = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    return {**out, **dict(more)}


class Process:
    """A program whose output goes to a file."""

    def __init__(self, command, log, more=()):
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=out, env=environment(more))

    def text(self):
        return self.log.read_text(errors="replace")

    def lines(self, message):
        out = []
        for line in self.text().splitlines():
            if line.startswith("{") and f'"msg":"{message}"' in line:
                try:
                    out.append(json.loads(line))
                except ValueError:  # not written completely yet
                    pass
        return out

    def wait_until(self, what, condition, seconds=LONGEST):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = condition()
            if found:
                return found
            if self.process.poll() is not None:
                found = condition()
                if found:
                    return found
                break
            time.sleep(0.02)
        raise Failed(f"{what} did not happen:\n{self.text()[-3000:]}")

    def wait(self, code=0):
        try:
            got = self.process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"no end within {LONGEST} s:\n{self.text()[-3000:]}") from None
        check(got == code, f"ended with {got} instead of {code}:\n{self.text()[-4000:]}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Checks:
    def __init__(self, bin_directory, directory, device):
        self.device = device
        self.bin = bin_directory
        self.directory = directory
        self.data = directory / "data"
        self.ports = []
        self.processes = []
        self.write_data()

    def write_data(self):
        (self.data / "cifar").mkdir(parents=True)
        numbers = random.Random(1)
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
            records = bytearray()
            for record in range(48):
                label = record % 10
                records.append(label)
                for channel in range(3):  # noise around a color of the class
                    color = label * (channel + 2) * 37 % 200
                    records += bytes(color + numbers.randrange(56) for _ in range(32 * 32))
            (self.data / "cifar" / name).write_bytes(records)
        for name, count in (("train.fasta", 240), ("eval.fasta", 45)):
            proteins = ("".join(numbers.choices("ACDEFGHIKLMNPQRSTVWY", range(1, 21), k=numbers.randint(20, 60)))
                        for _ in range(count))
            (self.data / name).write_text("".join(f">protein-{i}\n{text}\n" for i, text in enumerate(proteins)))
        for command in (["oarlock-planted-cells", self.data],
                        ["oarlock-crystals", "--count", "100", "--target-property", "energy", self.data / "crystals.extxyz"],
                        ["oarlock-causal-sets", "--samples", "160", "--min-elements", "12", "--max-elements", "24", "--seed", "5",
                         self.data / "sets.zarr"]):
            done = subprocess.run([self.bin / command[0], *command[1:]], capture_output=True, text=True)
            check(done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stderr}")

    def two_ports(self):
        """For the rendezvous and for the launchers; reserved until the end."""
        self.ports.append(ReservedPort(2))
        return self.ports[-1].number

    def config(self, name, text):
        path = self.directory / f"{name}.yaml"
        path.write_text(text)
        return path

    def start(self, name, command, more=()):
        self.processes.append(Process(command, self.directory / f"{name}.log", more))
        return self.processes[-1]

    def kill_all(self):
        """Those that a failed check has left."""
        for process in self.processes:
            process.kill()

    def trainer(self, name, text, arguments=(), more=()):
        command = [self.bin / "oarlock-trainer", "--log-format", "json", "--config", self.config(name, text), *arguments]
        return self.start(name, command, more)

    def task(self, task, more):
        return TASKS[task].format(data=self.data) + SEED + more

    def on_device(self, task, more):
        return self.task(task, f"device: {self.device}\n" + more)

    def losses(self, name, text):
        process = self.trainer(name, text)
        process.wait()
        losses = [line["loss"] for line in process.lines("step")]
        check(len(losses) == STEPS, f"{len(losses)} losses instead of {STEPS}")
        return losses

    def compare(self, name, expected, got, first, later):
        differences = [abs(a - b) / max(abs(a), 1e-3) for a, b in zip(expected, got)]
        check(differences[0] <= first and max(differences) <= later,
              f"{name}: losses differ by {differences[0]:.1e} at the first step and by {max(differences):.1e} later:\n"
              f"{expected}\n{got}")
        return f"losses differ by {differences[0]:.1e} at first, and {max(differences):.1e} at most"

    # ---- tasks ----

    def trains_as_on_the_cpu(self, task):
        steps = f"steps: {STEPS}\n"
        cpu = self.losses(f"{task}-cpu", self.task(task, steps + "device: cpu\n"))
        gpu = self.losses(f"{task}-gpu", self.on_device(task, steps))
        return self.compare(task, cpu, gpu, FIRST_LOSS, LATER_LOSSES)

    def trains_in_mixed_precision(self, task, dtype):
        steps = f"steps: {STEPS}\n"
        full = self.losses(f"{task}-full-{dtype}", self.on_device(task, steps))
        half = self.losses(f"{task}-{dtype}", self.on_device(task, steps + f"amp: {{enabled: true, dtype: {dtype}}}\n"))
        check(half != full, "autocast changed nothing")
        return self.compare(task, full, half, HALF_LOSS, 4 * HALF_LOSS)

    def resumes_bitwise(self, task):
        def train(directory, steps):
            text = self.on_device(task, f"steps: {steps}\ncuda: {{deterministic: true}}\n"
                                        f"checkpoint: {{dir: {self.directory}/{directory}, every_steps: 5, keep: 1}}\n")
            self.trainer(f"{directory}-{steps}", text).wait()

        whole, halves = f"{task}-whole", f"{task}-halves"
        train(whole, 20)
        train(halves, 10)
        train(halves, 20)
        return self.same_files(self.directory / whole, self.directory / halves)

    def same_files(self, one, other):
        files = [file.relative_to(one) for file in (one / "last").rglob("*.safetensors")]
        check(files, f"no checkpoint in {one}")
        different = [str(file) for file in files if not filecmp.cmp(one / file, other / file, False)]
        check(not different, f"these differ: {', '.join(different)}")
        return f"{len(files)} files are equal"

    # ---- the device ----

    def doctor(self):
        done = subprocess.run([self.bin / "oarlock", "doctor"], capture_output=True, text=True, env=environment(),
                              timeout=LONGEST)
        text = done.stdout + done.stderr
        check("NVIDIA" in text and "CUDA up to" in text, f"the report names no GPU:\n{text}")
        return f"exit code {done.returncode}\n{text}"

    def selects_devices(self):
        def run(name, code, words, more="", variables=()):
            process = self.trainer(f"select-{name}", self.task("image_classification", f"steps: 2\ndevice: cuda\n{more}"),
                                   (), variables)
            process.wait(code)
            check(words in process.text(), f"{words!r} is missing:\n{process.text()[-2000:]}")

        run("first", 0, '"device":"NVIDIA', "gpu_ids: [0]\n")
        run("absent", UNAVAILABLE, "correct gpu_ids", "gpu_ids: [63]\n")
        run("hidden", UNAVAILABLE, "check the driver and CUDA_VISIBLE_DEVICES", variables={"CUDA_VISIBLE_DEVICES": ""})
        run("fallback", 0, "training on the CPU", "distributed: {fallback: cpu}\n", {"CUDA_VISIBLE_DEVICES": ""})
        return "gpu_ids, CUDA_VISIBLE_DEVICES and distributed.fallback"

    def limits_memory(self):
        process = self.trainer("capped", self.on_device("image_classification",
                                                        "steps: 4\ncuda: {memory_fraction: 0.0005}\n"),
                               ["model.width=64", "batch.size=240"])
        process.wait(OUT_OF_MEMORY)
        check("cuda.memory_fraction" in process.text(), f"the remedy is missing:\n{process.text()[-2000:]}")
        return "a rank beyond its limit ends with 71"

    def reports_metrics(self):
        process = self.trainer("metrics", self.on_device("image_classification", "steps: 100000\n"),
                               ["--metrics-port", "auto", "cuda.memory_fraction=0.25"])
        served = process.wait_until("serving metrics", lambda: process.lines("metrics are served"))
        process.wait_until("step 20", lambda: any(line["step"] >= 20 for line in process.lines("step")))
        url = f"http://127.0.0.1:{served[0]['port']}/metrics"
        text = urllib.request.urlopen(url, timeout=10).read().decode()
        process.kill()
        values = {}
        for line in text.splitlines():
            if line.startswith(("trainer_device_", "trainer_build_info", "trainer_model_flops", "trainer_mfu")):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)

        def value(name):
            found = [v for k, v in values.items() if k.split("{")[0] == name]
            check(found, f"{name} is missing:\n{text[:3000]}")
            return found[0]

        allocated, reserved = value("trainer_device_memory_allocated_bytes"), value("trainer_device_memory_reserved_bytes")
        peak, limit = value("trainer_device_memory_peak_bytes"), value("trainer_device_memory_limit_bytes")
        check(0 < allocated <= reserved and allocated <= peak <= limit, f"{allocated} {reserved} {peak} {limit}")
        return "\n".join(f"{name} {number:g}" for name, number in values.items())

    def writes_a_trace(self):
        directory = self.directory / "trace"
        self.trainer("trace-run", self.on_device("image_classification",
                                                 f"steps: 40\nprofile: {{steps: 3, dir: {directory}}}\n")).wait()
        traces = list(directory.rglob("*.json*"))
        check(traces, "no trace was written")
        if traces[0].suffix == ".gz":
            text = gzip.decompress(traces[0].read_bytes())
        else:
            text = traces[0].read_bytes()
        events = json.loads(text)["traceEvents"]
        kinds = dict(collections.Counter(event.get("cat") for event in events))
        check(kinds.get("kernel", 0) > 0, f"the trace has no kernels: {kinds}")
        return f"{traces[0].name}: {kinds}"

    # ---- two ranks with NCCL on one GPU ----

    @staticmethod
    def as_host(number):
        return {"NCCL_HOSTID": f"host-{number}", "NCCL_SOCKET_IFNAME": "lo"}

    def two_ranks(self, name, text, more=()):
        """Two ranks as two hosts of one GPU each."""
        port = self.two_ports()
        out = []
        for rank in range(2):
            variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **self.as_host(rank), **dict(more)}
            out.append(self.trainer(f"{name}-{rank}", text, (), variables))
        return out

    def averages(self, task):
        """As two ranks with Gloo on the CPU, which other tests compare with one rank and with PyTorch."""
        def losses(name, device, backend):
            ranks = self.two_ranks(f"{task}-{name}", self.task(task, f"steps: {STEPS}\ndevice: {device}\n"))
            for rank in ranks:
                rank.wait()
            check(f'"backend":"{backend}"' in ranks[0].text(), f"not with {backend}:\n{ranks[0].text()[:2000]}")
            return [line["loss"] for line in ranks[0].lines("step")]

        expected = losses("gloo", "cpu", "gloo")
        got = losses("two", self.device, "nccl" if self.device == "cuda" else "gloo")
        return self.compare(task, expected, got, FIRST_LOSS, LATER_LOSSES)

    def names_a_stopped_rank(self):
        ranks = self.two_ranks("stopped", self.on_device("image_classification",
                                                         "steps: 1000000\ndistributed: {timeout_seconds: 4}\n"))
        ranks[0].wait_until("step 5", lambda: any(line["step"] >= 5 for line in ranks[0].lines("step")))
        begin = time.monotonic()
        ranks[1].process.send_signal(signal.SIGSTOP)
        ranks[0].wait(PEER_LOST)
        seconds = time.monotonic() - begin
        ranks[1].kill()
        check("rank 1 does not respond" in ranks[0].text(), f"rank 1 is not named:\n{ranks[0].text()[-3000:]}")
        check(seconds < 40, f"it took {seconds:.1f} s")
        return f"rank 0 ended {seconds:.1f} s after rank 1 was stopped (timeout 4 s)"

    def rejects_two_ranks_on_one_gpu(self):
        ranks = self.two_ranks("shared", self.on_device("image_classification", f"steps: {STEPS}\n"),
                               {"NCCL_HOSTID": "host"})
        for rank in ranks:
            rank.process.wait(LONGEST)
        codes = [rank.process.returncode for rank in ranks]
        check(UNAVAILABLE in codes and 0 not in codes, f"ended with {codes}:\n{ranks[0].text()[-2000:]}")
        check("every rank needs its own GPU" in ranks[0].text() + ranks[1].text(), ranks[0].text()[-2000:])
        return f"exit codes {codes}"

    def launch(self, name, steps, kills=()):
        """A launcher per rank. Kills ranks at these steps, [(step, rank)], and returns the seconds of each recovery."""
        directory = self.directory / name
        text = self.on_device("image_classification", f"steps: {steps}\ncuda: {{deterministic: true}}\n"
                                                      f"checkpoint: {{dir: {directory}, every_steps: 1000}}\n")
        config, port, launchers = self.config(name, text), self.two_ports(), []
        for node in range(2):
            command = [self.bin / "oarlock", "launch", "--nnodes", "2", "--node-rank", node, "--nproc", "1", "--master-addr",
                       "127.0.0.1", "--master-port", port, "--max-restarts", "10", "--restart-policy", "rank", "--no-prefix",
                       "--", self.bin / "oarlock-trainer", "--log-format", "json", "--config", config]
            launchers.append(self.start(f"{name}-{node}", command,
                                        {**self.as_host(node), "OARLOCK_REGROUP_TOKEN": "a token of this test"}))
        for number, (step, rank) in enumerate(kills):
            self.kill_at(launchers, step, rank, number)
        for launcher in launchers:
            launcher.wait()
        return [line["seconds"] for line in self.recoveries(launchers)]

    @staticmethod
    def recoveries(launchers):
        return [line for launcher in launchers for line in launcher.lines("recovered from the loss of a rank without a checkpoint")]

    def kill_at(self, launchers, step, rank, number):
        def last_step():
            return max([line["step"] for launcher in launchers for line in launcher.lines("step")], default=0)

        launchers[0].wait_until(f"step {step}", lambda: last_step() >= step)
        for pid in map(int, pathlib.Path(f"/proc/{launchers[rank].process.pid}/task/{launchers[rank].process.pid}/children")
                       .read_text().split()):
            if f"RANK={rank}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
                break
        else:
            raise Failed(f"the process of rank {rank} was not found")
        launchers[0].wait_until(f"recovery {number + 1}", lambda: len(self.recoveries(launchers)) > number)

    def replaces_killed_ranks(self):
        seconds = self.launch("disturbed", 60, [(10, 1), (25, 0), (40, 1)])
        self.launch("undisturbed", 60)
        equal = self.same_files(self.directory / "undisturbed", self.directory / "disturbed")
        return f"no step lost, {equal}; recoveries took {', '.join(f'{s:.2f}' for s in seconds)} s"


def runs_of(checks):
    """The checks by name, longest first."""
    runs = {"killed ranks are replaced in place": checks.replaces_killed_ranks,
            "a stopped rank is named": checks.names_a_stopped_rank}
    for task in TASKS:
        runs[f"{task} resumes bitwise"] = functools.partial(checks.resumes_bitwise, task)
        runs[f"{task} with two ranks"] = functools.partial(checks.averages, task)
        runs[f"{task} in bf16"] = functools.partial(checks.trains_in_mixed_precision, task, "bf16")
    if checks.device == "cpu":
        return runs
    for task in TASKS:
        runs[f"{task} as on the CPU"] = functools.partial(checks.trains_as_on_the_cpu, task)
        runs[f"{task} in fp16"] = functools.partial(checks.trains_in_mixed_precision, task, "fp16")
    runs["two ranks on one GPU are rejected"] = checks.rejects_two_ranks_on_one_gpu
    runs["device selection"] = checks.selects_devices
    runs["memory limit"] = checks.limits_memory
    runs["device metrics"] = checks.reports_metrics
    runs["trace"] = checks.writes_a_trace
    runs["doctor"] = checks.doctor
    return runs


def run_all(runs, parallel):
    """Returns the number of failed checks."""
    failed = 0
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        futures = {pool.submit(run): name for name, run in runs.items()}
        for future in concurrent.futures.as_completed(futures):
            try:
                print(f"ok      {futures[future]}: {future.result()}", flush=True)
            except Exception as error:  # of any kind: the other checks continue
                failed += 1
                print(f"FAILED  {futures[future]}: {error}", flush=True)
    print(f"{len(runs) - failed} of {len(runs)} checks of whole runs passed, in {time.monotonic() - began:.0f} s")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="directory of the programs")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                        help="cpu: only the checks that need no GPU, with Gloo instead of NCCL")
    parser.add_argument("--parallel", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="checks that run in parallel")
    parser.add_argument("--logs", type=pathlib.Path, help="directory for the logs of all processes")
    parser.add_argument("--only", default="", help="only the checks whose names contain this")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oarlock-gpu-") as name:
        checks = Checks(args.bin.resolve(), pathlib.Path(name), args.device)
        runs = {name: run for name, run in runs_of(checks).items() if args.only in name}
        try:
            failed = run_all(runs, args.parallel)
        finally:
            checks.kill_all()
        if args.logs:
            args.logs.mkdir(parents=True, exist_ok=True)
            for log in pathlib.Path(name).glob("*.log"):
                shutil.copy(log, args.logs)
        if failed > 0 or not runs:
            sys.exit(1)


if __name__ == "__main__":
    main()
