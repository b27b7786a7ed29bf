"""The part queued: jobs that all wait in a queue of Kueue and are then all admitted, and what they cost their controller."""
import contextlib
import json
import os
import time

from audit import counted
from kueue_manager import FRAMEWORKS, GROUP, Kueue
from processes import Failed, cpu_seconds
from workload import PODS_PER_JOB

QUEUE = "queue"
QUOTA = {"cpu": "1M", "memory": "1P"}  # enough for all jobs
# As in Kueue's manifest, and of JobSets, too.
WORKERS = {"Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5, "ClusterQueue.kueue.x-k8s.io": 5, "Job.batch": 5,
           "Pod": 5, "JobSet.jobset.x-k8s.io": 5}
QUIET_TIMEOUT = 300  # seconds, after a burst


def make_kueue(plane, program):
    """Kueue for either system: its clients are not throttled, and it evicts no job whose pods start slowly."""
    return Kueue(plane, program, (*FRAMEWORKS, "jobset.x-k8s.io/jobset"), waitForPodsReady={"timeout": "3h"},
                 clientConnection={"qps": 1000, "burst": 2000}, controller={"groupKindConcurrency": WORKERS})


def create_queue(plane, namespace):
    """A LocalQueue and its ClusterQueue, which admits no job yet; returns the target of the latter."""
    def item(kind, name, **more):
        return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **more}

    resources = [{"name": name, "nominalQuota": quota} for name, quota in QUOTA.items()]
    local = item("LocalQueue", QUEUE, spec={"clusterQueue": namespace})
    local["metadata"]["namespace"] = namespace
    file = plane.directory / "queue.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [
        item("ResourceFlavor", namespace),
        item("ClusterQueue", namespace, spec={
            "namespaceSelector": {}, "stopPolicy": "Hold",
            "resourceGroups": [{"coveredResources": list(QUOTA), "flavors": [{"name": namespace, "resources": resources}]}]}),
        local]}))
    plane.apply(file)
    return f"{GROUP}/clusterqueues/{namespace}"


class Cost:
    """CPU seconds of a process, and requests, since the construction."""

    def __init__(self, audit, process):
        self._audit, self._process = audit, process
        self._cpu, self._end = process.cpu_seconds(), audit.end()

    def cpu(self):
        return self._process.cpu_seconds() - self._cpu

    def requests(self, *users):
        """Without watches, which all jobs share."""
        return [request for user in users for request in self._audit.requests(user, self._end) if request.verb != "watch"]


def check_finished(burst, key, what, seconds):
    if burst[key] is None:
        raise Failed(f"timed out after {seconds} s waiting for {what} ({burst['pods']} exist); increase --timeout")


def measure(bench, manager, system, jobs):
    """A burst of jobs until all of them wait in a queue that is on hold, then their admission until all of their pods run."""
    plane, namespace, timeout = bench.plane, bench.plane.make_namespace(), 10 * bench.timeout
    workloads = manager.owned_lists(namespace)
    system.install()
    manager.install()
    with contextlib.ExitStack() as running:
        kueue = manager.start()
        running.callback(kueue.stop)
        queue = create_queue(plane, namespace)
        process = system.start()
        running.callback(process.stop)
        target, body = system.job(namespace)
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": QUEUE}

        def wait_until_quiet():
            if not bench.wait_until_quiet(system, process, QUIET_TIMEOUT, manager.account_user):
                raise Failed(f"{system.name} and Kueue do not stop writing although nothing changes")

        wait_until_quiet()
        figures = {"jobs": jobs, "load_average": os.getloadavg()[0], "rss_idle": process.rss_mib()}
        whole = Cost(plane.audit, process)
        others = {"kueue": kueue.pid, "controller_manager": plane.pid("kube-controller-manager")}
        before = {name: cpu_seconds(pid) for name, pid in others.items()}
        burst = bench.load.burst(namespace, [(target, body)], jobs, bench.concurrency, False, timeout,
                                 awaited=(*workloads, jobs))
        check_finished(burst, "all_pods", f"{jobs} Workloads", timeout)
        wait_until_quiet()
        figures.update({"queued": burst["all_pods"], "cpu_queued": whole.cpu(),
                        "requests_queued": counted(whole.requests(system.user), jobs)})

        started = time.time()
        plane.call("PATCH", queue, {"spec": {"stopPolicy": "None"}}, "application/merge-patch+json")
        pods = jobs * PODS_PER_JOB
        burst = bench.load.burst(namespace, [], 0, 1, True, timeout, awaited=(f"/api/v1/namespaces/{namespace}/pods", pods))
        check_finished(burst, "all_running", f"{pods} pods to run", timeout)
        wait_until_quiet()
        cpu, requests = whole.cpu(), whole.requests(system.user)
        helped = whole.requests(*system.helpers)
        figures.update({
            "running": burst["started_at"] + burst["all_running"] - started, "cpu": cpu,
            "cpu_ms_per_job": 1000 * cpu / jobs, "rss_peak": process.peak_rss_mib(), "rss_after": process.rss_mib(),
            "requests_per_job": len(requests) / jobs, "requests_per_job_helped": len([*requests, *helped]) / jobs,
            "requests": counted(requests, jobs), "requests_of_helpers": counted(helped, jobs),
            "requests_of_kueue": counted(whole.requests(manager.account_user), jobs),
            **{f"cpu_of_{name}": cpu_seconds(pid) - before[name] for name, pid in others.items()}})
        process.stop()
        system.uninstall()
        bench.load.purge([*system.lists(namespace), *workloads])
    manager.uninstall()
    return figures
