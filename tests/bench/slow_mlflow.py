"""A server that takes MLflow's requests and answers each of them after a pause, or immediately, without other work."""
import http.server
import json
import threading


class SlowServer(http.server.ThreadingHTTPServer):
    """Serves on a free port of the loopback interface within a `with` statement."""

    daemon_threads = True

    def __init__(self, seconds):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seconds = seconds
        self.requests = 0
        self.batches = 0  # requests with points
        self.ending = threading.Event()

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception):
        self.ending.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # a trainer that ended closed its connection


_INFO = {"run_id": "1", "experiment_id": "1", "lifecycle_stage": "active"}
_EXPERIMENT = {"experiment": {"experiment_id": "1", "lifecycle_stage": "active"}}
_ANSWERS = {"experiments/get": _EXPERIMENT, "experiments/get-by-name": _EXPERIMENT, "runs/update": {"run_info": _INFO}}
_ANSWERS["runs/create"] = _ANSWERS["runs/get"] = {"run": {"info": _INFO, "data": {}}}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self):
        self.server.requests += 1
        self.server.batches += self.path.endswith("/log-batch")
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.ending.wait(self.server.seconds)
        method = self.path.split("?")[0].rpartition("/mlflow/")[2]
        body = json.dumps(_ANSWERS.get(method, {})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = answer
