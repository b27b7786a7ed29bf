#!/usr/bin/env python3
"""TensorBoard, started with the directory of a real run, in a real browser: its pages show the run's scalars, images, texts,
histograms and hyperparameters.

usage: tensorboard_page_test.py   (OARLOCK_BIN: the directory of the programs; OARLOCK_PICTURE=FILE: the picture of
                                   docs/guides/tracking.md is written to this file)
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock"
TENSORBOARD_PYTHON = CACHE / "tensorboard-2.20.0" / "bin" / "python"
PYTHON = CACHE / "playwright-1.65.2" / "bin" / "python"
if pathlib.Path(sys.prefix) != PYTHON.parent.parent:
    for program in (PYTHON, TENSORBOARD_PYTHON, pathlib.Path("/usr/bin/chromium")):
        if not program.exists():
            sys.exit(f"{program} does not exist: run scripts/setup tracking browser")
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

from playwright.sync_api import sync_playwright

BIN = pathlib.Path(os.environ["OARLOCK_BIN"])
PATIENCE = 120  # seconds for anything that takes a moment

CONFIG = """
task: image_classification
epochs: 2
seed: 1
data: {path: /usr/share/datasets/fashion-mnist, train_samples: 6400, eval_samples: 640}
model: {name: mlp}
batch: {size: 64}
optimizer: {name: adamw, lr: 0.001}
log: {every_steps: 5}
eval: {every_epochs: 0, every_steps: 20}
tracking: {name: fashion, histograms_every_steps: 50, tensorboard: {enabled: true}}
"""


class TensorboardPages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.directory = pathlib.Path(temporary.name)
        (cls.directory / "config.yaml").write_text(CONFIG)
        done = subprocess.run([BIN / "oarlock-trainer", "--config", cls.directory / "config.yaml", "--checkpoint-dir",
                               cls.directory / "run"], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr[-3000:]
        command = [TENSORBOARD_PYTHON, "-m", "tensorboard.main", "--logdir", cls.directory, "--host", "127.0.0.1", "--port",
                   "0", "--load_fast", "false"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        cls.addClassCleanup(server.communicate, timeout=PATIENCE)
        cls.addClassCleanup(server.terminate)
        cls.url = next(line[line.index("http://"):].split()[0].rstrip("/") for line in server.stderr if "http://" in line)
        cls.playwright = sync_playwright().start()
        cls.addClassCleanup(cls.playwright.stop)
        cls.browser = cls.playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        cls.addClassCleanup(cls.browser.close)

    def open(self, plugin):
        page = self.browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(1000 * PATIENCE)
        self.addCleanup(page.close)
        page.goto(f"{self.url}/#{plugin}")
        return page

    def check_texts(self, page, *texts):
        for text in texts:
            page.get_by_text(text, exact=True).first.wait_for(state="attached")

    def test_time_series(self):
        page = self.open("timeseries")
        # The groups of tags, and within the group of the evaluation its metrics.
        self.check_texts(page, "run/tensorboard", "eval", "time", "loss", "learning_rate", "samples_per_second")
        self.check_texts(page, "eval/loss", "eval/accuracy")
        page.locator("scalar-card svg path, scalar-card canvas").first.wait_for(state="attached")
        if picture := os.environ.get("OARLOCK_PICTURE"):
            page.locator("scalar-card").nth(1).scroll_into_view_if_needed()
            page.wait_for_timeout(3000)  # the curves are animated
            image = page.screenshot()
            small = subprocess.run(["pngquant", "--strip", "-"], input=image, check=True, capture_output=True).stdout
            pathlib.Path(picture).write_bytes(small)

    def test_scalars(self):
        page = self.open("scalars")
        self.check_texts(page, "loss", "eval")

    def test_images(self):
        page = self.open("images")
        page.get_by_text("eval/images").first.wait_for(state="attached")
        image = page.locator("tf-image-loader img, #main-image-container img").first
        image.wait_for(state="attached")
        page.wait_for_function(
            "image => image.complete && image.naturalWidth > 0", arg=image.element_handle())

    def test_texts(self):
        page = self.open("text")
        page.get_by_text("eval/predictions").first.wait_for(state="attached")

    def test_histograms(self):
        page = self.open("histograms")
        page.get_by_text("parameters").first.wait_for(state="attached")

    def test_hyperparameters(self):
        page = self.open("hparams")
        for name in ("optimizer.lr", "ddp/effective_batch_size", "task"):
            page.get_by_text(name, exact=True).first.wait_for(state="attached")


if __name__ == "__main__":
    unittest.main()
