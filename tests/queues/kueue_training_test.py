#!/usr/bin/env python3
"""The operator, its trainer and the real Kueue on the cluster of the end-to-end tests, with real kubelets.

All jobs train the same network with the same seed, one at a time in a queue with room for one. Neither a preemption nor the
loss of a rank may change what a job learns: its losses and its final weights are those of a job that nothing has interrupted.
"""
import contextlib
import json
import os
import pathlib
import signal
import sys
import time

import kueue  # extends the path of modules
import yaml
from cluster_api import ROOT, ClusterApi
from history import History, condition, is_true
from processes import Failed, Process, run
from scene import Scene

EXAMPLE = ROOT / "manifests" / "examples" / "fashion-mnist.yaml"
CPU = "100m"    # request of a pod
QUOTA = "200m"  # of the queue: the pods of one job
STEPS = 400
SETTLED = 30    # steps after which a job is disturbed
PATIENCE = 600  # seconds, for what takes a training
NEVER = 1000000
CONTAINER = "containerd://"


class TrainingScene(Scene):
    """Jobs that train, whose checkpoints are on the shared storage of the cluster."""

    def __init__(self, cluster, history):
        super().__init__(cluster, history)
        self._job, self._claim = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
        self._claim["metadata"]["name"] = "checkpoints"
        self.plane.call("POST", f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims", self._claim)
        self._logs = []

    def submit_training(self, name, steps=STEPS, labels=None, **spec):
        """A job of two pods that saves checkpoints only when it ends or is stopped."""
        job = json.loads(json.dumps(self._job))
        pod = job["spec"]["template"]["spec"]
        del pod["topologySpreadConstraints"]
        (volume,) = [volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
        volume["persistentVolumeClaim"]["claimName"] = "checkpoints"
        # With a limit, a step takes a similar time on each machine.
        pod["containers"][0]["resources"] = {"requests": {"cpu": CPU}, "limits": {"cpu": "500m"}}
        trainer = job["spec"]["trainer"]
        del trainer["epochs"]
        trainer.update(steps=steps, checkpoint={"every_steps": NEVER}, log={"every_steps": 1})
        job["spec"].update(spec)
        job["metadata"] = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue", **(labels or {})}}
        self.plane.call("POST", self.job_target("").rstrip("/"), job)

    def expect(self, condition_of, what):
        self.wait(condition_of, what, PATIENCE)

    def step(self, name):
        return self.status(name).get("progress", {}).get("step", 0)

    def expect_complete(self, name):
        self.expect(lambda: self.status(name).get("phase") in ("Complete", "Failed"), f"{name} to be complete")
        self.expect_phase(name, "Complete")

    def pod(self, name):
        return next((pod for pod in self.history.current("pods", self.namespace) if pod["metadata"]["name"] == name), None)

    def kill_container(self, pod):
        """SIGKILL to its process, as the kernel does when memory is exhausted."""
        (status,) = pod["status"]["containerStatuses"]
        run([ROOT / "scripts" / "cluster", "node", pod["spec"]["nodeName"].removeprefix("node"), "ctr", "tasks", "kill",
             "--signal", "SIGKILL", status["containerID"].removeprefix(CONTAINER)])

    @contextlib.contextmanager
    def followed_log(self, pod):
        """The file with the log of a pod that runs, which has all of it when the pod has ended."""
        file = self.plane.directory / f"{self.namespace}-{pod}.log"
        process = Process(self.plane.kubectl_command("-n", self.namespace, "logs", "-f", pod), file)
        try:
            yield file
            self.wait(lambda: not process.alive(), f"the end of the log of {pod}")
        finally:
            process.stop()

    def log(self, pod):
        return self.plane.kubectl("-n", self.namespace, "logs", pod)

    def weights(self, name):
        """The bytes of the parameters and of the state of the optimizer in the last checkpoint of a job."""
        claim = self.plane.call("GET", f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/checkpoints")
        volume = self.plane.call("GET", f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        last = pathlib.Path(volume["spec"]["hostPath"]["path"]) / name / "last"
        return [(last / file).read_bytes() for file in ("model.safetensors", "optimizer.safetensors")]


def logged(log, key):
    """The values of the lines of a log that have this member."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if key in line]


def losses(log):
    return [(line["step"], line["loss"]) for line in logged(log, "loss") if line["msg"] == "step"]


def check_same(scene, name, found, expected, lost_ranks=0):
    """`found` and `expected` are losses, in their order. That of a step at which a rank was lost is the mean of the others."""
    differing = [(a, b) for a, b in zip(found, expected) if a != b]
    steps = [[step for step, _ in one] for one in (found, expected)]
    scene.check(steps[0] == steps[1] and len(differing) <= lost_ranks,
                f"{name} has logged {len(found)} steps, the undisturbed job {len(expected)}; the first different ones: {differing[:3]}")


def undisturbed(scene):
    """A job that nothing interrupts."""
    scene.submit_training("undisturbed")
    scene.expect_complete("undisturbed")
    found = losses(scene.log("undisturbed-0-0"))
    scene.check([step for step, _ in found] == list(range(1, STEPS + 1)), f"the steps of the log: {found[:3]} ... {found[-3:]}")
    return found, scene.weights("undisturbed")


def rank_killed(scene, expected):
    """A rank of an admitted job is killed: its pod is replaced within the same admission, and no step is lost."""
    scene.submit_training("ranked", failurePolicy={"restartScope": "Rank", "maxRestarts": 3})
    scene.expect(lambda: scene.step("ranked") > SETTLED, "steps of ranked")
    first, second = (scene.pod(f"ranked-0-{rank}") for rank in range(2))
    scene.kill_container(second)
    scene.expect(lambda: scene.status("ranked").get("recoveries", {}).get("total", 0) >= 1, "a recovery of ranked")
    scene.expect_complete("ranked")
    status = scene.status("ranked")
    scene.check(status["attempt"] == 0 and status["restarts"].get("total", 0) == 0 and status["recoveries"]["pods"] == 1,
                f"ranked was not recovered in place: {status}")
    kept, replaced = (scene.pod(f"ranked-0-{rank}")["metadata"]["uid"] for rank in range(2))
    scene.check(kept == first["metadata"]["uid"] and replaced != second["metadata"]["uid"], "not the second pod alone was replaced")
    check_one_admission(scene, "ranked")
    check_same(scene, "ranked", losses(scene.log("ranked-0-0")), expected[0], lost_ranks=1)
    scene.check(scene.weights("ranked") == expected[1], "the weights of ranked are not those of the undisturbed job")


def check_one_admission(scene, name):
    """The job has had one Workload, which was admitted once, for as many pods as at the end, and until the job had ended."""
    uid = scene.job(name)["metadata"]["uid"]
    changes = [change.item for change in scene.history.changes(scene.namespace, "workloads")
               if change.item["metadata"]["ownerReferences"][0]["uid"] == uid]
    scene.check(len({item["metadata"]["uid"] for item in changes}) == 1, f"{name} has had several Workloads")
    scene.wait(lambda: is_true(scene.workload(name), "Finished"), f"the Workload of {name} to be finished")
    admitted = [is_true(item, "Admitted") for item in changes]
    after = changes[admitted.index(True):]
    scene.check(all(admitted[-len(after):]), f"the Workload of {name} was not admitted for a moment")
    assigned = [item["status"]["admission"] for item in after]
    scene.check(all(one == assigned[0] for one in assigned), f"the admission of {name} has changed")


def preemption(scene, expected):
    """A job of a higher priority stops another one, which saves a checkpoint, and later continues exactly from there."""
    labels = scene.priorities(low=1, high=1000)
    scene.submit_training("low", labels=labels["low"])
    scene.expect(lambda: scene.step("low") > SETTLED, "steps of low")
    with scene.followed_log("low-0-0") as log:
        scene.submit_training("high", steps=SETTLED, labels=labels["high"])
        scene.expect(lambda: scene.status("low").get("attempt") == 1, "the preemption of low")
    before = log.read_text(encoding="utf-8")
    (record,) = scene.status("low")["attempts"]
    scene.check(record["reason"] == "QueueEvicted" and "reempted" in record["message"], f"the attempt has ended with {record}")
    scene.expect_complete("high")
    scene.expect_complete("low")
    status = scene.status("low")
    scene.check(status["attempt"] == 1 and status["restarts"].get("charged", 0) == 0, f"the preemption counts: {status}")
    check_order(scene)
    after = scene.log("low-1-0")
    resumed = logged(after, "resumed_from_step")[0]["resumed_from_step"]
    scene.check(SETTLED < resumed < STEPS, f"low has resumed from step {resumed}")
    print(f"low was stopped by the queue after step {resumed} of {STEPS}, and resumed there", flush=True)
    check_same(scene, "low", losses(before) + losses(after), expected[0])
    scene.check(scene.weights("low") == expected[1], "the weights of low are not those of the undisturbed job")


def check_order(scene):
    """high has run between the attempts of low. What may never be true of quota and pods is checked by Scene.end()."""
    def revision(resource, matches):
        found = scene.history.first_revision(scene.namespace, resource, matches)
        scene.check(found is not None, f"no such change of {resource}")
        return found

    def of_job(name):
        return lambda item: item["metadata"].get("ownerReferences", [{}])[0].get("name") == name

    evicted = revision("workloads", lambda item: of_job("low")(item) and is_true(item, "Evicted")
                       and condition(item, "Evicted")["reason"] == "Preempted")
    pods = revision("pods", of_job("high"))
    finished = revision("workloads", lambda item: of_job("high")(item) and is_true(item, "Finished"))
    again = revision("pods", lambda item: item["metadata"]["name"] == "low-1-0")
    scene.check(evicted < pods < finished < again, f"the order of revisions: {evicted}, {pods}, {finished}, {again}")


def run_all(scene):
    scene.queue(QUOTA, preemption={"withinClusterQueue": "LowerPriority"})
    expected = timed(undisturbed, scene)
    timed(rank_killed, scene, expected)
    timed(preemption, scene, expected)
    violations = scene.end()
    if violations:
        raise Failed("\n".join(violations))


def timed(scenario, *arguments):
    started = time.monotonic()
    result = scenario(*arguments)
    print(f"passed {time.monotonic() - started:5.1f} s  {scenario.__name__}: {scenario.__doc__}", flush=True)
    return result


def cluster_directory():
    file = run(["bash", "-c", 'eval "$(scripts/cluster env)" && echo "$KUBECONFIG"'], cwd=ROOT).strip()
    return pathlib.Path(file).parent


@contextlib.contextmanager
def running_kueue(cluster):
    """Kueue in the cluster. It is uninstalled at the end, because without it its webhooks would reject all pods."""
    # Pods of a busy machine start slowly.
    manager = kueue.Kueue(cluster, kueue.find_program("kueue", "kueue"), waitForPodsReady={"timeout": "30m"})
    manager.install()
    process = manager.start()
    try:
        yield
    finally:
        process.stop()
        manager.uninstall()


def main():
    with kueue.temporary_directory(None) as directory:
        cluster = ClusterApi(directory, cluster_directory(), f"kueue-{os.getpid()}")
        cluster.kubectl("-n", "oarlock-system", "rollout", "status", "deployment/oarlock-operator", "--timeout=300s")
        with running_kueue(cluster):
            scene = TrainingScene(cluster, History(cluster))
            try:
                run_all(scene)
            except Failed:
                print(cluster.kubectl("-n", "oarlock-system", "logs", "deployment/oarlock-operator", "--tail=60"), file=sys.stderr)
                raise
            finally:
                cluster.call("DELETE", f"/api/v1/namespaces/{scene.namespace}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main()
    except Failed as failure:
        sys.exit(f"error: {failure}")
