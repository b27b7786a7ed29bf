#!/usr/bin/env python3
"""wandb's own program uploads the run folders of the W&B sink: `wandb sync` (wandb-core reads the files) sends them to a
stub of W&B's server, which stores what arrives. The real server has not been tried.

usage: wandb_sync_test.py SINK_DRIVER
"""
import collections
import gzip
import http.server
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock"
PYTHON = pathlib.Path(os.environ.get("WANDB_PYTHON") or CACHE / "wandb-0.31.0" / "bin" / "python")
DRIVER = sys.argv[1]
TIMEOUT = 120


class Server(http.server.ThreadingHTTPServer):
    """The part of W&B's server that `wandb sync` uses."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.runs = {}
        self.uploads = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # wandb closes its connections without a notice

    def run(self, project, name):
        return self.runs.setdefault((project, name), {"history": {}, "summary": {}, "exit": [], "files": set(), "preempting": False})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def do_GET(self):
        self.reply({})

    def do_PUT(self):
        with self.server.lock:
            self.server.uploads[self.path] = self.body()
        self.reply({})

    def do_POST(self):
        request = json.loads(self.body())
        with self.server.lock:
            self.reply(self.graphql(request) if self.path == "/graphql" else self.file_stream(request))

    def graphql(self, request):
        name, variables = request.get("operationName"), request.get("variables", {})
        if name == "RunResumeStatus":
            run = self.server.runs.get((variables["project"], variables["name"]))
            if run is None:
                return {"data": {"model": None}}
            lines = [run["history"][i] for i in sorted(run["history"])]
            bucket = {
                "id": "storage", "name": variables["name"], "summaryMetrics": json.dumps(run["summary"]),
                "displayName": "", "logLineCount": 0, "historyLineCount": len(lines), "eventsLineCount": 0,
                "historyTail": json.dumps(lines[-1:]), "eventsTail": "[]", "config": "{}", "tags": [], "notes": "",
                "wandbConfig": "{}"}
            return {"data": {"model": {"id": "p", "name": variables["project"], "entity": {"id": "e", "name": "me"},
                                       "bucket": bucket}}}
        if name == "UpsertBucket":
            run = self.server.run(variables["project"], variables["name"])
            run["upsert"] = {**run.get("upsert", {}), **{k: v for k, v in variables.items() if v is not None}}
            bucket = {"id": "storage", "name": variables["name"], "displayName": variables.get("displayName"),
                      "description": "", "config": "{}", "sweepName": None, "historyLineCount": len(run["history"]),
                      "project": {"id": "p", "name": variables["project"], "entity": {"id": "e", "name": "me"}}}
            return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
        if name == "CreateRunFiles":
            run = self.server.run(variables["project"], variables["run"])
            run["files"].update(variables["files"])
            url = f"http://127.0.0.1:{self.server.server_port}/upload/{variables['run']}/"
            files = [{"name": file, "uploadUrl": url + file} for file in variables["files"]]
            return {"data": {"createRunFiles": {"runID": "storage", "uploadHeaders": [], "files": files}}}
        return {"data": {}}

    def file_stream(self, request):
        project, name = self.path.split("/")[3:5]
        run = self.server.run(project, name)
        history = request.get("files", {}).get("wandb-history.jsonl")
        if history:
            for i, line in enumerate(history["content"]):
                run["history"][history["offset"] + i] = line
        summary = request.get("files", {}).get("wandb-summary.json")
        if summary:
            run["summary"].update(json.loads(summary["content"][-1]))
        run["preempting"] |= request.get("preempting", False)
        if request.get("complete"):
            run["exit"].append((request.get("exitcode"), run["preempting"]))
            run["preempting"] = False
        return {"exitcode": None, "limits": {}}


class WandbSyncTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.server = Server()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def drive(self, lines, environment=None, kill=False):
        """Runs the driver with the events. With `kill`, ends it by SIGKILL when they are delivered."""
        environment = {**os.environ, "WANDB_DIR": str(self.folder), "WANDB_PROJECT": "gears_ddp", **(environment or {})}
        driver = subprocess.Popen([DRIVER, "wandb", self.folder / "tracking"], env=environment, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        try:
            for line in [*lines, {"flush": True}]:
                driver.stdin.write(json.dumps(line) + "\n")
            driver.stdin.flush()
            if kill:
                self.assertTrue(driver.stdout.readline().startswith("delivered"))
                driver.send_signal(signal.SIGKILL)
            out, _ = driver.communicate(timeout=TIMEOUT)
            self.assertNotIn("failed", out)
            self.assertEqual(driver.returncode, -signal.SIGKILL if kill else 0)
        finally:
            driver.kill()

    def folders(self):
        return sorted((self.folder / "wandb").glob("offline-run-*"))

    def sync(self, *arguments):
        url = f"http://127.0.0.1:{self.server.server_port}"
        environment = {**os.environ, "WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40, "WANDB_ERROR_REPORTING": "false",
                       "HOME": str(self.folder), "NO_PROXY": "127.0.0.1"}
        for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT"):
            environment.pop(name, None)
        result = subprocess.run([PYTHON, "-m", "wandb", "sync", *map(str, arguments)], env=environment, cwd=self.folder,
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for folder in arguments:
            self.assertTrue(list(folder.glob("*.synced")), result.stdout + result.stderr)

    def rows(self, name):
        history = self.server.runs[("gears_ddp", name)]["history"]
        self.assertEqual(sorted(history), list(range(len(history))))  # no gap and no overlap
        return [json.loads(history[i]) for i in sorted(history)]

    def points(self, name):
        out = collections.defaultdict(list)
        for row in self.rows(name):
            for key, value in row.items():
                if not key.startswith("_"):
                    out[key].append((row["_step"], value))
        return out

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
        self.sync(*self.folders())
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

    def test_attempts_continue_one_run(self):
        self.drive([self.started(), *self.losses(range(1, 31))], kill=True)
        self.drive([self.started(1, 20), *self.losses(range(21, 41), 1)], kill=True)
        self.drive([self.started(2, 40), *self.losses(range(41, 51), 2),
                    {"time": 1.7e9 + 3000, "step": 50, "finished": {}}])
        folders = self.folders()
        self.assertEqual(len(folders), 3)
        self.sync(*folders)
        self.assertEqual(self.points("5f6a77")["loss"], [(s, s / 4) for s in range(1, 51)])
        self.assertEqual(self.server.runs[("gears_ddp", "5f6a77")]["exit"], [(1, False), (1, False), (0, False)])

    def test_fifty_kills(self):
        """Each attempt is killed while it writes, and the next one resumes from a checkpoint before that."""
        chance = random.Random(7)
        checkpoint = 0
        for attempt in range(50):
            environment = {**os.environ, "WANDB_DIR": str(self.folder), "WANDB_PROJECT": "gears_ddp"}
            with subprocess.Popen([DRIVER, "wandb", self.folder / "tracking"], env=environment, stdin=subprocess.PIPE,
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
        self.assertEqual(len(self.folders()), 51)
        self.sync(*self.folders())
        self.assertEqual(self.points("5f6a77")["loss"], [(s, s / 4) for s in range(1, checkpoint + 101)])

    def test_uploaded_folders_may_be_deleted(self):
        self.drive([self.started(), *self.losses(range(1, 31)),
                    {"time": 1.7e9 + 31, "step": 30, "finished": {"success": False, "resumes": True}}])
        self.sync(*self.folders())
        self.assertEqual(self.server.runs[("gears_ddp", "5f6a77")]["exit"], [(1, True)])
        for folder in self.folders():
            folder.rename(self.folder / "deleted")
        self.drive([self.started(1, 20), *self.losses(range(21, 41), 1), {"time": 1.7e9 + 2000, "step": 40, "finished": {}}])
        self.sync(*self.folders())
        self.assertEqual(self.points("5f6a77")["loss"], [(s, s / 4) for s in range(1, 41)])

    def test_incomplete_record_is_left_out(self):
        self.drive([self.started(), *self.losses(range(1, 31))], kill=True)
        file = next(self.folders()[0].glob("*.wandb"))
        os.truncate(file, file.stat().st_size - 3)  # the summary's record
        self.drive([self.started(1, 20), *self.losses(range(21, 41), 1), {"time": 1.7e9 + 2000, "step": 40, "finished": {}}])
        self.sync(self.folders()[1])
        self.assertEqual([p[0] for p in self.points("5f6a77")["loss"]], list(range(31, 41)))


if __name__ == "__main__":
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} does not exist: run scripts/setup tracking")
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
