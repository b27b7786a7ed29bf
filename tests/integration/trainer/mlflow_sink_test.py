#!/usr/bin/env python3
"""The MLflow sink against a real MLflow server with a SQLite store, behind a proxy that fails in the ways in which
servers and networks fail: nothing is lost, and each point is stored once.

usage: mlflow_sink_test.py SINK_DRIVER   (OARLOCK_BIN: the directory of the programs)
"""
import base64
import contextlib
import json
import os
import pathlib
import queue
import shutil
import signal
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "tracking"))

from killed_run import Run, tiny  # noqa: E402
from mlflow_server import PYTHON, REJECTED, TIMEOUT, MlflowServer, Proxy, wait_until  # noqa: E402

DRIVER = sys.argv[1]
TRAINER_STEPS = 1000


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


class MlflowSinkTest(unittest.TestCase):
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

    @staticmethod
    def trainer_config(proxy, experiment, others=""):
        return tiny(TRAINER_STEPS, f"""\
  finish_timeout_seconds: {TIMEOUT}
{others}  mlflow: {{enabled: true, uri: "http://127.0.0.1:{proxy.server_port}", experiment: {experiment}}}
""")

    def check_trainer_run(self, run):
        self.tracking, self.key = run.checkpoints / "tracking", "job"
        self.assertEqual([step for step, _ in self.history("loss")], list(range(5, TRAINER_STEPS + 1, 5)))
        self.assertEqual(self.run_of("job")["info"]["status"], "FINISHED")

    def purge(self, attempts):
        """As `mlflow gc`, or a store that was reset."""
        runs = [self.run_of(attempt)["info"]["run_id"] for attempt in attempts]
        with contextlib.closing(sqlite3.connect(self.directory / "store.db", timeout=TIMEOUT)) as store, store:
            for table in ("metrics", "latest_metrics", "params", "tags", "runs"):
                store.executemany(f"DELETE FROM {table} WHERE run_uuid = ?", [(run,) for run in runs])

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
        stored = list((self.directory / "artifacts").glob(f"*/{job['info']['run_id']}/artifacts/text/samples/sequences/*.md"))
        self.assertEqual([f.read_text() for f in stored], ["MKV"])
        self.assertEqual(self.proxy.authorization, {"Basic " + base64.b64encode(b"u:p").decode()})

    def test_survives_faults_of_the_server(self):
        driver = self.driver({"SINK_TIMEOUT": "6", "MLFLOW_TRACKING_TOKEN": "secret"})
        last = 0
        # The creation of the runs, and then batches of points, meet each fault. 9 s is longer than the timeout.
        for fault in (("status", 500), ("status", 429), ("status", 200), ("object", None), ("status", 302), ("close", None), ("lose", None), ("half", None), ("cut", None), ("slow", 9), ("endless", None)):
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
        attempt = 0
        # Each request of the start of an attempt loses its response once, or gets that of another program.
        for fault in ("lose", "object", "half"):
            for request in range(12):
                attempt += 1
                self.proxy.faults.extend([(None, None)] * request + [(fault, None)])
                driver.deliver([self.started(attempt, last), *self.losses(range(last + 1, last + 3), 1)])
                self.proxy.faults.clear()
                last += 2
                self.run_of(attempt)  # exists once
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
            {"time": 1.7e9 + 11, "step": 10, "finished": {"summary": {}, "time_table": "|t|"}}])
        self.assertTrue(failures)
        self.assertEqual(driver.end(), 0)
        self.check_points(10)
        self.assertEqual(self.run_of("job")["info"]["status"], "FINISHED")

    def test_waits_for_deleted_run(self):
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 4))]), [])
        run = self.run_of("job")["info"]["run_id"]
        self.server.call("POST", "/api/2.0/mlflow/runs/delete", {"run_id": run})
        driver.write(self.losses(range(4, 7)))
        driver.wait_for_failure(f"the run {run} is deleted; restore it")
        driver.kill()
        driver = self.restart()
        driver.write([*self.losses(range(4, 7)), self.started(1, 6), *self.losses(range(7, 9), 1)])
        driver.wait_for_failure("is deleted")
        self.server.call("POST", "/api/2.0/mlflow/runs/restore", {"run_id": run})
        driver.wait_for_delivery(6)
        self.assertEqual(driver.end(), 0)
        self.assertEqual(self.run_of("job")["info"]["run_id"], run)
        self.check_points(8)
        # Without its state, the deleted run is found by its tag.
        self.server.call("POST", "/api/2.0/mlflow/runs/delete", {"run_id": run})
        shutil.rmtree(self.tracking)
        driver = self.restart()
        driver.write(self.losses(range(9, 11)))
        driver.wait_for_failure("is deleted")
        self.server.call("POST", "/api/2.0/mlflow/runs/restore", {"run_id": run})
        driver.wait_for_delivery(2)
        self.assertEqual(driver.end(), 0)
        self.check_points(10)

    def test_waits_for_deleted_experiment(self):
        environment = {"MLFLOW_EXPERIMENT_NAME": self.key}
        driver = self.driver(environment)
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 4))]), [])
        experiment = {"experiment_id": self.run_of("job")["info"]["experiment_id"]}
        self.server.call("POST", "/api/2.0/mlflow/experiments/delete", experiment)
        events = [*self.losses(range(4, 7)), {"time": 1.7e9 + 7, "step": 6, "finished": {"success": False, "resumes": True}}]
        driver.write(events)
        driver.wait_for_failure("is deleted")
        driver.kill()
        driver = self.driver(environment)
        driver.write([*events, self.started(1, 6), *self.losses(range(7, 9), 1)])
        driver.wait_for_failure("is deleted")
        self.server.call("POST", "/api/2.0/mlflow/experiments/restore", experiment)
        driver.wait_for_delivery(len(events) + 3)
        self.assertEqual(driver.end(), 0)
        self.check_points(8)
        self.assertEqual(self.run_of(0)["info"]["status"], "KILLED")

    def test_creates_new_run_after_reset_of_the_store(self):
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 4))]), [])
        self.purge(["job", 0])
        driver.deliver(self.losses(range(4, 7)))
        self.assertEqual(driver.end(), 0)
        self.check_points(6, first=4)
        self.assertEqual({p["key"]: p["value"] for p in self.run_of("job")["data"]["params"]}["optimizer.lr"], "0.1")
        self.purge(["job", 0])
        driver = self.restart()
        driver.deliver([*self.losses(range(7, 9)), {"time": 1.7e9 + 9, "step": 8, "finished": {"success": False, "resumes": True}},
                        self.started(1, 8), *self.losses(range(9, 11), 1)])
        self.assertEqual(driver.end(), 0)
        self.check_points(10, first=7)
        job = self.run_of("job")
        self.assertEqual({p["key"]: p["value"] for p in job["data"]["params"]}["optimizer.lr"], "0.1")
        self.assertEqual({t["key"]: t["value"] for t in job["data"]["tags"]}["oarlock.task"], "gears")
        self.assertEqual(self.run_of(1)["info"]["status"], "RUNNING")

    def test_replaces_deleted_attempt(self):
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 4))]), [])
        deleted = self.run_of(0)["info"]["run_id"]
        self.server.call("POST", "/api/2.0/mlflow/runs/delete", {"run_id": deleted})
        driver.deliver([*self.losses(range(4, 6)), {"time": 1.7e9 + 6, "step": 5, "finished": {"summary": {"eval/mse": 0.5}}}])
        self.assertEqual(driver.end(), 0)
        self.check_points(5)
        attempt = self.run_of(0)
        self.assertNotEqual(attempt["info"]["run_id"], deleted)
        self.assertEqual({m["key"]: m["value"] for m in attempt["data"]["metrics"]}, {"eval/mse": 0.5})
        self.assertEqual((attempt["info"]["status"], self.run_of("job")["info"]["status"]), ("FINISHED", "FINISHED"))

    def test_finds_run_at_another_address_and_without_state(self):
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 4))]), [])
        driver.kill()  # the steps 4 to 7 are in the journal
        driver = self.restart(self.another_proxy())
        self.assertEqual(driver.deliver([*self.losses(range(4, 8)), self.started(1, 7), *self.losses(range(8, 10), 1)]), [])
        driver.kill()
        for state in (None, "{damaged"):
            if state is None:
                (self.tracking / "mlflow.json").unlink()
            else:
                (self.tracking / "mlflow.json").write_text(state)
            first = 10 if state is None else 12
            driver = self.restart()
            self.assertEqual(driver.deliver(self.losses(range(first, first + 2))), [])
            self.assertEqual(driver.end(), 0)
        self.check_points(13)

    def test_drops_rejected_items_only(self):
        """As of servers with other limits than this one."""
        rejected = (b'"NaN"', b'"data.odd"', b'"oarlock.message"', b'"oarlock.version.odd"')
        self.proxy.rule = lambda handler, body: REJECTED if any(item in body for item in rejected) else None
        driver = self.driver()
        started = self.started(config={"data": {"a//b": 1, "odd": 2, "fine": 3, "long": "y\n" * 9000}})
        started["started"]["versions"]["odd"] = "1"
        self.assertEqual(driver.deliver([
            started, *self.losses(range(1, 4)),
            {"time": 1.7e9 + 4, "step": 4, "scalars": {"loss": 1, "bad": "NaN", "eval/mse": 4, "eval//x": 5, "eval/top-1/": 6}},
            *self.losses(range(5, 8)),
            {"time": 1.7e9 + 8, "step": 7, "finished": {"summary": {"eval/mse": 0.5}, "message": "done"}}]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(7)
        job, attempt = self.run_of("job"), self.run_of(0)
        metrics = {m["key"]: m["value"] for m in job["data"]["metrics"]}
        self.assertEqual(sorted(metrics.values()), [1.75, 5, 6, 7])  # the last loss and eval/mse
        self.assertNotIn("bad", metrics)
        params = {p["key"]: p["value"] for p in job["data"]["params"]}
        self.assertEqual(params["data.fine"], "3")
        self.assertNotIn("data.odd", params)
        self.assertEqual([value for key, value in params.items() if key.startswith("data.a/b-")], ["1"])
        self.assertEqual({m["key"]: m["value"] for m in attempt["data"]["metrics"]}, {"eval/mse": 0.5})
        for run in (job, attempt):
            tags = {t["key"]: t["value"] for t in run["data"]["tags"]}
            self.assertEqual((tags["oarlock.reason"], tags["oarlock.version.oarlock"]), ("Completed", "0.1.0"))
            self.assertEqual(run["info"]["status"], "FINISHED")
        warnings = [line for line in driver.log.read_text().splitlines() if "rejected content is dropped" in line]
        self.assertEqual(len(warnings), 4, warnings)  # one for each

    def test_names_remain_different(self):
        values = {"eval/准确率": 1, "eval/召回率": 2, "a@1": 3, "a%1": 4, "x" * 260 + "1": 5, "x" * 260 + "2": 6, "x" * 249 + "/y": 7,
                  "../../etc": 8, ".": 9}
        driver = self.driver()
        texts = [{"time": 1.7e9 + 1, "step": 1, "text": {"name": name, "text": name}} for name in ("a.b", "a:b", "eval/文", "../x")]
        self.assertEqual(driver.deliver([self.started(), {"time": 1.7e9 + 1, "step": 1, "scalars": values}, *texts]), [])
        self.assertEqual(driver.end(), 0)
        job = self.run_of("job")
        metrics = {m["key"]: m["value"] for m in job["data"]["metrics"]}
        self.assertEqual(sorted(metrics.values()), list(range(1, 10)))
        self.assertEqual((metrics["eval/准确率"], metrics["eval/召回率"]), (1, 2))
        stored = (self.directory / "artifacts").glob(f"*/{job['info']['run_id']}/artifacts/text/**/*.md")
        self.assertEqual(sorted(f.read_text() for f in stored), ["../x", "a.b", "a:b", "eval/文"])

    def test_divides_requests_that_are_too_large(self):
        def limit(handler, body):
            return (413, b"<html>too large</html>") if len(body) > 3000 else None
        self.proxy.rule = limit
        driver = self.driver()
        self.assertEqual(driver.deliver([
            self.started(), *self.losses(range(1, 101)),
            {"time": 1.7e9 + 100, "step": 100, "text": {"name": "large", "text": "x" * 5000}},
            {"time": 1.7e9 + 100, "step": 100, "text": {"name": "small", "text": "x"}}, *self.losses(range(101, 111))]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(110)
        run = self.run_of("job")["info"]["run_id"]
        self.assertEqual([f.parent.name for f in (self.directory / "artifacts").glob(f"*/{run}/artifacts/text/*/*.md")], ["small"])
        # Not the size of a single point is the cause, but the proxy.
        driver = self.driver()
        self.proxy.rule = lambda handler, body: (413, b"") if b'"metrics"' in body else None
        driver.write(self.losses([111]))
        driver.wait_for_failure("413")
        self.proxy.rule = None
        driver.wait_for_delivery(1)
        self.check_points(111)

    def test_waits_for_rotated_token(self):
        token = self.directory / "token"
        token.write_text("old")
        def check_token(handler, body):
            return None if handler.headers.get("Authorization") == "Bearer new" else (401, b"Unauthorized")
        self.proxy.rule = check_token
        driver = self.driver({"SINK_TOKEN_FILE": str(token)})
        driver.write([self.started(), *self.losses(range(1, 4))])
        driver.wait_for_failure("HTTP status 401")
        token.write_text("new")
        driver.wait_for_delivery(4)
        self.assertEqual(driver.end(), 0)
        self.check_points(3)

    def test_accepts_steps_of_64_bits(self):
        steps = range(2**31 - 1, 2**31 + 3)
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started(), *self.losses(steps)]), [])
        driver.kill()
        driver = self.driver()
        self.assertEqual(driver.deliver([*self.losses(steps), self.started(1, 2**31 + 2)]), [])
        self.assertEqual(driver.end(), 0)
        self.assertEqual([step for step, _ in self.history("loss")], list(steps))
        params = {p["key"]: p["value"] for p in self.run_of(1)["data"]["params"]}
        self.assertEqual(params["restart_step"], str(2**31 + 2))

    def test_stays_in_its_experiment(self):
        driver = self.driver({"MLFLOW_EXPERIMENT_NAME": self.key})
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 4))]), [])
        driver.kill()
        driver = self.driver({"MLFLOW_EXPERIMENT_NAME": self.key + " 2"})
        self.assertEqual(driver.deliver([self.started(1, 3), *self.losses(range(4, 7), 1)]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(6)
        self.assertEqual(driver.log.read_text().count("stays in the experiment"), 1)

    def test_verifies_the_certificate(self):
        """Of a private authority, whose certificate is configured."""
        directory = self.directory / self.key
        directory.mkdir()
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=TIMEOUT)
        ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        openssl("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=a private authority")
        openssl("req", "-x509", *ec, "-keyout", "key", "-out", "pem", "-subj", "/CN=mlflow", "-addext", "subjectAltName=IP:127.0.0.1",
                "-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "pem", directory / "key")
        proxy = self.another_proxy(context)
        environment = {"MLFLOW_TRACKING_URI": f"https://127.0.0.1:{proxy.server_port}", "MLFLOW_TRACKING_TOKEN": "secret"}
        driver = self.driver(environment)
        driver.write([self.started()])
        driver.wait_for_failure("certificate")
        driver.kill()
        self.assertEqual(proxy.authorization, set())  # the token is not sent to a server that is not verified
        driver = self.driver({**environment, "MLFLOW_TRACKING_SERVER_CERT_PATH": str(directory / "ca.pem")})
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 21))]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(20)
        self.assertEqual(proxy.authorization, {"Bearer secret"})

    def test_messages_have_no_secrets(self):
        uri = f"http://127.0.0.1:{self.proxy.server_port}/secret"
        driver = self.driver({"MLFLOW_TRACKING_URI": uri})
        self.proxy.faults.append(("close", None))
        driver.write([self.started()])
        lines = [driver.lines.get(timeout=TIMEOUT) for _ in range(3)]
        self.assertTrue(all(line.startswith("failed: ") for line in lines), lines)
        self.assertNotIn("secret", "".join(lines) + driver.log.read_text())
        self.assertIn("/secret/api/2.0/", self.proxy.seen[0][1])

    def test_messages_are_short_and_printable(self):
        error = json.dumps({"error_code": "\x1b" + "X" * 100_000, "message": "\x1b" + "Y" * 100_000}).encode()
        self.proxy.rule = lambda handler, body: (500, error)
        driver = self.driver()
        driver.write([self.started()])
        line = driver.lines.get(timeout=TIMEOUT)
        self.assertTrue(line.startswith("failed: "), line[:200])
        self.assertIn("500, ", line[:200])
        self.assertLess(len(line), 600)
        self.assertTrue(line.isprintable(), line)

    def test_ids_of_a_server_are_short_and_printable(self):
        for odd in ("x" * 1_000_000, "x\x1b[31m", "\u202e"):
            def answer(handler, body):
                if not handler.path.endswith("/runs/create"):
                    return None
                return 200, json.dumps({"run": {"info": {"run_id": odd}}}).encode()
            self.tracking = self.directory / f"ids-{len(odd)}"
            self.key = self.tracking.name
            self.proxy.rule = answer
            driver = self.driver()
            driver.write([self.started(), *self.losses(range(1, 4))])
            line = driver.lines.get(timeout=TIMEOUT)
            self.assertIn("has the run_id 'x" if odd[0] == "x" else "has the run_id '", line[:200])
            self.assertLess(len(line), 400)
            self.assertTrue(line.isprintable(), line)
            self.assertLess((self.tracking / "mlflow.json").stat().st_size, 1000)
            self.proxy.rule = None
            driver.wait_for_delivery(4)
            self.assertEqual(driver.end(), 0)
            self.assertLess(len(driver.log.read_text()), 2000)
            # The server has the run, although the response was another one.
            self.check_points(3)

    def test_state_that_could_not_be_saved_is_saved_later(self):
        """Without an operator, another process finds the run by its state only."""
        environment = {"MLFLOW_EXPERIMENT_NAME": self.key}
        self.tracking.write_text("not a directory")
        driver = self.driver(environment)
        start = self.started()
        start["started"]["uid"] = ""
        self.assertEqual(driver.deliver([start, *self.losses(range(1, 4))]), [])
        self.tracking.unlink()
        self.assertEqual(driver.deliver(self.losses(range(4, 6))), [])
        driver.kill()
        self.assertEqual(driver.log.read_text().count("cannot save the state"), 1)
        self.key = json.loads((self.tracking / "mlflow.json").read_text())["key"]
        driver = self.driver(environment)
        start["started"]["restart_step"] = 5
        self.assertEqual(driver.deliver([start, *self.losses(range(6, 9))]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(8)

    def points_of(self, run):
        state = json.loads((run.checkpoints / "tracking" / "mlflow.json").read_text())
        points = self.server.call("GET", f"/api/2.0/mlflow/metrics/get-history?run_id={state['run_id']}&metric_key=loss")["metrics"]
        return state["run_id"], sorted(int(p["step"]) for p in points)

    def test_copies_of_a_checkpoint_directory_report_separate_runs(self):
        """Two copies and the original, which was renamed, continue at the same time. The journal of each has points that
        the original had not delivered."""
        refuses = threading.Event()
        refused = threading.Event()
        def refuse_points(handler, body):
            if not refuses.is_set() or b'"metrics"' not in body:
                return None
            refused.set()
            return 503, b""
        self.proxy.rule = refuse_points
        config = self.trainer_config(self.proxy, "copied", "  wandb: {enabled: true, project: copied}\n")
        original = Run(self.directory / "original", config)
        earlier = original.start(0)
        self.addCleanup(earlier.kill)
        wait_until(lambda: original.newest_step() >= 100 or earlier.poll() is not None, "a checkpoint")
        refuses.set()
        wait_until(lambda: refused.is_set() or earlier.poll() is not None, "undelivered points")
        at_refusal = original.newest_step()
        wait_until(lambda: original.newest_step() >= at_refusal + 50 or earlier.poll() is not None, "a later checkpoint")
        earlier.kill()
        earlier.wait()
        refuses.clear()
        copies = [Run(self.directory / name, config) for name in ("copy-1", "copy-2")]
        for copy in copies:
            shutil.copytree(original.checkpoints, copy.checkpoints)
        original.checkpoints = original.checkpoints.rename(original.directory / "renamed")
        restart = original.newest_step()
        processes = [run.start(1) for run in (*copies, original)]
        for process in processes:
            self.addCleanup(process.kill)
        for process in processes:
            self.assertEqual(process.wait(timeout=TIMEOUT), 0, process.log.read_text())
        ids = set()
        for run in (original, *copies):
            first = 0 if run is original else restart
            run_id, steps = self.points_of(run)
            self.assertEqual(steps, list(range(first // 5 * 5 + 5, TRAINER_STEPS + 1, 5)), run.directory.name)
            ids.add(run_id)
            ids.add(json.loads((run.checkpoints / "tracking" / "wandb.json").read_text())["run_id"])
            warnings = [line for line in processes[(*copies, original).index(run)].log.read_text().splitlines()
                        if "the checkpoint directory is a copy" in line]
            self.assertEqual(len(warnings), 0 if run is original else 2, warnings)  # of MLflow and W&B
        self.assertEqual(len(ids), 6)
        # A copy continues its own run.
        before = self.points_of(copies[0])
        copies[0].train(2)
        self.assertEqual(self.points_of(copies[0]), before)

    def test_trainer_restarts_with_another_address(self):
        refused = threading.Event()
        def refuse_points(handler, body):
            if b'"metrics"' not in body:
                return None
            refused.set()
            return 503, b""
        self.proxy.rule = refuse_points
        run = Run(self.directory / "moved", self.trainer_config(self.proxy, "moved"))
        earlier = run.start(0)
        self.addCleanup(earlier.kill)
        wait_until(lambda: refused.is_set() and run.newest_step() >= 100, "undelivered points before a checkpoint")
        earlier.kill()
        earlier.wait()
        run.config.write_text(self.trainer_config(self.another_proxy(), "moved"))
        run.train(1)
        self.check_trainer_run(run)

    def test_earlier_attempt_that_was_stopped_continues(self):
        run = Run(self.directory / "stopped", self.trainer_config(self.proxy, "stopped"))
        earlier = run.start(0)
        self.addCleanup(earlier.kill)
        wait_until(lambda: run.newest_step() >= 100 or earlier.poll() is not None, "a checkpoint")
        earlier.send_signal(signal.SIGSTOP)
        later = run.start(1)
        self.addCleanup(later.kill)
        wait_until(lambda: "waiting for an earlier process" in later.log.read_text() or later.poll() is not None,
                   "the later attempt waits for the directory")
        earlier.send_signal(signal.SIGCONT)
        self.assertEqual(later.wait(timeout=TIMEOUT), 0, later.log.read_text())
        earlier.wait(timeout=TIMEOUT)  # the later attempt has the checkpoints
        self.assertIn("has claimed the directory", earlier.log.read_text())
        self.check_trainer_run(run)


if __name__ == "__main__":
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} does not exist: run scripts/setup tracking")
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
