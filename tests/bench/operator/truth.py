#!/usr/bin/env python3
"""scripts/bench operator truth: whether the status of every job equals what has happened to it.

Jobs of one to four pods run on kwok's nodes, in a network namespace in which every pod address is local; one server
answers GET /statusz for all of them. Container exits, evictions, deletions, lost pods, rejections by the kubelet, in-pod
restarts and stalls are injected at random. When they are over and the last report of each job has been read, phases,
restarts by reason, attempts, in-pod restarts and progress are compared with the injected events. Every difference is
printed, and the exit status is then 1.
"""
import argparse
import collections
import concurrent.futures
import heapq
import http.client
import itertools
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import threading
import time

import fake_ranks
import injections
from control_plane import HERE, ROOT, ControlPlane, Kwok
from job_truth import MAX_RECORDS, JobTruth, differences, seconds_of
from processes import Failed, run
from systems import Oarlock
from workload import pod_spec

NAMESPACES = 5
POLLS_PER_SECOND = 20  # of the operator
JOBS = "/apis/oarlock.dev/v1alpha1/trainingjobs"


def in_own_network():
    """Executes this program again in a network namespace whose addresses of 10.0.0.0/8 are local."""
    if os.environ.get("OARLOCK_BENCH_NETWORK") == "own":
        return
    enter = "ip link set lo up && ip route add local 10.0.0.0/8 dev lo && exec \"$@\""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    os.environ["OARLOCK_BENCH_NETWORK"] = "own"
    os.execvp("unshare", ["unshare", "--net", *user, "--", "sh", "-c", enter, "sh", sys.executable, *sys.argv])


def find_kwok():
    versions = "source scripts/lib/common.sh; source scripts/lib/cluster/versions.sh; program kwok"
    program = run(["bash", "-c", versions], cwd=ROOT).strip()
    if not os.access(program, os.X_OK):
        raise Failed("kwok is not built: run scripts/setup kwok")
    return program


