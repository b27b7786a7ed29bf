#!/usr/bin/env python3
"""A run that reports to TensorBoard, W&B and MLflow at the same time is killed again and again, while the MLflow server
is killed, started again, slowed to 10 s per response, and answers with 500 and 429. Each point is there once, at its
step, and with the value of a run that was not killed, when the tools' own libraries read them back: TensorBoard's
EventAccumulator, `wandb sync` (to a stub of W&B's server), and MLflow's client (from a real server).

usage: tracking_kill_test.py   (OARLOCK_BIN: the directory of the programs; OARLOCK_KILLS: 50 for the long version;
                                OARLOCK_SEED: of the kills and the faults)
"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "tracking"))

import mlflow_server  # noqa: E402
import wandb_server  # noqa: E402
from killed_run import PATIENCE, Run, tiny  # noqa: E402

TENSORBOARD_PYTHON = mlflow_server.CACHE / "tensorboard-2.20.0" / "bin" / "python"
KILLS = int(os.environ.get("OARLOCK_KILLS", "6"))
SEED = int(os.environ.get("OARLOCK_SEED", "22"))
STEPS = 40 * (KILLS + 8)  # the last kill is far from the end
LOGGED = list(range(5, STEPS + 1, 5))
EVALUATED = list(range(20, STEPS + 1, 20))
# The metrics whose values depend on the seed only, and others, whose steps are known.
EXACT = {"loss": LOGGED, "epoch": LOGGED, "learning_rate": LOGGED, "gradient_norm": LOGGED, "eval/loss": EVALUATED,
         "eval/accuracy": EVALUATED}
TIMED = {"samples_per_second": LOGGED, "time/forward": LOGGED, "time/backward": LOGGED}

OTHER_SINKS = """\
  finish_timeout_seconds: 120
  wandb: {enabled: true, project: killed}
  mlflow: {enabled: true, uri: "URI", experiment: killed, timeout_seconds: 15}
"""

READ_EVENTS = """
import json, sys
from tensorboard.backend.event_processing import event_accumulator
accumulator = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
accumulator.Reload()
print(json.dumps({tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}))
"""

READ_MLFLOW = """
import json, sys
import mlflow
client = mlflow.MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("killed")
runs = client.search_runs([experiment.experiment_id])
out = []
for run in runs:
    points = {key: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)] for key in run.data.metrics}
    out.append({"status": run.info.status, "tags": run.data.tags, "points": points})
