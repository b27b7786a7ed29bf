"""The ranks of scripts/bench operator truth: one server answers GET /statusz for the addresses of all pods."""
import http.server
import json
import threading
import time
import urllib.parse

from job_truth import seconds_of

METRICS_PORT = 9400


def times_of(status):
    """When the pod got its node, and when its container started and ended, as far as the API server stores it."""
    out = {"scheduled": condition["lastTransitionTime"] for condition in status.get("conditions", [])
           if condition["type"] == "PodScheduled" and condition["status"] == "True"}
    for container in status.get("containerStatuses", []):
        if "running" in container["state"]:
            out["started"] = container["state"]["running"]["startedAt"]
        if "terminated" in container["state"]:
            out["ended"] = container["state"]["terminated"]["finishedAt"]
    return {one: seconds_of(text) for one, text in out.items()}


class Pods:
    """What the API server reports about the pods, and the ranks' answers. `jobs`: JobTruth by (namespace, name)."""

    def __init__(self, jobs, lock, on_running):
        self._jobs, self._lock, self._on_running = jobs, lock, on_running
        self._by_address, self._by_name = {}, {}

    def update(self, kind, pod):
        meta, status = pod["metadata"], pod.get("status", {})
        labels, address = meta["labels"], status.get("podIP")
        one = {"name": meta["name"], "uid": meta["uid"], "namespace": meta["namespace"],
               "node": pod["spec"].get("nodeName"), "attempt": int(labels["oarlock.dev/attempt"]),
               "rank": int(labels["oarlock.dev/node-rank"]), "job": labels["oarlock.dev/job-name"],
               "container": pod["spec"]["containers"][0]["name"], "conditions": status.get("conditions", []),
               "running": status.get("phase") == "Running" and "deletionTimestamp" not in meta}
        with self._lock:
            job = self._jobs.get((one["namespace"], one["job"]))
            if job:
                has_ended = kind == "DELETED" or status.get("phase") in ("Failed", "Succeeded")
                job.ledger.observe_pod(one["attempt"], one["rank"], times_of(status), has_ended, time.time())
            if kind == "DELETED":
                if self._by_address.get(address, one)["uid"] == one["uid"]:
                    self._by_address.pop(address, None)
                if self._by_name.get((one["namespace"], one["name"]), one)["uid"] == one["uid"]:
                    self._by_name.pop((one["namespace"], one["name"]), None)
                return
            self._by_name[one["namespace"], one["name"]] = one
            if address:
                self._by_address[address] = one
            if job and one["running"] and one["attempt"] == job.attempt:
                if one["rank"] == 0:
                    self._on_running(job)
                if self.of(job):
                    job.begin_steps()

    def of(self, job):
        """The pods of the job's attempt by rank; None unless all of them run."""
        pods = [self._by_name.get((job.namespace, f"{job.name}-{job.attempt}-{rank}")) for rank in range(job.nodes)]
        return pods if all(pod and pod["running"] for pod in pods) else None

    def answer(self, address, uid):
        """None: the rank does not answer."""
        with self._lock:
            pod = self._by_address.get(address)
            job = pod and self._jobs.get((pod["namespace"], pod["job"]))
            if not job or job.uid != uid or job.attempt != pod["attempt"] or job.is_silent or not pod["running"]:
                return None
            return job.report(pod["rank"])


def serve(pods):
    """Starts the server on all addresses of the network namespace."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            target = urllib.parse.urlsplit(self.path)
            uid = urllib.parse.parse_qs(target.query).get("uid", [""])[0]
            report = pods.answer(self.connection.getsockname()[0], uid) if target.path == "/statusz" else None
            body = json.dumps(report or {}).encode()
            self.send_response(200 if report else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 1024

    server = Server(("0.0.0.0", METRICS_PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
