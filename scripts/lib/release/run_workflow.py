#!/usr/bin/env python3
"""Rehearses a workflow of GitHub Actions on this machine: runs its `run:` steps in order, as if it was started by hand.

usage: run_workflow.py ROOT WORKFLOW [--keep DIR] [--tag TAG]

Every job has a copy of the working tree, the environment that the workflow declares, and the outputs and artifacts of the jobs that
it needs; a matrix is expanded. Steps that change the machine (apt-get, sudo, scripts/setup) and actions other than checkout and
artifacts are left out, and a line names each of them. Programs that publish something end the rehearsal when a step calls them. A
key that this program does not know is an error, so that a workflow cannot contain more than what was rehearsed.

  --keep DIR  keeps all directories in DIR, which must be empty or not exist: DIR/artifacts, DIR/jobs/JOB
  --tag TAG   the tag of the rehearsal (default: v and the content of the file VERSION)
"""
import argparse
import fnmatch
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

FORBIDDEN = ("docker", "cosign", "gh", "oras", "apt-get", "sudo")
CHANGES_MACHINE = re.compile(r"(apt-get|sudo|scripts/setup) ")
WORKFLOW_KEYS = {"name", "on", "permissions", "concurrency", "env", "jobs"}
JOB_KEYS = {"name", "needs", "strategy", "runs-on", "timeout-minutes", "container", "environment", "permissions", "outputs", "env", "steps"}
STEP_KEYS = {"name", "id", "uses", "with", "run", "env", "if"}

TOKEN = re.compile(r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w-]*)|(?P<sign>==|!=|&&|\|\||[!().,*\[\]]))")


class RehearsalError(Exception):
    """The workflow cannot be rehearsed, or a step failed."""


class Expression:
    """Evaluates the text between ${{ and }}. https://docs.github.com/actions has the rules; comparisons ignore case."""

    def __init__(self, text, contexts):
        self.text, self.contexts, self.tokens, position = text, contexts, [], 0
        while text[position:].strip():
            match = TOKEN.match(text, position)
            if not match:
                raise RehearsalError(f"expression '{text}': unexpected '{text[position:].strip()[:10]}'")
            self.tokens.append((match.lastgroup, match.group(match.lastgroup)))
            position = match.end()

    def evaluate(self):
        value = self.either()
        if self.tokens:
            raise RehearsalError(f"expression '{self.text}': unexpected '{self.tokens[0][1]}'")
        return value

    def take(self, *signs):
        if self.tokens and self.tokens[0][0] == "sign" and self.tokens[0][1] in signs:
            return self.tokens.pop(0)[1]
        return None

    def expect(self, sign):
        if not self.take(sign):
            raise RehearsalError(f"expression '{self.text}': '{sign}' is missing")

    def either(self):
        value = self.both()
        while self.take("||"):
            other = self.both()
            value = value if truthy(value) else other
        return value

    def both(self):
        value = self.comparison()
        while self.take("&&"):
            other = self.comparison()
            value = other if truthy(value) else value
        return value

    def comparison(self):
        value = self.negation()
        while sign := self.take("==", "!="):
            same = comparable(value) == comparable(self.negation())
            value = same if sign == "==" else not same
        return value

    def negation(self):
        return not truthy(self.negation()) if self.take("!") else self.primary()

    def primary(self):
        if self.take("("):
            value = self.either()
            self.expect(")")
            return value
        if not self.tokens or self.tokens[0][0] == "sign":
            raise RehearsalError(f"expression '{self.text}' is incomplete")
        kind, token = self.tokens.pop(0)
        if kind == "string":
            return token[1:-1].replace("''", "'")
        if kind == "number":
            return float(token)
        if token in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[token]
        return self.call(token) if self.take("(") else self.member(token)

    def member(self, context):
        if context not in self.contexts:
            raise RehearsalError(f"expression '{self.text}': there is no context '{context}'")
        value = self.contexts[context]
        while self.take("."):
            key = "*" if self.take("*") else self.tokens.pop(0)[1]
            if key == "*":
                value = list(value.values())
            elif isinstance(value, list):
                value = [item.get(key) for item in value]
            else:
                value = value.get(key) if isinstance(value, dict) else None
        return value

    def call(self, function):
        arguments = []
        while not self.take(")"):
            arguments.append(self.either())
            self.take(",")
        functions = {
            "format": lambda text, *values: re.sub(r"\{(\d)\}", lambda match: as_text(values[int(match[1])]), text),
            "startsWith": lambda text, start: as_text(text).lower().startswith(as_text(start).lower()),
            "contains": lambda text, part: as_text(part).lower() in as_text(text).lower(),
            "join": lambda values, separator=",": separator.join(as_text(value) for value in values),
            "always": lambda: True, "success": lambda: True, "failure": lambda: False, "cancelled": lambda: False,
        }
        if function not in functions:
            raise RehearsalError(f"expression '{self.text}': the function '{function}' is not supported by the rehearsal")
        return functions[function](*arguments)


