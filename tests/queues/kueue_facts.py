"""What the operator relies on, checked with Kueue alone: the test plays the operator, and no job has pods."""
from history import condition, is_true
from processes import Failed
from scene import now
from workload import pod_spec


def make_job(scene, job, count=2):
    """A job that no operator reconciles; returns the reference of its pods and its Workload."""
    scene.submit(job, nodes=count)
    scene.wait(lambda: scene.job(job), f"{job} to exist")
    return {"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "name": job, "controller": True,
            "uid": scene.job(job)["metadata"]["uid"], "blockOwnerDeletion": True}


def make_pod(scene, owner, rank):
    labels = {"oarlock.dev/job-name": owner["name"], "oarlock.dev/attempt": "0", "oarlock.dev/node-rank": str(rank)}
    scene.plane.call("POST", f"/api/v1/namespaces/{scene.namespace}/pods", {
        "metadata": {"name": f"{owner['name']}-0-{rank}", "labels": labels, "ownerReferences": [owner]},
        "spec": pod_spec("trainer", "default-scheduler")})


def make_workload(scene, job, count=2, cpu="1", owner=None, **spec):
    """The Workload that the operator would create for a job."""
    owner = owner or make_job(scene, job, count)
    pod = {"containers": [{"name": "trainer", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
           "restartPolicy": "Never"}
    pod_set = {"name": "nodes", "count": count, "template": {"spec": pod}, **spec.pop("pod_set", {})}
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": f"trainingjob-{job}", "ownerReferences": [owner]},
            "spec": {"queueName": "queue", "podSets": [pod_set], **spec}}
    scene.plane.call("POST", f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{scene.namespace}/workloads", body)


def clear_admission(scene, job):
    """What the operator writes once the pods of an evicted job are gone, as Kueue's own job controllers do."""
    target = scene.workload_target(job)
    workload = scene.plane.call("GET", target)
    evicted = condition(workload, "Evicted")
    requeued = evicted["reason"] in ("Preempted", "NodeFailures")
    # Kueue requeues a workload that is activated again only if the condition has this reason, whatever the cause.
    reason = "Deactivated" if evicted["reason"].startswith("Deactivated") else evicted["reason"]
    written = {
        "QuotaReserved": ("False", "Pending", evicted["message"]),
        "Admitted": ("False", "NoReservation", "The workload has no reservation"),
        "Requeued": ("True" if requeued else "False", reason, evicted["message"])}
    others = [c for c in workload["status"]["conditions"] if c["type"] not in written]
    scene.patch(f"{target}/status", {
        "metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
        "status": {"admission": None, "conditions": [*others, *(
            {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now(),
             "observedGeneration": workload["metadata"]["generation"]}
            for kind, (status, reason, message) in written.items())]}})


def expect_admitted(scene, job):
    scene.wait(lambda: is_true(scene.workload(job), "Admitted") and not is_true(scene.workload(job), "Evicted"),
               f"the Workload of {job} to be admitted")


def expect_evicted(scene, job, reason):
    scene.wait(lambda: is_true(scene.workload(job), "Evicted") and condition(scene.workload(job), "Evicted")["reason"] == reason,
               f"the Workload of {job} to be evicted with reason {reason}")
    scene.check(is_true(scene.workload(job), "QuotaReserved"), "an eviction leaves the quota reserved")


def rejected(scene, call, *texts):
    try:
        call()
    except Failed as error:
        scene.check(all(text in str(error) for text in texts), f"rejected for another reason: {error}")
        return
    scene.check(False, f"not rejected; expected {' and '.join(texts)}")


def facts_admission(scene):
    """A Workload with an unknown kind of owner is admitted; what is in it is validated."""
    scene.queue(3)
    make_workload(scene, "first")
    expect_admitted(scene, "first")
    workload = scene.workload("first")
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    scene.check(assigned["name"] == "nodes" and assigned["count"] == 2 and assigned["flavors"] ==
                {"cpu": scene.named("queue-flavor")}, f"the assignment: {assigned}")
    scene.check("finalizers" not in workload["metadata"], "Kueue has added a finalizer")
    scene.expect_reserved_cpu("2")
    make_workload(scene, "second")
    scene.wait(lambda: "insufficient unused quota" in condition(scene.workload("second"), "QuotaReserved").get("message", ""),
               "the reason why the second Workload waits")
    target = scene.workload_target("first")
    rejected(scene, lambda: scene.patch(target, {"spec": {"podSets": [
        {**workload["spec"]["podSets"][0], "count": 3}]}}), "podSets", "immutable")
    rejected(scene, lambda: scene.patch(f"{target}/status", {"status": {"admission": None}}), "must be set while")
    rejected(scene, lambda: scene.patch(target, {"spec": {"queueName": "other"}}), "queueName is immutable")
    rejected(scene, lambda: make_workload(scene, "third", priorityClassRef={
        "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "x"}), "priority should not be nil")
    scene.plane.call("DELETE", target)
    expect_admitted(scene, "second")


def facts_eviction(scene):
    """A preempted Workload keeps its quota until its owner clears the admission, and is admitted again."""
    high = scene.named("high")
    scene.create("workloadpriorityclasses", high, value=1000)
    scene.queue(2, preemption={"withinClusterQueue": "LowerPriority"})
    make_workload(scene, "low")
    expect_admitted(scene, "low")
    make_workload(scene, "high", priority=1000, priorityClassRef={
        "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": high})
    expect_evicted(scene, "low", "Preempted")
    scene.check(not is_true(scene.workload("high"), "QuotaReserved"), "the quota was given to the other Workload")
    clear_admission(scene, "low")
    expect_admitted(scene, "high")
    scene.check(is_true(scene.workload("low"), "Evicted"), "Evicted remains true while the Workload waits")
    scene.plane.call("DELETE", scene.workload_target("high"))
    expect_admitted(scene, "low")


def facts_stop(scene):
    """HoldAndDrain evicts; the Workload is requeued when the ClusterQueue is started, only if its condition has that reason."""
    target = scene.queue(2)
    make_workload(scene, "job")
    expect_admitted(scene, "job")
    scene.patch(target, {"spec": {"stopPolicy": "HoldAndDrain"}})
    expect_evicted(scene, "job", "ClusterQueueStopped")
    clear_admission(scene, "job")
    scene.expect_reserved_cpu("0")
    scene.patch(target, {"spec": {"stopPolicy": "None"}})
    expect_admitted(scene, "job")
    scene.patch(scene.workload_target("job"), {"spec": {"active": False}})
    expect_evicted(scene, "job", "Deactivated")
    clear_admission(scene, "job")
    scene.expect_reserved_cpu("0")
    scene.patch(scene.workload_target("job"), {"spec": {"active": True}})
    expect_admitted(scene, "job")


def facts_checks(scene):
    """Retry evicts, and the checks are pending again; Rejected deactivates."""
    check = scene.admission_check("check")
    scene.queue(2, admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    make_workload(scene, "job")

    def admit():
        scene.wait(lambda: is_true(scene.workload("job"), "QuotaReserved")
                   and not is_true(scene.workload("job"), "Evicted")
                   and [c["state"] for c in scene.workload("job")["status"].get("admissionChecks", [])] == ["Pending"],
                   "the check to be pending")
        scene.check(not is_true(scene.workload("job"), "Admitted"), "admitted without its check")
        scene.set_check("job", check, "Ready")
        expect_admitted(scene, "job")

    admit()
    scene.set_check("job", check, "Retry")
    expect_evicted(scene, "job", "AdmissionCheck")
    clear_admission(scene, "job")
    admit()
    scene.set_check("job", check, "Rejected")
    expect_evicted(scene, "job", "DeactivatedDueToAdmissionCheck")
    clear_admission(scene, "job")
    scene.check(scene.workload("job")["spec"]["active"] is False, "the Workload is not deactivated")
    scene.patch(scene.workload_target("job"), {"spec": {"active": True}})
    admit()


def facts_partial_admission(scene):
    """A podSet with minCount is admitted with fewer pods."""
    scene.queue(3)
    make_workload(scene, "job", count=4, pod_set={"minCount": 2})
    expect_admitted(scene, "job")
    (assigned,) = scene.workload("job")["status"]["admission"]["podSetAssignments"]
    scene.check(assigned["count"] == 3, f"the assignment: {assigned}")


def facts_violations(scene):
    """What the history of each scenario is checked for is detected."""
    scene.queue(2)
    owner = make_job(scene, "job")
    make_pod(scene, owner, 0)
    make_workload(scene, "job", owner=owner)
    expect_admitted(scene, "job")
    make_pod(scene, owner, 1)
    make_pod(scene, owner, 2)
    scene.wait(lambda: len(scene.pods("job")) == 3, "three pods")
    scene.patch(scene.workload_target("job"), {"spec": {"active": False}})
    expect_evicted(scene, "job", "Deactivated")
    clear_admission(scene, "job")
    scene.wait(lambda: not is_true(scene.workload("job"), "QuotaReserved"), "the admission to be cleared")
    found = [line.split(": ", 1)[1] for line in scene.history.violations(scene.namespace)]
    expected = ["job-0-0: was created while the job was not admitted",
                "job-0-2: was created although its job is admitted for 2 pods",
                "trainingjob-job: its quota was released while these pods were live: job-0-0, job-0-1, job-0-2"]
    scene.check(found == expected, f"found {found}")
    scene.accept_history()


FACTS = (facts_admission, facts_eviction, facts_stop, facts_checks, facts_partial_admission, facts_violations)
