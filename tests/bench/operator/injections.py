"""The events of scripts/bench operator truth: what happens to the pods, and what it must mean for the job.

A function is called with the lock held; it returns the requests that make the event happen, which are sent after the ranks
have been silent for a second, so that no report is under way. A request is (seconds after the one before, method, target,
body).
"""
import json
import time

from job_truth import TARGET_STEPS, checkpoint_of


SILENCE = 1  # seconds between the last report of an attempt and its end


def _when(seconds=0):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + SILENCE + seconds))


def _target(pod, suffix=""):
    return f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}{suffix}"


def _terminated(pod, exit_code, message, reason="Error", wait=0):
    end = {"exitCode": exit_code, "reason": reason, "message": message, "finishedAt": _when(wait)}
    return {"containerStatuses": [{"name": pod["container"], "image": "x", "imageID": "", "ready": False,
                                   "restartCount": 0, "state": {"terminated": end}}]}


def _patch(pod, wait=0, **status):
    return (wait, "PATCH", _target(pod, "/status"), {"status": status})


def _exit(pod, exit_code, message="", reason="Error", wait=0):
    phase = "Succeeded" if exit_code == 0 else "Failed"
    return _patch(pod, wait, phase=phase, **_terminated(pod, exit_code, message, reason, wait))


def _message(job, rank, reason, step=None):
    step = job.step() if step is None else step
    job.reach(step, checkpoint_of(step))
    return {"rank": rank, "step": step, "checkpointStep": checkpoint_of(step), "reason": reason,
            "message": f"{reason} at {step}"}


def exit_code(job, pods, random):
    pod = random.choice(pods)
    code, form = random.choice([1, 2, 134, 139, 255]), random.choice(["none", "line", "json"])
    reason, text, message = "PodFailed", "", None
    if form == "line":
        text = f"ValueError: step {job.step()}"
    elif form == "json":
        reason = random.choice(["Exception", "DeviceFailed"])
        report = _message(job, pod["rank"], reason)
        text, message = json.dumps(report), report if pod["rank"] == 0 else None
    shown = f"{reason} at" if form == "json" else text
    job.end_attempt(reason, reason if reason == "DeviceFailed" else "PodFailed", pod, code, message=message,
                    text=f"ended with exit code {code}" if not shown else shown)
    return [_exit(pod, code, text)]


def out_of_memory(job, pods, random):
    pod = random.choice(pods)
    job.end_attempt("OOMKilled", "OOMKilled", pod, 137, text="exit code 137 (OOMKilled)")
    return [_exit(pod, 137, "", "OOMKilled")]


def interrupted(job, pods, random):
    pod = random.choice(pods)
    message = _message(job, pod["rank"], "Interrupted")
    job.end_attempt("Interrupted", "Interrupted", pod, 75, stopped=True, message=message if pod["rank"] == 0 else None)
    return [_exit(pod, 75, json.dumps(message))]


def collateral(job, pods, random):
    """The other ranks lose their peer, and are reported before it."""
    pod = random.choice(pods)
    message = _message(job, 0, "PeerLost")
    job.end_attempt("PodFailed", "PodFailed", pod, 1, message=message if pod["rank"] != 0 else None)
    others = [_exit(other, 76, json.dumps({**message, "rank": other["rank"]})) for other in pods if other is not pod]
    return [*others, _exit(pod, 1, wait=random.uniform(0.5, 2))]


def only_collateral(job, pods, _):
    """No rank reports why it was lost."""
    message = _message(job, 0, "PeerLost")
    job.end_attempt("PeerLost", "PeerLost", message=message)
    return [_exit(pod, 76, json.dumps({**message, "rank": pod["rank"]})) for pod in pods]


def permanent(job, pods, random):
    pod = random.choice(pods)
    message = _message(job, pod["rank"], "ConfigInvalid")
    job.end_attempt("ConfigInvalid", None, pod, 78, message=message if pod["rank"] == 0 else None, permanent=True)
    return [_exit(pod, 78, json.dumps(message))]


def eviction_by_api(job, pods, random):
    pod = random.choice(pods)
    job.end_attempt("EvictionByEvictionAPI", "Disrupted", pod, charged=False, stopped=True)
    return [(0, "POST", _target(pod, "/eviction"), {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["name"]}})]


def eviction_by_kubelet(job, pods, random):
    pod = random.choice(pods)
    job.end_attempt("TerminationByKubelet", "Disrupted", pod, 137, charged=False, stopped=True)
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
                 "lastTransitionTime": _when(), "message": "low on memory"}
    return [_patch(pod, phase="Failed", reason="Evicted", message="The node was low on resource: memory.",
                   conditions=[*pod["conditions"], disrupted], **_terminated(pod, 137, ""))]


def eviction_without_condition(job, pods, random):
    pod = random.choice(pods)
    job.end_attempt("Evicted", "Evicted", pod, stopped=True, text="low on resource")
    return [_patch(pod, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")]


def rejection(job, pods, random):
    """The kubelet was restarted, and does not admit the pod again."""
    pod = random.choice(pods)
    job.end_attempt("UnexpectedAdmissionError", "PodRejected", pod, charged=False, stopped=True, text="rejected")
    return [_patch(pod, phase="Failed", reason="UnexpectedAdmissionError", message="no device")]


def deletion(job, pods, random):
    pod = random.choice(pods)
    job.end_attempt("PodDeleted", "PodDeleted", pod, stopped=True, text="was deleted")
    return [(0, "DELETE", _target(pod), None)]


def loss(job, pods, random):
    """kubectl delete --force: the pod disappears without an end."""
    pod = random.choice(pods)
    job.end_attempt("PodLost", "PodLost", {**pod, "node": None}, stopped=True, text="no longer exists")
    return [(0, "DELETE", _target(pod), {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})]


def completion(job, pods, _):
    message = _message(job, 0, "Completed", TARGET_STEPS)
    job.complete(message)
    return [_exit(pod, 0, json.dumps({**message, "rank": pod["rank"]}), "Completed") for pod in pods]


def restart_in_pod(job, pods, random):
    job.restart_in_pod(random.randrange(len(pods)), random.choice(["Exception", "PodFailed"]))
    return []


def stall(job, pods, random):
    """Ends when the operator has reported it (stallPolicy.action None) or has restarted the group (Restart)."""
    job.begin_stall(random.choice(pods))
    return []


# With their weights.
EVENTS = {exit_code: 20, out_of_memory: 5, interrupted: 5, collateral: 10, only_collateral: 3, permanent: 1,
          eviction_by_api: 10, eviction_by_kubelet: 5, eviction_without_condition: 3, rejection: 3, deletion: 8, loss: 5,
          completion: 1, restart_in_pod: 15}
