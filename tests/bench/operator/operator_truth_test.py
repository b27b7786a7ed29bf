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
    for field in ("phase", "attempt", "total", "charged", "reasons"):
        yield (field,), "other"
    for field in truth["progress"] or {}:
        yield ("progress", field), -5
    for field in truth["inPodRestarts"]:
        yield ("inPodRestarts", field), -5
    for i, _ in enumerate(truth["attempts"]):
        for field in ("reason", "pod", "node", "nodeRank", "exitCode", "step", "stepsLost", "stopped", "text"):
            yield ("attempts", i, field), "other"
        yield ("attempts", i, "time"), 0
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
        assert differences(row["truth"], {**row["status"], "attempts": [{}]}) , "not detected: a wrong number of attempts"
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
