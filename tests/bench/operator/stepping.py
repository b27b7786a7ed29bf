"""The simulated training of one attempt: its steps, and the seconds that its launcher counts by class of the ledger."""
import collections
import time

CHECKPOINT_SHARE = 0.1  # of the time in which the ranks step

# Milliseconds by class, those of productive steps that an earlier attempt had done, and the time until which they are counted.
Times = collections.namedtuple("Times", "classes earlier until")


class Stepping:
    """Rank 0 runs from start(), and all ranks step from begin(). `earlier` is the highest step that was read of earlier attempts."""

    def __init__(self, first_step, earlier):
        self.first_step, self.earlier, self.rate = first_step, earlier, 1.0
        self._base, self._since = first_step, None  # absent while the ranks do not step
        self._highest = first_step  # of the processes before an in-pod restart
        self._counted_until = None
        self._seconds = collections.Counter()

    def start(self, rate):
        self.rate, self._counted_until = rate, time.time()

    def has_started(self):
        return self._counted_until is not None

    def has_begun(self):
        return bool(self._since) or bool(self._seconds["productive"])

    def begin(self):
        """All pods run."""
        self._count("starting")
        self._since = self._counted_until

    def step(self):
        return self._base + (int((time.time() - self._since) * self.rate) if self._since else 0)

    def freeze(self):
        self._count_steps()
        self._base, self._since = self.step(), None

    def skip_to(self, step):
        self._base = step

    def resume(self):
        """After freeze(): like the launcher, counts the time as that of the next step."""
        self._count("productive")
        self._since = self._counted_until

    def restart_in_pod(self, step):
        self._count_steps()
        self._highest = max(self._highest, self.step())
        self._base, self._since = step, self._counted_until

    def report(self):
        """The Times since the start of rank 0."""
        if self._since:
            self._count_steps()
        elif not self.has_begun():
            self._count("starting")
        times = {one: round(1000 * self._seconds[one]) for one in ("starting", "productive", "recomputed", "checkpoint")}
        return Times(times, round(1000 * self._seconds["earlier"]), self._counted_until)

    def _count(self, one):
        now = time.time()
        self._seconds[one] += now - (self._counted_until or now)
        self._counted_until = now

    def _count_steps(self):
        if not self._since:
            return
        first = self._base + (self._counted_until - self._since) * self.rate
        before = self._counted_until
        self._count("productive")
        elapsed = self._counted_until - before
        seconds = elapsed * (1 - CHECKPOINT_SHARE)
        last = first + elapsed * self.rate

        def seconds_until(step):
            """Of these steps, those up to this one."""
            return seconds * min(max((step - first) / (last - first), 0), 1) if last > first else 0

        again = seconds_until(self._highest)
        self._seconds["productive"] -= elapsed - seconds + again
        self._seconds["checkpoint"] += elapsed - seconds
        self._seconds["recomputed"] += again
        self._seconds["earlier"] += max(seconds_until(self.earlier) - again, 0)
