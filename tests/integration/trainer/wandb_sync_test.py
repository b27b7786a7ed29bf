#!/usr/bin/env python3
"""wandb's own program uploads the run directories of the W&B sink: `wandb sync` (wandb-core reads the files) sends them to a
stub of W&B's server, which stores what arrives. The real server has not been tried.

usage: wandb_sync_test.py SINK_DRIVER
"""
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "tracking"))

from wandb_server import PYTHON, WandbServer  # noqa: E402

DRIVER = sys.argv[1]
TIMEOUT = 120


class WandbSyncTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.server = WandbServer()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def drive(self, lines, environment=None, kill=False):
        """Runs the driver with the events. With `kill`, ends it by SIGKILL when they are delivered."""
        environment = {**os.environ, "WANDB_DIR": str(self.directory), "WANDB_PROJECT": "gears_ddp", **(environment or {})}
        driver = subprocess.Popen([DRIVER, "wandb", self.directory / "tracking"], env=environment, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        try:
            for line in [*lines, {"flush": True}]:
                driver.stdin.write(json.dumps(line) + "\n")
            driver.stdin.flush()
            if kill:
                for _ in range(1 + lines.count({"flush": True})):
                    self.assertTrue(driver.stdout.readline().startswith("delivered"))
                driver.send_signal(signal.SIGKILL)
            out, _ = driver.communicate(timeout=TIMEOUT)
            self.assertNotIn("failed", out)
            self.assertEqual(driver.returncode, -signal.SIGKILL if kill else 0)
        finally:
            driver.kill()

    def directories(self):
        return sorted((self.directory / "wandb").glob("offline-run-*"))

    def sync(self, *directories):
        self.server.sync(self.directory, directories)

    def points(self, name):
        return self.server.points("gears_ddp", name)

    def started(self, attempt=0, restart_step=0):
        return {"time": 1.7e9 + 1000 * attempt, "step": restart_step, "started": {
            "name": "r1", "task": "gears", "uid": "5f6a-77", "attempt": attempt, "restart_step": restart_step,
            "config": {"model": {"name": "gears"}}, "derived": {"ddp/world_size": 2, "ddp/scaled_lr": 0.002},
            "versions": {"oarlock": "0.1.0", "revision": "abcdef"}}}

    @staticmethod
    def losses(steps, attempt=0):
        return [{"time": 1.7e9 + 1000 * attempt + step, "step": step, "scalars": {"loss": step / 4, "epoch": step / 100}}
                for step in steps]

    def test_uploads_everything(self):
        text = "MKV <b> & \u00e4"
        self.drive([self.started(), *self.losses(range(1, 2001)),  # several blocks of 32 KiB
                    {"time": 1.7e9 + 2001, "step": 2001, "scalars": {"loss": "NaN"}},
                    {"time": 1.7e9 + 2002, "step": 2002, "histogram": {
                        "name": "gradients/w", "min": -1, "max": 1, "limits": [-0.5, 0, 0.5, 1e300], "counts": [1, 2, 3, 4]}},
                    {"time": 1.7e9 + 2002, "step": 2002, "text": {"name": "samples", "text": text}},
                    {"time": 1.7e9 + 2003, "step": 2003, "finished": {"summary": {"eval/loss": 0.5}}}],
                   {"WANDB_NAME": "run_here", "WANDB_TAGS": "a, b", "WANDB_RUN_GROUP": "g"})
        self.sync(*self.directories())
        run = self.server.runs[("gears_ddp", "5f6a77")]
        self.assertEqual(run["upsert"]["displayName"], "run_here")
        self.assertEqual(run["upsert"]["tags"], ["a", "b"])
        self.assertEqual(run["upsert"]["groupName"], "g")
        self.assertEqual(run["upsert"]["commit"], "abcdef")
        config = json.loads(run["upsert"]["config"])
        self.assertEqual(config["ddp/world_size"]["value"], 2)
        self.assertEqual(config["model"]["value"], {"name": "gears"})
        points = self.points("5f6a77")
        self.assertEqual([p for p in points["loss"] if p[0] <= 2000], [(s, s / 4) for s in range(1, 2001)])
        self.assertEqual(points["loss"][-1][0], 2001)
        self.assertNotEqual(points["loss"][-1][1], points["loss"][-1][1])  # NaN
        self.assertEqual(points["epoch"], [(s, s / 100) for s in range(1, 2001)])
        histogram = points["gradients/w"][0][1]
        self.assertEqual((histogram["bins"], histogram["values"]), ([-1, -0.5, 0, 0.5, 1], [1, 2, 3, 4]))
        sample = points["samples"][0][1]
        self.assertIn(sample["path"], run["files"])
        self.assertIn(b"MKV &lt;b&gt; &amp; \xc3\xa4", self.server.uploads["/upload/5f6a77/" + sample["path"]])
        self.assertEqual(run["summary"]["eval/loss"], 0.5)
        self.assertEqual(run["exit"], [(0, False)])

    def test_uploads_attempts_after_one_that_was_killed_while_it_wrote(self):
        """A file that is empty or ends inside of a record would end the upload of all directories."""
        self.drive([self.started(), *self.losses(range(1, 7))], kill=True)
        for attempt, size in enumerate((0, 3, 7, 20, -5), 1):  # the first ones are killed before their first point
            points = self.losses(range(4, 10), attempt) if size < 0 else []
            self.drive([self.started(attempt, 3), *points], kill=True)
            log, = self.directories()[-1].glob("run-*.wandb")
            log.write_bytes(log.read_bytes()[:size])
        self.drive([self.started(6, 3), *self.losses(range(4, 13), 6), {"time": 1.7e9 + 7000, "step": 12, "finished": {}}])
        self.sync(*self.directories())
        self.assertEqual(self.points("5f6a77")["loss"], [(s, s / 4) for s in range(1, 13)])
        self.assertEqual(self.server.runs[("gears_ddp", "5f6a77")]["exit"][-1], (0, False))

    def test_attempts_continue_one_run(self):
        self.drive([self.started(), *self.losses(range(1, 31))], kill=True)
        self.drive([self.started(1, 20), *self.losses(range(21, 41), 1)], kill=True)
        self.drive([self.started(2, 40), *self.losses(range(41, 51), 2),
                    {"time": 1.7e9 + 3000, "step": 50, "finished": {}}])
        directories = self.directories()
        self.assertEqual(len(directories), 3)
        self.sync(*directories)
        self.assertEqual(self.points("5f6a77")["loss"], [(s, s / 4) for s in range(1, 51)])
        self.assertEqual(self.server.runs[("gears_ddp", "5f6a77")]["exit"], [(1, False), (1, False), (0, False)])

    def test_values_of_one_step_are_one_row(self):
        """They are reported at different times, and the process is killed between them. `wandb sync` moves a second row
        of a step to the next step."""
        evaluation = {"time": 1.7e9 + 21, "step": 20, "scalars": {"eval/loss": 0.5}}
        self.drive([self.started(), *self.losses(range(10, 21, 10))], kill=True)
        self.drive([self.started(1, 20), *self.losses([20]), {"flush": True}, evaluation, {"flush": True},
                    *self.losses([30], 1)], kill=True)
        self.drive([self.started(2, 30), {"time": 1.7e9 + 2000, "step": 30, "scalars": {"eval/loss": 0.25}},
                    {"time": 1.7e9 + 3000, "step": 30, "finished": {}}])
        self.sync(*self.directories())
        points = self.points("5f6a77")
        self.assertEqual(points["loss"], [(10, 2.5), (20, 5), (30, 7.5)])
        self.assertEqual(points["eval/loss"], [(20, 0.5), (30, 0.25)])
        self.assertEqual(len(self.server.runs[("gears_ddp", "5f6a77")]["history"]), 3)

    def test_value_of_an_earlier_step_is_in_the_summary(self):
        """Such as that of a pass with the best weights, which are older than the last step."""
        self.drive([self.started(), *self.losses([10, 20, 30]),
                    {"time": 1.7e9 + 40, "step": 20, "scalars": {"test/mae": 0.125}},
                    {"time": 1.7e9 + 41, "step": 30, "finished": {}}])
        self.sync(*self.directories())
        self.assertEqual(self.points("5f6a77")["loss"], [(10, 2.5), (20, 5), (30, 7.5)])
        self.assertEqual(self.server.runs[("gears_ddp", "5f6a77")]["summary"]["test/mae"], 0.125)

    def test_fifty_kills(self):
        """Each attempt is killed while it writes, and the next one resumes from a checkpoint before that."""
        chance = random.Random(7)
        checkpoint = 0
        for attempt in range(50):
            environment = {**os.environ, "WANDB_DIR": str(self.directory), "WANDB_PROJECT": "gears_ddp"}
            with subprocess.Popen([DRIVER, "wandb", self.directory / "tracking"], env=environment, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver:
                lines = [self.started(attempt, checkpoint)]
                for step in range(checkpoint + 1, checkpoint + 41):
                    lines += [*self.losses([step], attempt), {"flush": True}]
                driver.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
                driver.stdin.flush()
                for _ in range(delivered := chance.randrange(3, 20)):
                    driver.stdout.readline()
                driver.kill()
                out = driver.stdout.read()
                self.assertNotIn("failed", out)
            checkpoint += delivered // 2
        self.drive([self.started(50, checkpoint), *self.losses(range(checkpoint + 1, checkpoint + 101), 50),
                    {"time": 1.8e9, "step": checkpoint + 100, "finished": {}}])
        self.assertEqual(len(self.directories()), 51)
        self.sync(*self.directories())
        self.assertEqual(self.points("5f6a77")["loss"], [(s, s / 4) for s in range(1, checkpoint + 101)])

    def test_uploaded_directories_may_be_deleted(self):
        self.drive([self.started(), *self.losses(range(1, 31)),
                    {"time": 1.7e9 + 31, "step": 30, "finished": {"success": False, "resumes": True}}])
        self.sync(*self.directories())
        self.assertEqual(self.server.runs[("gears_ddp", "5f6a77")]["exit"], [(1, True)])
        for directory in self.directories():
            directory.rename(self.directory / "deleted")
        self.drive([self.started(1, 20), *self.losses(range(21, 41), 1), {"time": 1.7e9 + 2000, "step": 40, "finished": {}}])
        self.sync(*self.directories())
        self.assertEqual(self.points("5f6a77")["loss"], [(s, s / 4) for s in range(1, 41)])

    def test_incomplete_record_is_left_out(self):
        self.drive([self.started(), *self.losses(range(1, 31))], kill=True)
        file = next(self.directories()[0].glob("*.wandb"))
        os.truncate(file, file.stat().st_size - 3)  # the summary's record
        self.drive([self.started(1, 20), *self.losses(range(21, 41), 1), {"time": 1.7e9 + 2000, "step": 40, "finished": {}}])
        self.sync(self.directories()[1])
        self.assertEqual([p[0] for p in self.points("5f6a77")["loss"]], list(range(30, 41)))

    def test_a_full_disk_loses_nothing(self):
        """Neither at the start, nor in the middle of the run. A limit of the size of files stands for the disk."""
        environment = {**os.environ, "WANDB_DIR": str(self.directory), "WANDB_PROJECT": "gears_ddp"}
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        # Python ignores SIGXFSZ, which the driver inherits without restore_signals.
        with subprocess.Popen([DRIVER, "wandb", self.directory / "tracking"], env=environment, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, restore_signals=False) as driver:
            def deliver(outcome, *lines, size=limits[0]):
                resource.prlimit(driver.pid, resource.RLIMIT_FSIZE, (size, limits[1]))
                driver.stdin.write("".join(json.dumps(line) + "\n" for line in [*lines, {"flush": True}]))
                driver.stdin.flush()
                line = driver.stdout.readline()
                self.assertTrue(line.startswith(outcome), line)

            try:
                deliver("failed", self.started(), *self.losses(range(1, 11)), size=0)
                self.assertEqual(self.directories(), [])
                deliver("delivered", *self.losses(range(11, 21)))
                log, = self.directories()[0].glob("*.wandb")
                deliver("failed", *self.losses(range(21, 31)), size=log.stat().st_size + 100)
                deliver("delivered", *self.losses(range(31, 41)), {"time": 1.7e9 + 41, "step": 40, "finished": {}})
                driver.stdin.close()
                self.assertEqual(driver.wait(timeout=TIMEOUT), 0)
            finally:
                driver.kill()
        self.sync(*self.directories())
        self.assertEqual(self.points("5f6a77")["loss"], [(s, s / 4) for s in range(1, 41)])
        self.assertEqual(self.server.runs[("gears_ddp", "5f6a77")]["exit"], [(0, False)])

    def test_any_text_and_large_steps(self):
        steps = [1, 2**31, 2**31 + 1, 2**40]
        points = [{"time": 1.7e9 + i, "step": step, "scalars": {"loss": step / 4}} for i, step in enumerate(steps)]
        self.drive([self.started(), *points, {"time": 1.7e9 + 9, "step": 2**40, "finished": {}}],
                   {"WANDB_NOTES": b"caf\xe9", "WANDB_TAGS": b"caf\xe9", "WANDB_RUN_GROUP": b"caf\xe9"})
        self.sync(*self.directories())
        self.assertEqual(self.points("5f6a77")["loss"], [(s, s / 4) for s in steps])
        run = self.server.runs[("gears_ddp", "5f6a77")]["upsert"]
        self.assertEqual((run["notes"], run["groupName"], run["tags"]), ("caf\ufffd", "caf\ufffd", ["caf\ufffd"]))


if __name__ == "__main__":
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} does not exist: run scripts/setup tracking")
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
