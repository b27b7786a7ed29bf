"""Admission by a queue: when pods are created, where, how many, and when they stop."""
from history import condition, is_true
from scene import NODES, PATIENCE


def admission(scene):
    """No pod before the admission; the Workload follows the job to its end."""
    scene.queue(8)
    scene.submit("job")
    scene.expect_running("job")
    workload = scene.workload("job")
    (pod_set,) = workload["spec"]["podSets"]
    scene.check((pod_set["name"], pod_set["count"], workload["spec"]["queueName"]) == ("nodes", 2, "queue"),
                f"the Workload's spec: {workload['spec']}")
    (owner,) = workload["metadata"]["ownerReferences"]
    scene.check(owner["kind"] == "TrainingJob" and owner["controller"], f"the Workload's owner: {owner}")
    # The revisions of one API server are ordered; the audit log has times only.
    admitted = scene.history.first_revision(scene.namespace, "workloads", lambda item: is_true(item, "Admitted"))
    created = scene.history.first_revision(scene.namespace, "pods", lambda _: True)
    scene.check(admitted < created, f"a pod was created at revision {created}, before the admission at {admitted}")
    scene.expect_pods_ready("job", "Started")
    queue = scene.status("job").get("queue", {})
    scene.check((queue.get("name"), queue.get("clusterQueue"), queue.get("nodes")) == ("queue", scene.named("queue"), 2),
                f"status.queue: {queue}")
    scene.expect_reserved_cpu("2")
    scene.end_pods("job")
    scene.expect_phase("job", "Complete")
    scene.wait(lambda: condition(scene.workload("job"), "Finished").get("reason") == "Succeeded", "the Workload to be finished")
    scene.expect_reserved_cpu("0")


def flavors(scene):
    """Pods have the node labels and tolerations of the flavor that was assigned, and run on its nodes."""
    taint = {"key": "dedicated", "value": scene.namespace, "effect": "NoSchedule"}
    tainted = [name for name, labels in NODES.items() if labels["pool"] == "right"]
    for node in tainted:
        scene.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
    left = scene.flavor("left", nodeLabels={"pool": "left"})
    right = scene.flavor("right", nodeLabels={"pool": "right"}, nodeTaints=[taint],
                         tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}])
    scene.queue(2, flavors=[left, right])
    pools = {"first": "left", "second": "right"}
    for name, pool in pools.items():
        scene.submit(name)
        scene.expect_running(name)
        for pod in scene.pods(name):
            scene.check(pod["spec"]["nodeSelector"].get("pool") == pool and NODES[pod["spec"]["nodeName"]]["pool"] == pool,
                        f"{name}: {pod['spec']['nodeSelector']} on {pod['spec']['nodeName']}")
            has = any(toleration.get("key") == "dedicated" for toleration in pod["spec"].get("tolerations", []))
            scene.check(has == (pool == "right"), f"{name}: tolerations {pod['spec'].get('tolerations')}")
        scene.check(scene.status(name)["queue"].get("flavors") == [scene.named(pool)], f"{name}: {scene.status(name)['queue']}")
    for node in tainted:  # a scenario that fails leaves room on the other nodes
        scene.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": None}})


def quota(scene):
    """The second of two jobs waits with Kueue's reason, and runs when the first has ended."""
    scene.queue(3)
    scene.submit("first")
    scene.expect_running("first")
    scene.submit("second")
    scene.expect_waiting("second", "queue", "insufficient unused quota")
    scene.check(not scene.pods("second"), "the waiting job has pods")
    scene.end_pods("first")
    scene.expect_phase("first", "Complete")
    scene.expect_running("second")
    scene.expect_reserved_cpu("2")


def without_queue(scene):
    """A job without the label needs no admission; one whose queue or priority class does not exist waits with the reason."""
    scene.submit("free", queue=None)
    scene.expect_running("free")
    scene.check(not scene.workload("free"), "a job without a queue has a Workload")
    scene.submit("lost", queue="missing")
    scene.expect_waiting("lost", "missing")
    scene.queue(2)
    scene.submit("unknown", labels={"kueue.x-k8s.io/priority-class": scene.named("late")})
    scene.expect_waiting("unknown", scene.named("late"), "does not exist")
    scene.priorities(late=7)
    scene.wait(lambda: len(scene.pods("unknown")) == 2, "the job to be admitted once its priority class exists", 2 * PATIENCE)


