#!/usr/bin/env python3
"""Runs clang-tidy over Oarlock's sources. A file that was clean is not read again until it, a header of ours that it
includes, or the configuration changes: two cores would need a quarter of an hour for all of them each time.

usage: clang_tidy.py SOURCE_DIR BUILD_DIR [--changed]

  --changed  only the .cc files that differ from the merge base with origin/main, or from the parent of HEAD if HEAD is not ahead of
             origin/main, and at most 12 of them, those with the most changed lines; configures BUILD_DIR
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

from rooms import ROOMS

QUOTED = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)
TIDY = "clang-tidy-19"
MAX_CHANGED = 12


def closure(root, path, seen):
    """The file and every header of ours that it includes, directly or not."""
    if path in seen or not path.exists():
        return seen
    seen.add(path)
    for name in QUOTED.findall(path.read_bytes()):
        closure(root, root / name.decode(), seen)
    return seen


def key_of(root, path, command, version):
    digest = hashlib.sha256(version + (root / ".clang-tidy").read_bytes() + command.encode())
    for file in sorted(closure(root, path, set())):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def changed_files(root):
    """The .cc files that --changed selects."""
    def git(*arguments):
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True).stdout.strip()

    head, base = git("rev-parse", "HEAD"), git("merge-base", "origin/main", "HEAD")
    if base in ("", head):
        base = git("rev-parse", "HEAD^")
    lines = [line.split("\t") for line in git("diff", "--no-renames", "--numstat", base, "--", "*.cc").splitlines()]
    lines.sort(key=lambda line: -int(line[0]))
    return {root / path for _, _, path in lines[:MAX_CHANGED]}


def main():
    root, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    only = changed_files(root) if "--changed" in sys.argv[3:] else None
    if only is not None:
        if not only:
            print("clang-tidy: no changed files")
            return
        subprocess.run(["cmake", "--preset", "lint", "-B", str(build)], cwd=root, check=True, stdout=subprocess.DEVNULL)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock" / "clang-tidy"
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([TIDY, "--version"], check=True, capture_output=True).stdout
    todo, clean = [], 0
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(root) or path.relative_to(root).parts[0] not in ROOMS:
            continue
        if only is not None and path not in only:
            continue
        command = entry["command"].replace(str(build), "BUILD").replace(str(root), "ROOT")
        stamp = cache / key_of(root, path, command, version)
        if stamp.exists():
            clean += 1
        else:
            todo.append((path, stamp))

    def check(item):
        path, stamp = item
        run = subprocess.run([TIDY, "-p", str(build), "--quiet", "--extra-arg=-Wno-unknown-warning-option",
                              "--extra-arg=-Wno-deprecated-declarations", str(path)],
                             capture_output=True, text=True)
        if run.returncode == 0:
            stamp.touch()
        return path, run

    problems = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, run in pool.map(check, todo):
            if run.returncode != 0:
                problems += 1
                print(f"--- {path.relative_to(root)}\n{run.stdout}{run.stderr}")
    print(f"clang-tidy: {len(todo) - problems + clean} files clean ({clean} unchanged since they were), {problems} not")
    sys.exit(1 if problems or (only is None and clean + len(todo) == 0) else 0)


if __name__ == "__main__":
    main()