def truthy(value):
    return value not in (None, False, 0, "")


def comparable(value):
    return value.lower() if isinstance(value, str) else value


def as_text(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def fill(text, contexts):
    """A value of the workflow with its ${{ expressions }} replaced."""
    if not isinstance(text, str):
        return as_text(text)
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: as_text(Expression(match[1], contexts).evaluate()), text, flags=re.S)


def is_met(condition, contexts):
    if condition is None:
        return True
    text = str(condition).strip()
    match = re.fullmatch(r"\$\{\{(.*)\}\}", text, re.S)
    return truthy(Expression(match[1] if match else text, contexts).evaluate())


def check_keys(mapping, known, place):
    unknown = set(mapping) - known
    if unknown:
        raise RehearsalError(f"{place}: the rehearsal does not know '{sorted(unknown)[0]}'")


def matrix_of(job):
    """The combinations of a job's matrix; one without values if there is no matrix."""
    strategy = job.get("strategy", {})
    check_keys(strategy, {"matrix", "fail-fast"}, "strategy")
    axes = strategy.get("matrix", {})
    for axis, values in axes.items():
        if axis in ("include", "exclude") or not isinstance(values, list):
            raise RehearsalError(f"strategy.matrix.{axis}: the rehearsal supports lists of values only")
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


