#!/usr/bin/env python3
"""Runs the health checks of packaging/argocd on their testdata, as Argo CD's own tests do, with lua5.1.

Argo CD runs them with gopher-lua, a Lua 5.1, without the libraries for strings, mathematics and files, so that these do not
exist here. Each file of testdata must be in health_test.yaml.

usage: argocd_health_test.py SOURCE_DIR
"""
import pathlib
import subprocess
import sys
import unittest

import yaml

ROOT = pathlib.Path(sys.argv.pop(1)).resolve() / "packaging/argocd"
DRIVER = """
getmetatable("").__index = nil
string, math, io, os, debug, coroutine = nil
local hs = assert(loadfile(arg[1]))()
assert(type(hs.status) == "string" and (hs.message == nil or type(hs.message) == "string"))
print(hs.status)
print(hs.message or "")
"""


def lua(value):
    """The value as an expression of Lua."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{lua(key)}] = {lua(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(lua(item) for item in value) + "}"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "nil"}[value]
    if isinstance(value, str):
        return '"' + "".join(f"\\{byte:03}" for byte in value.encode()) + '"'
    return repr(value)


def run(script, job):
    """The status and the message that the script returns for the job."""
    result = subprocess.run(["lua5.1", "-", script], input=f"obj = {lua(job)}\n{DRIVER}", capture_output=True, text=True, timeout=60)
    if result.returncode != 0:
        raise AssertionError(f"{script}: {result.stderr}")
    return tuple(result.stdout.split("\n", 1))


def load(path):
    return yaml.safe_load(path.read_text())


class ArgoCdHealth(unittest.TestCase):
    def test_statuses_and_messages(self):
        scripts = list(ROOT.rglob("health.lua"))
        self.assertTrue(scripts)
        for script in scripts:
            directory = script.parent
            tests = load(directory / "health_test.yaml")["tests"]
            for test in tests:
                with self.subTest(test["inputPath"]):
                    expected = test["healthStatus"]
                    self.assertEqual((expected["status"], expected["message"] + "\n"), run(script, load(directory / test["inputPath"])))
            tested = {test["inputPath"] for test in tests}
            self.assertEqual(tested, {str(path.relative_to(directory)) for path in directory.glob("testdata/*.yaml")})

    def test_generations_that_were_not_observed(self):
        """They matter neither for a spec that cannot be read nor for a job whose status is that of another cluster's copy."""
        script = ROOT / "oarlock.dev/TrainingJob/health.lua"
        for name, health, spec in (("unreadable", "Degraded", {}), ("complete", "Progressing", {}),
                                   ("complete", "Progressing", {"managedBy": "oarlock.dev/operator"}),
                                   ("complete", "Healthy", {"managedBy": "kueue.x-k8s.io/multikueue"})):
            job = load(script.parent / f"testdata/{name}.yaml")
            job["metadata"]["generation"] += 1
            job["spec"].update(spec)
            self.assertEqual(health, run(script, job)[0], (name, spec))

    def test_deleted_conditions_and_unknown_phases(self):
        """Statuses that the present operator does not write."""
        script = ROOT / "oarlock.dev/TrainingJob/health.lua"
        job = load(script.parent / "testdata/running.yaml")
        job["status"]["phase"] = "Evaluating"
        self.assertEqual("Progressing", run(script, job)[0])
        del job["status"]["conditions"]
        self.assertEqual("Progressing", run(script, job)[0])
        job["status"] = {}
        self.assertEqual("Progressing", run(script, job)[0])


if __name__ == "__main__":
    unittest.main()
