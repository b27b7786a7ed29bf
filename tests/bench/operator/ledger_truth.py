"""The ledger that a job of scripts/bench operator truth must have by the definition in docs/guides/goodput.md.

It is computed from the times of the pods on the API server, the reports that rank 0 has given, and the times at which the
phases of the job were seen. The times that rank 0 reports have no tolerance. Each other moment is known within SLACK: the
API server stores whole seconds, and the operator receives an event up to a second before or after this program. Each class
has, for each pod, the tolerance of the moments at which its time begins and ends. Times are Unix times in seconds.
"""
import bisect
import collections
import math

SLACK = 1.0  # seconds
GRACE_PERIOD = 30  # seconds for which a pod that is gone counts after the last status

Moment = collections.namedtuple("Moment", "time slack")
NEVER = Moment(math.inf, 0)
ALWAYS = Moment(0, 0)


def moment(time):
    return Moment(time, SLACK)


class PodTimes:
    def __init__(self):
        self.scheduled = self.started = self.ended = None  # stored by the API server
        self.gone_at = None  # when it was seen that the pod is gone, or has ended at an unknown time


class Attempt:
    def __init__(self):
        self.pods = {}  # PodTimes by rank
        self.ended = None  # when the operator has ended it
        self.is_job_reporting = False  # the job had progress before the end of this attempt
        self.classes = collections.Counter()  # reported milliseconds, without `starting`
        self.split_tolerance = 0.0  # milliseconds between the two classes of steps
        self.begun = self.covered = None  # the reported times, without `starting`, begin and end
        self.highest_step = 0  # of the reports
        self.final_step = None  # of a complete job
        self._earlier_step = 0
        self._last = (None, collections.Counter(), 0)  # step, classes and repeated time of the last report
        self.stalls = []  # (begin, end)
        self.stalled_since = None  # while the phase is Stalled

    def report(self, stepping, step, saved_step, times):
        last_step, counts, repeated = self._last
        is_same = step == last_step  # without a step, productive time may be that of a stall
        now = {**times.classes, "productive": counts["productive"]} if is_same else times.classes
        earlier = repeated if is_same else times.earlier
        added = {one: now[one] - counts[one] for one in now if one != "starting"}
        total = sum(now.values()) - sum(counts.values())
        end = times.until - (sum(times.classes.values()) - sum(now.values())) / 1000
        self._last = (step, collections.Counter(now), earlier)
        self.highest_step, self._earlier_step = max(self.highest_step, step), stepping.earlier
        if self.stalled_since and is_same:
            return
        if self.stalled_since:
            self.stalls.append((self.stalled_since, moment(times.until)))
            self.stalled_since = None
        else:
            self.classes.update(added)
            self.classes.update({"productive": repeated - earlier, "recomputed": earlier - repeated})
            if self.begun is None and any(added.values()):
                self.begun = moment(end - sum(added.values()) / 1000)
        self.covered = moment(end if total > 0 or not self.covered else self.covered.time)
        if earlier:
            # The operator reads whole steps, and assumes that a process begins at the newest checkpoint that it has read
            # at its first report, which that process may have saved itself.
            began_unseen = earlier if saved_step > stepping.first_step else 0
            self.split_tolerance = max(self.split_tolerance, 2000 / stepping.rate + began_unseen)

    def started(self, nodes):
        """When the last pod has started."""
        if len(self.pods) < nodes:
            return NEVER
        return moment(max(pod.started or math.inf for pod in self.pods.values()))

    def spans(self, is_first, started):
        """(class, begin, end) of all times until the attempt has ended but those that rank 0 has reported."""
        ended = self.ended or NEVER
        if is_first:
            placed = moment(max(pod.scheduled or math.inf for pod in self.pods.values()))
            yield "scheduling", ALWAYS, placed
            yield "pulling", placed, started
        else:
            yield "recovery", ALWAYS, started
        if not self.covered:
            yield "starting" if self.is_job_reporting else "unreported", started, ended
            return
        yield "starting", started, self.begun or self.covered
        for begin, end in self.stalls:
            yield "stalled", begin, end
        if self.stalled_since:
            yield "stalled", self.stalled_since, ended
        elif self.final_step is None:
            yield "recovery", self.covered, ended
        else:  # the steps after the last report are evenly spread
            again = max(self._earlier_step - self.highest_step, 0) / (self.final_step - self.highest_step)
            last = max((pod.ended or 0 for pod in self.pods.values()), default=0)
            new_at = moment(self.covered.time + again * max(last - self.covered.time, 0))
            if again:
                yield "recomputed", self.covered, new_at
            yield "productive", new_at, ended