def other_queue(scene):
    """A waiting job follows its label to another queue; a running one stays in its queue."""
    scene.queue(2, name="full")
    scene.queue(4, name="empty")
    for name in ("first", "second"):
        scene.submit(name, queue="full")
    scene.expect_running("first")
    scene.expect_waiting("second", "insufficient unused quota")
    for name in ("first", "second"):
        scene.patch(scene.job_target(name), {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "empty"}}})
    scene.expect_running("second")
    scene.check(scene.status("second")["queue"]["name"] == "empty", f"status.queue: {scene.status('second')['queue']}")
    scene.expect_running("first")
    scene.expect_reserved_cpu("2", name="full")
    scene.expect_reserved_cpu("2", name="empty")


def default_queue(scene):
    """Pods of an admitted job are not queued again by Kueue's pod integration in a namespace with a default queue."""
    scene.queue(8, name="default")
    scene.submit("job", queue="default")
    scene.expect_running("job")
    for pod in scene.pods("job"):
        scene.check("kueue.x-k8s.io/managed" not in pod["metadata"]["labels"], f"labels of a pod: {pod['metadata']['labels']}")
    scene.check(len(scene.history.current("workloads", scene.namespace)) == 1, "the pods have separate Workloads")


def preemption(scene):
    """A job of higher priority runs once the pods of the other are gone, which then resumes as its next attempt."""
    labels = scene.priorities(low=10, high=1000)
    scene.queue(2, preemption={"withinClusterQueue": "LowerPriority"})
    scene.submit("low", labels=labels["low"])
    scene.expect_running("low")
    scene.check(scene.workload("low")["spec"]["priority"] == 10, f"the Workload: {scene.workload('low')['spec']}")
    scene.submit("high", labels=labels["high"])
    scene.expect_running("high")
    gone = max(c.revision for c in scene.history.changes(scene.namespace, "pods")
               if c.kind == "DELETED" and c.item["metadata"]["labels"]["oarlock.dev/job-name"] == "low")
    name = scene.workload("low")["metadata"]["name"]
    released = next(c.revision for c in scene.history.changes(scene.namespace, "workloads") if c.revision > gone
                    and c.item["metadata"]["name"] == name and not is_true(c.item, "QuotaReserved"))
    scene.check(gone < released, f"the last pod was gone at revision {gone}, the quota was released at {released}")
    scene.expect_waiting("low", "queue")
    scene.end_pods("high")
    scene.expect_phase("high", "Complete")
    scene.expect_running("low", attempt=1)
    restarts = scene.status("low").get("restarts", {})
    scene.check(restarts.get("charged", 0) == 0, f"the preemption counts against maxRestarts: {restarts}")


def contention(scene):
    """Jobs of several sizes and priorities share a quota: all complete, whichever are preempted."""
    labels = scene.priorities(low=1, middle=2, high=3)
    scene.queue(6, preemption={"withinClusterQueue": "LowerPriority"})
    names = []
    for priority in labels:
        for nodes in range(1, 5):
            names.append(f"{priority}-{nodes}")
            scene.submit(names[-1], nodes=nodes, labels=labels[priority])
        scene.wait(lambda: any(scene.status(name).get("phase") == "Running" for name in names), "a job to run")

    def all_complete():
        for name in names:
            if scene.status(name).get("phase") == "Running" and is_true(scene.workload(name), "PodsReady"):
                scene.end_pods(name)
        return all(scene.status(name).get("phase") == "Complete" for name in names)

    scene.wait(all_complete, "all jobs to complete", 4 * PATIENCE)
    preempted = sum(scene.status(name)["attempt"] for name in names)
    scene.check(preempted > 0, "no job was preempted")
    scene.expect_reserved_cpu("0")


