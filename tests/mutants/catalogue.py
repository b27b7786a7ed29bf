"""Reads the mutants of tests/mutants/catalogue, and the invariants that they break. One file per mutant: a header, then a unified diff that git applies.

    Bug: one sentence about what the diff breaks
    Tests: backoff_test supervisor_test:Supervisor.ForwardsStopSignalsUnchanged

    diff --git a/operator/core/failure.cc b/operator/core/failure.cc
    ...

Tests are names of ctest, run in this order until one fails. What follows a colon is a --gtest_filter, for test programs
that take long. A line "Programs: oarlock" names further targets of the build that the tests start.
"""
import dataclasses
import pathlib
import re
import subprocess

DIRECTORY = pathlib.Path(__file__).resolve().parent / "catalogue"


@dataclasses.dataclass(frozen=True)
class TestCall:
    name: str
    filter: str = ""

    def __str__(self):
        return f"{self.name}:{self.filter}" if self.filter else self.name


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    bug: str
    tests: tuple
    programs: tuple
    files: tuple
    text: str

    @property
    def area(self):
        """The top-level directory that has the bug."""
        return self.files[0].split("/")[0]


class CatalogueError(Exception):
    """A mutant that cannot be used; the message names it."""


def parse(name, text):
    header, found, diff = text.partition("diff --git ")
    if not found:
        raise CatalogueError(f"{name}: the file holds no diff")
    fields = dict(re.findall(r"^(\w+): (.+)$", header, re.MULTILINE))
    for field in ("Bug", "Tests"):
        if field not in fields:
            raise CatalogueError(f"{name}: the header has no line '{field}: ...'")
    tests = tuple(TestCall(*call.split(":", 1)) for call in fields["Tests"].split())
    files = tuple(re.findall(r"^\+\+\+ b/(\S+)$", diff, re.MULTILINE))
    if not files:
        raise CatalogueError(f"{name}: the diff changes no file")
    return Mutant(name, fields["Bug"], tests, tuple(fields.get("Programs", "").split()), files, text)


def invariants():
    """The invariants of invariants.txt, each with the names of the mutants that break it."""
    lines = (DIRECTORY.parent / "invariants.txt").read_text().splitlines()
    parted = [line.rpartition(": ") for line in lines if line and not line.startswith("#")]
    return {invariant: names.split() for invariant, _, names in parted}


def read_all(directory=DIRECTORY):
    return [parse(path.stem, path.read_text()) for path in sorted(directory.glob("*.patch"))]


def apply(mutant, tree, *options):
    """Returns git's message; empty: the diff was applied (or, with --check, can be)."""
    done = subprocess.run(["git", "apply", *options, "-"], cwd=tree, input=mutant.text, text=True, capture_output=True)
    return "" if done.returncode == 0 else done.stderr.strip() or "git apply failed"
