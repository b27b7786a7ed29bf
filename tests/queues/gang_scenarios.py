"""What happens to the gangs of jobs: the room is that of six pods."""


def whole_gangs(scene):
    """Of two jobs of four pods, one runs whole while the other waits whole, and then the other runs."""
    scene.submit("first", nodes=4)
    scene.submit("second", nodes=4)
    scene.wait(lambda: scene.placed("first") or scene.placed("second"), "one of the jobs to get nodes")
    running, waiting = ("first", "second") if scene.placed("first") else ("second", "first")
    scene.expect_running(running, nodes=4)
    scene.expect_groups(running, f"{running}-0")
    scene.expect_unplaced(waiting)
    scene.end_pods(running)
    scene.expect_phase(running, "Complete")
    scene.expect_running(waiting, nodes=4)
    scene.check(scene.ended_at(running) < scene.placed_at(waiting), "pods of both jobs have had nodes at the same time")
    scene.expect_groups(running)
    scene.end_pods(waiting)
    scene.expect_phase(waiting, "Complete")
    scene.expect_groups(waiting)


def group_restart(scene):
    """The attempt after a failed pod has its own PodGroup, and that of the failed attempt is deleted."""
    scene.submit("job", failurePolicy={"restartScope": "Group", "backoffSeconds": 0})
    scene.expect_running("job")
    scene.expect_groups("job", "job-0")
    first = scene.group_uid("job")
    scene.end_pods("job", exit_code=1, ranks=[1])
    scene.expect_restarted("job", attempt=1)
    scene.expect_groups("job", "job-1")
    scene.check(scene.group_uid("job") != first, "the next attempt has the PodGroup of the failed one")


def resume_without_room(scene):
    """A gang that is resumed after another one has taken its room waits whole."""
    scene.submit("job", nodes=4)
    scene.expect_running("job", nodes=4)
    scene.submit("other", nodes=4)
    scene.expect_unplaced("other")
    scene.patch_job("job", suspend=True)
    scene.expect_running("other", nodes=4)
    scene.expect_groups("job")
    scene.patch_job("job", suspend=False)
    scene.expect_unplaced("job")
    scene.expect_groups("job", "job-1")
    scene.end_pods("other")
    scene.expect_running("job", attempt=1, nodes=4)


def suspension(scene):
    """A suspended job has no PodGroup, whether it ran or waited; a resumed one has another."""
    scene.submit("running", nodes=4)
    scene.expect_running("running", nodes=4)
    scene.submit("waiting", nodes=4)
    scene.expect_unplaced("waiting")
    scene.patch_job("waiting", suspend=True)
    scene.expect_phase("waiting", "Suspended")
    scene.expect_groups("waiting")
    scene.patch_job("running", suspend=True)
    scene.expect_phase("running", "Suspended")
    scene.expect_groups("running")
    scene.patch_job("running", suspend=False)
    scene.expect_running("running", attempt=1, nodes=4)
    scene.expect_groups("running", "running-1")


def priority(scene):
    """The PodGroup of a job has the priority of its pods: kube-scheduler refuses others."""
    name = f"{scene.namespace}-high"
    scene.plane.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000})
    scene.submit("job", nodes=4, pod={"priorityClassName": name})
    scene.expect_running("job", nodes=4)
    scene.check(all(pod["spec"]["priority"] == 1000 for pod in scene.pods("job")), "the pods have another priority")


def ends(scene):
    """Finished, failed and deleted jobs have no PodGroups."""
    for name in ("complete", "failed", "deleted"):
        scene.submit(name, failurePolicy={"maxRestarts": 0})
        scene.expect_running(name)
        scene.expect_groups(name, f"{name}-0")
    scene.end_pods("complete")
    scene.end_pods("failed", exit_code=1)
    scene.expect_phase("complete", "Complete")
    scene.expect_phase("failed", "Failed")
    scene.delete_job("deleted")
    for name in ("complete", "failed", "deleted"):
        scene.expect_groups(name)


def replacement(scene):
    """The replacement of a lost pod gets a node without the others of its gang, while another gang waits."""
    scene.submit("job", nodes=4, failurePolicy={"restartScope": "Rank", "backoffSeconds": 0})
    scene.expect_running("job", nodes=4)
    group = scene.group_uid("job")
    scene.submit("waiting", nodes=4)
    scene.expect_unplaced("waiting")
    lost = scene.pod_uid("job", 1)
    scene.delete_pod("job", 1)
    scene.wait(lambda: scene.pod_uid("job", 1) not in (None, lost), "the pod to be replaced")
    scene.expect_running("job", nodes=4)
    scene.wait(lambda: scene.status("job").get("recoveries", {}).get("pods") == 1 and not scene.status("job")["replacements"],
               "the replacement to be recorded as started")
    scene.check(scene.group_uid("job") == group, "the job has another PodGroup")
    scene.check(scene.placed_at("waiting") is None, "a pod of the waiting gang has had a node")
    scene.end_pods("job")
    scene.expect_phase("job", "Complete")
    scene.expect_running("waiting", nodes=4)


def topology(scene):
    """A gang is placed in the only domain that has room for all of it, which is not that of the node with the most room."""
    for node, rack in enumerate(("small", "large", "large")):
        scene.patch(f"/api/v1/nodes/fake-{node}", {"metadata": {"labels": {"rack": rack}}})
    scene.submit("other", cpu="500m", pod={"nodeSelector": {"rack": "large"}})
    scene.expect_running("other")
    scene.submit("job", nodes=5, cpu="500m", scheduling={"topology": {"key": "rack"}})
    scene.expect_running("job", nodes=5)
    nodes = {pod["spec"]["nodeName"] for pod in scene.pods("job")}
    scene.check(nodes == {"fake-1", "fake-2"}, f"the pods are on {nodes}")


# Of kube-scheduler alone.
NATIVE_SCENARIOS = (topology,)
SCENARIOS = (whole_gangs, group_restart, resume_without_room, suspension, priority, ends, replacement)
