#!/usr/bin/env python3
"""Checks the sources of a release, in addition to actionlint.

usage: release_files.py SOURCE_DIR

- Workflows: actions are pinned by commit with a version in a comment, the token may only read unless a job has other permissions, each
  job has a timeout, checkouts keep no credentials, and the lanes of scripts/test are those of the jobs.
- scripts/release: each subcommand that a workflow calls exists, and release.yaml has no other logic.
- CHANGELOG.md is well-formed and has a section for the version, and python/oarlock.py has that version.
- docs/versioning.md has the versions that the sources pin.
- The krew template has the fields that krew requires, once for each platform.
"""
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "scripts/lib/release"))
import changelog  # noqa: E402

PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+){2}$")


def read(path):
    return (ROOT / path).read_text()


def match(path, pattern):
    found = re.search(pattern, read(path), re.M)
    if not found:
        raise SystemExit(f"{path}: nothing matches {pattern}; adapt tests/lint/release_files.py")
    return found.group(1)


def check_workflow(path):
    text = path.read_text()
    workflow = yaml.load(text, Loader=yaml.BaseLoader)
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*(- )?uses:", line) and not PINNED.search(line):
            yield f"line {number}: pin the action by its commit, with the version as a comment: {line.strip()}"
    if workflow.get("permissions") != {"contents": "read"}:
        yield "permissions: must be 'contents: read'; a job that needs more has its own permissions"
    if "concurrency" not in workflow:
        yield "concurrency: is missing"
    for name, job in workflow["jobs"].items():
        if "timeout-minutes" not in job:
            yield f"jobs.{name}.timeout-minutes: is missing"
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@") and step.get("with", {}).get("persist-credentials") != "false":
                yield f"jobs.{name}: the checkout keeps credentials; set persist-credentials: false"


def lanes():
    default = set(match("scripts/test", r"^kDefaultLanes=\((.*)\)").split())
    return default, set(match("scripts/test", r"^kLanes=\((.*)\)").split()) - default


def matrix(path, job, axis):
    return set(yaml.load(read(path), Loader=yaml.BaseLoader)["jobs"][job]["strategy"]["matrix"][axis])


def check_lanes():
    default, named = lanes()
    if matrix(".github/workflows/ci.yaml", "test", "lane") != default:
        yield f"ci.yaml: the lanes differ from those of scripts/test: {' '.join(sorted(default))}"
    weekly = {command.rpartition("scripts/test ")[2] for command in matrix(".github/workflows/weekly.yaml", "test", "command")}
    if not named <= weekly:
        yield f"weekly.yaml: does not run {' '.join(sorted(named - weekly))}"


def check_release_steps():
    """The steps of release.yaml: calls of scripts/release, and what prepares a machine."""
    commands = set(re.findall(r"^  ([a-z]+)\) ", read("scripts/release"), re.M))
    allowed = re.compile(r'scripts/(release|setup) |version=\$\(scripts/release version |echo "version=\$version" >>"\$GITHUB_OUTPUT"$'
                         r"|apt-get update && apt-get install |git config --global --add safe\.directory |sudo rm -rf ")
    for name, job in yaml.load(read(".github/workflows/release.yaml"), Loader=yaml.BaseLoader)["jobs"].items():
        for line in (line for step in job["steps"] for line in step.get("run", "").splitlines()):
            if not allowed.match(line):
                yield f"release.yaml: jobs.{name} has logic that scripts/release should have: {line}"
            for command in re.findall(r"scripts/release ([a-z]+)", line):
                if command not in commands:
                    yield f"release.yaml: scripts/release has no command '{command}'"


def check_changelog():
    text = read("CHANGELOG.md")
    yield from (f"CHANGELOG.md: {problem}" for problem in changelog.problems(text))
    version = read("VERSION").strip()
    if match("python/oarlock.py", r'^__version__ = "(.*)"$') != version:
        yield f"python/oarlock.py: __version__ is not {version}"
    if not changelog.section(text, version):
        yield f"CHANGELOG.md: there is no section for {version}"


