#!/usr/bin/env python3
"""Fails on an include against the arrows of docs/architecture.md.

usage: include_direction.py SOURCE_DIR [BUILD_DIR]
"""
import pathlib
import re
import sys

# Folder -> folders that its files may include, besides itself and the folders inside of it. The longest match counts.
ALLOWED = {
    "common": [],
    "operator/api": ["common"],
    "operator/core": ["common", "operator/api"],
    "operator/kube/auth": ["common"],
    "operator/kube/client": ["common"],
    "operator/kube/cpprestsdk": ["common"],
    "operator/shell": ["common", "operator/api", "operator/core", "operator/kube"],
    "operator": ["common", "operator/api", "operator/core", "operator/kube", "operator/shell"],
    "trainer/config": ["common"],
    "trainer/telemetry": ["common"],
    "trainer/process": ["common"],
    "trainer/recovery": ["common", "trainer/process"],
    "trainer/formats": ["common"],
    "trainer/data": ["common", "trainer/formats"],
    "trainer/checkpoint": ["common"],
    "trainer/nn": ["common"],
    "trainer/device": ["common", "trainer/config", "trainer/data", "trainer/nn"],
    "trainer/distributed": [
        "common",
        "trainer/config",
        "trainer/process",
        "trainer/recovery",
        "trainer/nn",
        "trainer/device",
    ],
    "trainer/optim": ["common", "trainer/config", "trainer/checkpoint", "trainer/nn", "trainer/device"],
    "trainer/report": ["common", "trainer/config", "trainer/telemetry", "trainer/checkpoint", "trainer/distributed"],
    "trainer/tracking": ["common", "trainer/config"],
    "trainer/engine": [
        "common",
        "trainer/config",
        "trainer/telemetry",
        "trainer/process",
        "trainer/recovery",
        "trainer/data",
        "trainer/checkpoint",
        "trainer/nn",
        "trainer/device",
        "trainer/distributed",
        "trainer/optim",
        "trainer/report",
        "trainer/tracking",
    ],
    "trainer/tasks": ["common", "trainer/config", "trainer/formats", "trainer/data", "trainer/nn", "trainer/engine"],
    "trainer": ["common", "trainer/engine", "trainer/tasks"],
    "cli": ["common", "operator/api", "operator/core"],
    "cli/cluster": ["common", "cli", "operator/api", "operator/core", "operator/kube"],
}
# Libraries that are restricted to some folders: the operator must never include LibTorch, and only HTTP code may include
# Boost. The trainer includes the public headers of common/http, so these must be free of Boost.
BOOST = re.compile(r"<boost/")
FORBIDDEN = [
    (("common", "operator", "cli"), re.compile(r"<(torch|ATen|c10)/")),
    (("common", "trainer", "cli", "operator/api", "operator/core", "operator/shell"), BOOST),
    (("operator/core",), re.compile(r"<(thread|mutex|random|iostream|fstream)>")),
]
# Exceptions from FORBIDDEN.
PERMITTED = [
    (re.compile(r"common/http/(\w+\.cc|connection\.h|client/(\w+\.cc|channel\.h))"), BOOST),
    (re.compile(r"trainer/tracking/event_file\.cc"), BOOST),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+("([^"]+)"|<[^>]+>)', re.M)


def within(path, folder):
    return path == folder or path.startswith(folder + "/")


def owner(path):
    matches = [folder for folder in ALLOWED if within(path, folder)]
    return max(matches, key=len) if matches else None


def main():
    root = pathlib.Path(sys.argv[1])
    problems, seen = [], 0
    for top in ("common", "operator", "trainer", "cli"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".h", ".cc", ".cu"):
                continue
            path = file.relative_to(root).as_posix()
            folder = owner(path)
            for match in INCLUDE.finditer(file.read_text()):
                seen += 1
                line = file.read_text()[: match.start(1)].count("\n") + 1
                for places, pattern in FORBIDDEN:
                    if any(place.fullmatch(path) for place, permitted in PERMITTED if permitted is pattern):
                        continue
                    if any(within(path, place) for place in places) and pattern.search(match.group(1)):
                        problems.append(f"{path}:{line}: {match.group(1)} does not belong in {folder}")
                target = match.group(2)
                if target is None:
                    continue
                if not (root / target).exists():
                    problems.append(f"{path}:{line}: \"{target}\" is not a path from the root of the checkout")
                elif not within(target, folder) and not any(within(target, place) for place in ALLOWED[folder]):
                    problems.append(f"{path}:{line}: {folder} must not include \"{target}\"")
    print("\n".join(problems) or f"{seen} includes follow the arrows")
    sys.exit(1 if problems or seen < 100 else 0)


if __name__ == "__main__":
    main()