class Rehearsal:
    def __init__(self, root, workflow, work, tag):
        self.root, self.work = root, work
        self.workflow = yaml.load(workflow.read_text(), Loader=yaml.BaseLoader)  # BaseLoader: it does not read `on` as a boolean
        check_keys(self.workflow, WORKFLOW_KEYS, workflow.name)
        self.git = subprocess.run(["git", "-C", root, "rev-parse", "--absolute-git-dir"], capture_output=True, text=True, check=False).stdout.strip()
        self.github = {
            "event_name": "workflow_dispatch", "ref": f"refs/tags/{tag}", "ref_name": tag, "ref_type": "tag", "workflow": self.workflow["name"],
            "repository": "Example/oarlock", "repository_owner": "Example", "server_url": "https://forge.example.org", "actor": "rehearsal",
            "token": "no-token", "sha": "0" * 40}
        self.results = {}
        self.left_out = []
        self.run_count = 0
        for name in ("home", "artifacts", "shims", "jobs"):
            (work / name).mkdir(parents=True)
        for program in FORBIDDEN:
            shim = work / "shims" / program
            shim.write_text(f"#!/bin/sh\necho 'error: a rehearsal must not run {program} '\"$*\" >&2\nexit 99\n")
            shim.chmod(0o755)

    def run(self):
        waiting = dict(self.workflow["jobs"])
        while waiting:
            ready = [name for name, job in waiting.items() if set(needs_of(job)) <= set(self.results)]
            if not ready:
                raise RehearsalError(f"jobs: {', '.join(waiting)} need each other, or a job that does not exist")
            for name in ready:
                self.run_job(name, waiting.pop(name))

    def run_job(self, name, job):
        check_keys(job, JOB_KEYS, f"jobs.{name}")
        needs = {needed: self.results[needed] for needed in needs_of(job)}
        outputs = {}
        for matrix in matrix_of(job):
            label = "-".join([name, *matrix.values()])
            print(f"job {label}")
            contexts = {"github": self.github, "matrix": matrix, "needs": needs, "vars": {}, "secrets": {}, "steps": {}, "env": {}}
            for source in (self.workflow, job):
                contexts["env"].update({key: fill(value, contexts) for key, value in source.get("env", {}).items()})
            directory = self.work / "jobs" / label
            directory.mkdir()
            for step in job["steps"]:
                self.run_step(step, contexts, directory)
            outputs = {key: fill(value, contexts) for key, value in job.get("outputs", {}).items()}
        self.results[name] = {"result": "success", "outputs": outputs}

    def run_step(self, step, contexts, directory):
        title = step.get("name") or step.get("uses") or step["run"].splitlines()[0]
        check_keys(step, STEP_KEYS, f"step '{title}'")
        if not is_met(step.get("if"), contexts):
            self.leave_out(title, f"if: {step['if']}")
        elif "uses" in step:
            self.use(step["uses"].split("@")[0], {key: fill(value, contexts) for key, value in step.get("with", {}).items()}, directory, title)
        else:
            commands = [line for line in step["run"].splitlines() if line.strip()]
            if all(CHANGES_MACHINE.match(line) for line in commands):
                self.leave_out(title, "it changes the machine")
            else:
                self.execute(step, contexts, directory, title)

    def leave_out(self, title, reason):
        self.left_out.append(title)
        print(f"  left out: {title} ({reason})")

    def execute(self, step, contexts, directory, title):
        print(f"  run: {title}", flush=True)
        output = directory / "output"
        output.write_text("")
        environment = {
            **contexts["env"], **{key: fill(value, contexts) for key, value in step.get("env", {}).items()},
            "PATH": f"{self.work / 'shims'}:{os.environ['PATH']}", "HOME": str(self.work / "home"), "GITHUB_WORKSPACE": str(directory / "workspace"),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(pathlib.Path.home() / ".cache")), "GITHUB_OUTPUT": str(output), "LC_ALL": "C.UTF-8"}
        environment.update({key: value for key, value in os.environ.items() if key.startswith("OARLOCK_BUILD_DIR_") or key.startswith("CCACHE_")})
        if self.git:
            environment["GIT_DIR"] = self.git  # the copy of the working tree has no history
        result = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", fill(step["run"], contexts)], cwd=directory / "workspace",
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print("".join(f"    {line}\n" for line in result.stdout.splitlines()), end="")
        if result.returncode != 0:
            raise RehearsalError(f"step '{title}' ended with {result.returncode}")
        self.run_count += 1
        if "id" in step:
            pairs = [line.split("=", 1) for line in output.read_text().splitlines()]
            contexts["steps"][step["id"]] = {"outputs": dict(pairs)}

    def use(self, action, inputs, directory, title):
        workspace = directory / "workspace"
        if action == "actions/checkout":
            copy_working_tree(self.root, workspace)
        elif action == "actions/upload-artifact":
            source, target = workspace / inputs["path"], self.work / "artifacts" / inputs["name"]
            if target.exists():
                raise RehearsalError(f"step '{title}': the artifact {inputs['name']} exists already")
            if not source.is_dir() or not any(source.iterdir()):
                raise RehearsalError(f"step '{title}': there are no files in {inputs['path']}")
            shutil.copytree(source, target)
        elif action == "actions/download-artifact":
            if inputs.get("merge-multiple") != "true":
                raise RehearsalError(f"step '{title}': the rehearsal supports merge-multiple: true only")
            found = sorted(path for path in (self.work / "artifacts").iterdir() if fnmatch.fnmatch(path.name, inputs["pattern"]))
            if not found:
                raise RehearsalError(f"step '{title}': no artifact has a name such as {inputs['pattern']}")
            for artifact in found:
                shutil.copytree(artifact, workspace / inputs["path"], dirs_exist_ok=True)
        else:
            self.leave_out(title, "an action")


def needs_of(job):
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def copy_working_tree(root, target):
    """The files that git tracks, and new ones that it does not ignore."""
    names = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True, text=True)
    for name in filter(None, names.stdout.split("\0")):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)


def main():
    parser = argparse.ArgumentParser(add_help=False, usage=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("workflow", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--tag")
    options = parser.parse_args()
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        sys.exit(f"error: {options.keep} is not empty")
    work = options.keep.resolve() if options.keep else pathlib.Path(tempfile.mkdtemp(prefix="oarlock-rehearsal."))
    tag = options.tag or "v" + (options.root / "VERSION").read_text().strip()
    try:
        rehearsal = Rehearsal(options.root.resolve(), options.workflow, work, tag)
        rehearsal.run()
        print(f"{rehearsal.run_count} steps ran, {len(rehearsal.left_out)} were left out")
    except RehearsalError as error:
        sys.exit(f"error: {error}")
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
