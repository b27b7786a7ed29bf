#!/usr/bin/env python3
"""The examples in Python (examples/pytorch, lightning, transformers) and Kubeflow's SDK under `oarlock launch` with two ranks, with the
real libraries: the launcher serves their progress on /statusz. The scripts that save are stopped by SIGTERM, and resume.

usage: run_python_examples.py pytorch | frameworks
       (OARLOCK_SOURCE, OARLOCK_TORCH_DIR, and OARLOCK_BIN: the directory of the programs)
"""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["OARLOCK_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
import torch_python  # noqa: E402
from reserved_port import ReservedPort  # noqa: E402

LIMIT = 300  # seconds until a script has reported, or has ended
ENDLESS = 1_000_000
STEPS = 4096 // 64 // 2  # of an epoch of the examples with two ranks

KUBEFLOW = """
import time
from kubeflow.trainer import update_trainjob_status
while True:
    update_trainjob_status(progress_percent=42, estimated_remaining_seconds=60, metrics={"loss": 0.5, "accuracy": 0.25})
    time.sleep(0.2)
"""


class Examples(unittest.TestCase):
    def setUp(self):
        with contextlib.ExitStack() as stack:
            self.directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oarlock-python-")))
            self.port = stack.enter_context(ReservedPort(2))  # a rank's own server would use the second one
            libraries = self.directory / "libraries"
            libraries.mkdir()
            kept = torch_python.variables(libraries, SOURCE / "python")
            self.environment = {k: v for k, v in kept.items() if not k.startswith(("OARLOCK_", "PET_", "TORCHELASTIC_", "KUBEFLOW_"))}
            self.environment.update(
                OARLOCK_METRICS_PORT=str(self.port), OARLOCK_CHECKPOINT_DIR=str(self.directory / "run"), GLOO_SOCKET_IFNAME="lo",
                OARLOCK_TERMINATION_LOG=str(self.directory / "termination"), PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1")
            self.addCleanup(stack.pop_all().close)

    @contextlib.contextmanager
    def launched(self, *command):
        self.log = self.directory / "log"
        with open(self.log, "w", encoding="utf-8") as log, subprocess.Popen(
                [pathlib.Path(os.environ["OARLOCK_BIN"], "oarlock"), "launch", "--nproc", "2", "--standalone", "--", self.python, *command],
                cwd=self.directory, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT) as process:
            try:
                yield process
            finally:
                process.kill()

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.read().decode() if response.status == 200 else ""

    def wait_for_status(self, process, is_complete):
        status, deadline = {}, time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                status = json.loads(self.get("/statusz") or "{}")
                if is_complete(status):
                    return status
            self.assertIsNone(process.poll(), self.log.read_text())
            time.sleep(0.2)
        self.fail(f"{status}\n{self.log.read_text()}")

    def wait_for_end(self, process):
        try:
            return process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.fail(self.log.read_text())

    def stop(self, process):
        """Stops the script by SIGTERM and returns the termination message."""
        process.send_signal(signal.SIGTERM)
        self.wait_for_end(process)
        return json.loads((self.directory / "termination").read_text())

    def require_resume(self, script, first_step):
        """`first_step` reads the step at which a run began from its output."""
        def is_complete(status):
            return (status.get("step", 0) > 0 and status.get("targetSteps") == ENDLESS * STEPS and "loss" in status
                    and status.get("checkpointStep", 0) > 0 and [rank.get("step", 0) > 0 for rank in status["ranks"]] == [True, True])
        with self.launched(script, "--epochs", str(ENDLESS)) as process:
            status = self.wait_for_status(process, is_complete)
            self.assertIn("\ntrainer_loss", self.get("/metrics"))
            self.assertEqual(self.stop(process)["reason"], "Interrupted", self.log.read_text())
        epochs = status["checkpointStep"] // STEPS + 20
        with self.launched(script, "--epochs", str(epochs)) as process:
            self.assertEqual(self.wait_for_end(process), 0, self.log.read_text())
            self.assertGreaterEqual(first_step(self.log.read_text()), status["checkpointStep"], self.log.read_text())


class PyTorch(Examples):
    def test_script(self):
        self.python = torch_python.interpreter("safetensors-0.8.0", "tracking")
        self.require_resume(SOURCE / "examples/pytorch/train.py", lambda log: STEPS * int(log.split("epochs ")[1].split()[0]))


class Frameworks(Examples):
    def setUp(self):
        super().setUp()
        self.python = torch_python.interpreter("transformers-5.24.0", "frameworks")

    def test_lightning(self):
        def first_step(log):
            self.assertIn("Restored all states from the checkpoint", log)
            return ENDLESS
        self.require_resume(SOURCE / "examples/lightning/train.py", first_step)

    def test_transformers(self):
        with self.launched(SOURCE / "examples/transformers/train.py", "--max_steps", str(ENDLESS)) as process:
            status = self.wait_for_status(process, lambda status: status.get("step", 0) > 0 and "loss" in status)
            self.assertEqual((status["rank"], status["targetSteps"]), (0, ENDLESS))
            self.stop(process)

    def test_kubeflow(self):
        with self.launched("-c", KUBEFLOW) as process:
            status = self.wait_for_status(process, lambda status: "loss" in status)
            self.assertEqual([status[name] for name in ("step", "targetSteps", "loss")], [42, 100, 0.5])
            self.assertIn('trainer_reported{name="accuracy",rank="0"} 0.25', self.get("/metrics"))


if __name__ == "__main__":
    classes = {"pytorch": PyTorch, "frameworks": Frameworks}
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(classes[sys.argv[1]])
    sys.exit(0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1)
