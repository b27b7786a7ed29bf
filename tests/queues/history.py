"""Every change of jobs, their pods and Workloads, ordered by etcd's revision, which all resources of an API server share."""
import collections
import re
import threading
import time

from kueue import GROUP
from processes import Failed, wait_until

TARGETS = {"jobs": "/apis/oarlock.dev/v1alpha1/trainingjobs", "workloads": f"{GROUP}/workloads",
           "pods": "/api/v1/pods?labelSelector=oarlock.dev/job-name"}
# The annotation of a job that MultiKueue has created, with the name of its Workload, which has no owner.
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"


def condition(item, name):
    """The condition of an object; {} if it has none of this type."""
    return next((c for c in item.get("status", {}).get("conditions", []) if c["type"] == name), {})


def is_true(item, name):
    return condition(item, name).get("status") == "True"


def is_live(pod):
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def admitted_pods(workload):
    """The number of pods for which a Workload holds quota."""
    if not is_true(workload, "QuotaReserved") or is_true(workload, "Finished"):
        return 0
    return sum(assigned["count"] for assigned in workload["status"]["admission"]["podSetAssignments"])


class Change:
    def __init__(self, resource, kind, item):
        self.resource, self.kind, self.item = resource, kind, item
        self.revision = int(item["metadata"]["resourceVersion"])
        self.uid, self.namespace = item["metadata"]["uid"], item["metadata"]["namespace"]
        self.seen_at = time.monotonic()


class History:
    def __init__(self, plane, targets=None):
        self._plane, self._targets, self._lock = plane, targets or TARGETS, threading.Lock()
        self._changes, self._seen = [], set()
        self._current = {resource: {} for resource in self._targets}
        self._broken = None
        for resource in self._targets:
            threading.Thread(target=self._watch, args=(resource,), daemon=True).start()

    @property
    def resources(self):
        """Their names, as given to current()."""
        return tuple(self._targets)

    def _watch(self, resource):
        try:
            while True:  # the API server ends the watches of a resource when its CRD has changed
                try:
                    for kind, item in self._plane.watch(self._targets[resource]):
                        self._add(Change(resource, kind, item))
                except (Failed, KeyError) as error:
                    # The CRD does not exist, or its storage is being prepared; KeyError: an event without an object.
                    if not isinstance(error, KeyError) and not re.search(r": (404|429) ", str(error)):
                        raise
                    time.sleep(0.2)
        except Exception as error:  # pylint: disable=broad-except  # raised by the main thread
            self._broken = error

    def _add(self, change):
        with self._lock:
            if (change.uid, change.revision) in self._seen:  # listed again
                return
            self._seen.add((change.uid, change.revision))
            self._changes.append(change)
            objects = self._current[change.resource]
            if change.kind == "DELETED":
                objects.pop(change.uid, None)
            else:
                objects[change.uid] = change.item

    def current(self, resource, namespace):
        """The objects as the last events that were read have left them."""
        if self._broken:
            raise self._broken
        with self._lock:
            return [item for item in self._current[resource].values() if item["metadata"]["namespace"] == namespace]

    def changes(self, namespace, resource=None):
        """In the order of their revisions."""
        with self._lock:
            found = [c for c in self._changes if c.namespace == namespace and resource in (None, c.resource)]
        return sorted(found, key=lambda change: change.revision)

    def first_revision(self, namespace, resource, matches):
        """Of the first change whose object matches; None if there was none."""
        return next((c.revision for c in self.changes(namespace, resource) if matches(c.item)), None)

    def wait_for_end(self, namespace):
        """Until the namespace has no objects; all their events have been read then."""
        wait_until(lambda: not any(self.current(resource, namespace) for resource in self._targets),
                   f"the end of all {', '.join(self._targets)} of {namespace}", 60, 0.05)

    def violations(self, namespace, since=0):
        """What may never be true of a job with a queue, as lines for a person, after the revision `since`.

        - A pod was created while the job held no quota, was not admitted, or had as many live pods as it is admitted for.
        - The quota was released while the job had live pods.
        What happens to a job that its user deletes is left to the garbage collector.
        """
        return [f"revision {revision}: {text}" for revision, text in Replay(self.changes(namespace)).violations
                if revision > since]


class Replay:
    def __init__(self, changes):
        self.violations = []
        # Workloads are stored by the uid of their job (None: without owner) and their name, live pods by their names with that
        # uid and their attempt.
        self._jobs, self._workloads, self._pods = {}, collections.defaultdict(dict), {}
        for change in changes:
            getattr(self, f"_{change.resource}_changed")(change)

    def _jobs_changed(self, change):
        if change.kind == "DELETED":
            self._jobs.pop(change.uid, None)
        else:
            self._jobs[change.uid] = change.item

    def _live_pods(self, job):
        return [name for name, (owner, _) in self._pods.items() if owner == job]

    def _report(self, change, text):
        self.violations.append((change.revision, f"{change.item['metadata']['name']}: {text}"))

    def _workloads_changed(self, change):
        owners, name = change.item["metadata"].get("ownerReferences", []), change.item["metadata"]["name"]
        if owners and owners[0]["kind"] != "TrainingJob":
            return
        owner = owners[0]["uid"] if owners else None
        held = [job for job in self._jobs if self._admitted_pods(job)]
        if change.kind == "DELETED":
            self._workloads[owner].pop(name, None)
        else:
            self._workloads[owner][name] = change.item
        for job in held:
            if not self._admitted_pods(job) and self._live_pods(job) and self._is_kept(job):
                self._report(change, f"its quota was released while these pods were live: {', '.join(self._live_pods(job))}")

    def _workloads_of(self, job):
        prebuilt = self._jobs.get(job, {}).get("metadata", {}).get("annotations", {}).get(PREBUILT)
        return [*self._workloads[job].values(), *(w for name, w in self._workloads[None].items() if name == prebuilt)]

    def _admitted_pods(self, job):
        """A Workload with which a job grows takes over the quota of the one before."""
        return max((admitted_pods(workload) for workload in self._workloads_of(job)), default=0)

    def _is_kept(self, job):
        return job in self._jobs and "deletionTimestamp" not in self._jobs[job]["metadata"]

    def _pods_changed(self, change):
        pod, job = change.item, change.item["metadata"]["ownerReferences"][0]["uid"]
        name, attempt = pod["metadata"]["name"], pod["metadata"]["labels"]["oarlock.dev/attempt"]
        if change.kind == "DELETED" or not is_live(pod):
            self._pods.pop(name, None)
            return
        if name not in self._pods and "deletionTimestamp" not in pod["metadata"]:
            self._check_creation(change, job, attempt)
        self._pods[name] = job, attempt

    def _check_creation(self, change, job, attempt):
        if "kueue.x-k8s.io/queue-name" not in self._jobs.get(job, {}).get("metadata", {}).get("labels", {}):
            return
        admitted = self._admitted_pods(job)
        if not any(is_true(workload, "Admitted") for workload in self._workloads_of(job)):
            self._report(change, "was created while the job was not admitted")
        elif list(self._pods.values()).count((job, attempt)) >= admitted:
            self._report(change, f"was created although its job is admitted for {admitted} pods")
