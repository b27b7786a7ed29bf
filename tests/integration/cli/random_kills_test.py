#!/usr/bin/env python3
"""Random failures of a job of two launchers with two ranks each, which `oarlock launch --restart-policy rank` recovers from.

usage: random_kills_test.py [--kills N] [--seed N] [--json FILE]   (OARLOCK_BIN: the directory of the programs)

Trains a small network undisturbed, and then with N failures (default: OARLOCK_KILLS, or 15) that are drawn from the seed:

    single    SIGKILL of a rank
    double    SIGKILL of two ranks within 50 ms
    handover  SIGKILL of a rank, and of the donor while the group recovers
    stop      SIGSTOP of a rank, in half of the cases with SIGCONT up to three seconds later
    launcher  SIGKILL of a launcher; a replacement starts up to a second later
    node      SIGKILL of all processes of a node; a replacement starts up to a second later
    storm     SIGKILL of three random ranks within 1.5 s
    standby   SIGKILL or SIGSTOP of the standby process of a node, and SIGKILL of a rank of it within 50 ms

The test fails if no new step follows a failure within a time limit, if a step is lost, if the weights at the end differ from those of
the undisturbed run, or if the job falls back to a checkpoint after a failure that leaves a rank with a state. Only a storm, and the loss of
a donor that is one step ahead, may cause a fallback, and the log must state its reason.
"""
import argparse
import collections
import dataclasses
import datetime
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from reserved_port import ReservedPort  # noqa: E402

BIN = pathlib.Path(os.environ["OARLOCK_BIN"])
NODES = 2
RANKS_PER_NODE = 2
WORLD = NODES * RANKS_PER_NODE
STEPS_PER_KILL = 15
HANG_LIMIT = 150  # seconds until a missing step is a hang; longer than each time-out of the launchers
END_LIMIT = 120  # seconds until the other launcher of a failed job has to end
WEIGHTS = {"single": 40, "double": 15, "handover": 15, "stop": 8, "launcher": 10, "node": 7, "storm": 5, "standby": 10}

CONFIG = """\
task: image_classification
seed: 3
steps: {steps}
data: {{path: {directory}/data}}
model: {{name: resnet_like, width: 4}}
batch: {{size: 8}}
optimizer: {{name: adamw, lr: 0.002}}
ema: {{enabled: true, decay: 0.99}}
log: {{every_steps: 1}}
checkpoint: {{dir: {directory}/{name}}}
distributed: {{timeout_seconds: 10}}
"""


def write_images(directory):
    """A data set in CIFAR-10's binary format. An epoch has eight steps, followed by an evaluation and a save."""
    directory.mkdir()
    for number, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
        source = random.Random(number)
        (directory / name).write_bytes(b"".join(bytes([i % 10]) + source.randbytes(3072) for i in range(48)))


def send(pid, number):
    """Returns whether the process existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def exists(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def target_of(link):
    """Empty if the link no longer exists, such as that of a descriptor which was closed."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def variables_of(pid):
    """The environment of a process. A rank that was a standby process has it in a file in memory (docs/recovery.md)."""
    process = pathlib.Path(f"/proc/{pid}")
    try:
        for descriptor in (process / "fd").iterdir():
            if "oarlock-environment" in target_of(descriptor):
                return descriptor.read_bytes().split(b"\0")
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


