"""A run that reports what it does, and that a test kills and starts again."""
import os
import pathlib
import signal
import subprocess
import time

BIN = pathlib.Path(os.environ["OARLOCK_BIN"])
PATIENCE = 600  # seconds for anything that takes a moment


def tiny(steps, tracking=""):
    """A configuration of the test trainer. `tracking` has further lines for that section."""
    return f"""
task: tiny
steps: {steps}
seed: 3
batch: {{size: 16}}
data: {{samples: 192, eval_samples: 33}}
optimizer: {{lr: 0.003}}
gradient: {{clip_norm: 1}}
log: {{every_steps: 5}}
eval: {{every_epochs: 0, every_steps: 20}}
checkpoint: {{every_steps: 7, every_epochs: 0, keep: 2}}
tracking:
  name: killed
  tensorboard: {{enabled: true}}
{tracking}"""


def wait_until(condition, limit=PATIENCE):
    """Returns whether the condition was met in time."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


class Run:
    """All attempts of one job, in a new directory."""

    def __init__(self, directory, config, program="oarlock-test-trainer"):
        directory.mkdir()
        self.directory, self.program = directory, program
        self.checkpoints = directory / "run"
        self.config = directory / "config.yaml"
        self.config.write_text(config)

    def start(self, attempt, variables=None):
        environment = {**os.environ, "OARLOCK_UID": "job", "OARLOCK_ATTEMPT": str(attempt), "OARLOCK_JOB": "the-job",
                       "OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1"}
        for name in [n for n in environment if n.startswith(("WANDB_", "MLFLOW_"))]:
            del environment[name]
        environment.update(variables or {})
        command = [BIN / self.program, "--config", self.config, "--checkpoint-dir", self.checkpoints, "--log-format", "json"]
        log = self.directory / f"log-{attempt}"  # not a pipe, which would fill while it is not read
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(command, env=environment, stderr=file)
        process.log = log
        return process

    @staticmethod
    def log_of(process):
        process.wait(timeout=PATIENCE)
        return process.log.read_text(encoding="utf-8", errors="replace")

    def train(self, attempt, variables=None):
        """Trains to the end, and returns the log."""
        process = self.start(attempt, variables)
        log = self.log_of(process)
        assert process.returncode == 0, log
        return log

    def newest_step(self):
        steps = [int(path.name[len("step-"):]) for path in self.checkpoints.glob("step-*") if path.name[5:].isdigit()]
        return max(steps, default=0)

    def kill(self, attempt, goal, pause, limit=None):
        """Starts an attempt, and kills it after the checkpoint of the step `goal`, or after a time. Returns its log, and
        whether the kill came before the end of the run."""
        process = self.start(attempt)
        reached = wait_until(lambda: self.newest_step() >= goal or process.poll() is not None, limit or PATIENCE)
        assert reached or limit, "the condition was not met in time"
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        log = self.log_of(process)
        assert process.returncode in (-signal.SIGKILL, 0), f"attempt {attempt} ended with {process.returncode}:\n{log}"
        return log, process.returncode == -signal.SIGKILL
