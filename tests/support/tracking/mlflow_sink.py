"""The MLflow sink in a separate process, and a test case with a real MLflow server with a SQLite store, behind a proxy that
fails on demand."""
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import unittest

from mlflow_server import PYTHON, TIMEOUT, MlflowServer, Proxy

DRIVER = sys.argv[1]


class Driver:
    """The sink in a separate process."""

    def __init__(self, directory, proxy, environment=None):
        environment = {**os.environ, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{proxy.server_port}",
                       "MLFLOW_EXPERIMENT_NAME": "an experiment/1", "NO_PROXY": "127.0.0.1", **(environment or {})}
        self.log = directory.with_suffix(".log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([DRIVER, "mlflow", directory], env=environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        self.output = []
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def write(self, events):
        for line in [*events, {"flush": True}]:
            self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()

    def deliver(self, events):
        """Returns the messages of the failures before all events were delivered."""
        self.write(events)
        return self.wait_for_delivery(len(events))

    def wait_for_failure(self, text):
        while text not in (line := self.lines.get(timeout=TIMEOUT)):
            assert line.startswith("failed: "), line

    def wait_for_delivery(self, left):
        failures = []
        while left:
            line = self.lines.get(timeout=TIMEOUT)
            if line.startswith("delivered "):
                left -= int(line.split()[1])
            else:
                failures.append(line)
        return failures

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=TIMEOUT)

    def kill(self):
        self.process.kill()
        self.process.wait()

class MlflowSinkCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory_object = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory_object.cleanup)
        cls.directory = pathlib.Path(cls.directory_object.name)
        cls.server = MlflowServer(cls.directory)
        cls.addClassCleanup(cls.server.kill)
        cls.server.start()

    def setUp(self):
        self.proxy = self.another_proxy()
        self.tracking = self.directory / self.id().split(".")[-1]
        self.key = self.id().split(".")[-1].replace("_", "-")

    def another_proxy(self, tls=None):
        proxy = Proxy(self.server.port, tls)
        self.addCleanup(proxy.server_close)
        self.addCleanup(proxy.shutdown)
        return proxy

    def driver(self, environment=None, proxy=None):
        driver = Driver(self.tracking, proxy or self.proxy, environment)
        self.addCleanup(driver.kill)
        return driver

    def restart(self, proxy=None):
        """A driver whose run is known before its first event, as of the trainer."""
        return self.driver({"SINK_RUN": json.dumps(self.started()["started"])}, proxy)

    def started(self, attempt=0, restart_step=0, config=None):
        return {"time": 1.7e9 + 1000 * attempt, "step": restart_step, "started": {
            "name": "r1", "task": "gears", "uid": self.key, "attempt": attempt, "restart_step": restart_step,
            "job": "j", "namespace": "n", "config": config or {"optimizer": {"lr": 0.1}},
            "derived": {"ddp/world_size": 2}, "versions": {"oarlock": "0.1.0", "revision": "abcdef"}}}

    @staticmethod
    def losses(steps, attempt=0):
        return [{"time": 1.7e9 + 1000 * attempt + step, "step": step, "scalars": {"loss": step / 4, "eval/mse": step}}
                for step in steps]

    def run_of(self, attempt):
        state = json.loads((self.tracking / "mlflow.json").read_text())
        runs = self.server.call("POST", "/api/2.0/mlflow/runs/search", {
            "experiment_ids": [state["experiment_id"]],
            "filter": f"tags.`oarlock.run` = '{self.key}' and tags.`oarlock.attempt` = '{attempt}'"}).get("runs", [])
        self.assertEqual(len(runs), 1, attempt)
        return runs[0]

    def history(self, metric):
        run = self.run_of("job")["info"]["run_id"]
        points = self.server.call("GET", f"/api/2.0/mlflow/metrics/get-history?run_id={run}&metric_key={metric}")["metrics"]
        return sorted((int(p["step"]), p["value"]) for p in points)

    def check_points(self, last, first=1):
        self.assertEqual(self.history("loss"), [(s, s / 4) for s in range(first, last + 1)])
        self.assertEqual(self.history("eval/mse"), [(s, s) for s in range(first, last + 1)])


def main():
    """Runs the tests of the program, whose first argument is the driver of the sink."""
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} does not exist: run scripts/setup tracking")
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
