#!/usr/bin/env python3
"""The trainer and a real MLflow server with users and permissions (`mlflow server --app-name basic-auth`): a run with
the right password is complete, and a wrong one costs neither the result of the training nor a point.

usage: mlflow_login_test.py   (OARLOCK_BIN: the directory of the programs)
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "tracking"))

from killed_run import PATIENCE, Run, tiny, wait_until  # noqa: E402
from mlflow_server import PYTHON, ServerWithLogin  # noqa: E402

STEPS = 60
LOGGED = list(range(5, STEPS + 1, 5))
EVALUATED = list(range(20, STEPS + 1, 20))
METRICS = {"loss": LOGGED, "learning_rate": LOGGED, "eval/loss": EVALUATED}
OWNER = ("owner", "pass:word, with a colon and 100 %")
COLLEAGUE = ("colleague", "another password")

# MLflow's own client, with the login in its environment.
READ = """
import json, sys
import mlflow
client = mlflow.MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name(sys.argv[2])
out = []
for run in client.search_runs([experiment.experiment_id]):
    metrics = sys.argv[3:] if run.data.tags["oarlock.attempt"] == "job" else []
    points = {key: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)] for key in metrics}
    files = [file.path for file in client.list_artifacts(run.info.run_id, "text")]
    out.append({"status": run.info.status, "tags": run.data.tags, "params": run.data.params, "points": points, "files": files,
                "experiment": experiment.experiment_id})
print(json.dumps(out))
"""


def variables(login):
    return {"MLFLOW_TRACKING_USERNAME": login[0], "MLFLOW_TRACKING_PASSWORD": login[1]}


class MlflowLoginTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.directory = pathlib.Path(temporary.name)
        cls.server = ServerWithLogin(cls.directory)
        cls.addClassCleanup(cls.server.kill)
        cls.server.start()
        for login in (OWNER, COLLEAGUE):
            cls.server.create_user(login)

    def run_of(self, name, experiment):
        return Run(self.directory / name, tiny(STEPS, f"""\
  finish_timeout_seconds: {PATIENCE}
  mlflow: {{enabled: true, uri: "http://127.0.0.1:{self.server.port}", experiment: {experiment}, timeout_seconds: {PATIENCE}}}
"""))

    def train_denied(self, run, attempt, variables, reason):
        """The training succeeds. There is one message with the reason, and one that the points are kept."""
        process = run.start(attempt, variables)
        self.addCleanup(process.kill)
        def waits_for_delivery():
            log = process.log.read_text()
            return process.poll() is not None or ("time of this process" in log and "points are kept until" in log)
        self.assertTrue(wait_until(waits_for_delivery))
        process.send_signal(signal.SIGTERM)  # ends the wait for the deliveries
        log = run.log_of(process)
        self.assertEqual(process.returncode, 0, log)
        denied, kept = self.warnings_of(log)
        self.assertIn(reason, denied["reason"])
        self.assertNotIn(OWNER[1], log)
        self.assertIn("not all points were delivered", kept["msg"])
        self.assertEqual(kept["remedy"], "the next start of the run delivers them")

    def read(self, login, experiment, job="job"):
        environment = {**os.environ, "NO_PROXY": "127.0.0.1", "MLFLOW_DISABLE_TELEMETRY": "true", **variables(login)}
        done = subprocess.run([PYTHON, "-c", READ, f"http://127.0.0.1:{self.server.port}", experiment, *METRICS],
                              env=environment, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {run["tags"]["oarlock.attempt"]: run for run in json.loads(done.stdout) if run["tags"]["oarlock.run"] == job}

    def check_is_complete(self, login, experiment, attempts, job="job"):
        runs = self.read(login, experiment, job)
        self.assertEqual(set(runs), {"job", *attempts})
        job_run = runs["job"]
        self.assertEqual(job_run["status"], "FINISHED")
        for metric, steps in METRICS.items():
            self.assertEqual(sorted(step for step, _ in job_run["points"][metric]), steps, metric)
        self.assertEqual(job_run["params"]["optimizer.lr"], "0.003")
        self.assertTrue(job_run["files"], "texts are stored")
        return runs

    @staticmethod
    def warnings_of(log):
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["level"] == "warn" and line.get("sink") == "mlflow"]

    @staticmethod
    def tensors(run):
        newest = max(run.checkpoints.glob("step-*"))
        return {file.name: file.read_bytes() for file in newest.iterdir() if file.suffix == ".safetensors"}

    def test_right_password(self):
        log = self.run_of("right", "right").train(0, variables(OWNER))
        self.assertEqual(self.warnings_of(log), [])
        runs = self.check_is_complete(OWNER, "right", {"0"})
        self.assertEqual(runs["0"]["status"], "FINISHED")

    def test_wrong_password(self):
        whole = Run(self.directory / "whole", tiny(STEPS))
        whole.train(0)
        run = self.run_of("wrong", "wrong")
        for attempt, login in enumerate([(OWNER[0], "wrong"), ("unknown", OWNER[1])]):
            self.train_denied(run, attempt, variables(login), "HTTP status 401: the server does not accept the credentials; "
                              "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")
            self.assertTrue(self.tensors(run))
            self.assertEqual(self.tensors(run), self.tensors(whole))
        self.train_denied(run, 2, {}, "HTTP status 401: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")
        log = run.train(3, variables(OWNER))
        self.assertEqual(self.warnings_of(log), [])
        self.check_is_complete(OWNER, "wrong", {"0", "1", "2", "3"})

    def test_missing_permission(self):
        """For an experiment of another user."""
        self.run_of("of-owner", "shared").train(0, variables(OWNER))
        experiment = self.read(OWNER, "shared")["job"]["experiment"]
        run = self.run_of("of-colleague", "shared")
        of_colleague = {**variables(COLLEAGUE), "OARLOCK_UID": "another-job"}
        self.train_denied(run, 0, of_colleague, "HTTP status 403: the user lacks a permission for the experiment or the run; "
                          "the user is that of MLFLOW_TRACKING_USERNAME")
        self.server.call_as(self.server.ADMINISTRATOR, "POST", "/api/3.0/mlflow/users/permissions/grant",
                            {"username": COLLEAGUE[0], "resource_type": "experiment", "resource_id": experiment,
                             "permission": "EDIT"})
        log = run.train(1, of_colleague)
        self.assertEqual(self.warnings_of(log), [])
        self.check_is_complete(COLLEAGUE, "shared", {"0", "1"}, "another-job")


if __name__ == "__main__":
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} does not exist: run scripts/setup tracking")
    unittest.main()
