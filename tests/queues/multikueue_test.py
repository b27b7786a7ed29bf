#!/usr/bin/env python3
"""MultiKueue: the operator and the real Kueue in two clusters, of which one dispatches jobs to the other.

Each cluster is a real control plane; kwok plays the kubelets of the worker cluster. A scenario has the same namespace in both.
The whole history of each is checked as in kueue_test.
"""
import argparse
import base64
import contextlib
import signal
import sys

import kueue  # extends the path of modules
import scene as scenes
from control_plane import ROOT, ControlPlane, Kwok
from history import PREBUILT, History, condition, is_true
from installed import InstalledOarlock
from processes import Failed
from scenario_run import ScenarioRun, add_options, pod_stages, select

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
ACCOUNT = "multikueue-sa"  # of Kueue in the worker cluster; the page adds the permissions for TrainingJobs
# Of the permissions of Kueue's script create-multikueue-kubeconfig.sh, those that the kinds of kueue_manager.FRAMEWORKS need.
PERMISSIONS = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete", "get", "list", "watch"]},
    {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"],
     "verbs": ["create", "delete", "get", "list", "watch", "update", "patch"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["get", "patch", "update"]},
]


class Cluster:
    """A control plane with Kueue and the operator."""

    def __init__(self, stack, directory, args, **settings):
        directory.mkdir()
        self.plane = stack.enter_context(ControlPlane(directory, []))
        self.plane.apply(*sorted((ROOT / "manifests" / "crd").glob("*.yaml")))
        self._kueue = kueue.Kueue(self.plane, kueue.find_program("kueue", "kueue"), **settings)
        self._kueue.install()
        self._operator = args.bin / "oarlock-operator"
        self.history = History(self.plane)

    def start(self, stack):
        for system in (self._kueue, InstalledOarlock(self.plane, self._operator)):
            stack.callback(system.start().stop)


class Federation:
    """The scenes of one scenario in both clusters; queues of the manager cluster dispatch to those of the worker cluster."""

    def __init__(self, manager, worker):
        self.manager, self.worker = (scenes.Scene(cluster.plane, cluster.history) for cluster in (manager, worker))
        self.namespace = self.manager.namespace
        self.manager.check(self.worker.namespace == self.namespace, "the scenario has different namespaces in the clusters")

    def queues(self, manager_cpu, worker_cpu):
        """Returns the targets of the ClusterQueues."""
        scene, name = self.manager, self.manager.named("multikueue")
        scene.create("multikueueclusters", name, {"clusterSource": {"kubeConfig": {"locationType": "Secret", "location": "worker"}}})
        scene.create("multikueueconfigs", name, {"clusters": [name]})
        scene.create("admissionchecks", name, {"controllerName": MULTIKUEUE, "parameters": {
            "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": name}})
        return (scene.queue(manager_cpu, admissionChecksStrategy={"admissionChecks": [{"name": name}]}),
                self.worker.queue(worker_cpu))

    def submit(self, name):
        self.manager.submit(name, managedBy=MULTIKUEUE)

    def expect_dispatched(self, name, attempt=0):
        """The job runs in the worker cluster with the Workload that MultiKueue has created, and the manager cluster shows it."""
        self.worker.expect_running(name, attempt=attempt)
        self.manager.expect_phase(name, "Running")
        self.manager.expect_pods_ready(name, "Started")
        workload = self.manager.workload(name)["metadata"]["name"]
        copy = self.worker.job(name)["metadata"]
        self.manager.check(copy["annotations"][PREBUILT] == workload, f"the copy of {name} names another Workload: {copy}")
        self.manager.check(not self.manager.pods(name), f"{name} has pods in the manager cluster")

    def remote_workloads(self):
        return sorted(item["metadata"]["name"] for item in self.worker.history.current("workloads", self.namespace))

    def expect_withdrawn(self, name):
        """The worker cluster has nothing of the job."""
        self.worker.wait(lambda: not self.worker.job(name) and not self.worker.pods(name), f"the copy of {name} to be deleted")

    def end(self):
        self.manager.delete_jobs()
        return self.manager.end() + self.worker.end()

    def abandon(self):
        """After a failure."""
        for what, scene in (("manager", self.manager), ("worker", self.worker)):
            print(f"    {what}:\n{scene.describe()}", flush=True)


def life(both):
    """A job runs in the worker cluster with one Workload, and its result is that of the job in the manager cluster."""
    both.queues(2, 2)
    both.submit("job")
    both.expect_dispatched("job")
    both.manager.expect_reserved_cpu("2")
    both.worker.check(both.remote_workloads() == [both.manager.workload("job")["metadata"]["name"]],
                      f"the Workloads of the worker cluster: {both.remote_workloads()}")
    both.worker.end_pods("job")
    both.manager.expect_phase("job", "Complete")
    both.manager.wait(lambda: condition(both.manager.workload("job"), "Finished").get("reason") == "Succeeded",
                      "the Workload of the manager cluster to be finished")
    both.manager.expect_reserved_cpu("0")
    both.expect_withdrawn("job")
    both.worker.wait(lambda: not both.remote_workloads(), "the Workload of the worker cluster to be deleted")