def failed_check(scene):
    """A check that is to be retried stops the pods until it is ready again; a rejected one until the Workload is activated."""
    check = scene.admission_check("check")
    scene.queue(2, admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    scene.submit("job")

    def admit(attempt):
        scene.wait(lambda: is_true(scene.workload("job"), "QuotaReserved") and not is_true(scene.workload("job"), "Evicted")
                   and [c["state"] for c in scene.workload("job")["status"].get("admissionChecks", [])] == ["Pending"],
                   "the check to be pending")
        scene.check(not scene.pods("job"), "pods before the check is ready")
        scene.set_check("job", check, "Ready", podSetUpdates=[{
            "name": "nodes", "labels": {"checked": f"at-{attempt}"}, "annotations": {"provisioned": "yes"},
            "nodeSelector": {"pool": "right"}, "tolerations": [{"key": "x", "operator": "Exists"}]}])
        scene.expect_running("job", attempt=attempt)
        for pod in scene.pods("job"):
            scene.check(pod["metadata"]["labels"].get("checked") == f"at-{attempt}"
                        and pod["metadata"]["annotations"].get("provisioned") == "yes"
                        and pod["spec"]["nodeSelector"].get("pool") == "right"
                        and any(t.get("key") == "x" for t in pod["spec"]["tolerations"]), f"podSetUpdates in {pod}")

    admit(0)
    scene.set_check("job", check, "Retry")
    admit(1)
    scene.set_check("job", check, "Rejected")
    scene.expect_waiting("job", "deactivated")
    scene.expect_reserved_cpu("0")
    scene.patch(scene.workload_target("job"), {"spec": {"active": True}})
    admit(2)


def partial_admission(scene):
    """An elastic job starts with the nodes for which there is quota."""
    scene.queue(3)
    scene.submit("job", nodes=4, elastic={"minNodes": 2})
    scene.expect_running("job", nodes=3)
    scene.check(scene.status("job")["elastic"]["nodes"] == 3, f"the status: {scene.status('job')}")
    world = {env["name"]: env.get("value") for pod in scene.pods("job")
             for env in pod["spec"]["containers"][0]["env"]}.get("WORLD_SIZE")
    scene.check(world in (None, "3"), f"WORLD_SIZE is {world}")
    scene.expect_reserved_cpu("3")
    scene.delete_pod("job", 1)
    scene.expect_running("job", attempt=1, nodes=3)
    scene.submit("rigid", nodes=2)
    scene.expect_waiting("rigid", "insufficient")


def growth(scene):
    """A job that was admitted partly grows when there is quota, and keeps what it has until then."""
    scene.queue(4)
    scene.submit("first", nodes=1)
    scene.expect_running("first", nodes=1)
    scene.submit("job", nodes=4, elastic={"minNodes": 2, "growAfterSeconds": 1})
    scene.expect_running("job", nodes=3)
    scene.wait(lambda: len(scene.workloads("job")) == 2, "a Workload for four nodes")
    scene.expect_reserved_cpu("4")
    scene.end_pods("first")
    scene.expect_running("job", attempt=1, nodes=4)
    scene.wait(lambda: len(scene.workloads("job")) == 1, "the end of the Workload for three nodes")
    scene.expect_pods_ready("job", "Recovered")
    scene.check(scene.status("job")["queue"]["nodes"] == 4, f"the status: {scene.status('job')}")
    scene.check(scene.status("job").get("restarts", {}).get("charged", 0) == 0, f"the status: {scene.status('job')}")
    scene.delete_pod("job", 1)
    scene.expect_running("job", attempt=2, nodes=4)
    scene.patch_job("job", nodes=6)
    scene.wait(lambda: len(scene.workloads("job")) == 2, "a Workload for six nodes")
    scene.patch_job("job", suspend=True)
    scene.wait(lambda: not scene.workloads("job"), "the end of both Workloads of the suspended job")
    scene.expect_reserved_cpu("0")
    scene.patch_job("job", suspend=False, nodes=4)
    scene.expect_running("job", attempt=3, nodes=4)
    scene.end_pods("job")
    scene.expect_phase("job", "Complete")
    scene.expect_reserved_cpu("0")


SCENARIOS = (admission, flavors, quota, without_queue, other_queue, default_queue, preemption, contention, failed_check,
             partial_admission, growth)
