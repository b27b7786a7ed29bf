"""What must be in the status of a job of scripts/bench operator truth, computed from the injected events alone."""
import time

from ledger_truth import LedgerTruth, ledger_differences
from stepping import Stepping

MAX_RECORDS = 10  # api::kMaxAttemptRecords
TARGET_STEPS = 100_000
CHECKPOINT_INTERVAL = 50  # steps
SLACK = 3  # seconds between a report and its time in the status, which is in whole seconds
MAX_DELAY = {"Stalled": 300}  # seconds until an injected event must have ended its attempt, by its reason
DEFAULT_MAX_DELAY = 60


def seconds_of(text):
    return None if text is None else time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone


def checkpoint_of(step):
    return step - step % CHECKPOINT_INTERVAL if step >= CHECKPOINT_INTERVAL else -1


class JobTruth:
    """The simulated training of a job, and the status that its operator must report. The caller holds the lock."""

    def __init__(self, namespace, name, nodes, spec):
        self.namespace, self.name, self.nodes, self.uid = namespace, name, nodes, None
        self.max_restarts = spec["failurePolicy"]["maxRestarts"]
        self.stall_action = spec["stallPolicy"]["action"] if spec["stallPolicy"]["timeoutSeconds"] < 3600 else None
        self.attempt, self.phase, self.phase_reason = 0, "Running", None
        self.total = self.charged = self.after_progress = 0
        self._highest, self._baseline = (0, 0), (0, 0)  # step and checkpoint: reported, and at the last failure
        self.reasons, self.attempts = {}, []
        self.progress = None  # as status.progress: of the last report that was read, or of a termination message
        self.in_pod = {"total": 0, "seconds": 0.0, "lastRank": None, "lastReason": None}
        self.stalls = 0
        self.ledger = LedgerTruth(nodes)
        self._highest_read = 0  # step
        self.problems, self.frozen_at = [], None
        self._begin_attempt(0)

    def _begin_attempt(self, first_step):
        self._stepping = Stepping(first_step, self._highest_read)
        self.is_silent = True  # the ranks do not listen
        self.stall = None  # of an injected one: "injected", "reported" by the operator, "over" once the ranks continue
        self.laggard = None  # the pod of the rank that is stopped
        self.served_at = None  # when rank 0 of this attempt was last read
        self._in_pod_now = {"total": 0, "seconds": 0.0, "rank": -1, "reason": ""}
        self._in_pod_read = dict(self._in_pod_now)

    def start(self, rate):
        """Rank 0 of the attempt runs."""
        if self.is_silent and not self._stepping.has_started():
            self._stepping.start(rate)
            self.is_silent = False

    def begin_steps(self):
        """All pods of the attempt run."""
        if self._stepping.has_started() and not self._stepping.has_begun():
            self._stepping.begin()

    def step(self):
        return self._stepping.step()

    def freeze_for_good(self):
        """The next report, which has a new step, is the last one that differs from the one before."""
        self._stepping.freeze()
        self._stepping.skip_to(self.step() + 1)
        self.frozen_at = time.time()

    def begin_stall(self, pod):
        self.stalls += 1
        self.stall, self.laggard, self._stalled_at = "injected", pod, time.time()
        self._stepping.freeze()

    def end_stall(self):
        self.stall, self.laggard = "over", None
        self._stepping.resume()

    def is_finished(self):
        return self.phase in ("Complete", "Failed")

    # ---- reports

    def report(self, rank):
        """The response of a rank to GET /statusz; that of rank 0 counts as read."""
        step, now = self.step(), time.time()
        states = [{"rank": rank, "step": step, "program": "python3",
                   "state": "stopped" if self.laggard and self.laggard["rank"] == rank else "sleeping"}]
        out = {"rank": rank, "worldSize": self.nodes, "attempt": self.attempt, "phase": "train", "step": step,
               "targetSteps": TARGET_STEPS, "checkpointStep": checkpoint_of(step), "loss": step % 97 / 8,
               "updatedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)), "ranks": states}
        if rank != 0:
            return out
        if self._in_pod_now["total"]:
            out["inPodRestarts"] = dict(self._in_pod_now)
        self._count_in_pod_restarts()
        self.reach(step, out["checkpointStep"])
        times = self._stepping.report()
        out["usageSeconds"] = {one: milliseconds / 1000 for one, milliseconds in times.classes.items()}
        self.ledger.report(self.attempt, self._stepping, step, out["checkpointStep"], times)
        self._highest_read = max(self._highest_read, step)
        self.served_at = now
        self.progress = {"step": step, "targetSteps": TARGET_STEPS, "loss": out["loss"],
                         "checkpointStep": out["checkpointStep"] if out["checkpointStep"] >= 0 else None}
        for record in self.attempts:
            if record["lossEnded"] is None and record["step"] is not None and step > record["step"]:
                record["lossEnded"] = now
        return out

    def reach(self, step, checkpoint_step):
        """A rank reports this, or leaves it in its termination message."""
        self._highest = (max(self._highest[0], step), max(self._highest[1], checkpoint_step))

    def _count_in_pod_restarts(self):
        now, read = self._in_pod_now, self._in_pod_read
        if now["total"] == read["total"]:
            return
        self.in_pod = {"total": self.in_pod["total"] + now["total"] - read["total"],
                       "seconds": self.in_pod["seconds"] + now["seconds"] - read["seconds"],
                       "lastRank": now["rank"], "lastReason": now["reason"]}
        self._in_pod_read = dict(now)

    def restart_in_pod(self, rank, reason):
        now = self._in_pod_now
        self._in_pod_now = {"total": now["total"] + 1, "seconds": now["seconds"] + 2.5, "rank": rank, "reason": reason}
        self._stepping.restart_in_pod(max(checkpoint_of(self.step()), 0))
        for record in self.attempts:  # the operator may not have written the larger step before
            if record["lossEnded"] and time.time() - record["lossEnded"] < 10:
                record["isLossKnown"] = False

    # ---- what the operator reports

    def observe(self, phase, attempt, message):
        """A status, which may be of an earlier attempt. Returns whether a stall that has no other end was reported."""
        if self.stall and self.stall_action == "Restart" and (attempt > self.attempt or phase == "Failed"):
            if self.stall != "reported":
                self.problems.append("the job was restarted before its stall was reported")
            self.end_attempt("Stalled", "Stalled", stopped=True, when=self._stalled_at)
        if phase == "Running" and attempt == self.attempt:
            self._end_loss_of_start()
            if self.stall == "over":
                self.stall = None
        if phase != "Stalled" or self.phase == "Stalled" or self.stall in ("reported", "over"):
            return False
        if self.stall is None:
            self.problems.append(f"Stalled without an injected stall: {message}")
            return False
        culprit = f"rank {self.laggard['rank']} on node {self.laggard['node']} is at step {self.step()}"
        if culprit not in message:
            self.problems.append(f"the stall's message does not contain '{culprit}': {message}")
        self.stall = "reported"
        return self.stall_action == "None"

    def _end_loss_of_start(self):
        """All pods of the attempt run, which ends the loss of an attempt whose step is not known."""
        if self.attempts and self.attempts[-1]["lossEnded"] is None and self.attempts[-1]["step"] is None:
            self.attempts[-1]["lossEnded"] = time.time()

    # ---- events

    def _read_message(self, message):
        """The termination message of rank 0."""
        if message is None or message["step"] <= 0:
            return
        self.progress = {**(self.progress or {"targetSteps": None, "loss": None}), "step": message["step"]}
        if message["checkpointStep"] >= 0:
            self.progress["checkpointStep"] = message["checkpointStep"]
        self.progress.setdefault("checkpointStep", None)

    def complete(self, message):
        self.ledger.end_attempt(self.progress is not None, message["step"])
        self._read_message(message)
        self.phase, self.is_silent = "Complete", True

    def end_attempt(self, reason, restart, pod=None, exit_code=None, charged=True, stopped=False, message=None,
                    text="", permanent=False, when=None):
        """The attempt has ended. `pod` is the one that failed first, `message` the termination message of rank 0."""
        self.ledger.end_attempt(self.progress is not None)
        self._read_message(message)
        is_known = self.served_at is not None or (message is not None and message["step"] > 0)
        step = self.progress["step"] if is_known else None
        saved = self.progress["checkpointStep"] if is_known else None
        lost = None if saved is None or (stopped and message is None) else max(step - saved, 0)
        self.attempts.append({
            "attempt": self.attempt, "reason": reason, "exitCode": exit_code, "stopped": stopped, "step": step,
            "stepsLost": lost, "pod": pod and pod["name"], "node": pod and pod["node"],
            "nodeRank": pod and pod["rank"], "text": text, "time": when or time.time(), "lossEnded": None,
            "isLossKnown": True})
        self.is_silent = True
        is_progress = any(now > before for now, before in zip(self._highest, self._baseline))
        is_used_up = self.charged + self.after_progress >= 10 * self.max_restarts or (
            not is_progress and self.charged >= self.max_restarts)
        if permanent or (charged and is_used_up):
            self.phase, self.phase_reason = "Failed", "PermanentFailure" if permanent else "MaxRestartsExceeded"
            return
        self.total += 1
        if charged:
            self.charged += not is_progress
            self.after_progress += is_progress
            self._baseline = self._highest
        self.reasons[restart] = self.reasons.get(restart, 0) + 1
        self.attempt += 1
        self._begin_attempt((self.progress or {}).get("checkpointStep") or 0)

    def expected(self):
        """As plain values, for differences()."""
        return {"job": f"{self.namespace}/{self.name}", "nodes": self.nodes, "attempt": self.attempt,
                "phase": self.phase, "phaseReason": self.phase_reason, "total": self.total, "charged": self.charged,
                "afterProgress": self.after_progress,
                "reasons": self.reasons, "progress": self.progress, "inPodRestarts": self.in_pod,
                "attempts": self.attempts[-MAX_RECORDS:], "problems": self.problems,
                "ledger": self.ledger.expected()}


def merge_losses(reasons):
    """The API server marks a pod that is deleted by force for deletion, too, for a moment that an operator may miss."""
    reasons = dict(reasons)
    lost = reasons.pop("PodLost", 0) + reasons.pop("PodDeleted", 0)
    return {**reasons, "PodDeleted or PodLost": lost} if lost else reasons


def differences(truth, status):
    """Returns (field, expected, actual) of each difference between JobTruth.expected() and a job's status."""
    found = [("event", None, problem) for problem in truth["problems"]]

    def compare(field, expected, actual):
        if expected != actual:
            found.append((field, expected, actual))

    condition = next((c for c in status.get("conditions", []) if c["type"] == truth["phase"]), {})
    compare("phase", truth["phase"], status.get("phase"))
    if truth["phaseReason"]:
        compare("condition.reason", truth["phaseReason"], condition.get("reason"))
    compare("attempt", truth["attempt"], status.get("attempt", 0))
    restarts = status.get("restarts", {})
    for field in ("total", "charged"):
        compare(f"restarts.{field}", truth[field], restarts.get(field, 0))
    compare("restarts.afterProgress", truth["afterProgress"], (restarts.get("afterProgress") or {}).get("count", 0))
    compare("restarts.reasons", merge_losses(truth["reasons"]),
            merge_losses({r["reason"]: r["count"] for r in restarts.get("reasons", [])}))
    if truth["phase"] in ("Running", "Stalled"):
        compare("nodes.ready", truth["nodes"], status.get("nodes", {}).get("ready", 0))
    progress = status.get("progress") or {}
    for field, expected in (truth["progress"] or {"step": None}).items():
        compare(f"progress.{field}", expected, progress.get(field))
    in_pod = status.get("inPodRestarts") or {"total": 0, "seconds": 0.0}
    for field, expected in truth["inPodRestarts"].items():
        compare(f"inPodRestarts.{field}", expected, in_pod.get(field))
    found += ledger_differences(truth["ledger"], status.get("usage", {}))
    records = status.get("attempts", [])
    compare("attempts", [record["attempt"] for record in truth["attempts"]], [r.get("attempt", 0) for r in records])
    for expected, actual in zip(truth["attempts"], records):
        for field, want, have in record_differences(expected, actual):
            found.append((f"attempts[{expected['attempt']}].{field}", want, have))
    return found


def record_differences(expected, actual):
    found = []
    if (expected["reason"], actual.get("reason")) == ("PodLost", "PodDeleted"):
        expected = {**expected, "reason": "PodDeleted", "node": actual.get("node"), "text": "was deleted"}
    for field in ("reason", "pod", "node", "nodeRank", "exitCode", "step", "stepsLost"):
        if expected[field] != actual.get(field):
            found.append((field, expected[field], actual.get(field)))
    if expected["stopped"] != actual.get("stopped", False):
        found.append(("stopped", expected["stopped"], actual.get("stopped", False)))
    if expected["text"] not in actual["message"]:
        found.append(("message", f"...{expected['text']}...", actual["message"]))
    end = seconds_of(actual["endTime"])
    if not -SLACK <= end - expected["time"] <= MAX_DELAY.get(expected["reason"], DEFAULT_MAX_DELAY):
        found.append(("endTime", expected["time"], end))
    ended, lost = expected["lossEnded"], actual.get("secondsLost")
    want = None if ended is None else round(ended - end)
    slack = SLACK + min(max(end - expected["time"], 0), 20)  # an operator that was late is late again
    if expected["isLossKnown"] and ((want is None) != (lost is None) or (want is not None and abs(want - lost) > slack)):
        found.append(("secondsLost", want, lost))
    return found