class Truth:
    def __init__(self, plane, args):
        self._plane, self._args, self._random = plane, args, random.Random(args.seed)
        self._lock = threading.RLock()
        self._jobs, self._statuses = {}, {}
        self._due, self._order = [], itertools.count()
        self._thread = threading.local()
        self._pool = concurrent.futures.ThreadPoolExecutor(
            8, initializer=lambda: setattr(self._thread, "connection", plane.connect()))
        self._pending, self._sent = 0, []  # requests
        self.injected = collections.Counter()
        self._is_over, self._broken = False, None
        self._pods = fake_ranks.Pods(self._jobs, self._lock, lambda job: job.start(self._random.uniform(0.5, 20)))
        fake_ranks.serve(self._pods)
        for target, update in (("/api/v1/pods?labelSelector=oarlock.dev/job-name", self._pods.update),
                               (JOBS, self._update_job)):
            threading.Thread(target=self._watch, args=(target, update), daemon=True).start()

    def _watch(self, target, update):
        try:
            while True:  # the API server ends the watches of a resource when its CRD has changed
                for kind, item in self._plane.watch(target):
                    update(kind, item)
        except Exception as error:  # pylint: disable=broad-except  # raised by the main thread
            self._broken = error

    def _update_job(self, _, item):
        with self._lock:
            key = item["metadata"]["namespace"], item["metadata"]["name"]
            job, status = self._jobs[key], item.get("status", {})
            job.uid = item["metadata"]["uid"]
            job.ledger.observe_job(seconds_of(item["metadata"]["creationTimestamp"]))
            self._statuses[key] = status
            phase = status.get("phase")
            message = next((c["message"] for c in status.get("conditions", []) if c["type"] == phase), "")
            if phase:
                job.ledger.observe_status(phase, status.get("attempt", 0), time.time())
            if job.observe(phase, status.get("attempt", 0), message):
                self._after(self._random.uniform(0, 5), job.end_stall)

    # ---- events

    def _after(self, seconds, function):
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), function))

    def _later(self, job):
        self._after(self._random.expovariate(1 / self._args.interval), lambda: self._inject(job))

    def _ready(self, job):
        """The pods of a job that trains in its present attempt; None at any other time."""
        status = self._statuses.get((job.namespace, job.name), {})
        if job.stall or status.get("phase") != "Running" or status.get("attempt", 0) != job.attempt:
            return None
        return self._pods.of(job)

    def _inject(self, job):
        if job.is_finished() or job.phase == "Stalled" or job.frozen_at:
            return
        pods = self._ready(job)
        if pods is None:
            self._after(0.5, lambda: self._inject(job))
        elif self._is_over:
            self._finish(job, pods)
        else:
            kinds = list(injections.EVENTS)
            kind = self._random.choices(kinds, list(injections.EVENTS.values()))[0]
            if job.stall_action and job.served_at and self._random.random() < 0.5:
                kind = injections.stall
            self._send(job, pods, kind)
            self._later(job)

    def _send(self, job, pods, kind):
        self.injected[kind.__name__] += 1
        job.is_silent = kind not in (injections.stall, injections.restart_in_pod)
        delay = injections.SILENCE
        for wait, *request in kind(job, pods, self._random):
            delay += wait
            self._request_after(delay, *request)

    def _request_after(self, seconds, method, target, body):
        self._pending += 1
        self._after(seconds, lambda: self._sent.append(self._pool.submit(self._request, method, target, body)))

    def _request(self, method, target, body):
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            self._plane.call(method, target, body, form, self._thread.connection)
        except http.client.RemoteDisconnected:  # the API server has closed an idle connection
            self._thread.connection.close()
            self._plane.call(method, target, body, form, self._thread.connection)

    def _finish(self, job, pods):
        """The last state of a job: Complete, or with a step that does not change any more."""
        if job.stall_action == "Restart" or self._random.random() < 0.3:
            self._send(job, pods, injections.completion)
            return
        job.freeze_for_good()
        if job.stall_action:
            job.phase = "Stalled"

    def _run_until(self, condition, seconds, process):
        deadline = time.monotonic() + seconds
        shown = checked = time.monotonic()
        while time.monotonic() < deadline:
            process.check()
            if time.monotonic() - checked > 2:
                checked = time.monotonic()
                if condition():
                    return
            if self._broken:
                raise self._broken
            with self._lock:
                while self._due and self._due[0][0] <= time.monotonic():
                    heapq.heappop(self._due)[2]()
            for sent in [one for one in self._sent if one.done()]:
                sent.result()
                self._sent.remove(sent)
                self._pending -= 1
            if time.monotonic() - shown > 20:
                shown = time.monotonic()
                self._show()
            time.sleep(0.05)

    def _show(self):
        with self._lock:
            phases = collections.Counter(status.get("phase") for status in self._statuses.values())
            print(f"{sum(self.injected.values())} events, {dict(phases)}, {len(self.differences(self._statuses))} "
                  f"differences so far (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)

    # ---- the run

    def create_jobs(self):
        namespaces = [self._plane.make_namespace() for _ in range(NAMESPACES)]
        for i in range(self._args.jobs):
            namespace, nodes = namespaces[i % NAMESPACES], self._random.choice([1, 1, 2, 2, 3, 4])
            spec = {"nodes": nodes, "template": {"spec": pod_spec("trainer", "default-scheduler")}, "launcher": "Never",
                    "failurePolicy": {"maxRestarts": self._random.choice([2, 100, 100, 100]),
                                      "backoffSeconds": self._random.choice([0, 1])},
                    "stallPolicy": {"timeoutSeconds": 3600, "action": "None"}}
            if self._random.random() < 0.3:
                spec["stallPolicy"] = {"timeoutSeconds": max(10, self._args.jobs * 3 // (2 * POLLS_PER_SECOND)),
                                       "action": self._random.choice(["None", "Restart"])}
            job = JobTruth(namespace, f"job-{i}", nodes, spec)
            with self._lock:
                self._jobs[namespace, job.name] = job
                self._later(job)
            self._request_after(0, "POST", JOBS.replace("trainingjobs", f"namespaces/{namespace}/trainingjobs"), {
                "apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": job.name},
                "spec": spec})

    def differences(self, statuses):
        """(job, field, expected, actual) of each."""
        found = []
        for key, job in self._jobs.items():
            if job.frozen_at and (job.served_at or 0) < job.frozen_at:
                found.append((f"{job.namespace}/{job.name}", "last report", "read", "not read"))
            found += [(f"{job.namespace}/{job.name}", *one) for one in
                      differences(job.expected(), statuses.get(key, {}))]
        return found

    def run(self, process):
        self._run_until(lambda: False, 60 * self._args.minutes, process)
        with self._lock:
            self._is_over = True
            for job in self._jobs.values():
                self._after(self._random.uniform(0, self._args.jobs / 10), lambda job=job: self._inject(job))
        self._run_until(self._is_equal, 120 + self._args.jobs * 0.5, process)
        self._run_until(lambda: False, 5, process)  # nothing may follow
        items = self._plane.call("GET", JOBS)["items"]
        return {(item["metadata"]["namespace"], item["metadata"]["name"]): item.get("status", {}) for item in items}

    def _is_equal(self):
        with self._lock:
            return not self._pending and not self.differences(self._statuses)

    def summary(self, statuses):
        jobs = self._jobs.values()
        delays = [seconds_of(actual["endTime"]) - expected["time"] for key, job in self._jobs.items()
                  for expected, actual in zip(job.attempts[-MAX_RECORDS:], statuses[key].get("attempts", []))
                  if expected["reason"] != "Stalled"]
        events = ", ".join(f"{kind} {count}" for kind, count in self.injected.most_common())
        return (f"{len(jobs)} jobs, {sum(self.injected.values())} events ({events}); "
                f"{sum(job.total for job in jobs)} restarts, {sum(job.in_pod['total'] for job in jobs)} in-pod restarts, "
                f"{sum(job.stalls for job in jobs)} stalls, {sum(job.phase == 'Failed' for job in jobs)} failed jobs; "
                f"{self._describe_ledgers(statuses)}; "
                f"attempts ended {statistics.median(delays or [0]):.0f} s (median) and {max(delays, default=0):.0f} s (maximum) "
                f"after their event")

    def _describe_ledgers(self, statuses):
        """The accelerator-seconds by class, and by how much all ledgers together differ from them."""
        expected, actual = collections.Counter(), collections.Counter()
        for key, job in self._jobs.items():
            usage = statuses.get(key, {}).get("usage", {})
            expected.update(job.ledger.expected()["times"])
            actual.update({**usage.get("classes", {}), **{one: usage.get(one, 0) for one in ("allocated", "queued")}})
        return "accelerator-seconds " + ", ".join(f"{one} {time / 1000:.0f} ({(actual[one] - time) / 1000:+.1f})"
                                                  for one, time in expected.most_common())

    def write(self, file, statuses):
        rows = [{"truth": job.expected(), "status": statuses.get(key, {})} for key, job in self._jobs.items()]
        pathlib.Path(file).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench operator truth", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1000, metavar="N", help="default 1000")
    parser.add_argument("--minutes", type=float, default=10, metavar="M", help="how long events are injected (default 10)")
    parser.add_argument("--interval", type=float, default=120, metavar="S",
                        help="mean time between two events of a job in seconds (default 120)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), metavar="N", help="default: random; printed")
    parser.add_argument("--json", metavar="FILE", help="write the expected and the actual state of each job")
    return parser.parse_args()


def main():
    args = arguments()
    in_own_network()
    print(f"seed {args.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as directory, ControlPlane(directory, []) as plane:
        system = Oarlock(plane, pathlib.Path(args.bin, "oarlock-operator"), ROOT / "manifests")
        system.install()
        with Kwok(plane, find_kwok(), HERE / "truth_stages.yaml", "10.128.0.1/9"):
            process = system.start()
            try:
                truth = Truth(plane, args)
                truth.create_jobs()
                statuses = truth.run(process)
                used = f"the operator used {process.cpu_seconds():.1f} s of CPU time and {process.peak_rss_mib():.0f} MiB"
            finally:
                process.stop()
    if args.json:
        truth.write(args.json, statuses)
    found = truth.differences(statuses)
    for job, field, expected, actual in found:
        print(f"{job}: {field}: expected {expected}, actual {actual}")
    if found and os.getloadavg()[0] > 1.5 * len(os.sched_getaffinity(0)):
        print("the machine is busy: an operator that is late reports other times, and a pod that is gone as PodLost")
    print(f"seed {args.seed}: {truth.summary(statuses)}; {used}; {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except Failed as error:
        sys.exit(f"error: {error}")
