"""The cluster in which the scenarios run, and what each of them is given: a namespace with separate queues."""
from history import condition, is_true
from job_scene import MERGE, PATIENCE, JobScene, now
from kueue import GROUP
from processes import Failed

# Two blocks of two racks of two nodes, and two pools: what the flavors and topologies of the scenarios select.
NODES = {f"fake-{i}": {"kubernetes.io/hostname": f"fake-{i}", "block": f"b{i // 4}", "rack": f"r{i // 2}",
                       "pool": "left" if i < 4 else "right"} for i in range(8)}


class Scene(JobScene):
    """Creates, changes and reads the objects of Kueue as well."""

    def __init__(self, plane, history):
        super().__init__(plane, history)
        self._clean_up = []  # targets of cluster-scoped objects, the last one first

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
                 "topologies": "Topology", "workloads": "Workload", "multikueueconfigs": "MultiKueueConfig",
                 "multikueueclusters": "MultiKueueCluster"}
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

    # ---- jobs with a queue

    def submit(self, name, nodes=2, cpu=1, queue="queue", labels=None, template=None, **spec):
        super().submit(name, nodes, cpu, queue, labels, template, **spec)

    def workloads(self, name):
        """The Workloads of a job, by their owner references."""
        uid = self.job(name).get("metadata", {}).get("uid")
        return [item for item in self.history.current("workloads", self.namespace)
                if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", []))]

    def workload(self, name):
        """The Workload of a job that does not grow; {} if there is none."""
        return next(iter(self.workloads(name)), {})

    def expect_pods_ready(self, name, reason, status="True"):
        def ready():
            found = condition(self.workload(name), "PodsReady")
            return found.get("status") == status and found["reason"] == reason

        self.wait(ready, f"PodsReady {status} with reason {reason} in the Workload of {name}")

    # ---- end

    def forget_queues(self):
        """After Kueue's CRDs were deleted, and with them the queues, and Workloads of jobs with pods."""
        self._clean_up = []
        self.accept_history()

    def end(self):
        """Deletes all, and returns the violations of the whole scenario."""
        self.delete_jobs()
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
