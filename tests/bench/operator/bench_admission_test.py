#!/usr/bin/env python3
"""A system is started once its webhooks admit a job: /readyz alone is not enough."""
import pathlib
import sys
import tempfile

from processes import Failed
from systems import System

# Ready immediately, whatever its webhook does.
READY = """
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""


class Plane:
    """An API server whose webhook answers from the third request on."""

    def __init__(self, directory):
        self.directory = directory
        self.calls = []

    def user(self, name):
        return f"{name}.kubeconfig"

    def call(self, method, target, body):
        self.calls.append((method, target, body["metadata"]["name"]))
        if len(self.calls) < 3:
            raise Failed("500 failed calling webhook: connection refused")


class Late(System):
    name, user = "late", "late"

    def command(self, probe_port):
        return [sys.executable, "-c", READY, probe_port], {}

    def job(self, namespace, scheduler="default-scheduler"):
        return f"/apis/x/v1/namespaces/{namespace}/jobs", {"metadata": {"name": "@NAME@"}}


def main():
    with tempfile.TemporaryDirectory() as directory:
        plane = Plane(pathlib.Path(directory))
        Late(plane).start().stop()
    probe = ("POST", "/apis/x/v1/namespaces/default/jobs?dryRun=All", "admission-probe")
    assert plane.calls == [probe] * 3, plane.calls
    print("it waits for the webhook")


if __name__ == "__main__":
    main()
