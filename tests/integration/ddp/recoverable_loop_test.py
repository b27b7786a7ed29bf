#!/usr/bin/env python3
"""examples/ddp/recoverable.cc under `oarlock launch --restart-policy rank`: ranks that are killed at random steps are replaced, the
other one keeps its process, and every step of every rank has the bits of a run without a kill. Without a launcher, the loss of a rank is
an error of the others.

usage: recoverable_loop_test.py PROGRAM   (OARLOCK_BIN: the directory of oarlock, OARLOCK_SEED: of the kills)
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from reserved_port import ReservedPort  # noqa: E402

PROGRAM = sys.argv[1]
BIN = pathlib.Path(os.environ["OARLOCK_BIN"])
STEPS = 300
KILLS = 4
LINE = re.compile(r"rank (\d+), step (\d+), loss (\S+)")
WEIGHTS = re.compile(r"rank (\d+), weights (\w+)")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("OARLOCK_", "PET_", "TORCHELASTIC_"))} | {"OMP_NUM_THREADS": "1"}


def rank_process(launcher, rank):
    """The process of a rank; the newest one if it was replaced."""
    found = None
    for pid in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        try:
            variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        found = int(pid) if b"RANK=%d" % rank in variables else found
    return found


class Kill:
    """A rank that is killed once a rank has printed `step`, and its replacement."""

    def __init__(self, step, rank):
        self.step, self.rank = step, rank
        self.killed = self.survivor = None
        self.is_replaced = False

    def advance(self, launcher, step):
        """Called for each line of a rank."""
        if self.killed is None and step >= self.step:
            self.killed, self.survivor = rank_process(launcher, self.rank), rank_process(launcher, 1 - self.rank)
            os.kill(self.killed, signal.SIGKILL)
        elif self.killed is not None and not self.is_replaced:
            self.is_replaced = rank_process(launcher, self.rank) not in (None, self.killed)
            if self.is_replaced:
                assert rank_process(launcher, 1 - self.rank) == self.survivor, f"the kill of rank {self.rank} ended the other one"


def train(kills):
    """Returns the loss by (rank, step), and the weights of each rank."""
    command = [BIN / "oarlock", "launch", "--nproc", "2", "--no-prefix", "--max-restarts", str(KILLS), "--restart-policy", "rank", "--", PROGRAM,
               str(STEPS)]
    losses, weights, pending = {}, {}, list(kills)
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=errors, text=True) as launcher:
            for line in launcher.stdout:
                if found := LINE.match(line):
                    key = int(found[1]), int(found[2])
                    assert losses.setdefault(key, found[3]) == found[3], f"rank {key[0]} has two losses in step {key[1]}"
                    if pending:
                        pending[0].advance(launcher.pid, key[1])
                    if pending and pending[0].is_replaced:
                        pending.pop(0)
                elif found := WEIGHTS.match(line):
                    weights[int(found[1])] = found[2]
        errors.seek(0)
        report = errors.read()
    assert launcher.returncode == 0, f"ended with {launcher.returncode}:\n{report}"
    assert not pending, f"{len(pending)} ranks were not killed and replaced:\n{report}"
    assert report.count("a lost rank was replaced") == len(kills), report
    return losses, weights


def check_recovery(seed):
    source = random.Random(seed)
    spacing = STEPS // (KILLS + 2)
    kills = [Kill(spacing * i + source.randrange(spacing // 2), rank) for i, rank in enumerate([0, 1, *source.choices([0, 1], k=KILLS - 2)])]
    print("kills of ranks at steps:", ", ".join(f"{kill.rank} at {kill.step}" for kill in kills), f"(seed {seed})", flush=True)
    expected, expected_weights = train([])
    assert len(expected) == 2 * STEPS and len(set(expected_weights.values())) == 1, expected_weights
    losses, weights = train(kills)
    assert weights == expected_weights, (weights, expected_weights)
    for (rank, step), loss in losses.items():
        assert loss == expected[rank, step], f"rank {rank} has the loss {loss} in step {step} instead of {expected[rank, step]}"
    lost = {step for _, step in expected} - {step for _, step in losses}
    assert not lost, f"no rank has completed the steps {sorted(lost)}"


def check_without_launcher():
    with ReservedPort() as port:
        environment = ENVIRONMENT | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks = [subprocess.Popen([PROGRAM, "1000000"], env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) for rank in range(2)]
        assert LINE.match(ranks[1].stdout.readline())
        ranks[1].kill()
        ranks[1].communicate()
        _, errors = ranks[0].communicate(timeout=60)
    assert ranks[0].returncode == 76 and len(errors.splitlines()) == 1, (ranks[0].returncode, errors)


check_recovery(int(os.environ.get("OARLOCK_SEED", random.SystemRandom().randrange(10000))))
check_without_launcher()
