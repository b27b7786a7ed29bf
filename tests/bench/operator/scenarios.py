"""The measurements, one function each. Every run has its own namespace, and removes it."""
import json
import os
import time

from audit import counted
from processes import Failed, run, wait_until
from workload import PODS_PER_JOB

QUIET_SECONDS = 1.5  # without a write, and the burst counts as done


class Load:
    """oarlock-bench-load: what a user, or a raw loop, sends."""

    def __init__(self, plane, program, user):
        self._plane, self._program, self.user, self._kubeconfig = plane, program, user, plane.user(user)

    def burst(self, namespace, templates, jobs, concurrency, running, timeout, prefix="job", awaited=None):
        """`awaited`: a list and how many items it must have at the end, unless these are the pods of the jobs."""
        awaited, count = awaited or (f"/api/v1/namespaces/{namespace}/pods", jobs * PODS_PER_JOB)
        plan = self._plane.directory / "plan.json"
        plan.write_text(json.dumps({
            "jobs": jobs, "concurrency": concurrency, "prefix": prefix,
            "templates": [{"target": target, "body": body} for target, body in templates],
            "pods": awaited, "expected_pods": count, "wait_until_running": running, "timeout": timeout}))
        return json.loads(run([self._program, "--kubeconfig", self._kubeconfig, "burst", plan]))

    def purge(self, lists):
        run([self._program, "--kubeconfig", self._kubeconfig, "purge", *lists])


