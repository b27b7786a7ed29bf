"""A training script of a user, without Oarlock: it writes its progress to the file that the environment names, and saves each step."""
import os
import pathlib
import signal
import sys
import time

directory = pathlib.Path(os.environ["OARLOCK_CHECKPOINT_DIR"])
directory.mkdir(exist_ok=True)
saved = directory / f"step-of-rank-{os.environ['RANK']}"
step = int(saved.read_text()) if saved.exists() else 0
print(f"process {os.getpid()} starts at step {step}", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with open(os.environ["OARLOCK_PROGRESS"], "w", buffering=1) as progress:
    while not (directory / "finish").exists():
        time.sleep(0.1)
        step += 1
        if step == int(os.environ.get("FAIL_AT", 0)):
            raise ValueError(f"the loss is not finite at step {step}")
        (directory / f"{saved.name}.new").write_text(str(step))
        os.replace(directory / f"{saved.name}.new", saved)
        progress.write(f'{{"step": {step}, "targetSteps": 10000, "loss": {1 / step}, "checkpointStep": {step}}}\n')
