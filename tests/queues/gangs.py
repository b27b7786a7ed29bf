"""The gang schedulers of gangs_test.py, and what its scenarios do with their PodGroups."""
import json

from control_plane import Kwok
from history import TARGETS, History, condition, is_live
from job_scene import JOBS, JobScene
from kueue import evaluate, find_program
from processes import Failed, Process, wait_until
from scenario_run import pod_stages

NODES, CPU = 3, 2  # room for six pods of one CPU
# The scheduler binds the pods of a gang one after the other: the longest time that a part of them may have nodes.
BINDING_SECONDS = 5


def wait_until_served(plane, target):
    def is_served():
        try:
            return plane.call("GET", target)
        except Failed:
            return False

    wait_until(is_served, "the API server to serve PodGroups", 60, 0.1)


class Native:
    """kube-scheduler of a Kubernetes version that serves PodGroups."""

    name, scheduler = "native", "default-scheduler"
    groups = "/apis/scheduling.k8s.io/v1beta1/namespaces/{}/podgroups"
    arguments = ("--runtime-config=scheduling.k8s.io/v1beta1=true",)
    waiting_message = "minCount (4) cannot be satisfied"

    def __init__(self):
        self.environment = {"OARLOCK_KUBERNETES": evaluate("echo $kGangKubernetesVersion"),
                            "OARLOCK_FEATURE_GATES": "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"}
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
            find_program(name, "kueue", self.environment)

    def install(self, plane):
        """The control plane has it."""

    def start(self, plane):
        return None

    @staticmethod
    def group(name, minimum):
        return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
                "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}}}

    @staticmethod
    def minimum(group):
        return group["spec"]["schedulingPolicy"]["gang"]["minCount"]

    @staticmethod
    def join(pod, name):
        """Makes a pod a member of the group."""
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}

    @staticmethod
    def group_of(pod):
        return pod["spec"].get("schedulingGroup", {}).get("podGroupName")


