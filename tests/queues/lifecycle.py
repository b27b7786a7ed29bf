"""What happens to a job, its queue and Kueue itself while the job runs or waits."""
import itertools

from history import condition, is_true
from kueue import PODS_READY_TIMEOUT
from scene import NODES, PATIENCE


def suspension(scene):
    """A suspended job holds no quota, and a resumed one waits for its admission again."""
    scene.queue(2)
    scene.submit("job")
    scene.expect_running("job")
    first = scene.workload("job")["metadata"]["uid"]
    scene.patch_job("job", suspend=True)
    scene.expect_phase("job", "Suspended")
    scene.wait(lambda: not scene.workload("job"), "the Workload of the suspended job to be deleted")
    scene.expect_reserved_cpu("0")
    scene.submit("other")
    scene.expect_running("other")
    scene.patch_job("job", suspend=False)
    scene.expect_waiting("job", "queue", "insufficient unused quota")
    scene.delete_job("other")
    scene.expect_running("job", attempt=1)
    scene.check(scene.workload("job")["metadata"]["uid"] != first, "the resumed job has its old Workload")
    scene.patch_job("job", suspend=True)
    scene.expect_phase("job", "Suspended")
    scene.expect_reserved_cpu("0")


def suspension_while_waiting(scene):
    """A job that is suspended before its admission leaves the queue."""
    scene.queue(2)
    scene.submit("first")
    scene.expect_running("first")
    scene.submit("second")
    scene.expect_waiting("second", "insufficient unused quota")
    scene.patch_job("second", suspend=True)
    scene.expect_phase("second", "Suspended")
    scene.wait(lambda: not scene.workload("second"), "the Workload of the suspended job to be deleted")
    scene.patch_job("second", suspend=False)
    scene.end_pods("first")
    scene.wait(lambda: len(scene.pods("second")) == 2, "the resumed job to be admitted")


def ends(scene):
    """Finished, failed and deleted jobs hold no quota."""
    scene.queue(6)
    for name in ("complete", "failed", "deleted"):
        scene.submit(name, failurePolicy={"maxRestarts": 0})
        scene.expect_running(name)
    scene.expect_reserved_cpu("6")
    scene.end_pods("complete")
    scene.end_pods("failed", exit_code=1)
    scene.expect_phase("complete", "Complete")
    scene.expect_phase("failed", "Failed")
    for name, reason in (("complete", "Succeeded"), ("failed", "Failed")):
        scene.wait(lambda name=name, reason=reason: condition(scene.workload(name), "Finished").get("reason") == reason,
                   f"the Workload of the {name} job to be finished with reason {reason}")
    scene.expect_reserved_cpu("2")
    scene.delete_job("deleted")
    scene.expect_reserved_cpu("0")


def topology(scene):
    """Pods run on the nodes of the topology assignment, by rank, also after a restart."""
    levels = [{"nodeLabel": label} for label in ("block", "rack", "kubernetes.io/hostname")]
    name = scene.named("topology")
    scene.create("topologies", name, {"levels": levels})
    flavor = scene.flavor("nodes", nodeLabels={"pool": "left"}, topologyName=name)
    scene.queue(5000, flavors=[flavor])
    required = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}
    scene.submit("job", cpu=600, template=required)  # a node has 1000
    for attempt in range(2):
        scene.expect_running("job", attempt=attempt)
        placed = {int(pod["metadata"]["labels"]["oarlock.dev/node-rank"]): pod["spec"]["nodeName"] for pod in scene.pods("job")}
        assigned = assigned_nodes(scene.workload("job"))
        scene.check([placed[0], placed[1]] == assigned, f"pods on {placed}, assigned to {assigned}")
        scene.check(len({NODES[node]["rack"] for node in assigned}) == 1, f"{assigned} are in several racks")
        if attempt == 0:
            scene.delete_pod("job", 1)
    scene.submit("large", nodes=3, cpu=600, template=required)
    scene.expect_waiting("large", "topology")


def assigned_nodes(workload):
    """The names of the nodes in the order of the ranks; the lowest level is the host name, and the only one recorded."""
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    nodes = []
    for part in assigned["topologyAssignment"]["slices"]:
        counts, (values,) = part["podCounts"], part["valuesPerLevel"]
        each = counts.get("individual") or [counts["universal"]] * part["domainCount"]
        if "universal" in values:
            names = [values["universal"]] * part["domainCount"]
        else:
            names = [values["individual"].get("prefix", "") + root + values["individual"].get("suffix", "")
                     for root in values["individual"]["roots"]]
        nodes += itertools.chain.from_iterable([node] * count for node, count in zip(names, each))
    return nodes


def restart(scene):
    """A group restarts within its admission: the quota is held throughout."""
    scene.queue(2)
    scene.submit("job", failurePolicy={"restartScope": "Group", "backoffSeconds": 0})
    scene.expect_running("job")
    scene.expect_pods_ready("job", "Started")
    uid = scene.workload("job")["metadata"]["uid"]
    scene.delete_pod("job", 0)
    scene.expect_running("job", attempt=1)
    scene.expect_pods_ready("job", "Recovered")
    scene.check(scene.workload("job")["metadata"]["uid"] == uid, "the restart has made another Workload")
    admitted = [is_true(c.item, "Admitted") for c in scene.history.changes(scene.namespace, "workloads")]
    scene.check(all(admitted[admitted.index(True):]), "the Workload was not admitted for a moment")


