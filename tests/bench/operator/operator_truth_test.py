#!/usr/bin/env python3
"""scripts/bench operator truth with ten jobs for half a minute; and each planted difference is detected.

usage: operator_truth_test.py DIRECTORY_WITH_PROGRAMS
"""
import collections
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

from job_truth import differences

HERE = pathlib.Path(__file__).resolve().parent


def fields_of(truth):
    """(path, another value) of each expected value."""
    for field in ("phase", "attempt", "total", "charged", "afterProgress"):
        yield (field,), "other"
    yield ("reasons",), {"Other": 1}
    for field in truth["progress"] or {}:
        yield ("progress", field), -5
    for field in truth["inPodRestarts"]:
        yield ("inPodRestarts", field), -5
    for i, record in enumerate(truth["attempts"]):
        for field in ("reason", "pod", "nodeRank", "exitCode", "step", "stepsLost", "stopped"):
            yield ("attempts", i, field), "other"
        yield ("attempts", i, "time"), 0
        if record["reason"] != "PodLost":  # has two valid forms
            yield ("attempts", i, "node"), "other"
            yield ("attempts", i, "text"), "other"
        if record["isLossKnown"]:
            yield ("attempts", i, "lossEnded"), 0


def ledgers_of(row):
    """The usage of the status with another time of one class, just beyond its tolerance, and with another sum."""
    usage, truth = row["status"]["usage"], row["truth"]["ledger"]
    tolerances = collections.Counter(truth["tolerances"])
    of_steps = tolerances["productive"] + tolerances["recomputed"] + tolerances["split"]
    for one in {*usage["classes"], *truth["times"], "idle", "unreported", "evaluation"} - {"allocated", "queued"}:
        tolerance = of_steps if one in ("productive", "recomputed") else tolerances[one]
        for other in (truth["times"].get(one, 0) + tolerance + 1, truth["times"].get(one, 0) - tolerance - 1):
            added = other - usage["classes"].get(one, 0)
            yield {**usage, "classes": {**usage["classes"], one: other}, "allocated": usage["allocated"] + added}
    for one in ("allocated", "queued"):
        yield {**usage, one: truth["times"].get(one, 0) + tolerances[one] + 1}
    yield {**usage, "allocated": usage["allocated"] + 1}


def check_that_it_can_fail(rows):
    checked = 0
    for row in rows:
        for path, value in fields_of(row["truth"]):
            planted = copy.deepcopy(row["truth"])
            place = planted
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            assert differences(planted, row["status"]), f"not detected: {path} = {value} in {row}"
            checked += 1
        for usage in ledgers_of(row):
            assert differences(row["truth"], {**row["status"], "usage": usage}), f"not detected: {usage} in {row}"
            checked += 1
        more = [*row["status"].get("attempts", []), {"attempt": 99}]
        assert differences(row["truth"], {**row["status"], "attempts": more}), f"not detected: one more attempt in {row}"
    return checked


def main():
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "truth.json")
        subprocess.run([sys.executable, HERE / "truth.py", "--bin", sys.argv[1], "--jobs", "10", "--minutes", "0.5", "--interval", "10", "--seed", "44", "--json", file], check=True)
        rows = json.loads(file.read_text(encoding="utf-8"))
    assert len(rows) == 10 and sum(row["truth"]["total"] for row in rows) > 5, rows
    print(f"{check_that_it_can_fail(rows)} planted differences are detected")


if __name__ == "__main__":
    main()
