#!/usr/bin/env python3
"""python/oarlock.py with a real FIFO, which this test opens as the launcher does; and the lengths of the jobs of its guide.

usage: python_client_test.py   (OARLOCK_SOURCE)
"""
import ast
import contextlib
import importlib.util
import json
import math
import multiprocessing
import os
import pathlib
import pickle
import select
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

SOURCE = pathlib.Path(os.environ["OARLOCK_SOURCE"])
CLIENT = SOURCE / "python" / "oarlock.py"
PROPERTIES = json.loads(CLIENT.with_name("progress.schema.json").read_text())["properties"]
TYPES = {"integer": int, "number": (int, float), "string": str, "object": dict}
PIPE_BUF = 4096
sys.dont_write_bytecode = True


class Tensor:
    """Has item(), and cannot be converted without it."""

    def __init__(self, value):
        self.value = value

    def item(self):
        if self.value is None:
            raise RuntimeError("the device has failed")
        return self.value


def new_client():
    spec = importlib.util.spec_from_file_location("oarlock", CLIENT)
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    return client


def lines_of(data):
    lines = data.splitlines(keepends=True)
    for line in lines:
        assert line.endswith(b"\n") and len(line) <= PIPE_BUF, line
        for name, value in json.loads(line, parse_constant=lambda name: 1 / 0).items():  # NaN is not JSON
            assert isinstance(value, TYPES[PROPERTIES[name]["type"]]), line
    return [json.loads(line) for line in lines]


def write_many(rank, count):
    client = new_client()
    with mock.patch.dict(os.environ, RANK=str(rank)):
        for step in range(count):
            while not client.report(step=step, filler=0.1, **{f"metric/{i}": rank for i in range(100)}):
                time.sleep(0.001)


