#!/usr/bin/env python3
"""The MLflow sink against a real MLflow server with a SQLite store, behind a proxy that fails in the ways in which
servers and networks fail: nothing is lost, and each point is stored once.

usage: mlflow_sink_test.py SINK_DRIVER
"""
import base64
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "tracking"))

from mlflow_server import PYTHON, TIMEOUT, MlflowServer, Proxy, wait_until  # noqa: E402

DRIVER = sys.argv[1]


class Driver:
    """The sink in a process of its own."""

    def __init__(self, folder, proxy, environment=None):
        environment = {**os.environ, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{proxy.server_port}",
                       "MLFLOW_EXPERIMENT_NAME": "an experiment/1", "NO_PROXY": "127.0.0.1", **(environment or {})}
        self.process = subprocess.Popen([DRIVER, "mlflow", folder], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
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

    def deliver(self, events, dropped=0):
        """Returns the messages of the failures before all events were delivered, but those that the sink drops."""
        self.write(events)
        failures, left = [], len(events) - dropped
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


class MlflowSinkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder_object = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder_object.cleanup)
        cls.folder = pathlib.Path(cls.folder_object.name)
        cls.server = MlflowServer(cls.folder)
        cls.addClassCleanup(cls.server.kill)
        cls.server.start()

    def setUp(self):
        self.proxy = Proxy(self.server.port)
        self.addCleanup(self.proxy.server_close)
        self.addCleanup(self.proxy.shutdown)
        self.tracking = self.folder / self.id().split(".")[-1]
        self.key = self.id().split(".")[-1].replace("_", "-")

    def driver(self, environment=None):
        driver = Driver(self.tracking, self.proxy, environment)
        self.addCleanup(driver.kill)
        return driver

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

    def check_points(self, last):
        self.assertEqual(self.history("loss"), [(s, s / 4) for s in range(1, last + 1)])
        self.assertEqual(self.history("eval/mse"), [(s, s) for s in range(1, last + 1)])

    def test_reports_a_run(self):
        driver = self.driver({"MLFLOW_TRACKING_USERNAME": "u", "MLFLOW_TRACKING_PASSWORD": "p"})
        events = [self.started(), *self.losses(range(1, 1201)),  # more than one request may have
                  {"time": 1.7e9 + 1201, "step": 1201, "scalars": {"diverged": "NaN", "huge": "inf"}},
                  {"time": 1.7e9 + 1202, "step": 1202, "text": {"name": "samples/sequences", "text": "MKV"}},
                  {"time": 1.7e9 + 1203, "step": 1203, "finished": {"summary": {"eval/mse": 0.5}, "time_table": "|t|"}}]
        self.assertEqual(driver.deliver(events), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(1200)
        self.assertEqual([p[0] for p in self.history("diverged")], [1201])
        job, attempt = self.run_of("job"), self.run_of(0)
        self.assertEqual((job["info"]["status"], attempt["info"]["status"]), ("FINISHED", "FINISHED"))
        self.assertEqual(job["info"]["run_name"], "r1")
        tags = {t["key"]: t["value"] for t in attempt["data"]["tags"]}
        self.assertEqual(tags["mlflow.parentRunId"], job["info"]["run_id"])
        self.assertEqual(tags["mlflow.source.git.commit"], "abcdef")
        self.assertEqual(tags["oarlock.reason"], "Completed")
        params = {p["key"]: p["value"] for p in job["data"]["params"]}
        self.assertEqual((params["optimizer.lr"], params["ddp/world_size"]), ("0.1", "2"))
        self.assertEqual({m["key"]: m["value"] for m in attempt["data"]["metrics"]}, {"eval/mse": 0.5})
        stored = list((self.folder / "artifacts").glob(f"*/{job['info']['run_id']}/artifacts/text/samples/sequences/*.md"))
        self.assertEqual([f.read_text() for f in stored], ["MKV"])
        self.assertEqual(self.proxy.authorization, {"Basic " + base64.b64encode(b"u:p").decode()})

    def test_survives_faults_of_the_server(self):
        driver = self.driver({"SINK_TIMEOUT": "6", "MLFLOW_TRACKING_TOKEN": "secret"})
        last = 0
        # The creation of the runs, and then batches of points, meet each fault. 9 s is longer than the timeout.
        for fault in (("status", 500), ("status", 429), ("status", 200), ("close", None), ("lose", None), ("slow", 9), ("endless", None)):
            events = self.losses(range(last + 1, last + 21))
            if last == 0:
                events.insert(0, self.started())
            self.proxy.faults.extend([fault] * 2)
            failures = driver.deliver(events)
            self.assertTrue(failures, fault)
            self.assertFalse(self.proxy.faults)
            last += 20
        self.proxy.faults.append(("reject", None))  # of several events: which of them is the cause is not known
        failures = driver.deliver(self.losses(range(last + 1, last + 21)))
        self.assertEqual([f for f in failures if "400" in f], [])  # on a busy machine, a request may take too long
        last += 20
        for lost in range(9):  # each request of the start of an attempt loses its response once
            self.proxy.faults.extend([(None, None)] * lost + [("lose", None)])
            driver.deliver([self.started(lost + 1, last), *self.losses(range(last + 1, last + 3), 1)])
            self.proxy.faults.clear()
            last += 2
            self.run_of(lost + 1)  # exists once
        self.assertEqual(driver.end(), 0)
        self.check_points(last)
        self.assertEqual(self.proxy.authorization, {"Bearer secret"})

    def test_waits_for_slow_server(self):
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started()]), [])
        self.proxy.faults.append(("slow", 10))
        self.assertEqual(driver.deliver(self.losses(range(1, 21))), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(20)

    def test_attempts_continue_after_kills(self):
        driver = self.driver()
        driver.deliver([self.started(), *self.losses(range(1, 31))])
        self.proxy.faults.append(("slow", 3))  # killed while the request is on its way
        driver.write(self.losses(range(31, 41)))
        wait_until(lambda: not self.proxy.faults, "the request has arrived")
        driver.kill()
        driver = self.driver()
        # The journal has events of the first attempt that were delivered, and its start is not among them.
        driver.deliver([*self.losses(range(25, 41)), self.started(1, 20, {"optimizer": {"lr": 0.2}}),
                        *self.losses(range(21, 51), 1),
                        {"time": 1.7e9 + 2000, "step": 50, "finished": {"success": False, "resumes": True,
                                                                         "reason": "Interrupted"}}])
        self.assertEqual(self.run_of(1)["info"]["status"], "KILLED")
        self.assertEqual(self.run_of("job")["info"]["status"], "RUNNING")
        self.server.kill()
        driver.write([self.started(2, 50), *self.losses(range(51, 61), 2),
                      {"time": 1.7e9 + 3000, "step": 60, "finished": {"success": False, "reason": "Failed"}}])
        self.assertIn("failed: ", [driver.lines.get(timeout=TIMEOUT)[:8] for _ in range(6)])
        self.server.start()
        self.assertEqual(driver.end(), 0)
        self.check_points(60)
        self.assertEqual(self.run_of("job")["info"]["status"], "FAILED")
        params = {p["key"]: p["value"] for p in self.run_of(1)["data"]["params"]}
        self.assertEqual((params["optimizer.lr"], params["restart_step"]), ("0.2", "20"))

    def test_continues_an_attempt_with_the_same_number(self):
        """As without an operator, and by a process that replaces a lost rank 0."""
        driver = self.driver()
        self.assertEqual(driver.deliver([
            self.started(), *self.losses(range(1, 11)),
            {"time": 1.7e9 + 11, "step": 10, "finished": {"success": False, "resumes": True, "summary": {"eval/mse": 1}}}]), [])
        self.assertEqual(driver.end(), 0)
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started(0, 10, {"optimizer": {"lr": 0.2}}), *self.losses(range(11, 21))]), [])
        self.assertEqual(self.run_of(0)["info"]["status"], "RUNNING")
        self.assertEqual(driver.deliver([{"time": 1.7e9 + 21, "step": 20, "finished": {"summary": {"eval/mse": 0.5}}}]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(20)
        attempt = self.run_of(0)
        self.assertEqual(attempt["info"]["status"], "FINISHED")
        self.assertEqual({m["key"]: m["value"] for m in attempt["data"]["metrics"]}, {"eval/mse": 0.5})
        params = {p["key"]: p["value"] for p in attempt["data"]["params"]}
        self.assertEqual((params["restart_step"], params["optimizer.lr"]), ("0", "0.2"))

    def test_artifact_that_cannot_be_stored_does_not_hold_up_points(self):
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 3))]), [])
        self.proxy.fails_artifacts = True
        failures = driver.deliver([
            {"time": 1.7e9 + 2, "step": 2, "text": {"name": "samples/sequences", "text": "MKV"}}, *self.losses(range(3, 11)),
            {"time": 1.7e9 + 11, "step": 10, "finished": {"summary": {}, "time_table": "|t|"}}], dropped=1)
        self.assertTrue(failures)
        self.assertEqual(driver.end(), 0)
        self.check_points(10)
        self.assertEqual(self.run_of("job")["info"]["status"], "FINISHED")


if __name__ == "__main__":
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} does not exist: run scripts/setup tracking")
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