def check_versions():
    page = read("docs/versioning.md")
    oldest, newest = (match("scripts/lib/cluster/versions.sh", rf"^kKubernetes{end}=(.*)$") for end in ("Oldest", "Newest"))
    expected = {
        "Kubernetes": (f"{oldest} to {newest}", match("scripts/lib/cluster/versions.sh", r"^kKubernetesVersion=.*-v(.*)}$")),
        "Helm": ("3", match("scripts/lib/cluster/versions.sh", r"^kHelmVersion=v(.*)$")),
        "LibTorch": (match("cmake/torch.cmake", r"/torch-([\d.]+)/torch"), match("docker/trainer.Dockerfile", r"torch==([\d.]+)")),
        "CUDA": (match("scripts/lib/setup_cuda.sh", r"cuda-headers-([\d.]+)"), ""),
        "NCCL": (match("scripts/lib/setup_cuda.sh", r"nvidia-nccl-cu13 ([\d.]+)"), ""),
        "glibc": (match("scripts/lib/release/archive.sh", r"^kGlibcMaximum=(.*)$"), ""),
    }
    for name, (supported, tested) in expected.items():
        row = re.search(rf"^\| {name}[^|]*\| ([^|]*)\| ([^|]*)\|$", page, re.M)
        if not row or not row.group(1).startswith(supported) or not row.group(2).startswith(tested):
            yield f"docs/versioning.md: the row {name} does not say '{supported}', and tested '{tested}', as the sources do"
    checkpoint = match("trainer/checkpoint/manifest.h", r"kFormatVersion = (\d+)")
    if f"currently {checkpoint}." not in page:
        yield f"docs/versioning.md: the format of checkpoints is {checkpoint}"
    if match("manifests/crd/oarlock.dev_trainingjobs.yaml", r"^  - name: (v\w+)$") not in page:
        yield "docs/versioning.md: does not name the version of the API"


def check_krew():
    """https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest: required fields, and nothing that krew does not know."""
    manifest = yaml.safe_load(read("packaging/krew/oarlock.yaml"))
    if (manifest["apiVersion"], manifest["kind"], manifest["metadata"]) != ("krew.googlecontainertools.github.com/v1alpha2", "Plugin", {"name": "oarlock"}):
        yield "apiVersion, kind or metadata is wrong"
    spec = manifest["spec"]
    if not {"version", "shortDescription", "platforms"} <= set(spec) <= {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}:
        yield f"spec has the keys {', '.join(spec)}"
    if len(spec["shortDescription"]) > 50 or spec["shortDescription"].endswith("."):
        yield "spec.shortDescription is longer than 50 characters, or ends with a full stop"
    if max(map(len, spec["description"].splitlines())) > 80:
        yield "spec.description has lines of more than 80 characters"
    labels = [platform["selector"]["matchLabels"] for platform in spec["platforms"]]
    if labels != [{"os": "linux", "arch": "amd64"}, {"os": "linux", "arch": "arm64"}]:
        yield f"spec.platforms: {labels}"
    for platform in spec["platforms"]:
        if set(platform) != {"selector", "uri", "sha256", "bin"}:
            yield f"spec.platforms has the keys {', '.join(platform)}"


def main():
    problems = []
    workflows = sorted((ROOT / ".github/workflows").glob("*.yaml"))
    for path in workflows:
        problems += [f".github/workflows/{path.name}: {problem}" for problem in check_workflow(path)]
    problems += [f".github/workflows/{problem}" for check in (check_lanes, check_release_steps) for problem in check()]
    problems += [*check_changelog(), *check_versions(), *(f"packaging/krew/oarlock.yaml: {problem}" for problem in check_krew())]
    print("\n".join(problems) or f"{len(workflows)} workflows, the changelog, the versions and the krew template are consistent")
    sys.exit(1 if problems or not workflows else 0)


if __name__ == "__main__":
    main()