class Launcher:
    """One node."""

    def __init__(self, job, node, is_replacement):
        path = job.directory / f"{job.name}-{time.monotonic_ns()}.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OARLOCK_", "PET_", "TORCHELASTIC_"))}
        environment |= {"OARLOCK_REGROUP_TOKEN": "a token of this test", "OARLOCK_UID": job.name, "OARLOCK_ATTEMPT": str(job.attempt)}
        if is_replacement:
            environment["OARLOCK_REPLACEMENT"] = "1"
        command = [BIN / "oarlock", "launch", "--nproc", str(RANKS_PER_NODE), "--nnodes", str(NODES), "--node-rank", str(node),
                   "--master-addr", "127.0.0.1", "--master-port", str(job.port), "--max-restarts", "1000000", "--restart-policy", "rank",
                   "--regroup-timeout", "15", "--rejoin-timeout", "60", "--no-prefix", "--",
                   BIN / "oarlock-trainer", "--log-format", "json", "--config", job.config]
        with open(path, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._reader = open(path, "rb")
        self._partial = b""

    def new_lines(self):
        *lines, self._partial = (self._partial + self._reader.read()).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def children(self):
        pid = self.process.pid
        try:
            return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []

    def rank_process(self, rank):
        """The process of a rank; the newest one if it was replaced."""
        found = None
        for pid in self.children():
            found = pid if b"RANK=%d" % rank in variables_of(pid) else found
        return found

    def standby_process(self):
        return next((pid for pid in self.children() if any(v.startswith(b"OARLOCK_STANDBY_FD=") for v in variables_of(pid))), None)

    def kill(self, with_children):
        """Without its children, the launcher's guard process kills the ranks."""
        processes = [self.process.pid, *(self.children() if with_children else [])]
        for pid in processes:
            send(pid, signal.SIGKILL)
        self.process.wait()
        return processes


class Hang(Exception):
    """No new step came in time."""


class Ended(Exception):
    """The job has succeeded."""


class Job:
    """The launchers, what they log, and the replacement of those that were killed."""

    def __init__(self, directory, name, steps, port):
        self.directory, self.name, self.port = directory, name, port
        self.config = directory / f"{name}.yaml"
        self.config.write_text(CONFIG.format(steps=steps, directory=directory, name=name))
        self.attempt = 0
        self.step = 0  # the newest one in the log
        self.moved_at = time.monotonic()  # when it was read
        self.steps = []  # (time, step) since forget()
        self.losses = {}  # by step, the last one in the log
        self.recoveries = []  # (time, step of the donor) since forget()
        self.resumed = []  # steps of checkpoints, since forget()
        self.lines = []  # for the report, since forget()
        self.replace_at = {}  # by node
        self.continue_at = []  # (when, process)
        self.restarts = 0  # of all launchers
        self.launchers = [Launcher(self, node, False) for node in range(NODES)]

    def forget(self):
        self.read()
        self.steps, self.recoveries, self.resumed = [], [], []

    def read(self):
        for launcher in self.launchers:
            for line in launcher.new_lines():
                self._read_line(line)

    def _read_line(self, line):
        try:
            entry = json.loads(line) if line.startswith("{") else {}
        except json.JSONDecodeError:  # of a process that was killed while it wrote
            entry = {}
        message = entry.get("msg", "")
        at = datetime.datetime.fromisoformat(entry["ts"].replace("Z", "+00:00")).timestamp() if "ts" in entry else 0
        if message == "step":
            self.steps.append((at, entry["step"]))
            self.losses[entry["step"]] = entry["loss"]
            if entry["step"] > self.step:
                self.step, self.moved_at = entry["step"], time.monotonic()
        elif message.startswith("recovered from the loss"):
            self.recoveries.append((at, entry["step"]))
        elif message.startswith("resuming from a checkpoint"):
            self.resumed.append(entry["resumed_from_step"])
        if message != "step" and (not entry or entry.get("level") != "info" or message.startswith("resuming")):
            self.lines.append(line)

    def rank_process(self, rank):
        return self.launchers[rank // RANKS_PER_NODE].rank_process(rank)

    def replace(self, node, with_children, delay):
        self.replace_at[node] = time.monotonic() + delay
        return self.launchers[node].kill(with_children)

    def tick(self):
        """Reads the log, and starts what is due. Returns whether the job has succeeded."""
        now = time.monotonic()
        for node in [node for node, at in self.replace_at.items() if at <= now]:
            self.read()
            del self.replace_at[node]
            self.launchers[node] = Launcher(self, node, True)
        for due in [due for due in self.continue_at if due[0] <= now]:
            self.continue_at.remove(due)
            send(due[1], signal.SIGCONT)
        codes = [None if node in self.replace_at else launcher.process.poll() for node, launcher in enumerate(self.launchers)]
        self.read()
        if any(codes):
            self._restart(codes)
        if not self.replace_at and all(code == 0 for code in codes):
            return True
        time.sleep(0.005)
        return False

    def _restart(self, codes):
        """Starts the next attempt after a launcher has failed, as the operator does."""
        deadline = time.monotonic() + END_LIMIT
        for node, launcher in enumerate(self.launchers):
            while launcher.process.poll() is None:
                if time.monotonic() > deadline:
                    raise Hang(f"launchers ended with {codes}, but that of node {node} still runs")
                time.sleep(0.02)
        self.read()
        self.lines.append(f"the launchers ended with {[launcher.process.poll() for launcher in self.launchers]}")
        self.replace_at.clear()
        self.restarts += 1
        self.attempt += 1
        self.launchers = [Launcher(self, node, False) for node in range(NODES)]

    def wait(self, condition, what):
        limit = time.monotonic() + HANG_LIMIT
        while not condition():
            if self.tick():
                raise Ended
            if time.monotonic() > max(limit, self.moved_at + HANG_LIMIT):
                raise Hang(f"hang: {what}, step {self.step}")

    def pause(self, seconds):
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= end, "a pause")

    def wait_for_end(self):
        try:
            self.wait(lambda: False, "the end of the run")
        except Ended:
            pass

    def stop(self):
        for launcher in self.launchers:
            if launcher.process.poll() is None:
                launcher.kill(with_children=True)

    def bits(self):
        last = self.directory / self.name / "last"
        return {name: (last / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors", "ema.safetensors")}


@dataclasses.dataclass
class Failure:
    kind: str
    at_step: int
    victims: list = dataclasses.field(default_factory=list)
    processes: list = dataclasses.field(default_factory=list)
    signals: int = 0
    missed: int = 0  # signals to ranks without a process
    seconds: float = 0.0  # from the last signal to the next new step
    recoveries: int = 0
    lost_steps: int = 0
    is_fallback: bool = False
    reason: str = ""  # of the fallback
    lines: list = dataclasses.field(default_factory=list)

    def __str__(self):
        text = f"{self.kind:9} {','.join(self.victims):14} at step {self.at_step:6}: {self.seconds:6.2f} s"
        return text + (f", FALLBACK, {self.lost_steps} steps lost: {self.reason}" if self.is_fallback else "")


def signal_rank(job, failure, rank, number):
    pid = job.rank_process(rank)
    failure.victims.append(f"rank {rank}")
    if pid is None or not send(pid, number):
        failure.missed += 1
        return
    failure.signals += 1
    failure.processes.append(pid)


def inject(job, draw):
    """Causes a failure, and waits until the job has recovered from it."""
    kind = draw.choices(list(WEIGHTS), WEIGHTS.values())[0]
    job.pause(draw.uniform(0, 0.15))  # to any point of a step, an evaluation or a save
    job.forget()
    job.lines.clear()
    failure = Failure(kind, job.step)
    restarts = job.restarts
    victim = draw.randrange(WORLD)
    others = [rank for rank in range(WORLD) if rank != victim]
    if kind == "stop":
        signal_rank(job, failure, victim, signal.SIGSTOP)
        if draw.random() < 0.5 and failure.processes:
            job.continue_at.append((time.monotonic() + draw.uniform(0, 3), failure.processes[0]))
    elif kind in ("launcher", "node"):
        node = victim // RANKS_PER_NODE
        failure.victims.append(f"node {node}")
        failure.signals = 1
        failure.processes = job.replace(node, kind == "node", draw.uniform(0, 1))
    elif kind == "standby":
        pid = job.launchers[victim // RANKS_PER_NODE].standby_process()
        if pid is not None and send(pid, draw.choice([signal.SIGKILL, signal.SIGSTOP])):
            failure.processes.append(pid)
            failure.victims.append("standby")
        job.pause(draw.uniform(0, 0.05))
        signal_rank(job, failure, victim, signal.SIGKILL)
    else:
        signal_rank(job, failure, victim, signal.SIGKILL)
        # A replacement starts in some 0.3 s, and then takes over the state of the donor, the lowest of the other ranks.
        delays, victims = {"single": ((), ()), "double": ([(0, 0.05)], [draw.choice(others)]), "handover": ([(0.1, 0.8)], [others[0]]),
                           "storm": ([(0, 0.75)] * 2, [draw.randrange(WORLD) for _ in range(2)])}[kind]
        for delay, rank in zip(delays, victims):
            job.pause(draw.uniform(*delay))
            job.forget()
            signal_rank(job, failure, rank, signal.SIGKILL)
    signaled_at = time.time()
    job.read()
    newest = job.step

    # Ranks may complete the step without the victim if it has contributed to the last collective, but not a second one.
    def is_over():
        if job.replace_at or job.continue_at or job.step < newest + 3:
            return False
        return kind == "stop" or not any(exists(pid) for pid in failure.processes)

    job.wait(is_over, f"no new step after {failure}")
    begin = max([signaled_at, *(at for at, _ in job.recoveries)])
    floor = max([newest, *(step for _, step in job.recoveries)])
    failure.seconds = next((at for at, step in job.steps if step > floor and at >= begin), time.time()) - signaled_at
    failure.recoveries = len(job.recoveries)
    failure.is_fallback = job.restarts != restarts or bool(job.resumed)
    failure.lost_steps = max([0, *(newest - step for step in job.resumed), *(newest - step for _, step in job.recoveries)])
    failure.lines = list(job.lines)
    if failure.is_fallback:
        failure.reason = next((line for line in job.lines if "no further restart: " in line or "no rank has the complete state" in line), "")
    return failure


def judge(failure):
    """Returns what is wrong with the recovery from a failure."""
    if failure.missed and failure.kind in ("single", "stop", "standby"):
        return "a rank that trains has no process"
    if failure.is_fallback and failure.kind not in ("storm", "handover"):
        return "a fallback, although ranks with a state survived"
    if failure.is_fallback and not failure.reason:
        return "a fallback without a reason"
    # Rank 0 may be the only one that has completed the last step: its last collective is a broadcast, which it sends.
    only_in_log = 1 if {"rank 0", "node 0"} & set(failure.victims) else 0
    if failure.lost_steps > only_in_log and not failure.is_fallback:
        return f"{failure.lost_steps} lost steps"
    return ""


def divergence(undisturbed, disturbed, failures):
    """Where the logged losses of two jobs begin to differ. After a recovery, the loss of a few steps lacks the replaced rank."""
    run = 0
    for step in sorted(undisturbed.losses):
        run = run + 1 if undisturbed.losses[step] != disturbed.losses.get(step) else 0
        if run == 50:
            first = step - 49
            before = [f for f in failures if f.at_step <= first][-2:]
            return f"from step {first} on, after\n" + "\n".join(f"{f}\n  " + "\n  ".join(f.lines[-60:]) for f in before)
    return "in the last steps, or only in what the loss does not depend on"


def summary_of(failures, equal):
    seconds = {kind: sorted(f.seconds for f in failures if f.kind == kind and not f.is_fallback) for kind in WEIGHTS}
    respawns = seconds["single"]
    return {
        "kills": sum(f.signals for f in failures),
        "failures": dict(collections.Counter(f.kind for f in failures)),
        "recoveries": sum(f.recoveries for f in failures),
        "fallbacks": [str(f) for f in failures if f.is_fallback],
        "lost_steps": sum(f.lost_steps for f in failures),
        "single_median": statistics.median(respawns) if respawns else None,
        "seconds": {kind: {"median": statistics.median(s), "p95": s[int(0.95 * (len(s) - 1))], "worst": s[-1]} for kind, s in seconds.items() if s},
        "bitwise_equal": equal,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=int(os.environ.get("OARLOCK_KILLS", "15")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("OARLOCK_SEED", "21")))
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    steps = (args.kills + 4) * STEPS_PER_KILL
    draw = random.Random(args.seed)
    problems, failures = [], []
    with tempfile.TemporaryDirectory(prefix="oarlock-kills-") as name:
        directory = pathlib.Path(name)
        write_images(directory / "data")
        jobs = []
        for name in ("calm", "killed"):
            with ReservedPort(2) as port:  # of the store, and of the coordinator
                job = Job(directory, name, steps, port)
                jobs.append(job)
                kills = 0
                try:
                    while name == "killed" and kills < args.kills:
                        after = job.step + draw.randrange(3, 10)
                        job.wait(lambda: job.step >= after, "no step")
                        failure = inject(job, draw)
                        failures.append(failure)
                        kills += failure.signals
                        print(f"{kills:4} {failure}", flush=True)
                        if problem := judge(failure):
                            problems.append(f"{problem}: {failure}\n  " + "\n  ".join(failure.lines[-60:]))
                            print(problems[-1], flush=True)
                    job.wait_for_end()
                except Ended:  # steps are fast on this machine
                    if kills < args.kills / 2:
                        problems.append(f"the run ended after {kills} kills")
                except Hang as hang:
                    problems.append(f"{hang}\n  " + "\n  ".join(job.lines[-60:]))
                    jobs.clear()  # nothing to compare
                    break
                finally:
                    job.stop()
                if name == "calm" and job.restarts:
                    problems.append("the undisturbed run failed:\n  " + "\n  ".join(job.lines))
        equal = len(jobs) == 2 and jobs[0].bits() == jobs[1].bits()
    if jobs and not equal:
        problems.append("the weights differ from those of the undisturbed run " + divergence(*jobs, failures))
    summary = summary_of(failures, equal)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"summary": summary, "failures": [dataclasses.asdict(f) for f in failures]}, indent=1))
    print(json.dumps(summary, indent=1))
    if problems:
        sys.exit(f"seed {args.seed}:\n" + "\n".join(problems))


if __name__ == "__main__":
    main()
