"""Processes that the benchmark starts: what they cost, and their end."""
import ctypes
import os
import signal
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """Something that the benchmark needs did not work: one line for a person."""


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}: {output[-2000:]}")
    return done.stdout


def wait_until(condition, what, seconds=60, every=0.02):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"timed out after {seconds} s waiting for {what}")
        time.sleep(every)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Process:
    """Runs until stop(); it does not outlive the benchmark, however that ends."""

    def __init__(self, command, log, environment=None):
        self.log = log
        with open(log, "ab") as output:
            self.started_at = time.time()
            self._child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=output, env={**os.environ, **(environment or {})},
                                           preexec_fn=die_with_parent)
        self.pid = self._child.pid

    def alive(self):
        return self._child.poll() is None

    def check(self):
        if not self.alive():
            with open(self.log, encoding="utf-8", errors="replace") as log:
                raise Failed(f"{self._child.args[0]} ended with {self._child.returncode}: {log.read()[-1500:]}")

    def cpu_seconds(self):
        return cpu_seconds(self.pid)

    def rss_mib(self):
        return self._status("VmRSS")

    def peak_rss_mib(self):
        return self._status("VmHWM")

    def _status(self, key):
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key + ":"))

    def stop(self):
        if self.alive():
            self._child.terminate()
            try:
                self._child.wait(30)
            except subprocess.TimeoutExpired:
                self._child.kill()
        self._child.wait()


def cpu_seconds(pid):
    """User and system time of all threads, the ended ones included."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
