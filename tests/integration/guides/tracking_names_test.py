#!/usr/bin/env python3
"""The tables of docs/from-python that show what each of the five originals logs, next to its name in the experiment
trackers: a short run of each system reports every one of these names, and with the page's `tracking.names` every one of
the original's. TensorBoard's own library reads them.

usage: tracking_names_test.py   (OARLOCK_SOURCE, and OARLOCK_BIN: the directory of the programs)
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from run_page import BIN, PAGES, SOURCE, TIMEOUT

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock"
PYTHON = CACHE / "tensorboard-2.20.0" / "bin" / "python"
HEAD = "| the original logs | name in TensorBoard, W&B and MLflow |"
NAMES = re.compile(r"^tracking: \{names: (\{.*\})\}$", re.M)  # as a page gives them

READ = """
import json, sys
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util
everything = {plugin: 0 for plugin in ("scalars", "images", "text")}
accumulator = plugin_event_accumulator.EventAccumulator(sys.argv[1], tensor_size_guidance=everything)
accumulator.Reload()
content = accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
texts = {}
for tag in accumulator.PluginTagToContent("text"):
    (event,) = accumulator.Tensors(tag)[-1:]
    texts[tag] = tensor_util.make_ndarray(event.tensor_proto)[0].decode()
print(json.dumps({"tags": accumulator.Tags()["tensors"], "hparams": sorted(start.hparams), "texts": texts}))
"""


def text_of(page):
    return (SOURCE / "docs" / "from-python" / f"{page}.md").read_text()


def rows_of(page):
    """What is in the cells of each row: code, or for the first cell the names in it, as in `wandb.log({'loss': ...})`."""
    lines = text_of(page).splitlines()
    (head,) = [i for i, line in enumerate(lines) if line.startswith(HEAD)]
    for row in lines[head + 2:]:
        if not row.startswith("|"):
            return
        original, *names = row.strip("|").split("|")
        yield [re.findall(r"'([^']+)': \.\.\.", original),
               *([code for code in re.findall(r"`([^`]+)`", cell) if "{" not in code] for cell in names)]


class TrackingNames(unittest.TestCase):
    def report(self, page, *more_settings):
        """Trains shortly, and returns what TensorBoard reads."""
        self.assertTrue(PYTHON.exists(), f"{PYTHON} does not exist: run scripts/setup tracking")
        with tempfile.TemporaryDirectory() as work:
            directory = pathlib.Path(work)
            (directory / "examples").symlink_to(SOURCE / "examples")
            PAGES[page]["data"](directory)
            settings = [*PAGES[page]["overrides"].split(), "log.every_steps=1", "checkpoint.dir=run",
                        "tracking.tensorboard.enabled=true", *more_settings]
            if page == "comformer":
                settings.append("data.path=crystals.extxyz")
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run([BIN / "oarlock-trainer", "--config", PAGES[page]["config"], *settings], cwd=directory,
                                  env=environment, capture_output=True, text=True, timeout=TIMEOUT)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            read = subprocess.run([PYTHON, "-c", READ, directory / "run" / "tensorboard"], capture_output=True, text=True,
                                  timeout=TIMEOUT)
            self.assertEqual(read.returncode, 0, read.stderr[-3000:])
            return json.loads(read.stdout)

    def check(self, page):
        rows = list(rows_of(page))
        names = [name for row in rows for name in row[1]]
        self.assertGreater(len(names), 3)
        report = self.report(page)
        self.assertEqual([name for name in names if name not in report["tags"] + report["hparams"]], [])
        return report

    def check_renamed(self, page):
        """The names of the original itself."""
        (configured,) = NAMES.findall(text_of(page))
        rows = list(rows_of(page))
        names = [name for row in rows for name in row[2]]
        self.assertTrue(names)
        report = self.report(page, f"tracking.names={configured}")
        self.assertEqual([name for name in names if name not in report["tags"]], [])
        for originals, own, renamed in rows:
            self.assertEqual([name for name in originals if name not in own + renamed], [])
        # In the place of Oarlock's names, not next to them.
        self.assertNotIn("loss", report["tags"])
        self.assertEqual([tag for tag in report["tags"] if tag.startswith("eval/")], [])

    def test_settings_for_each_call(self):
        """Of the table in docs/from-python/README.md."""
        section = text_of("README").split("## Experiment trackers")[1]
        settings = re.findall(r"`(\w+): (\{.*?\})`", section)
        self.assertGreater(len(settings), 5)
        for key, value in settings:
            command = [BIN / "oarlock-trainer", "--check", "--config", SOURCE / PAGES["gears"]["config"], f"{key}={value}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
            self.assertEqual(done.returncode, 0, f"{value}: {done.stderr}")

    def test_comformer(self):
        self.check("comformer")
        self.check_renamed("comformer")

    def test_gears(self):
        self.check("gears")
        self.check_renamed("gears")

    def test_quantumgrav(self):
        self.check("quantumgrav")

    def test_training_engine(self):
        self.check("training-engine")
        self.check_renamed("training-engine")

    def test_uniref50_sedd(self):
        self.check_renamed("uniref50-sedd")
        sequences = self.check("uniref50-sedd")["texts"]["samples/sequences"]
        # Two sampled sequences of at most 16 residues, which are letters.
        sampled = re.findall(r"^- `([A-Z]{1,16})`$", sequences, re.M)
        self.assertEqual(len(sampled), 2, sequences)


if __name__ == "__main__":
    unittest.main()
