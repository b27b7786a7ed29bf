#!/usr/bin/env python3
"""Checks that docs/requirements.md and the ctest labels agree, in both directions.

A row's last column names the tests that prove it, or is "–". Each named test must exist and carry the row as a label;
each row that a test carries must be in the table and name that test. The state before it is "done", "part: what is
missing", or "–" without a test.

usage: requirement_rows.py SOURCE_DIR BUILD_DIR
"""
import json
import pathlib
import re
import subprocess
import sys

ROW = re.compile(r"^\| ([KRLDGCQTS]\d\d)\b[^|]*\|[^|]*\| (done|part: [^|]+|–) \|([^|]*)\|\s*$")
LABEL = re.compile(r"^[KRLDGCQTS]\d\d$")


def labels_by_test(build):
    out = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    tests = {}
    for test in json.loads(out.stdout)["tests"]:
        values = [prop["value"] for prop in test.get("properties", []) if prop["name"] == "LABELS"]
        tests[test["name"]] = {label for label in (values[0] if values else []) if LABEL.match(label)}
    return tests


def main():
    root, build = pathlib.Path(sys.argv[1]), sys.argv[2]
    tests = labels_by_test(build)
    named, problems, done = {}, [], 0
    for line in (root / "docs/requirements.md").read_text().splitlines():
        match = ROW.match(line)
        if match:
            row, state, names = match.groups()
            named[row] = set(re.findall(r"`([a-z0-9_]+)`", names))
            done += state == "done"
            if (state == "–") != (not named[row]):
                problems.append(f"docs/requirements.md: row {row} has '{state}' and names {len(named[row])} tests")
        elif line.startswith("|") and not re.match(r"^\|(---| row )", line):
            problems.append(f"docs/requirements.md: this line is not a row: {line[:60]}")
    for row, names in sorted(named.items()):
        for name in sorted(names):
            if name not in tests:
                problems.append(f"docs/requirements.md: row {row} names the test {name}, which does not exist")
            elif row not in tests[name]:
                problems.append(f"docs/requirements.md: row {row} names the test {name}, which does not carry the label {row}")
    for name, rows in sorted(tests.items()):
        for row in sorted(rows):
            if row not in named:
                problems.append(f"test {name} carries {row}, which docs/requirements.md does not have")
            elif name not in named[row]:
                problems.append(f"test {name} carries {row}: name it in that row of docs/requirements.md")
    begun = sum(1 for names in named.values() if names)
    print("\n".join(problems) or f"of {len(named)} rows, {done} are done and {begun - done} in part")
    sys.exit(1 if problems or begun == 0 else 0)


if __name__ == "__main__":
    main()
