#!/usr/bin/env python3
"""A run that is killed again and again, read back by TensorBoard itself: each point once, at its step.

usage: tensorboard_test.py   (OARLOCK_BIN: the directory of the programs)
"""
import contextlib
import gzip
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request
import zlib

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock"
PYTHON = CACHE / "tensorboard-2.20.0" / "bin" / "python"
if pathlib.Path(sys.prefix) != PYTHON.parent.parent:
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} does not exist: run scripts/setup tracking")
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "tracking"))

from killed_run import PATIENCE, Run, tiny, wait_until  # noqa: E402

STEPS = 300
CONFIG = tiny(STEPS, "  histograms_every_steps: 50\n")
KILLS = int(os.environ.get("OARLOCK_KILLS", "8"))

def read(run):
    """As TensorBoard's own plugins read it."""
    everything = {plugin: 0 for plugin in ("scalars", "histograms", "images", "text")}
    accumulator = plugin_event_accumulator.EventAccumulator(str(run.checkpoints / "tensorboard"), tensor_size_guidance=everything)
    accumulator.Reload()
    return accumulator


def points(accumulator, tag):
    return [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in accumulator.Tensors(tag)]


def scalars(accumulator, tag):
    return [(step, float(value)) for step, value in points(accumulator, tag)]


def get(url, **parameters):
    """The JSON value at an address, which may be compressed."""
    if parameters:
        url += "?" + urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        content = response.read()
        return json.loads(gzip.decompress(content) if response.headers["Content-Encoding"] == "gzip" else content)


@contextlib.contextmanager
def serve(directory):
    """TensorBoard with all its plugins, for the directory; its address."""
    command = [PYTHON, "-m", "tensorboard.main", "--logdir", directory, "--host", "127.0.0.1", "--port", "0"]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, text=True)
        def url():
            log.seek(0)
            text = log.read()
            return text[text.index("http://"):].split()[0].rstrip("/") if "http://" in text and text.endswith("\n") else ""
        try:
            assert wait_until(lambda: url() or server.poll() is not None) and url(), "TensorBoard did not start"
            yield url()
        finally:
            server.terminate()
            server.wait(timeout=PATIENCE)


class KilledRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.temporary.name)
        cls.whole, cls.killed = Run(root / "whole", CONFIG), Run(root / "killed", CONFIG)
        cls.whole.train(0)
        chance = random.Random(7)
        cls.kills = 0
        for attempt in range(KILLS):
            cls.kills += cls.killed.kill(attempt, STEPS * (attempt + 1) // (KILLS + 2), chance.random() * 0.05)[1]
        cls.killed.train(KILLS)
        cls.expected, cls.actual = read(cls.whole), read(cls.killed)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_was_killed(self):
        self.assertGreater(self.kills, KILLS // 2)

    def test_has_each_point_once(self):
        logged = list(range(5, STEPS + 1, 5))
        evaluated = list(range(20, STEPS + 1, 20))
        for tag, steps in {"loss": logged, "epoch": logged, "learning_rate": logged, "gradient_norm": logged,
                           "samples_per_second": logged, "time/forward": logged,
                           "eval/loss": evaluated, "eval/accuracy": evaluated}.items():
            for accumulator in (self.expected, self.actual):
                self.assertEqual([step for step, _ in scalars(accumulator, tag)], steps, tag)

    def test_scripts_read_the_same(self):
        accumulator = event_accumulator.EventAccumulator(str(self.killed.checkpoints / "tensorboard"), size_guidance={"scalars": 0})
        accumulator.Reload()
        self.assertEqual([(event.step, event.value) for event in accumulator.Scalars("loss")], scalars(self.expected, "loss"))

    def test_has_the_values_of_a_run_that_was_not_killed(self):
        for tag in ("loss", "epoch", "learning_rate", "gradient_norm", "eval/loss", "eval/accuracy"):
            self.assertEqual(scalars(self.actual, tag), scalars(self.expected, tag), tag)

    def test_has_histograms(self):
        tags = [tag for tag in self.actual.Tags()["tensors"] if tag.startswith("parameters/")]
        self.assertTrue(tags)
        for tag in tags:
            gradient = tag.replace("parameters/", "gradients/")
            for name in (tag, gradient):
                self.assertEqual([step for step, _ in points(self.actual, name)], list(range(50, STEPS + 1, 50)), name)
            for (_, actual), (_, expected) in zip(points(self.actual, tag), points(self.expected, tag)):
                self.assertEqual(actual.tolist(), expected.tolist())
                self.assertEqual(actual.shape[1], 3)
                self.assertTrue((actual[:, 0] <= actual[:, 1]).all())

    def test_has_hyperparameters_and_the_end(self):
        def content(tag):
            return plugin_data_pb2.HParamsPluginData.FromString(self.actual.SummaryMetadata(tag).plugin_data.content)
        start = content("_hparams_/session_start_info").session_start_info
        self.assertEqual(start.hparams["optimizer.lr"].number_value, 0.003)
        self.assertEqual(start.hparams["task"].string_value, "tiny")
        for name in ("oarlock", "revision", "libtorch"):
            self.assertIn(f"versions/{name}", start.hparams)
        self.assertEqual(start.hparams["ddp/effective_batch_size"].number_value, 16)
        self.assertEqual(start.group_name, "killed")
        self.assertEqual(content("_hparams_/session_end_info").session_end_info.status, 1)
        names = {info.name for info in content("_hparams_/experiment").experiment.hparam_infos}
        self.assertIn("ddp/scaled_lr", names)

    def test_has_texts(self):
        (step, config), = points(self.actual, "config")
        self.assertEqual(step, 0)
        self.assertIn(b'"lr": 0.003', config[0])
        (step, reason), = points(self.actual, "exit_reason")
        self.assertEqual((step, reason[0]), (STEPS, b"Completed"))
        (step, table), = points(self.actual, "time")
        self.assertEqual(step, STEPS)
        rows = dict(line.split("|")[1:3] for line in table[0].decode().strip().splitlines()[2:])
        rows = {name.strip(): float(seconds) for name, seconds in rows.items()}
        total = rows.pop("total")
        self.assertAlmostEqual(sum(rows.values()), total, delta=0.001 * len(rows))

    def test_a_completed_run_adds_nothing(self):
        before = {tag: [step for step, _ in points(self.actual, tag)] for tag in self.actual.Tags()["tensors"]}
        self.killed.train(KILLS + 1)
        again = read(self.killed)
        self.assertEqual({tag: [step for step, _ in points(again, tag)] for tag in again.Tags()["tensors"]}, before)

    def test_tensorboard_shows_the_run(self):
        with serve(self.killed.checkpoints) as url:
            tags = {}
            def has_loaded():
                tags.update(get(f"{url}/data/plugin/scalars/tags"))
                return "tensorboard" in tags and "eval/loss" in tags["tensorboard"]
            self.assertTrue(wait_until(has_loaded))
            def shown():
                return [point[1] for point in get(f"{url}/data/plugin/scalars/scalars?run=tensorboard&tag=loss")]
            self.assertTrue(wait_until(lambda: len(shown()) >= STEPS // 5))
            self.assertEqual(shown(), list(range(5, STEPS + 1, 5)))
            self.assertIn("config", get(f"{url}/data/plugin/text/tags")["tensorboard"])


class ImageRun(unittest.TestCase):
    def test_shows_images_and_a_trace(self):
        config = """
task: image_classification
steps: 6
data: {path: /usr/share/datasets/fashion-mnist, train_samples: 640, eval_samples: 100}
model: {name: mlp}
log: {every_steps: 2}
tracking: {tensorboard: {enabled: true}}
profile: {first_step: 2, steps: 2}
"""
        with tempfile.TemporaryDirectory() as name:
            run = Run(pathlib.Path(name) / "images", config, "oarlock-trainer")
            log = [json.loads(line) for line in run.train(0).splitlines() if line.startswith("{")]
            accumulator = read(run)
            (step, image), = points(accumulator, "eval/images")
            self.assertEqual(step, 6)
            width, height, png = image.tolist()
            self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(struct.unpack(">II", png[16:24]), (int(width), int(height)))
            self.assertEqual((int(width), int(height)), (8 * 32, 4 * 32))
            at = 33
            self.assertEqual(png[at + 4:at + 8], b"IDAT")
            size, = struct.unpack(">I", png[at:at + 4])
            self.assertEqual(struct.unpack(">I", png[at + 8 + size:at + 12 + size])[0], zlib.crc32(png[at + 4:at + 8 + size]))
            self.assertEqual(len(zlib.decompress(png[at + 8:at + 8 + size])), int(height) * (1 + 3 * int(width)))
            (_, table), = points(accumulator, "eval/predictions")
            self.assertEqual(len(table[0].decode().splitlines()), 2 + 32)
            self.check_trace(run)
            self.check_profiler_plugin(run)
            times, = [line["msg"] for line in log if line["msg"].startswith("time of this process")]
            self.assertIn("forward", times)

    def check_trace(self, run):
        trace, = (run.checkpoints / "tensorboard" / "plugins" / "profile").glob("*/*.pt.trace.json")
        self.assertEqual(trace.parent.name, "attempt-0-step-2")
        events = json.loads(trace.read_text())["traceEvents"]
        names = {event.get("name", "") for event in events}
        self.assertIn("ProfilerStep#2", names)
        self.assertIn("ProfilerStep#3", names)
        self.assertNotIn("ProfilerStep#4", names)
        self.assertIn("aten::addmm", names)
        self.assertTrue(any("Backward" in name for name in names))

    def check_profiler_plugin(self, run):
        """The profiler plugin (torch-tb-profiler) of a TensorBoard that serves the run's directory."""
        with serve(run.checkpoints) as url:
            plugin = f"{url}/data/plugin/pytorch_profiler"
            found = {}
            def has_loaded():
                found.update(get(f"{plugin}/runs"))
                return found["runs"] and not found["loading"]
            self.assertTrue(wait_until(has_loaded))
            name = "tensorboard/plugins/profile/attempt-0-step-2"
            self.assertEqual(found["runs"], [name])
            self.assertTrue(get(f"{url}/data/plugins_listing")["pytorch_profiler"]["enabled"])
            views = get(f"{plugin}/views", run=name)
            for view in ("Overview", "Operator", "Trace"):
                self.assertIn(view, views)
            worker, = get(f"{plugin}/workers", run=name, view="Overview")
            self.assertTrue(worker.endswith("-rank-0"), worker)
            span, = get(f"{plugin}/spans", run=name, worker=worker)
            place = {"run": name, "worker": worker, "span": span}
            overview = get(f"{plugin}/overview", **place)
            self.assertEqual([row[0] for row in overview["steps"]["rows"]], ["2", "3"])
            operators = get(f"{plugin}/operation/table", group_by="Operation", **place)
            self.assertIn("aten::addmm", json.dumps(operators))
            shown = {event.get("name", "") for event in get(f"{plugin}/trace", **place)["traceEvents"]}
            self.assertLessEqual({"ProfilerStep#2", "ProfilerStep#3", "aten::addmm"}, shown)


if __name__ == "__main__":
    unittest.main()
