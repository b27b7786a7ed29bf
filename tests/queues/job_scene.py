"""What a scenario does with TrainingJobs and their pods, in a separate namespace."""
import json
import time

from history import condition
from processes import Failed, wait_until
from workload import pod_spec

JOBS = "/apis/oarlock.dev/v1alpha1/namespaces/{}/trainingjobs"
MERGE = "application/merge-patch+json"
PATIENCE = 60  # seconds


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class JobScene:
    """Creates, changes and reads the jobs of one scenario. What is read is the state that the watches have delivered."""

    scheduler = "default-scheduler"

    def __init__(self, plane, history):
        self.plane, self.history = plane, history
        self.namespace = plane.make_namespace()
        self._checked_since = 0

    def patch(self, target, body):
        return self.plane.call("PATCH", target, body, MERGE)

    # ---- jobs

    def submit(self, name, nodes=2, cpu=1, queue=None, labels=None, template=None, pod=None, **spec):
        """A TrainingJob whose pods request `cpu` each. `template` is the metadata of their template, `pod` more of its spec."""
        pod = {**pod_spec("trainer", self.scheduler), **(pod or {})}
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

    def waiting_message(self, name):
        """Reason and message of the condition of a job that has not started, or not again."""
        phase = self.status(name).get("phase")
        found = condition(self.job(name), phase) if phase in ("Pending", "Restarting") else {}
        return f"{found['reason']}: {found['message']}" if found else ""

    def delete_pod(self, name, rank):
        (pod,) = [pod for pod in self.pods(name) if pod["metadata"]["labels"]["oarlock.dev/node-rank"] == str(rank)]
        self.plane.call("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")

    def end_pods(self, name, exit_code=0, ranks=None):
        """As kubelets report the end of a container, of the pods that still exist. All ranks by default."""
        end = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": now()}
        state = {"name": "trainer", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
                 "state": {"terminated": end}}
        for pod in self.pods(name):
            if ranks is not None and int(pod["metadata"]["labels"]["oarlock.dev/node-rank"]) not in ranks:
                continue
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

    def check(self, holds, what):
        if not holds:
            raise Failed(f"{what}\n{self.describe()}")

    def describe(self):
        """The scenario's objects, for the message of a failure."""
        lines = []
        for resource in self.history.resources:
            for item in self.history.current(resource, self.namespace):
                status = dict(item.get("status", {}))
                if resource == "pods":
                    status = {"phase": status.get("phase"), "node": item["spec"].get("nodeName"),
                              "deleted": item["metadata"].get("deletionTimestamp")}
                lines.append(f"  {resource} {item['metadata']['name']}: {json.dumps(status)}")
        return "\n".join(lines)

    # ---- end

    def accept_history(self):
        """Violations up to now were intended."""
        self._checked_since = self.history.changes(self.namespace)[-1].revision

    def end(self):
        """Deletes all, and returns the violations of the whole scenario."""
        self.delete_jobs()
        return self.history.violations(self.namespace, self._checked_since)

    def abandon(self):
        """Called instead of end() after a failure."""

    def delete_jobs(self):
        self.plane.call("DELETE", JOBS.format(self.namespace))
        self.history.wait_for_end(self.namespace)