class SchedulerPlugins:
    """The scheduler of sigs.k8s.io/scheduler-plugins with its plugin Coscheduling, next to the default scheduler."""

    name, scheduler = "scheduler-plugins", "scheduler-plugins"
    groups = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"
    label = "scheduling.x-k8s.io/pod-group"
    environment, arguments = {}, ()
    waiting_message = ""  # pods of a rejected group have several

    def __init__(self):
        self._program = find_program("scheduler-plugins", "kueue")

    def install(self, plane):
        plane.apply(f"{self._program}-config/bases/scheduling.x-k8s.io_podgroups.yaml")
        wait_until_served(plane, self.groups.format("default"))

    def start(self, plane):
        settings = plane.directory / "scheduler_plugins.json"
        settings.write_text(json.dumps({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False}, "clientConnection": {"kubeconfig": str(plane.user(self.name))},
            "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2,
            "profiles": [{
                "schedulerName": self.scheduler,
                "plugins": {"multiPoint": {"enabled": [{"name": "Coscheduling"}]},
                            "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}},
                "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 5}}]}]}))
        # Coscheduling does not try a group that it has rejected again when pods end. The scheduler does so after this time, at
        # intervals of 30 seconds; 5 minutes by default.
        retry = "--pod-max-in-unschedulable-pods-duration=1s"
        return Process([self._program, "--config", settings, "--secure-port=0", retry], plane.directory / "scheduler_plugins.log")

    @staticmethod
    def group(name, minimum):
        return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name},
                "spec": {"minMember": minimum}}

    @staticmethod
    def minimum(group):
        return group["spec"]["minMember"]

    def join(self, pod, name):
        pod["metadata"]["labels"][self.label] = name

    def group_of(self, pod):
        return pod["metadata"]["labels"].get(self.label)


def is_placed(pod):
    return "nodeName" in pod["spec"]


def rank_of(pod):
    return int(pod["metadata"]["labels"]["oarlock.dev/node-rank"])


class GangScene(JobScene):
    def __init__(self, plane, history, system):
        super().__init__(plane, history)
        self.system, self.scheduler = system, system.scheduler

    # ---- PodGroups

    def groups(self, name):
        """The PodGroups of a job by their names, including those that are being deleted."""
        return {group["metadata"]["name"]: group for group in self.history.current("podgroups", self.namespace)
                if group["metadata"].get("labels", {}).get("oarlock.dev/job-name") == name}

    def group_uid(self, name):
        (group,) = self.groups(name).values()
        return group["metadata"]["uid"]

    def expect_groups(self, name, *expected):
        self.wait(lambda: set(self.groups(name)) == set(expected),
                  f"the PodGroups of {name} to be {', '.join(expected) or 'deleted'}")

    # ---- pods

    def pod_uid(self, name, rank):
        """None if there is no such pod."""
        return next((pod["metadata"]["uid"] for pod in self.pods(name) if rank_of(pod) == rank), None)

    def placed(self, name):
        return [pod for pod in self.pods(name) if is_placed(pod)]

    def expect_unplaced(self, name, nodes=4):
        """All pods of the job exist, the scheduler has refused each of them, and at least one because of its gang."""
        def refused():
            pods = self.pods(name)
            found = [condition(pod, "PodScheduled") for pod in pods if not is_placed(pod)]
            return len(pods) == len(found) == nodes and all(one.get("status") == "False" for one in found) and any(
                self.system.waiting_message in one["message"] for one in found)

        self.wait(refused, f"the {nodes} pods of {name} to wait for nodes with '{self.system.waiting_message}' in PodScheduled")

    def expect_restarted(self, name, attempt, nodes=2):
        """All pods of this attempt run; pods of earlier ones have ended."""
        def restarted():
            live = [pod for pod in self.pods(name) if is_live(pod)]
            return self.status(name).get("phase") == "Running" and self.status(name)["attempt"] == attempt and all(
                pod["metadata"]["labels"]["oarlock.dev/attempt"] == str(attempt) and pod["status"].get("phase") == "Running"
                for pod in live) and len(live) == nodes

        self.wait(restarted, f"{name} to run {nodes} pods of attempt {attempt}")

    def placed_at(self, name):
        """The revision at which the first pod of the job got a node; None if none has."""
        return self.history.first_revision(self.namespace, "pods", lambda pod: self._is_of(pod, name) and is_placed(pod))

    def ended_at(self, name):
        """The revision at which the first pod of the job had ended; None if none has."""
        return self.history.first_revision(self.namespace, "pods", lambda pod: self._is_of(pod, name) and not is_live(pod))

    @staticmethod
    def _is_of(pod, name):
        return pod["metadata"]["labels"]["oarlock.dev/job-name"] == name

    # ---- end

    def abandon(self):
        """Makes room for the next scenario."""
        try:
            self.delete_jobs()
        except Failed as error:
            print(f"    {error}", flush=True)

    def describe(self):
        conditions = [f"  pod {pod['metadata']['name']}: {condition(pod, 'PodScheduled').get('message')}"
                      for pod in self.history.current("pods", self.namespace) if not is_placed(pod)]
        return "\n".join([super().describe(), *conditions])


class FactScene(GangScene):
    """Without the operator."""

    def delete_jobs(self):
        for target in (JOBS.format(self.namespace), f"/api/v1/namespaces/{self.namespace}/pods", self.system.groups.format(self.namespace)):
            self.plane.call("DELETE", target)
        self.history.wait_for_end(self.namespace)

    def end(self):
        self.delete_jobs()
        return []


class GangHistory(History):
    def __init__(self, plane, system):
        self._system = system
        super().__init__(plane, {"jobs": TARGETS["jobs"], "podgroups": system.groups.replace("/namespaces/{}", ""),
                                 "pods": TARGETS["pods"]})

    def violations(self, namespace, since=0):
        """What may never be true of a gang, as lines for a person, after the revision `since`.

        - A PodGroup is not owned by its job, or has another minimum than the number of its nodes.
        - A pod was created without its PodGroup, or before it, or one that replaces a lost pod with a PodGroup.
        - A part of the pods of an attempt had nodes while the others had not, for longer than the scheduler needs to bind them.
        - A PodGroup was deleted while its attempt had live pods.
        Objects of jobs that their users delete are left to the garbage collector.
        """
        replay = GangReplay(self._system, self.changes(namespace))
        return [f"revision {revision}: {message}" for revision, message in replay.violations if revision > since]


class GangReplay:
    def __init__(self, system, changes):
        self._system = system
        self.violations = []
        # Jobs and PodGroups are stored by their names, live pods by their names with the name of their group. Of each group,
        # the ranks whose pods have had nodes, and when the first of them got one.
        self._jobs, self._groups, self._pods, self._placed, self._first = {}, {}, {}, {}, {}
        self._names = set()  # of all pods that have existed
        for change in changes:
            getattr(self, f"_{change.resource}_changed")(change, change.item["metadata"]["name"])
        for group, ranks in self._placed.items():
            if group in self._first:
                self.violations.append((changes[-1].revision, f"{group}: only the pods of ranks {sorted(ranks)} ever had nodes"))

    def _report(self, change, message):
        self.violations.append((change.revision, f"{change.item['metadata']['name']}: {message}"))

    def _jobs_changed(self, change, name):
        if change.kind == "DELETED":
            self._jobs.pop(name, None)
        else:
            self._jobs[name] = change.item

    def _podgroups_changed(self, change, name):
        if name.startswith("podgroup-"):  # Volcano has created it
            return
        group = change.item
        job = self._jobs.get(group["metadata"].get("labels", {}).get("oarlock.dev/job-name"))
        if name not in self._groups and change.kind != "DELETED":
            owners = [owner["uid"] for owner in group["metadata"].get("ownerReferences", [])]
            if not job or owners != [job["metadata"]["uid"]]:
                self._report(change, f"its owners are {owners}, its labels {group['metadata'].get('labels')}")
            elif self._system.minimum(group) != job["spec"]["nodes"]:
                self._report(change, f"its minimum is {self._system.minimum(group)}, its job has {job['spec']['nodes']} nodes")
        is_deleted = change.kind == "DELETED" or "deletionTimestamp" in group["metadata"]
        live = [pod for pod, member_of in self._pods.items() if member_of == name]
        if is_deleted and name in self._groups and live and job and "deletionTimestamp" not in job["metadata"]:
            self._report(change, f"was deleted while these pods were live: {', '.join(live)}")
        if is_deleted:
            self._groups.pop(name, None)
        else:
            self._groups[name] = group

    def _pods_changed(self, change, name):
        pod, labels = change.item, change.item["metadata"]["labels"]
        group = f"{labels['oarlock.dev/job-name']}-{labels['oarlock.dev/attempt']}"
        if change.kind == "DELETED" or not is_live(pod):
            self._pods.pop(name, None)
            return
        if name not in self._pods and "deletionTimestamp" not in pod["metadata"]:
            expected = None if name in self._names else group
            if self._system.group_of(pod) != expected:
                self._report(change, f"is a member of PodGroup {self._system.group_of(pod)}, not of {expected}")
            elif group not in self._groups:
                self._report(change, f"was created when PodGroup {group} did not exist")
            self._names.add(name)
        self._pods[name] = group
        job = self._jobs.get(labels["oarlock.dev/job-name"])
        if is_placed(pod) and job:
            self._add_placed(change, group, rank_of(pod), job["spec"]["nodes"])

    def _add_placed(self, change, group, rank, nodes):
        ranks = self._placed.setdefault(group, set())
        if not ranks:
            self._first[group] = change.seen_at
        ranks.add(rank)
        if group in self._first and len(ranks) == nodes:
            seconds = change.seen_at - self._first.pop(group)
            if seconds > BINDING_SECONDS:
                self._report(change, f"is the last of its gang to get a node, {seconds:.1f} s after the first one")


class Nodes(Kwok):
    def __init__(self, plane, program):
        super().__init__(plane, program, pod_stages(plane.directory), nodes=NODES, cpu=CPU)