class LedgerTruth:
    """The caller holds the lock."""

    def __init__(self, nodes):
        self._nodes, self._attempts, self._created = nodes, [], moment(math.inf)
        self._phase, self._phase_since, self._job_end = None, None, None
        self._reaches = []  # for each status, until when a ledger that is written with it divides the time

    def _attempt(self, number):
        while len(self._attempts) <= number:
            self._attempts.append(Attempt())
        return self._attempts[number]

    # ---- what the API server reports

    def observe_job(self, created):
        self._created = moment(created)

    def observe_status(self, phase, attempt, now):
        self._attempt(attempt)
        is_over = phase in ("Complete", "Failed")
        for one in self._attempts if is_over else self._attempts[:attempt]:
            one.ended = one.ended or moment(now)
        if is_over and not self._job_end:
            self._job_end = moment(now)
        if phase != self._phase:
            self._phase, self._phase_since = phase, moment(now)
            if phase == "Stalled":
                self._attempts[attempt].stalled_since = self._attempts[attempt].covered
        self._reaches.append(self._reach(moment(now)).time)

    def observe_pod(self, attempt, rank, times, is_over, now):
        """`times` by the names of members of PodTimes."""
        pod = self._attempt(attempt).pods.setdefault(rank, PodTimes())
        for member, value in times.items():
            if getattr(pod, member) is None:
                setattr(pod, member, value)
        if is_over and pod.ended is None and pod.gone_at is None:
            pod.gone_at = now

    # ---- what happens in the pods

    def report(self, attempt, stepping, step, saved_step, times):
        self._attempt(attempt).report(stepping, step, saved_step, times)

    def end_attempt(self, has_progress, final_step=None):
        """`has_progress`: the job has reported steps. `final_step`: its last one, if it is complete."""
        self._attempts[-1].is_job_reporting, self._attempts[-1].final_step = has_progress, final_step

    # ---- the ledger

    def _reach(self, now):
        """While an attempt runs, its time is divided up to the last report."""
        if self._phase != "Running":
            return now
        return min(self._attempts[-1].covered or self._attempts[-1].started(self._nodes), now)

    def _end_of(self, pod, attempt):
        """A pod that is gone counts until the next status, which the operator may have written just before that was seen."""
        if pod.ended is not None:
            return moment(pod.ended)
        if pod.gone_at is None:
            return NEVER
        proven = attempt.covered.time if attempt.covered else 0
        ends = []
        first = bisect.bisect_left(self._reaches, pod.gone_at - SLACK)
        for number in range(first, len(self._reaches)):
            before = self._reaches[number - 1] if number else self._created.time
            ends.append(min(self._reaches[number], max(before + GRACE_PERIOD, proven)))
            if self._reaches[number] >= pod.gone_at + SLACK:
                break
        if not ends:
            return NEVER
        return Moment((min(ends) + max(ends)) / 2, (max(ends) - min(ends)) / 2 + SLACK)

    def expected(self):
        """Accelerator-milliseconds by class, with "allocated" and "queued", and the tolerance of each, as plain values."""
        times, tolerances = collections.Counter(), collections.Counter()

        def add(one, begin, end):
            """The time between both may be positive for the operator also if it is not for this program."""
            seconds, slack = end.time - begin.time, begin.slack + end.slack
            if seconds > -slack and not math.isinf(seconds):
                times[one] += 1000 * max(seconds, 0)
                tolerances[one] += 1000 * slack

        until = {"Running": self._reach(NEVER), "Stalled": self._phase_since}.get(self._phase, NEVER)
        queued_since = self._created
        for number, attempt in enumerate(self._attempts):
            placed = [pod for pod in attempt.pods.values() if pod.scheduled is not None]
            spans = list(attempt.spans(number == 0, attempt.started(self._nodes))) if placed else []
            if attempt.ended:
                spans += [("recovery", attempt.ended, self._job_end or NEVER), ("idle", self._job_end or NEVER, NEVER)]
            for pod in placed:
                begin, end = moment(pod.scheduled), min(self._end_of(pod, attempt), until)
                add("queued", queued_since, begin)
                add("allocated", begin, end)
                for one, since, to in spans:
                    add(one, max(since, begin), min(to, end))
            for one, milliseconds in attempt.classes.items():
                times[one] += self._nodes * milliseconds
            tolerances["split"] += self._nodes * attempt.split_tolerance
            queued_since = attempt.ended or NEVER
        return {"times": {one: round(time) for one, time in times.items()},
                "tolerances": {one: math.ceil(time) for one, time in tolerances.items()}}


def ledger_differences(truth, usage):
    """Returns (field, expected, actual) of each difference that exceeds its tolerance, and of a sum that is not exact."""
    expected, tolerances = collections.Counter(truth["times"]), collections.Counter(truth["tolerances"])
    actual = collections.Counter(usage.get("classes", {}))
    found = []
    if sum(actual.values()) != usage.get("allocated", 0):
        found.append(("usage.allocated", f"{sum(actual.values())}, the sum of the classes", usage.get("allocated", 0)))
    actual.update({one: usage.get(one, 0) for one in ("allocated", "queued")})
    for times in (expected, actual):
        times["productive and recomputed"] = times["productive"] + times["recomputed"]
    both = tolerances["productive"] + tolerances["recomputed"]
    tolerances["productive and recomputed"] = both
    tolerances["productive"] = tolerances["recomputed"] = both + tolerances["split"]
    for one in sorted({*expected, *actual}):
        if abs(expected[one] - actual[one]) > tolerances[one]:
            found.append((f"usage.{one}", f"{expected[one]} +- {tolerances[one]} ms", actual[one]))
    return found