class Bench:
    def __init__(self, plane, load, concurrency, timeout):
        self.plane, self.load, self.concurrency, self.timeout = plane, load, concurrency, timeout

    def wait_until_quiet(self, system, process, seconds=30, *others):
        """Until the system, and the users `others`, have written nothing for a while; True if that came to pass."""
        deadline = time.monotonic() + seconds
        end, since = self.plane.audit.end(), time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS:
            process.check()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
            if any(self.plane.audit.writes(user, end) for user in (system.user, *others)):
                end, since = self.plane.audit.end(), time.monotonic()
        return True

    def raw_templates(self, system, namespace):
        """What the system creates for a job, as templates for a loop without any system: read off a live sample."""
        process = system.start()
        try:
            self.load.burst(namespace, [system.job(namespace, "nobody")], 1, 1, False, self.timeout, "sample")
        finally:
            process.stop()
        core = f"/api/v1/namespaces/{namespace}"
        templates = [system.job(namespace, "nobody")]
        for kind in ("services", "pods"):
            for item in self.plane.call("GET", f"{core}/{kind}")["items"]:
                templates.append((f"{core}/{kind}", as_template(item)))
        self.load.purge(system.lists(namespace))
        if len(templates) != 2 + PODS_PER_JOB:
            raise Failed(f"a job of {system.name} made {len(templates) - 1} objects, not {1 + PODS_PER_JOB}")
        return templates

    def seconds_of_creation(self, users, since, result):
        """From the first POST of a job to the answer to the last POST of a pod, by the audit log: polling the server
        for its pods often enough to see this would slow it down."""
        answers = [r.answered for user in users for r in self.plane.audit.requests(user, since)
                   if (r.verb, r.resource) == ("create", "pods")]
        return max(answers) - result["started_at"]

    def create(self, system, templates, namespace, jobs):
        """`system` None: the raw loop makes all."""
        process = system and system.start()
        try:
            load_average, end = os.getloadavg()[0], self.plane.audit.end()
            result = self.load.burst(namespace, templates, jobs, self.concurrency, False, self.timeout)
        finally:
            if process:
                process.stop()
        if result["all_pods"] is None:
            raise Failed(f"{result['pods']} of {jobs * PODS_PER_JOB} pods after {self.timeout} s")
        user = system.user if system else self.load.user
        return {"seconds": self.seconds_of_creation([user], end, result), "load_average": load_average}

    def cold_start(self, system, namespace, kwok):
        """Seconds from the start of the process to its first write, if the pods of a job were deleted while it was down.

        Returns the process, which continues to run.
        """
        process = system.start()
        try:
            self.load.burst(namespace, [self.job(system, namespace, kwok)], 1, 1, kwok, self.timeout, "cold")
            self.wait_until_quiet(system, process)
        finally:
            process.stop()
        self.load.purge([*system.owned_lists(namespace)[1:], f"/api/v1/namespaces/{namespace}/pods"])
        end = self.plane.audit.end()
        process = system.start(wait=False)
        try:
            def first_write():
                process.check()
                return self.plane.audit.writes(system.user, end)

            wait_until(first_write, f"the first write of {system.name}", 120)
            seconds = first_write()[0].arrived - process.started_at
            self.wait_until_quiet(system, process)
        except BaseException:
            process.stop()
            raise
        return seconds, process

    def idle_rss(self, system):
        process = system.start()
        try:
            self.wait_until_quiet(system, process)
            return process.rss_mib()
        finally:
            process.stop()

    @staticmethod
    def job(system, namespace, kwok):
        return system.job(namespace, "default-scheduler" if kwok else "nobody")

    def running(self, system, jobs, rest_seconds, kwok=True):
        """A burst of jobs until all of their pods run on kwok's nodes, and what it cost the system's process.

        Without kwok: until all pods exist.
        """
        namespace = self.plane.make_namespace()
        system.install()
        figures = {"jobs": jobs, "kwok": kwok, "load_average": os.getloadavg()[0], "rss_idle": self.idle_rss(system)}
        figures["cold_start"], process = self.cold_start(system, namespace, kwok)
        try:
            self.load.purge(system.lists(namespace))
            self.wait_until_quiet(system, process)
            cpu, end = process.cpu_seconds(), self.plane.audit.end()
            result = self.load.burst(namespace, [self.job(system, namespace, kwok)], jobs, self.concurrency, kwok,
                                     self.timeout)
            self.wait_until_quiet(system, process)
            requests = self.plane.audit.requests(system.user, end)
            helped = [r for user in system.helpers for r in self.plane.audit.requests(user, end)]
            figures.update({
                "created": result["all_pods"] and self.seconds_of_creation([system.user, *system.helpers], end, result),
                "running": result["all_running"], "pods": result["pods"],
                "cpu": process.cpu_seconds() - cpu, "rss_after": process.rss_mib(), "rss_peak": process.peak_rss_mib(),
                "requests_per_job": sum(r.verb != "watch" for r in requests) / jobs,
                "requests_per_job_helped": sum(r.verb != "watch" for r in [*requests, *helped]) / jobs,
                "requests": counted(requests, jobs), "requests_of_helpers": counted(helped, jobs)})
            done = result["all_running" if kwok else "all_pods"] is not None
            if done and rest_seconds:
                figures.update(self.rest(system, process, rest_seconds))
        finally:
            process.stop()
            system.uninstall()
        self.load.purge(system.lists(namespace))
        return figures

    def rest(self, system, process, seconds):
        """With every job running and nothing going on."""
        if not self.wait_until_quiet(system, process):
            raise Failed(f"{system.name} does not stop writing although nothing changes")
        cpu, end = process.cpu_seconds(), self.plane.audit.end()
        time.sleep(seconds)
        return {"rest_seconds": seconds, "rest_writes": len(self.plane.audit.writes(system.user, end)),
                "rest_cpu": (process.cpu_seconds() - cpu) / seconds, "rss_rest": process.rss_mib()}

    def memory(self, system, pods):
        """RSS with this many pods in the cache: after their burst, after a relist, and of a process that finds them."""
        namespace = self.plane.make_namespace()
        figures = {"pods": pods, "rss_idle": self.idle_rss(system)}
        process = system.start()
        try:
            jobs = pods // PODS_PER_JOB
            result = self.load.burst(namespace, [system.job(namespace, "nobody")], jobs, self.concurrency, False,
                                     10 * self.timeout)
            if result["all_pods"] is None:
                raise Failed(f"{result['pods']} of {pods} pods after {10 * self.timeout} s")
            self.wait_until_quiet(system, process, 120)
            figures["rss_after_burst"] = process.rss_mib()
            figures["relist"] = self.relist(system, process)
            figures["rss_after_relist"], figures["rss_peak"] = process.rss_mib(), process.peak_rss_mib()
        finally:
            process.stop()
        process = system.start()
        try:
            self.wait_until_quiet(system, process)
            figures["rss_after_start"], figures["rss_peak_start"] = process.rss_mib(), process.peak_rss_mib()
        finally:
            process.stop()
        self.load.purge(system.lists(namespace))
        return figures

    def relist(self, system, process):
        """Kills the API server; the new one has no watch history. Returns how the system read its pods then."""
        # Something else is written last: a watch that has seen the store's newest version may continue without a relist.
        self.plane.make_namespace()
        end = self.plane.audit.end()
        self.plane.restart_apiserver()

        def requests():
            process.check()
            return [r for r in self.plane.audit.requests(system.user, end) if r.resource == "pods" and
                    (r.verb == "list" or "sendInitialEvents=true" in r.uri)]

        wait_until(requests, f"{system.name} to list its pods again", 120)
        self.wait_until_quiet(system, process, 120)
        return "list" if requests()[0].verb == "list" else "watch list"


def as_template(item):
    """An object read from the API server, as it could have been POSTed; the sample's name and uid become marks."""
    meta = item["metadata"]
    kept = {key: meta[key] for key in ("name", "labels", "annotations", "ownerReferences", "finalizers") if key in meta}
    for owner in kept.get("ownerReferences", []):
        owner["uid"] = "@UID@"
    # What admission and allocation have added.
    added = ("tolerations", "priority", "preemptionPolicy", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy",
             "internalTrafficPolicy")
    spec = {key: value for key, value in item["spec"].items() if key not in added}
    if item["spec"].get("clusterIP") == "None":
        spec["clusterIP"] = "None"
    return json.loads(json.dumps({"metadata": kept, "spec": spec}).replace("sample-0", "@NAME@"))