print(json.dumps(out))
"""


def read_back(python, script, *arguments):
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run([python, "-c", script, *map(str, arguments)], env=environment, capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rounded(points):
    """As TensorBoard stores values: float32."""
    return [(step, struct.unpack("<f", struct.pack("<f", value))[0]) for step, value in points]


class KilledRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        root = pathlib.Path(temporary.name)
        cls.server = mlflow_server.MlflowServer(root)
        cls.addClassCleanup(cls.server.kill)
        cls.proxy = mlflow_server.Proxy(cls.server.port)
        cls.addClassCleanup(cls.proxy.server_close)
        cls.addClassCleanup(cls.proxy.shutdown)
        cls.logs = []
        cls.whole = Run(root / "whole", tiny(STEPS))
        others = OTHER_SINKS.replace("URI", f"http://127.0.0.1:{cls.proxy.server_port}")
        cls.killed = Run(root / "killed", tiny(STEPS, others))
        cls.logs.append(cls.whole.train(0))
        cls.kill_many_times()
        cls.read_all(root)

    @classmethod
    def kill_many_times(cls):
        chance = random.Random(SEED)
        begin = time.monotonic()
        cls.kills = cls.server_kills = 0
        restart = threading.Thread(target=cls.server.start)  # the first attempts do not find a server
        restart.start()
        for attempt in range(KILLS):
            faults = [("status", 500), ("status", 429), ("close", None), ("lose", None), ("slow", 10), ("slow", 1), ("late", 3)]
            cls.proxy.faults.extend(chance.choice(faults) for _ in range(chance.randrange(4)))
            limit = 2 * chance.random() if chance.random() < 0.25 else None  # also before the first point
            log, was_killed = cls.killed.kill(attempt, 40 * (attempt + 1), chance.random() * 0.02, limit)
            cls.logs.append(log)
            cls.kills += was_killed  # otherwise the training had ended before the signal
            if not restart.is_alive() and chance.random() < 0.2:
                cls.server.kill()
                cls.server_kills += 1
                restart = threading.Thread(target=cls.server.start)
                restart.start()
        restart.join()
        assert cls.server.is_ready(), "the MLflow server did not start"
        cls.proxy.faults.clear()
        cls.faults = [fault for fault, _ in cls.proxy.seen if fault]
        cls.logs.append(cls.killed.train(KILLS))
        print(f"{cls.kills} kills in {time.monotonic() - begin:.0f} s, seed {SEED}; {cls.server_kills} kills of the server; "
              f"faults: {', '.join(f'{cls.faults.count(f)} {f}' for f in sorted(set(cls.faults)))}", flush=True)

    @classmethod
    def read_all(cls, root):
        cls.expected = read_back(TENSORBOARD_PYTHON, READ_EVENTS, cls.whole.checkpoints / "tensorboard")
        cls.expected = {tag: [tuple(point) for point in points] for tag, points in cls.expected.items()}
        cls.tensorboard = read_back(TENSORBOARD_PYTHON, READ_EVENTS, cls.killed.checkpoints / "tensorboard")
        stub = wandb_server.WandbServer()
        cls.addClassCleanup(stub.server_close)
        cls.addClassCleanup(stub.shutdown)
        # An attempt that was killed before its first record has an empty file, or none.
        files = (cls.killed.checkpoints / "wandb").glob("offline-run-*/run-*.wandb")
        cls.directories = sorted(file.parent for file in files if file.stat().st_size)
        stub.sync(root, cls.directories)
        cls.wandb = stub.points("killed", "job")
        cls.runs = read_back(mlflow_server.PYTHON, READ_MLFLOW, f"http://127.0.0.1:{cls.server.port}")

    def check(self, actual, float32):
        for tag, steps in {**EXACT, **TIMED}.items():
            points = sorted(tuple(point) for point in actual.get(tag, []))
            self.assertEqual([step for step, _ in points], steps, tag)
            if tag in EXACT:
                self.assertEqual(points if float32 else rounded(points), self.expected[tag], tag)

    def test_tensorboard(self):
        self.check(self.tensorboard, float32=True)

    def test_wandb(self):
        self.check(self.wandb, float32=False)
        for tag, points in self.wandb.items():  # W&B's steps cannot go back
            steps = [step for step, _ in points]
            self.assertEqual(steps, sorted(set(steps)), tag)

    def test_mlflow(self):
        (job,) = [run for run in self.runs if run["tags"]["oarlock.attempt"] == "job"]
        self.check(job["points"], float32=False)
        self.assertEqual(job["status"], "FINISHED")
        # Attempts that were killed before they could report their start have no run; each other one has exactly one.
        attempts = [int(run["tags"]["oarlock.attempt"]) for run in self.runs if run is not job]
        self.assertEqual(len(attempts), len(set(attempts)))
        self.assertIn(KILLS, attempts)

    def test_reports_failures_once_per_process(self):
        for log in self.logs:
            warnings = [line for line in log.splitlines() if '"mlflow"' in line and "points are kept until" in line]
            self.assertLessEqual(len(warnings), 1, log)


if __name__ == "__main__":
    for python in (TENSORBOARD_PYTHON, wandb_server.PYTHON, mlflow_server.PYTHON):
        if not python.exists():
            sys.exit(f"{python} does not exist: run scripts/setup tracking")
    unittest.main()
