#!/usr/bin/env python3
"""The runs of a real MLflow server to which the sink reports: the same one after a restart, another address, a lost state
or a deletion, and another one for a copy of the checkpoints.

usage: mlflow_runs_test.py SINK_DRIVER   (OARLOCK_BIN: the directory of the programs)
"""
import contextlib
import json
import pathlib
import shutil
import signal
import sqlite3
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "tracking"))

from killed_run import Run, tiny  # noqa: E402
from mlflow_server import TIMEOUT, wait_until  # noqa: E402
from mlflow_sink import MlflowSinkCase, main  # noqa: E402

TRAINER_STEPS = 1000


class MlflowRunsTest(MlflowSinkCase):
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

    def test_stays_in_its_experiment(self):
        driver = self.driver({"MLFLOW_EXPERIMENT_NAME": self.key})
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 4))]), [])
        driver.kill()
        driver = self.driver({"MLFLOW_EXPERIMENT_NAME": self.key + " 2"})
        self.assertEqual(driver.deliver([self.started(1, 3), *self.losses(range(4, 7), 1)]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(6)
        self.assertEqual(driver.log.read_text().count("stays in the experiment"), 1)

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
    main()
