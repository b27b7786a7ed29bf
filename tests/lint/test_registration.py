#!/usr/bin/env python3
"""Fails on a test file that is not registered with ctest.

usage: test_registration.py SOURCE_DIR BUILD_DIR
"""
import pathlib
import subprocess
import sys
import json


def registered(build):
    out = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    return {test["name"] for test in json.loads(out.stdout)["tests"]}


def main():
    root, build = pathlib.Path(sys.argv[1]), sys.argv[2]
    names = registered(build)
    files = sorted(path for path in (root / "tests").rglob("*_test.*") if path.suffix in (".cc", ".sh", ".py"))
    missing = [path for path in files if path.stem not in names]
    for path in missing:
        print(f"{path.relative_to(root)}: is not registered: add oarlock_test({path.stem} ...) to the CMakeLists.txt of its directory")
    print(f"{len(files) - len(missing)} of {len(files)} test files are registered")
    sys.exit(1 if missing or not files else 0)


if __name__ == "__main__":
    main()
