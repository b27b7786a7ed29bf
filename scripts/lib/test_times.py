#!/usr/bin/env python3
"""Prints, of a run of ctest, the number of tests and the sum of their seconds by lane, and the ten slowest tests.

usage: test_times.py BUILD_DIR JUNIT_FILE
"""
import collections
import json
import re
import subprocess
import sys
import xml.etree.ElementTree

SLOWEST = 10


def lanes(build):
    """The lane of each test: the label that is neither a requirement row nor "sanitized"."""
    out = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    found = {}
    for test in json.loads(out.stdout)["tests"]:
        labels = [prop["value"] for prop in test.get("properties", []) if prop["name"] == "LABELS"]
        found[test["name"]] = next((label for label in (labels or [[]])[0] if not re.fullmatch(r"[A-Z]\d\d|sanitized", label)), "none")
    return found


def main():
    build, junit = sys.argv[1:]
    lane_of = lanes(build)
    seconds = {case.get("name"): float(case.get("time")) for case in xml.etree.ElementTree.parse(junit).iter("testcase")}
    by_lane = collections.defaultdict(list)
    for name, time in seconds.items():
        by_lane[lane_of.get(name, "none")].append(time)
    print("lane          tests  seconds (sum over tests that ran at the same time)")
    for lane, times in sorted(by_lane.items(), key=lambda item: -sum(item[1])):
        print(f"{lane:<12} {len(times):6} {sum(times):8.0f}")
    print("slowest tests:")
    for name, time in sorted(seconds.items(), key=lambda item: -item[1])[:SLOWEST]:
        print(f"  {time:7.1f} s  {name}")


if __name__ == "__main__":
    main()