def pods_not_ready(scene):
    """A job whose pods do not start in time is evicted, waits for Kueue's delay, and is admitted again."""
    spare = "fake-7"
    scene.queue(2, flavors=[scene.flavor("spare", nodeLabels={"spare": scene.namespace})])
    scene.submit("job")
    scene.wait(lambda: len(scene.pods("job")) == 2, "the pods, for which there is no node")
    scene.wait(lambda: scene.status("job").get("attempt") == 1, "the eviction", PODS_READY_TIMEOUT + PATIENCE)
    scene.check("PodsReady" in scene.status("job")["attempts"][0]["message"], f"the attempts: {scene.status('job')}")
    scene.patch(f"/api/v1/nodes/{spare}", {"metadata": {"labels": {"spare": scene.namespace}}})
    scene.expect_running("job", attempt=1)
    scene.expect_pods_ready("job", "Started")
    scene.check(scene.status("job")["restarts"].get("charged", 0) == 0, f"the eviction counts: {scene.status('job')}")


def deleted_workload(scene):
    """A running job whose Workload is deleted stops, and waits for its admission again."""
    scene.queue(2)
    scene.submit("job")
    scene.expect_running("job")
    first = scene.workload("job")["metadata"]["uid"]
    scene.plane.call("DELETE", scene.workload_target("job"))
    scene.wait(lambda: scene.workload("job").get("metadata", {}).get("uid", first) != first, "a new Workload")
    scene.accept_history()  # the quota of the pods that run was released
    scene.expect_running("job", attempt=1)
    scene.expect_reserved_cpu("2")


def kueue_restart(scene, processes):
    """While Kueue is down, running jobs continue and end; a job that is submitted then is admitted when it is back."""
    scene.queue(6)
    for name in ("running", "ending"):
        scene.submit(name)
        scene.expect_running(name)
    scene.expect_pods_ready("ending", "Started")
    processes.stop_kueue()
    scene.submit("waiting")
    scene.expect_waiting("waiting", "mworkload.kb.io")  # the webhook that the API server cannot call
    scene.end_pods("ending")
    scene.expect_phase("ending", "Complete")
    processes.start_kueue()
    scene.expect_running("waiting")
    scene.expect_pods_ready("running", "Started")
    scene.check(scene.status("running")["attempt"] == 0, f"the running job was restarted: {scene.status('running')}")
    scene.wait(lambda: condition(scene.workload("ending"), "Finished").get("reason") == "Succeeded",
               "the Workload of the job that ended while Kueue was down to be finished")
    scene.expect_reserved_cpu("4")


def operator_restart(scene, processes):
    """An eviction while the operator is down is executed when it is back."""
    target = scene.queue(2)
    scene.submit("job")
    scene.expect_running("job")
    processes.stop_operator()
    scene.patch(target, {"spec": {"stopPolicy": "HoldAndDrain"}})
    scene.wait(lambda: is_true(scene.workload("job"), "Evicted"), "the Workload to be evicted")
    processes.start_operator()
    scene.expect_waiting("job", "stopped")
    scene.expect_reserved_cpu("0")
    for series in (f'trainingjob_queue_evictions_total{{namespace="{scene.namespace}",reason="ClusterQueueStopped"}} 1\n',
                   f'trainingjob_queue_timestamp_seconds{{namespace="{scene.namespace}",queue="queue",state="waiting",trainingjob="job"}} '):
        scene.wait(lambda series=series: series in processes.operator_metrics(), f"the metrics to have {series}")
    scene.patch(target, {"spec": {"stopPolicy": "None"}})
    scene.expect_running("job", attempt=1)


def drain(scene):
    """The pods of a job stop with its ClusterQueue, and start again with it."""
    target = scene.queue(2)
    scene.submit("job")
    scene.expect_running("job")
    scene.patch(target, {"spec": {"stopPolicy": "HoldAndDrain"}})
    scene.expect_waiting("job", "stopped")
    scene.expect_reserved_cpu("0")
    scene.patch(target, {"spec": {"stopPolicy": "None"}})
    scene.expect_running("job", attempt=1)


def uninstallation(scene, processes):
    """Without Kueue, a running job continues, and a waiting one reports it; the operator reads the CRDs again when they are back."""
    scene.queue(2)
    scene.submit("running")
    scene.expect_running("running")
    scene.submit("waiting")
    scene.expect_waiting("waiting", "insufficient unused quota")
    processes.stop_kueue()
    processes.manager.uninstall()
    scene.forget_queues()
    scene.expect_waiting("waiting", "Kueue")
    scene.check(scene.status("running")["phase"] == "Running" and scene.status("running")["attempt"] == 0
                and len(scene.pods("running")) == 2, f"the running job: {scene.status('running')}")
    scene.end_pods("running")
    scene.expect_phase("running", "Complete")
    processes.manager.install()
    processes.start_kueue()
    scene.queue(2)
    scene.wait(lambda: len(scene.pods("waiting")) == 2, "the waiting job to be admitted by the new Kueue", 2 * PATIENCE)


SCENARIOS = (suspension, suspension_while_waiting, ends, topology, restart, drain, pods_not_ready, deleted_workload,
             kueue_restart, operator_restart, uninstallation)
WITH_PROCESSES = (kueue_restart, operator_restart, uninstallation)
