"""The cluster in which the scenarios run, and what each of them is given: a namespace with separate queues."""
import json
import time

from history import condition, is_true
from kueue import GROUP
from processes import Failed, wait_until
from workload import pod_spec

JOBS = "/apis/oarlock.dev/v1alpha1/namespaces/{}/trainingjobs"
MERGE = "application/merge-patch+json"
# Two blocks of two racks of two nodes, and two pools: what the flavors and topologies of the scenarios select.
NODES = {f"fake-{i}": {"kubernetes.io/hostname": f"fake-{i}", "block": f"b{i // 4}", "rack": f"r{i // 2}",
                       "pool": "left" if i < 4 else "right"} for i in range(8)}
PATIENCE = 60  # seconds


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Scene:
    """Creates, changes and reads the objects of one scenario. What is read is the state that the watches have delivered."""

    def __init__(self, plane, history):
        self.plane, self.history = plane, history
        self.namespace = plane.make_namespace()
        self._clean_up = []  # targets of cluster-scoped objects, the last one first
        self._checked_since = 0

    # ---- Kueue's objects

    def named(self, name):
        """The name of a cluster-scoped object of this scenario."""
        return f"{self.namespace}-{name}"

    def priorities(self, **values):
        """WorkloadPriorityClasses; returns the label of a job by their names."""
        for name, value in values.items():
            self.create("workloadpriorityclasses", self.named(name), value=value)
        return {name: {"kueue.x-k8s.io/priority-class": self.named(name)} for name in values}

    def create(self, kind, name, spec=None, namespaced=False, **more):
        """An object of Kueue; returns its target. `kind` is its plural."""
        kinds = {"localqueues": "LocalQueue", "clusterqueues": "ClusterQueue", "resourceflavors": "ResourceFlavor",
                 "workloadpriorityclasses": "WorkloadPriorityClass", "admissionchecks": "AdmissionCheck",
                 "topologies": "Topology", "workloads": "Workload"}
        target = f"{GROUP}/namespaces/{self.namespace}/{kind}" if namespaced else f"{GROUP}/{kind}"
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kinds[kind], "metadata": {"name": name}, **more}
        if spec is not None:
            body["spec"] = spec
        made = self.plane.call("POST", target, body)
        if not namespaced:
            self._clean_up.insert(0, f"{target}/{name}")
        return f"{target}/{made['metadata']['name']}"

    def flavor(self, name, **spec):
        self.create("resourceflavors", self.named(name), spec)
        return self.named(name)

    def queue(self, cpu, name="queue", flavors=None, **spec):
        """A LocalQueue and its ClusterQueue, which has `cpu` of each flavor; returns the target of the latter.

        `flavors` are names; one flavor without node labels by default.
        """
        if not flavors:
            flavors = [self.flavor(f"{name}-flavor")]
        target = self.create("clusterqueues", self.named(name), {
            "namespaceSelector": {}, **spec, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]} for flavor in flavors]}]})
        self.create("localqueues", name, {"clusterQueue": self.named(name)}, namespaced=True)
        self.wait(lambda: is_true(self.plane.call("GET", target), "Active"), f"ClusterQueue {name} to be active")
        return target

    def admission_check(self, name):
        """An AdmissionCheck whose controller the scenario plays; returns its name."""
        target = self.create("admissionchecks", self.named(name), {"controllerName": "oarlock.dev/test"})
        self.patch(f"{target}/status", {"status": {"conditions": [{
            "type": "Active", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now()}]}})
        return self.named(name)

    def local_queue(self, name="queue"):
        return self.plane.call("GET", f"{GROUP}/namespaces/{self.namespace}/localqueues/{name}")

    def reserved_cpu(self, name="queue"):
        """As Kueue's status of the LocalQueue reports it, which follows the Workloads by a moment."""
        flavors = self.local_queue(name).get("status", {}).get("flavorsReservation", [])
        return [resource["total"] for flavor in flavors for resource in flavor["resources"]]

    def expect_reserved_cpu(self, *cpu, name="queue"):
        self.wait(lambda: self.reserved_cpu(name) == list(cpu), f"the LocalQueue's reservation to be {list(cpu)}")

    def patch(self, target, body):
        return self.plane.call("PATCH", target, body, MERGE)

    def workload_target(self, name):
        return f"{GROUP}/namespaces/{self.namespace}/workloads/{self.workload(name)['metadata']['name']}"

    def set_check(self, name, check, state, **more):
        """What the controller of an admission check writes into the Workload of a job."""
        target = self.workload_target(name)

        def written():
            workload = self.plane.call("GET", target)
            states = [{**old, "state": state, "message": f"set to {state}", "lastTransitionTime": now(), **more}
                      if old["name"] == check else old for old in workload["status"]["admissionChecks"]]
            try:
                self.patch(f"{target}/status", {"metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
                                                "status": {"admissionChecks": states}})
                return True
            except Failed as error:
                if "Conflict" not in str(error):  # another client has changed the Workload
                    raise
                return False

        self.wait(written, f"check {check} to be {state}")

    # ---- jobs

    def submit(self, name, nodes=2, cpu=1, queue="queue", labels=None, template=None, **spec):
        """A TrainingJob whose pods request `cpu` each. `template` is the metadata of their template."""
        pod = pod_spec("trainer", "default-scheduler")
        pod["containers"][0]["resources"] = {"requests": {"cpu": str(cpu)}}
        given = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
        self.plane.call("POST", JOBS.format(self.namespace), {
            "apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": name, "labels": {**given, **(labels or {})}},
            "spec": {"nodes": nodes, "launcher": "Never", "template": {"metadata": template or {}, "spec": pod},
                     "failurePolicy": {"backoffSeconds": 0}, **spec}})

    def job_target(self, name):
        return f"{JOBS.format(self.namespace)}/{name}"

    def patch_job(self, name, **spec):
        self.patch(self.job_target(name), {"spec": spec})

    def delete_job(self, name):
        self.plane.call("DELETE", self.job_target(name))

    def job(self, name):
        """{} until a watch has delivered it."""
        return next((item for item in self.history.current("jobs", self.namespace) if item["metadata"]["name"] == name), {})

    def status(self, name):
        return self.job(name).get("status", {})

    def pods(self, name):
        return [pod for pod in self.history.current("pods", self.namespace)
                if pod["metadata"]["labels"]["oarlock.dev/job-name"] == name]

    def workload(self, name):
        """The Workload of a job, by its owner reference; {} if there is none."""
        uid = self.job(name).get("metadata", {}).get("uid")
        return next((item for item in self.history.current("workloads", self.namespace)
                     if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", []))), {})

    def waiting_message(self, name):
        """Reason and message of the condition of a job that has not started, or not again."""
        phase = self.status(name).get("phase")
        found = condition(self.job(name), phase) if phase in ("Pending", "Restarting") else {}
        return f"{found['reason']}: {found['message']}" if found else ""

    def delete_pod(self, name, rank):
        (pod,) = [pod for pod in self.pods(name) if pod["metadata"]["labels"]["oarlock.dev/node-rank"] == str(rank)]
        self.plane.call("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")

    def end_pods(self, name, exit_code=0):
        """As kubelets report the end of a container, of the pods that still exist."""
        end = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": now()}
        state = {"name": "trainer", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
                 "state": {"terminated": end}}
        for pod in self.pods(name):
            target = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
            try:
                self.plane.call("PATCH", target, {"status": {
                    "phase": "Failed" if exit_code else "Succeeded", "containerStatuses": [state]}},
                                "application/strategic-merge-patch+json")
            except Failed as error:
                if "NotFound" not in str(error):
                    raise

    # ---- expectations

    def wait(self, condition_of, what, seconds=PATIENCE):
        try:
            wait_until(condition_of, f"{what} in {self.namespace}", seconds, 0.05)
        except Failed as error:
            raise Failed(f"{error}\n{self.describe()}") from error

    def expect_running(self, name, attempt=0, nodes=2):
        """All pods of this attempt run, and no others exist."""
        def running():
            pods = self.pods(name)
            return self.status(name).get("phase") == "Running" and self.status(name)["attempt"] == attempt and all(
                pod["metadata"]["labels"]["oarlock.dev/attempt"] == str(attempt) and pod["status"].get("phase") == "Running"
                for pod in pods) and len(pods) == nodes

        self.wait(running, f"{name} to run {nodes} pods of attempt {attempt}")

    def expect_phase(self, name, phase):
        self.wait(lambda: self.status(name).get("phase") == phase, f"{name} to be {phase}")

    def expect_waiting(self, name, *texts):
        """The job has no pods, and the condition of its phase contains these texts."""
        self.wait(lambda: not self.pods(name) and self.waiting_message(name)
                  and all(text in self.waiting_message(name) for text in texts),
                  f"{name} to wait without pods, with {' and '.join(map(repr, texts))} in its condition")

    def expect_pods_ready(self, name, reason, status="True"):
        def ready():
            found = condition(self.workload(name), "PodsReady")
            return found.get("status") == status and found["reason"] == reason

        self.wait(ready, f"PodsReady {status} with reason {reason} in the Workload of {name}")

    def check(self, holds, what):
        if not holds:
            raise Failed(f"{what}\n{self.describe()}")

    def describe(self):
        """The scenario's objects, for the message of a failure."""
        lines = []
        for resource in ("jobs", "workloads", "pods"):
            for item in self.history.current(resource, self.namespace):
                status = dict(item.get("status", {}))
                if resource == "pods":
                    status = {"phase": status.get("phase"), "node": item["spec"].get("nodeName"),
                              "deleted": item["metadata"].get("deletionTimestamp")}
                lines.append(f"  {resource} {item['metadata']['name']}: {json.dumps(status)}")
        return "\n".join(lines)

    # ---- end

    def forget_queues(self):
        """After Kueue's CRDs were deleted, and with them the queues, and Workloads of jobs with pods."""
        self._clean_up = []
        self.accept_history()

    def accept_history(self):
        """Violations up to now were intended."""
        self._checked_since = self.history.changes(self.namespace)[-1].revision

    def end(self):
        """Deletes all, and returns the violations of the whole scenario."""
        self.plane.call("DELETE", JOBS.format(self.namespace))
        self.history.wait_for_end(self.namespace)
        for queue in self.plane.call("GET", f"{GROUP}/namespaces/{self.namespace}/localqueues")["items"]:
            name = queue["metadata"]["name"]
            self.wait(lambda name=name: set(self.reserved_cpu(name)) <= {"0"}, f"the end of all reservations in {name}")
            self.plane.call("DELETE", f"{GROUP}/namespaces/{self.namespace}/localqueues/{name}")
        for target in self._clean_up:
            self.plane.call("DELETE", target)
        return self.history.violations(self.namespace, self._checked_since)


def label_nodes(plane):
    for name, labels in NODES.items():
        plane.call("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}}, MERGE)
