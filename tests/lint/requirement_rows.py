#!/usr/bin/env python3
"""Checks that the column "proved by" of docs/requirements.md is that of the ctest labels, or writes it with --update.

The state before the column is "done", "part: what is missing", or "–" for a row that no test proves. A label without a row is
an error.

usage: requirement_rows.py SOURCE_DIR BUILD_DIR [--update]
"""
import json
import pathlib
import re
import subprocess
import sys

ROW = re.compile(r"^(\| ([KRLDGCQTS]\d\d)\b[^|]*\|[^|]*\| (done|part: [^|]+|–) \|)[^|]*\|\s*$")
LABEL = re.compile(r"^[KRLDGCQTS]\d\d$")


def labels_by_test(build):
    out = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    tests = {}
    for test in json.loads(out.stdout)["tests"]:
        values = [prop["value"] for prop in test.get("properties", []) if prop["name"] == "LABELS"]
        tests[test["name"]] = {label for label in (values[0] if values else []) if LABEL.match(label)}
    return tests


def with_tests(text, tests):
    """The table with the column of the labels, and the problems that only an author can correct."""
    lines, problems, rows = [], [], {}
    for line in text.splitlines():
        match = ROW.match(line)
        if match:
            rest, row, state = match.groups()
            rows[row] = state
            names = sorted(name for name, labels in tests.items() if row in labels)
            if (state == "–") != (not names):
                problems.append(f"docs/requirements.md: row {row} has '{state}' and {len(names)} tests carry it")
            line = f"{rest} {', '.join(f'`{name}`' for name in names) or '–'} |"
        elif line.startswith("|") and not re.match(r"^\|(---| row )", line):
            problems.append(f"docs/requirements.md: this line is not a row: {line[:60]}")
        lines.append(line)
    problems += [f"test {name} carries {row}, which docs/requirements.md does not have"
                 for name, labels in sorted(tests.items()) for row in sorted(labels - rows.keys())]
    return "\n".join(lines) + "\n", problems, rows


def main():
    page = pathlib.Path(sys.argv[1]) / "docs/requirements.md"
    old = page.read_text()
    new, problems, rows = with_tests(old, labels_by_test(sys.argv[2]))
    if "--update" in sys.argv[3:]:
        page.write_text(new)
    elif new != old:
        lines = zip(old.splitlines(), new.splitlines())
        problems += [f"docs/requirements.md: row {ROW.match(b).group(2)}: the tests are not those of the labels; write them with"
                     " cmake --build build/release --target generate" for a, b in lines if a != b]
    done = sum(1 for state in rows.values() if state == "done")
    begun = sum(1 for state in rows.values() if state != "–")
    print("\n".join(problems) or f"of {len(rows)} rows, {done} are done and {begun - done} in part")
    sys.exit(1 if problems or begun == 0 else 0)


if __name__ == "__main__":
    main()
