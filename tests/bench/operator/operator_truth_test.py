#!/usr/bin/env python3
"""scripts/bench operator truth with ten jobs for half a minute; and each planted difference is detected.

usage: operator_truth_test.py DIRECTORY_WITH_PROGRAMS
"""
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
    if truth["isUsageExact"]:
        for one, time in truth["usage"].items():
            yield ("usage", one), time + 1
    for i, record in enumerate(truth["attempts"]):
        for field in ("reason", "pod", "nodeRank", "exitCode", "step", "stepsLost", "stopped"):
            yield ("attempts", i, field), "other"
        yield ("attempts", i, "time"), 0
        if record["reason"] != "PodLost":  # has two valid forms
            yield ("attempts", i, "node"), "other"
            yield ("attempts", i, "text"), "other"
        if record["isLossKnown"]:
            yield ("attempts", i, "lossEnded"), 0


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
