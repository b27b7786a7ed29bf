#!/usr/bin/env python3
"""Checks the pages of docs/guides without a cluster.

Each ```sh block has a comment above it: the test that executes it, or why it is not executed. The blocks that name this program run
here, unchanged, in a directory with the repository's examples. "exits with N" in the comment is the expected exit code of the
last command, and the lines of a ```text block that follows must be in the output, whatever their line:column numbers.
A ```dockerfile block is part of examples/own-task/Dockerfile.
`oarlock validate` accepts every TrainingJob of the pages and of examples/migration, and the table of
migrating-from-pytorchjob.md has the right numbers of lines and of different fields.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

SOURCE = pathlib.Path(os.environ["OARLOCK_SOURCE"])
BIN = pathlib.Path(os.environ["OARLOCK_BIN"])
GUIDES = SOURCE / "docs" / "guides"
ME = "tests/integration/guides/run_guides.py"
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
POSITION = re.compile(r":\d+:\d+:")


def run(script, directory, expected):
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-uo", "pipefail", "-c", script if expected else f"set -e\n{script}"], cwd=directory, env=environment,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == expected, f"{script}ended with {done.returncode}, not {expected}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def run_page(page, work):
    directory = work / page.stem
    directory.mkdir()
    for name in ("examples", "manifests"):
        (directory / name).symlink_to(SOURCE / name)
    shutil.copy(SOURCE / "tests/data/torchscript_guide.pt", directory / "model.pt")  # written by the code of torchscript.md
    output, count = "", 0
    for comment, language, code in BLOCK.findall(page.read_text()):
        if language == "sh":
            assert re.match(r"executed by (tests/\S+?)(: exits with \d+)?$|not run (in CI|here): .", comment), \
                f"{page.name}: a comment above must name the test that executes it, or why it is not executed:\n{code}"
            output = ""
            if comment.startswith(f"executed by {ME}"):
                code_expected = re.search(r"exits with (\d+)$", comment)
                output = run(code, directory, int(code_expected[1]) if code_expected else 0)
                print(f"ok: {page.name}: {code.splitlines()[0]}", flush=True)
                count += 1
        elif language == "text" and output:
            shown = POSITION.sub(":", output)
            for line in code.splitlines():
                assert POSITION.sub(":", line) in shown, f"{page.name}: '{line}' is not in the output:\n{output}"
            output = ""
        elif language == "yaml" and "kind: TrainingJob" in code:
            (directory / "job.yaml").write_text(code)
            run("oarlock validate -f job.yaml", directory, 0)
            count += 1
        elif language == "dockerfile":
            assert code in (SOURCE / "examples/own-task/Dockerfile").read_text(), f"{page.name}: not in examples/own-task/Dockerfile:\n{code}"
    return count


def fields_of(value):
    """The names of the fields in a manifest, however often they occur."""
    if isinstance(value, list):
        return set().union(*map(fields_of, value))
    return set(value).union(*map(fields_of, value.values())) if isinstance(value, dict) else set()


def check_migration():
    page = (GUIDES / "migrating-from-pytorchjob.md").read_text()
    names = re.findall(r"examples/migration/(\w+)\.yaml", page.splitlines()[5])
    texts = [(SOURCE / f"examples/migration/{name}.yaml").read_text() for name in names]
    assert len(names) == 4, names
    for row, counted in (("lines", [len(text.splitlines()) for text in texts]),
                         ("different fields", [len(fields_of(yaml.safe_load(text))) for text in texts])):
        shown = [int(number) for number in re.search(rf"^\| {row} \|(.*)\|$", page, re.M)[1].split("|")]
        assert shown == counted, f"{names} have {counted} {row}, the page has {shown}"
    run("oarlock validate -f examples/migration/trainingjob.yaml", SOURCE, 0)


def main():
    pages = sorted(GUIDES.glob("*.md"))
    with tempfile.TemporaryDirectory() as work:
        count = sum(run_page(page, pathlib.Path(work)) for page in pages)
    check_migration()
    print(f"{len(pages)} pages, {count} blocks")
    sys.exit(0 if count > 4 else 1)


main()