def waiting(both):
    """Of two jobs that the manager cluster has room for, the second waits for the quota of the worker cluster."""
    both.queues(4, 2)
    both.submit("first")
    both.expect_dispatched("first")
    both.submit("second")
    both.worker.wait(lambda: len(both.remote_workloads()) == 2, "the Workload of the second job in the worker cluster")
    both.worker.end_pods("first")
    both.expect_dispatched("second")
    ended = both.manager.history.first_revision(both.namespace, "jobs", lambda job: job["metadata"]["name"] == "first" and
                                                job.get("status", {}).get("phase") == "Complete")
    both.manager.check(ended is not None, "the first job was not complete before the second ran")


def suspension(both):
    """A suspended job has no copy and no quota, and runs again when it is resumed."""
    both.queues(2, 2)
    both.submit("job")
    both.expect_dispatched("job")
    both.manager.patch_job("job", suspend=True)
    both.expect_withdrawn("job")
    both.manager.expect_reserved_cpu("0")
    both.worker.expect_reserved_cpu("0")
    both.manager.patch_job("job", suspend=False)
    both.expect_dispatched("job")


def eviction_by_manager(both):
    """A job that the manager cluster evicts is withdrawn, and is dispatched again with the next admission."""
    target, _ = both.queues(2, 2)
    both.submit("job")
    both.expect_dispatched("job")
    both.manager.patch(target, {"spec": {"stopPolicy": "HoldAndDrain"}})
    both.expect_withdrawn("job")
    both.manager.expect_reserved_cpu("0")
    both.manager.patch(target, {"spec": {"stopPolicy": "None"}})
    both.expect_dispatched("job")


def eviction_by_worker(both):
    """A job that the worker cluster evicts is dispatched again when that cluster admits it."""
    _, target = both.queues(2, 2)
    both.submit("job")
    both.expect_dispatched("job")
    both.worker.patch(target, {"spec": {"stopPolicy": "HoldAndDrain"}})
    both.worker.wait(lambda: not both.worker.pods("job"), "the pods of the evicted job to end")
    both.worker.expect_reserved_cpu("0")
    both.worker.patch(target, {"spec": {"stopPolicy": "None"}})
    both.manager.wait(lambda: is_true(both.manager.workload("job"), "Admitted") and both.worker.status("job").get("phase") == "Running",
                      "the job to run again", 2 * scenes.PATIENCE)


SCENARIOS = (life, waiting, suspension, eviction_by_manager, eviction_by_worker)


def connect(manager, worker):
    """The Secret with which Kueue of the manager cluster reads and writes the worker cluster."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    worker.plane.call("POST", "/api/v1/namespaces/kueue-system/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    worker.plane.call("POST", f"{rbac}/clusterroles", {"metadata": {"name": ACCOUNT}, "rules": PERMISSIONS})
    worker.plane.call("POST", f"{rbac}/clusterrolebindings", {
        "metadata": {"name": ACCOUNT}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kueue-system"}]})
    kubeconfig = worker.plane.account("kueue-system", ACCOUNT).read_bytes()
    manager.plane.call("POST", "/api/v1/namespaces/kueue-system/secrets", {
        "metadata": {"name": "worker"}, "data": {"kubeconfig": base64.b64encode(kubeconfig).decode()}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, SCENARIOS)
    args = parser.parse_args()
    selected = select(parser, args, SCENARIOS)
    kwok = kueue.find_program("kwok", "kueue")
    frameworks = {"externalFrameworks": [{"name": "TrainingJob.v1alpha1.oarlock.dev"}]}
    with kueue.temporary_directory(args.directory) as directory, contextlib.ExitStack() as stack:
        directory = kueue.pathlib.Path(directory)
        manager = Cluster(stack, directory / "manager", args, multiKueue=frameworks)
        worker = Cluster(stack, directory / "worker", args)
        stack.enter_context(Kwok(worker.plane, kwok, pod_stages(worker.plane.directory), nodes=len(scenes.NODES)))
        connect(manager, worker)
        for cluster in (manager, worker):
            cluster.start(stack)
        run = ScenarioRun(lambda: Federation(manager, worker))
        for scenario in selected:
            run.run(scenario)
    print(f"{len(selected) - run.failed} passed, {run.failed} failed")
    return 1 if run.failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"error: {failure}")
