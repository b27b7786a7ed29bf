"""Volcano, simulated: its scheduler and its controller of PodGroups, as far as gangs are concerned.

Volcano's module is not on the module servers from which the tests build programs. This follows its documentation and the
plugin `gang` of its scheduler:
- A PodGroup is Pending until the action `enqueue` makes it Inqueue; pods of a Pending one are not considered.
- The pods of a group get nodes when at least `minMember` of them have one then, or have succeeded; otherwise none of them does,
  and PodScheduled and the group's condition Unschedulable explain it. Once the minimum is reached, pods are placed singly.
- The controller gives pods without a group one per owner, with a minimum of 1.
"""
import datetime
import json
import threading

from control_plane import ROOT
from gangs import wait_until_served
from history import is_live
from processes import Failed

SCHEDULER = "volcano"
ANNOTATION = "scheduling.k8s.io/group-name"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
INTERVAL = 0.1  # seconds between two sessions of the scheduler; one second by default
MERGE = "application/merge-patch+json"


class Volcano:
    """A system of gangs_test.py."""

    name, scheduler = "volcano", SCHEDULER
    groups = GROUPS.replace("/podgroups", "/namespaces/{}/podgroups")
    environment, arguments = {}, ()
    waiting_message = "pod group is not ready"

    def install(self, plane):
        plane.apply(ROOT / "tests" / "data" / "gang_crds.yaml")
        wait_until_served(plane, GROUPS)

    def start(self, plane):
        return Simulation(plane)

    @staticmethod
    def minimum(group):
        return group["spec"]["minMember"]

    @staticmethod
    def group_of(pod):
        return pod["metadata"].get("annotations", {}).get(ANNOTATION)


def cpu_of(pod):
    return sum(int(container.get("resources", {}).get("requests", {}).get("cpu", 0)) for container in pod["spec"]["containers"])


class Simulation:
    def __init__(self, plane):
        self._plane, self._connection = plane, plane.connect()
        self._error, self._stopped = None, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def check(self):
        if self._error:
            raise Failed(f"the simulated scheduler has ended: {self._error}")

    def stop(self):
        self._stopped.set()
        self._thread.join()

    def _run(self):
        try:
            while not self._stopped.wait(INTERVAL):
                self._session()
        except Exception as error:  # noqa: BLE001: check() reports it
            self._error = error

    def _call(self, method, target, body=None, content_type="application/json"):
        """None if the object has changed or is gone: the next session reads it."""
        try:
            return self._plane.call(method, target, body, content_type, kept=self._connection)
        except Failed as error:
            if any(f": {status} " in str(error) for status in (404, 409)):
                return None
            raise

    def _session(self):
        pods = self._call("GET", "/api/v1/pods")["items"]
        room = {node["metadata"]["name"]: int(node["status"]["allocatable"]["cpu"])
                for node in self._call("GET", "/api/v1/nodes")["items"]}
        for pod in pods:
            if "nodeName" in pod["spec"] and is_live(pod):
                room[pod["spec"]["nodeName"]] -= cpu_of(pod)
        ours = [pod for pod in pods if pod["spec"]["schedulerName"] == SCHEDULER]
        for pod in ours:
            if not Volcano.group_of(pod) and is_live(pod):
                self._adopt(pod)
        groups = self._call("GET", GROUPS)["items"]
        for group in sorted(groups, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"])):
            meta = group["metadata"]
            members = [pod for pod in ours if pod["metadata"]["namespace"] == meta["namespace"]
                       and Volcano.group_of(pod) == meta["name"] and "deletionTimestamp" not in pod["metadata"]]
            if group.get("status", {}).get("phase", "Pending") == "Pending":
                self._set_status(group, {"phase": "Inqueue"})
            else:
                self._allocate(group, members, room)

    def _adopt(self, pod):
        owner = pod["metadata"]["ownerReferences"][0]
        name, namespace = f"podgroup-{owner['uid']}", pod["metadata"]["namespace"]
        self._call("POST", Volcano.groups.format(namespace), {
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"minMember": 1}})
        self._call("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}",
                   {"metadata": {"annotations": {ANNOTATION: name}}}, MERGE)

    def _allocate(self, group, members, room):
        ready = [pod for pod in members if pod["status"].get("phase") == "Succeeded" or ("nodeName" in pod["spec"] and is_live(pod))]
        pending = [pod for pod in members if "nodeName" not in pod["spec"]]
        chosen, left = {}, dict(room)
        for pod in pending:
            node = next((name for name, free in sorted(left.items()) if free >= cpu_of(pod)), None)
            if node:
                chosen[pod["metadata"]["name"]] = node
                left[node] -= cpu_of(pod)
        if len(ready) + len(chosen) < group["spec"]["minMember"]:
            self._refuse(group, pending)
            return
        room.update(left)
        for name, node in chosen.items():
            self._call("POST", f"/api/v1/namespaces/{group['metadata']['namespace']}/pods/{name}/binding", {
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}})
        if members:
            self._set_status(group, {"phase": "Running"})

    def _refuse(self, group, pending):
        message = f"pod group is not ready, {len(pending)} Pending, {group['spec']['minMember']} minAvailable"
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        for pod in pending:
            reported = [one.get("message") for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
            if reported != [message]:
                target = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
                self._call("PATCH", target, {"status": {"conditions": [{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                    "lastTransitionTime": now}]}}, "application/strategic-merge-patch+json")
        self._set_status(group, {"conditions": [{
            "type": "Unschedulable", "status": "True", "reason": "NotEnoughResources",
            "message": f"{len(pending)}/{len(pending)} tasks in gang unschedulable: {message}"}]})

    def _set_status(self, group, status):
        if json.dumps({key: group.get("status", {}).get(key) for key in status}, sort_keys=True) == json.dumps(status, sort_keys=True):
            return
        meta = group["metadata"]
        self._call("PATCH", f"{Volcano.groups.format(meta['namespace'])}/{meta['name']}/status", {"status": status}, MERGE)
