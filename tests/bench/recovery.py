"""The time from the SIGKILL of a rank to the next new step, of `oarlock launch --restart-policy rank` and of torchrun.

A step is new if no process had completed it before the kill. Ours has no checkpoint to read; theirs has a snapshot of the last
step (rival/elastic.py). Both run two ranks on one machine. A run is killed once, in turn in rank 0 and in rank 1, when it has made
steps for some seconds: our launcher starts its standby process 2 s after the ranks have joined (docs/recovery.md).
"""
import datetime
import json
import os
import pathlib
import signal
import subprocess
import time

STEPS_BEFORE = 50
SECONDS_BEFORE = 5  # after these steps
LIMIT = 120  # seconds for each wait
MAX_RESTARTS = 10  # torchrun's processes may fail to connect to each other after a restart, and restart again

CONFIG = """\
task: bench
seed: 1
steps: 1000000
threads: 1
batch: {{size: {batch}, per: device}}
optimizer: {{name: adamw, lr: 0.001, weight_decay: 0.01}}
loader: {{threads: 0}}
log: {{every_steps: 1}}
data: {{samples: {samples}}}
model: {{name: {model}}}
"""


class Failed(Exception):
    pass


class NotRecovered(Failed):
    """No new step followed the kill."""


class Run:
    """A job that is killed once. Subclasses name the command, and read its steps and processes."""

    def __init__(self, command, environment, directory):
        self.directory = directory
        self.log = directory / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def wait_for(self, condition, what, error=Failed):
        limit = time.monotonic() + LIMIT
        while (found := condition()) is None:
            if time.monotonic() > limit or self.process.poll() is not None:
                raise error(f"{what}:\n{self.log.read_text(encoding='utf-8', errors='replace')[-3000:]}")
            time.sleep(0.02)
        return found

    def newest(self):
        return max((step for step, _ in self.steps()), default=0)

    def seconds_to_new_step(self, rank):
        """Kills the rank, and ends the run after the next new step."""
        try:
            self.wait_for(lambda: self.newest() >= STEPS_BEFORE or None, "the run makes no steps")
            time.sleep(SECONDS_BEFORE)
            pid = self.process_of(rank)
            killed = time.time()
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)  # steps in progress
            before = self.newest()
            return self.wait_for(lambda: next((at for step, at in self.steps() if step > before), None), "no new step", NotRecovered) - killed
        finally:
            self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Ours(Run):
    def __init__(self, programs, environment, directory, model, batch, samples):
        config = directory / "trainer.yaml"
        config.write_text(CONFIG.format(model=model, batch=batch, samples=samples), encoding="utf-8")
        super().__init__([programs / "oarlock", "launch", "--nproc", "2", "--max-restarts", str(MAX_RESTARTS), "--restart-policy", "rank", "--no-prefix", "--",
                          programs / "oarlock-bench-trainer", "--config", config, "--log-format", "json"], environment, directory)

    def steps(self):
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"msg":"step"' in line and line.endswith("}"):
                entry = json.loads(line)
                yield entry["step"], datetime.datetime.fromisoformat(entry["ts"].replace("Z", "+00:00")).timestamp()

    def process_of(self, rank):
        launcher = self.process.pid
        for pid in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text(encoding="ascii").split():
            if b"RANK=%d" % rank in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return int(pid)
        raise Failed(f"rank {rank} has no process")


class Theirs(Run):
    def __init__(self, python, script, environment, directory, model, batch, samples):
        super().__init__([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", str(MAX_RESTARTS), script,
                          "--model", model, "--steps", "1000000", "--batch", str(batch), "--samples", str(samples), "--directory", directory],
                         environment, directory)

    def steps(self):
        path = self.directory / "steps"
        if not path.exists():
            return
        for line in path.read_text(encoding="ascii").splitlines(keepends=True):
            if line.endswith("\n"):
                step, at = line.split()
                yield int(step), float(at)

    def process_of(self, rank):
        return int((self.directory / f"pid.{rank}").read_text(encoding="ascii"))
