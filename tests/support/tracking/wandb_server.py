"""A stub of the part of W&B's server that `wandb sync` uses, and wandb's own program for the upload to it."""
import collections
import gzip
import http.server
import json
import os
import pathlib
import subprocess
import threading

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock"
PYTHON = pathlib.Path(os.environ.get("WANDB_PYTHON") or CACHE / "wandb-0.31.0" / "bin" / "python")
TIMEOUT = 300


class WandbServer(http.server.ThreadingHTTPServer):
    """The part of W&B's server that `wandb sync` uses."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), WandbHandler)
        self.lock = threading.Lock()
        self.runs = {}
        self.uploads = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # wandb closes its connections without a notice

    def run(self, project, name):
        return self.runs.setdefault((project, name), {"history": {}, "summary": {}, "exit": [], "files": set(), "preempting": False})

    def sync(self, home, directories):
        """Uploads run directories with `wandb sync`, which keeps its own files in the directory `home`."""
        environment = {**os.environ, "WANDB_BASE_URL": f"http://127.0.0.1:{self.server_port}", "WANDB_API_KEY": "0" * 40,
                       "WANDB_ERROR_REPORTING": "false", "HOME": str(home), "NO_PROXY": "127.0.0.1"}
        for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT"):
            environment.pop(name, None)
        result = subprocess.run([PYTHON, "-m", "wandb", "sync", *map(str, directories)], env=environment, cwd=home,
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT)
        assert result.returncode == 0, result.stdout + result.stderr
        for directory in (directory for directory in directories if list(directory.glob("run-*.wandb"))):  # others are skipped
            assert list(directory.glob("*.synced")), result.stdout + result.stderr

    def points(self, project, name):
        """The points that arrived, in their order: lists of (step, value) by key."""
        history = self.runs[(project, name)]["history"]
        assert sorted(history) == list(range(len(history))), "the history has a gap or an overlap"
        out = collections.defaultdict(list)
        for i in sorted(history):
            row = json.loads(history[i])
            for key, value in row.items():
                if not key.startswith("_"):
                    out[key].append((row["_step"], value))
        return out


class WandbHandler(http.server.BaseHTTPRequestHandler):
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