class PythonClient(unittest.TestCase):
    def setUp(self):
        with contextlib.ExitStack() as stack:
            self.directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.path = self.directory / "progress"
            os.mkfifo(self.path)
            self.fifo = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
            stack.callback(os.close, self.fifo)
            stack.enter_context(mock.patch.dict(os.environ, OARLOCK_PROGRESS=str(self.path), RANK="3"))
            self.addCleanup(stack.pop_all().close)

    def read(self):
        with contextlib.suppress(BlockingIOError):
            return os.read(self.fifo, 1 << 20)
        return b""

    def test_lines(self):
        many = {f"metric {i}": i for i in range(1000)}
        for call, expected in [
                ({"step": 7, "target_steps": 9, "checkpoint_step": 5, "loss": 0.5, "samples_per_second": 2.5, "phase": "train"},
                 {"step": 7, "targetSteps": 9, "checkpointStep": 5, "loss": 0.5, "samplesPerSecond": 2.5, "phase": "train", "rank": 3}),
                ({"step": 1, "accuracy": 0.25, "eval/loss": True}, {"step": 1, "rank": 3, "metrics": {"accuracy": 0.25, "eval/loss": 1}}),
                ({"step": Tensor(2.0), "loss": Tensor(1), "rank": 1, "a": Tensor(0.5)},
                 {"step": 2, "loss": 1, "rank": 1, "metrics": {"a": 0.5}}),
                ({"step": 3, "loss": math.nan, "a": math.inf, "b": -math.inf, "c": "x", "d": object(), "e": Tensor(None), "f": [1]},
                 {"step": 3, "rank": 3}),
                ({"step": Tensor(None), "target_steps": math.inf, "loss": 1}, {"loss": 1, "rank": 3}),
                ({"step": 10 ** 400, "loss": 10 ** 400, "target_steps": 1}, {"targetSteps": 1, "rank": 3}),
                ({"step": 4, **many}, {"step": 4, "rank": 3}),
                ({"step": 5, "phase": "\ud800\n"}, {"step": 5, "phase": "\ud800\n", "rank": 3}),
                ({"phase": "x" * 5000}, None),
                ({"loss": math.nan}, None),
                ({}, None)]:
            with self.subTest(call=str(call)[:80]):
                self.assertEqual(new_client().report(**call), expected is not None)
                self.assertEqual(lines_of(self.read()), [expected] if expected else [])

    def test_without_rank(self):
        del os.environ["RANK"]
        self.assertTrue(new_client().report(step=1))
        self.assertEqual(lines_of(self.read()), [{"step": 1}])

    def test_drops_lines_while_fifo_is_full(self):
        client = new_client()
        written = 0
        while client.report(step=written):
            written += 1
        self.assertGreater(written, 100)
        self.assertFalse(client.report(step=-1))
        self.assertEqual([line["step"] for line in lines_of(self.read())], list(range(written)))
        self.assertTrue(client.report(step=written))
        self.assertEqual([line["step"] for line in lines_of(self.read())], [written])

    def test_ignores_paths_that_are_no_fifo(self):
        file = self.directory / "file"
        file.write_text("kept")
        for path in ("", str(self.directory), str(self.directory / "none"), str(file), "/dev/null", "a\0b"):
            with self.subTest(path), mock.patch.object(os, "environ", {"OARLOCK_PROGRESS": path}):
                client = new_client()
                self.assertFalse(client.report(step=1))
                self.assertFalse(client.report(step=2))
        self.assertEqual(file.read_text(), "kept")

    def test_survives_a_launcher_that_has_ended(self):
        """A program with the default action of SIGPIPE is not ended either."""
        program = ("import os, signal, sys; sys.path.insert(0, sys.argv[1]); import oarlock\n"
                   "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
                   "oarlock.report(step=0); print('ready', flush=True); input()\n"
                   "while oarlock.report(step=1): pass\n")
        fifo = self.directory / "ending"
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        with subprocess.Popen([sys.executable, "-Bc", program, CLIENT.parent], env={**os.environ, "OARLOCK_PROGRESS": str(fifo)},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                self.assertEqual(process.stdout.readline(), "ready\n")
                os.close(reader)
                process.communicate("\n", timeout=60)
                self.assertEqual(process.returncode, 0)
            finally:
                process.kill()

    def test_does_not_mix_lines_of_ranks(self):
        ranks, count = 4, 50
        processes = [multiprocessing.Process(target=write_many, args=(rank, count)) for rank in range(ranks)]
        for process in processes:
            process.start()
        try:
            data, deadline = b"", time.monotonic() + 60
            while data.count(b"\n") < ranks * count and time.monotonic() < deadline:
                select.select([self.fifo], [], [], 1)
                data += self.read()
        finally:
            for process in processes:
                process.kill()
                process.join()
        lines = lines_of(data)
        for rank in range(ranks):
            self.assertEqual([line["step"] for line in lines if line["rank"] == rank], list(range(count)))
            self.assertTrue(all(line["metrics"]["metric/99"] == rank for line in lines if line["rank"] == rank))

    def test_runs_with_old_python(self):
        ast.parse(CLIENT.read_text(), feature_version=(3, 8))
        with self.assertRaises(AttributeError):
            new_client().Callback  # pylint: disable=expression-not-assigned

    def test_lightning_callback(self):
        """With a stand-in for Lightning, whose Trainer does not know the number of steps. Spawned processes unpickle the callback."""
        class Trainer:  # pylint: disable=too-few-public-methods
            global_step, global_rank, callback_metrics = 4, 1, {}

            @property
            def estimated_stepping_batches(self):
                raise RuntimeError("not known")

        lightning = types.SimpleNamespace(Callback=object)
        client = new_client()
        with mock.patch.dict(sys.modules, {"oarlock": client, "lightning": lightning, "lightning.pytorch": lightning}):
            callback = pickle.loads(pickle.dumps(client.LightningCallback()))
            callback.on_train_start(Trainer(), None)
        self.assertEqual(lines_of(self.read()), [{"step": 4, "rank": 1}])

    def test_jobs_have_at_most_14_lines(self):
        jobs = {name: SOURCE.joinpath("examples", name, "trainingjob.yaml").read_text() for name in ("pytorch", "lightning", "transformers")}
        self.assertLessEqual(max(len(job.splitlines()) for job in jobs.values()), 14)
        self.assertIn(jobs["pytorch"], SOURCE.joinpath("docs/guides/from-any-python.md").read_text())


class CheckpointRequests(unittest.TestCase):
    """The file that the launcher replaces."""

    def test_each_request_is_returned_once(self):
        with tempfile.TemporaryDirectory() as directory:
            request = pathlib.Path(directory, "request")

            def write(number):
                request.with_suffix(".new").write_text(f"{number}\n")
                os.utime(request.with_suffix(".new"), (number, number))
                request.with_suffix(".new").rename(request)

            with mock.patch.dict(os.environ, {"OARLOCK_CHECKPOINT_REQUEST": str(request)}):
                client = new_client()
                self.assertFalse(client.checkpoint_requested())
                for number in (100, 200):
                    write(number)
                    self.assertTrue(client.checkpoint_requested())
                    self.assertFalse(client.checkpoint_requested())
                self.assertFalse(new_client().checkpoint_requested(), "a process that starts later does not save")
                request.unlink()
                self.assertFalse(client.checkpoint_requested())

    def test_without_a_launcher_nothing_is_requested(self):
        self.assertNotIn("OARLOCK_CHECKPOINT_REQUEST", os.environ)
        self.assertFalse(new_client().checkpoint_requested())


if __name__ == "__main__":
    unittest.main(verbosity=2)
