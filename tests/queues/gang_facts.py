"""Facts about the gang schedulers on which the operator relies. Their pods and PodGroups are made by hand: no operator runs."""
from gangs import is_placed
from workload import pod_spec


def create_group(scene, job, minimum=4, attempt=0):
    name = f"{job}-{attempt}"
    body = scene.system.group(name, minimum)
    body["metadata"]["labels"] = {"oarlock.dev/job-name": job}
    scene.plane.call("POST", scene.system.groups.format(scene.namespace), body)
    return name


def delete_group(scene, name):
    scene.plane.call("DELETE", f"{scene.system.groups.format(scene.namespace)}/{name}")


def create_pod(scene, job, rank, attempt=0, joins=True):
    pod = {"metadata": {"name": f"{job}-{attempt}-{rank}", "labels": {
        "oarlock.dev/job-name": job, "oarlock.dev/attempt": str(attempt), "oarlock.dev/node-rank": str(rank)}},
        "spec": pod_spec("trainer", scene.scheduler)}
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    if joins:
        scene.system.join(pod, f"{job}-{attempt}")
    scene.plane.call("POST", f"/api/v1/namespaces/{scene.namespace}/pods", pod)


def create_gang(scene, job, nodes=4):
    create_group(scene, job, nodes)
    for rank in range(nodes):
        create_pod(scene, job, rank)


def expect_placed(scene, job, nodes=4):
    scene.wait(lambda: len(scene.placed(job)) == nodes, f"{nodes} pods of {job} to have nodes")


def fact_whole_gangs(scene):
    """Of two gangs for which there is not enough room, one gets nodes for all its pods, the other for none."""
    create_gang(scene, "first")
    expect_placed(scene, "first")
    create_gang(scene, "second")
    scene.expect_unplaced("second")
    scene.end_pods("first")
    expect_placed(scene, "second")
    scene.check(scene.ended_at("first") < scene.placed_at("second"), "a pod of the second gang had a node before the first ended")


def fact_incomplete_gang(scene):
    """Pods wait until as many of their group exist as its minimum is; the group may be created after them."""
    for rank in range(3):
        create_pod(scene, "job", rank)
    create_group(scene, "job")
    # Other pods get their nodes meanwhile.
    create_gang(scene, "other", nodes=2)
    expect_placed(scene, "other", 2)
    scene.check(not scene.placed("job"), "pods of a gang with three of four pods have nodes")
    create_pod(scene, "job", 3)
    expect_placed(scene, "job")


def fact_replacement(scene):
    """A pod that replaces one of a gang that runs gets a node alone, while another gang waits."""
    create_gang(scene, "job")
    expect_placed(scene, "job")
    create_gang(scene, "waiting")
    scene.expect_unplaced("waiting")
    scene.delete_pod("job", 1)
    scene.wait(lambda: len(scene.pods("job")) == 3, "the pod to be deleted")
    create_pod(scene, "job", 1)
    expect_placed(scene, "job")
    scene.check(scene.placed_at("waiting") is None, "a pod of the waiting gang has had a node")


def fact_replacement_after_end(scene):
    """A replacement gets no node if other pods of its gang have ended, unless the minimum of the group is lowered."""
    create_gang(scene, "job")
    expect_placed(scene, "job")
    scene.end_pods("job", ranks=[0])
    scene.delete_pod("job", 1)
    scene.wait(lambda: len(scene.pods("job")) == 3, "the pod to be deleted")
    create_pod(scene, "job", 1)
    create_gang(scene, "other", nodes=2)
    expect_placed(scene, "other", 2)
    scene.check(not is_placed(next(pod for pod in scene.pods("job") if pod["metadata"]["name"] == "job-0-1")),
                "the replacement has a node")
    scene.patch(f"{scene.system.groups.format(scene.namespace)}/job-0", {"spec": scene.system.group("", 3)["spec"]})
    expect_placed(scene, "job")


def fact_deletion(scene):
    """A PodGroup that is deleted before its pods does not stop them."""
    create_gang(scene, "job", nodes=2)
    expect_placed(scene, "job", 2)
    delete_group(scene, "job-0")
    create_gang(scene, "other", nodes=2)
    expect_placed(scene, "other", 2)
    scene.check(len(scene.placed("job")) == 2, "the pods were stopped")


def fact_violations(scene):
    """What the history of each scenario is checked for is detected."""
    scene.submit("job", nodes=4)
    scene.wait(lambda: scene.job("job"), "the job")
    create_gang(scene, "job", nodes=2)
    expect_placed(scene, "job", 2)
    delete_group(scene, "job-0")
    scene.wait(lambda: all("deletionTimestamp" in group["metadata"] for group in scene.groups("job").values()),
               "the PodGroup to be deleted")
    create_pod(scene, "job", 2, joins=False)
    expect_placed(scene, "job", 3)
    found = [line.split(": ", 1)[1] for line in scene.history.violations(scene.namespace)]
    expected = ["job-0: its owners are [], its labels {'oarlock.dev/job-name': 'job'}",
                "job-0: was deleted while these pods were live: job-0-0, job-0-1",
                "job-0-2: is a member of PodGroup None, not of job-0",
                "job-0: only the pods of ranks [0, 1, 2] ever had nodes"]
    scene.check(found == expected, f"found {found}")


FACTS = (fact_whole_gangs, fact_incomplete_gang, fact_replacement, fact_replacement_after_end, fact_deletion, fact_violations)
