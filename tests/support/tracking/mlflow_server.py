"""A real MLflow server with a SQLite store, and a proxy in front of it that fails in the ways in which servers and
networks fail."""
import base64
import collections
import configparser
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from reserved_port import ReservedPort

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock"
PYTHON = pathlib.Path(os.environ.get("MLFLOW_PYTHON") or CACHE / "mlflow-3.17.2" / "bin" / "python")
TIMEOUT = 180
REJECTED = (400, b'{"error_code": "INVALID_PARAMETER_VALUE", "message": "no"}')


def wait_until(condition, what):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {TIMEOUT} s: {what}")
        time.sleep(0.1)


class MlflowServer:
    """`mlflow server`, which can be killed and started again at the same port."""

    def __init__(self, directory):
        self.directory = directory
        self.reserved = ReservedPort()  # until the end of the test
        self.port = self.reserved.number
        self.process = None

    arguments = ()
    environment = {}

    def start(self):
        environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        for name in [n for n in environment if n.startswith("MLFLOW_TRACKING")]:
            del environment[name]
        environment.update(self.environment)
        with open(self.directory / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                [PYTHON, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(self.port),
                 "--backend-store-uri", f"sqlite:///{self.directory}/store.db",
                 "--artifacts-destination", str(self.directory / "artifacts"), *self.arguments],
                env=environment, cwd=self.directory, stdout=log, stderr=log, start_new_session=True)
        wait_until(self.is_ready, "the MLflow server is ready")

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError((self.directory / "server.log").read_text()[-3000:])
        try:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
        except OSError:
            return False

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def call(self, method, path, body=None, headers=None):
        headers = {"Content-Type": "application/json", **(headers or {})}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            text = response.read()
        if response.status != 200:
            raise AssertionError(f"{path}: {response.status}: {text}")
        return json.loads(text)


class ServerWithLogin(MlflowServer):
    """With MLflow's own users and permissions. A user has no permission for what another one has created."""

    arguments = ("--app-name", "basic-auth")
    ADMINISTRATOR = ("administrator", "the administrator's password")

    def __init__(self, directory):
        super().__init__(directory)
        settings = configparser.ConfigParser()
        settings["mlflow"] = {"default_permission": "NO_PERMISSIONS", "database_uri": f"sqlite:///{directory}/users.db",
                              "admin_username": self.ADMINISTRATOR[0], "admin_password": self.ADMINISTRATOR[1]}
        with open(directory / "users.ini", "w", encoding="utf-8") as file:
            settings.write(file)
        self.environment = {"MLFLOW_AUTH_CONFIG_PATH": str(directory / "users.ini"), "MLFLOW_FLASK_SERVER_SECRET_KEY": "a key"}

    def call_as(self, login, method, path, body=None):
        return self.call(method, path, body, {"Authorization": "Basic " + base64.b64encode(":".join(login).encode()).decode()})

    def create_user(self, login):
        self.call_as(self.ADMINISTRATOR, "POST", "/api/2.0/mlflow/users/create",
                     {"username": login[0], "password": login[1]})


class Proxy(http.server.ThreadingHTTPServer):
    """Forwards requests to the server. `faults` has what happens to the next requests; without any, nothing does. A
    `rule` gets the handler and the body of each request, and returns its response (status, body), or None to forward it."""

    daemon_threads = True

    def __init__(self, port, tls=None):
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        if tls:  # an ssl.SSLContext
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.port = port
        self.faults = collections.deque()
        self.fails_artifacts = False
        self.rule = None
        self.seen = []
        self.authorization = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # clients that close their connection


class ProxyHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            fault, argument = self.server.faults.popleft()
        except IndexError:
            fault, argument = None, None
        self.server.seen.append((fault, self.path))
        self.server.authorization.add(self.headers.get("Authorization"))
        response = self.server.rule(self, body) if self.server.rule else None
        if response is not None:
            return self.answer(*response)
        if self.server.fails_artifacts and self.command == "PUT":
            return self.answer(500, b"the bucket does not exist")
        if fault == "status":
            return self.answer(argument, b"<html>fault</html>", [("Retry-After", "1")] if argument == 429 else [])
        if fault == "reject":
            return self.answer(*REJECTED)
        if fault == "object":  # of another program
            return self.answer(200, b'{"error": "the session has expired"}')
        if fault == "endless":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
            while True:
                self.wfile.write(chunk)
        if fault == "close":
            self.close_connection = True
            return None
        if fault == "late" and self.path.endswith("/log-batch"):  # it may arrive after the process that sent it has ended
            time.sleep(argument)
        try:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as upstream:
                upstream.request(self.command, self.path, body, {"Content-Type": self.headers.get("Content-Type", "")})
                response = upstream.getresponse()
                content = response.read()
        except OSError:
            self.close_connection = True
            return None
        if fault == "slow":
            time.sleep(argument)
        if fault == "lose":  # the request has succeeded, and its response is lost
            self.close_connection = True
            return None
        if fault == "half":  # the request has succeeded, and a part of its response is lost
            self.send_response(response.status)
            self.send_header("Content-Length", str(len(content) + 2))
            self.end_headers()
            self.wfile.write(content[:len(content) // 2])
            self.close_connection = True
            return None
        if fault == "cut":  # by a program in between, which does not notice it
            content = content[:len(content) // 2]
        return self.answer(response.status, content, [("Content-Type", "application/json")])

    do_GET = do_POST = do_PUT = forward
