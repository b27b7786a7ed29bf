#!/usr/bin/env python3
"""Fails on an include that the libraries of CMake do not permit.

usage: include_direction.py SOURCE_DIR BUILD_DIR

A file may include headers of the same directory, and of the directories whose libraries those of its directory link, directly or
through PUBLIC dependencies. oarlock_library() and oarlock_program() record them in BUILD_DIR/links.txt. The workloads may
include only what is installed for tasks of users (cmake/install*.cmake), and headers of workloads/ itself; other directories may
include only the headers of ddp/ that are installed.
"""
import collections
import pathlib
import re
import sys

from rooms import ROOMS

# Libraries that are restricted to some directories: the operator must never include LibTorch, and only HTTP code may include
# Boost. The trainer includes the public headers of http, so these must be free of Boost.
TORCH = re.compile(r"<(torch|ATen|c10)/")
BOOST = re.compile(r"<boost/")
MAY_TORCH = re.compile(r"(ddp|trainer|workloads)/")
MAY_BOOST = re.compile(r"http/(\w+\.cc|connection\.h|client/(\w+\.cc|channel\.h))|http/cpprestsdk/.*|trainer/tracking/event_file\.cc")
IMPURE = re.compile(r"<(thread|mutex|random|iostream|fstream)>")
MUST_BE_PURE = re.compile(r"operator/core/")
INCLUDE = re.compile(r'^\s*#\s*include\s+("([^"]+)"|<[^>]+>)', re.M)


def within(path, directory):
    return path == directory or path.startswith(directory + "/")


def read_links(path):
    """The directory of each library, and the libraries that it links: (all, PUBLIC)."""
    directories, links = {}, {}
    for line in path.read_text().splitlines():
        name, directory, public, private = line.split("|")
        directories[name] = directory
        links[name] = (public.split() + private.split(), public.split())
    return directories, links


def permitted_directories(directories, links):
    """Directory -> directories whose headers its files may include."""
    permitted = collections.defaultdict(set)
    for name, (direct, _) in links.items():
        pending, seen = list(direct), set()
        while pending:
            library = pending.pop()
            if library in seen or library not in links:
                continue
            seen.add(library)
            pending += links[library][1]
        permitted[directories[name]] |= {directories[library] for library in seen}
    return permitted


def third_party_problem(path, include):
    if TORCH.search(include) and not MAY_TORCH.match(path) or BOOST.search(include) and not MAY_BOOST.fullmatch(path):
        return "is a library that this directory does not use"
    if MUST_BE_PURE.match(path) and IMPURE.search(include):
        return "does not belong in a pure function"
    return None


def own_problem(root, path, directory, target, permitted, installed):
    if not (root / target).exists():
        return "is not a path from the root of the checkout"
    if within(target, directory):
        return None
    if within(path, "workloads") and target == f"workloads/{pathlib.Path(target).name}":
        return None
    if within(path, "workloads") and not within(target, "workloads") and target not in installed:
        return "is not installed for the tasks of users (cmake/install.cmake, cmake/install_ddp.cmake)"
    if within(target, "ddp") and target not in installed:
        return "is not a public header of oarlock::ddp (cmake/install_ddp.cmake)"
    matches = [other for other in permitted if within(target, other)]
    if not matches or max(matches, key=len) not in permitted[directory]:
        return f"is of a library that {directory} does not link"
    return None


def main():
    root, build = map(pathlib.Path, sys.argv[1:3])
    permitted = permitted_directories(*read_links(build / "links.txt"))
    lists = "".join((root / f"cmake/{name}.cmake").read_text() for name in ("install", "install_ddp"))
    installed = set(re.findall(r"^  ([\w/]+\.h)\)?$", lists, re.M))
    problems, seen = [], 0
    for file in sorted(file for room in ROOMS for file in (root / room).rglob("*")):
        if file.suffix not in (".h", ".cc", ".cu"):
            continue
        path = file.relative_to(root).as_posix()
        owners = [directory for directory in permitted if within(path, directory)]
        if not owners:
            continue  # a library that this build does not have
        text = file.read_text()
        for match in INCLUDE.finditer(text):
            seen += 1
            problem = third_party_problem(path, match.group(1))
            if problem is None and match.group(2):
                problem = own_problem(root, path, max(owners, key=len), match.group(2), permitted, installed)
            if problem:
                problems.append(f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}: {match.group(1)} {problem}")
    print("\n".join(problems) or f"{seen} includes follow the libraries")
    sys.exit(1 if problems or seen < 100 else 0)


if __name__ == "__main__":
    main()
