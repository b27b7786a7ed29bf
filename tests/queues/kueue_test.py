#!/usr/bin/env python3
"""The operator and the real Kueue, with a real control plane; kwok plays the kubelets.

First Kueue alone, whether it still behaves as the operator relies on, then the scenarios with the operator. Each runs in a
namespace with separate queues and prints one line. After each, its whole history is checked for pods without quota and
for quota that was released too early.
"""
import argparse
import os
import pathlib
import signal
import sys
import time

import admission
import kueue  # extends the path of modules
import scene as scenes
from control_plane import HERE as BENCH, ROOT, ControlPlane, Kwok
from history import History
from installed import InstalledOarlock
from kueue_facts import FACTS
from lifecycle import SCENARIOS as LIFECYCLE, WITH_PROCESSES
from processes import Failed

SCENARIOS = (*admission.SCENARIOS, *LIFECYCLE)
DELETION = kueue.HERE / "pod_delete_stage.yaml"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=ROOT / "build" / "release" / "bin", type=pathlib.Path, metavar="DIR",
                        help="the directory with oarlock-operator (default build/release/bin)")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(one.__name__ for one in (*FACTS, *SCENARIOS))}")
    parser.add_argument("--directory", metavar="DIR", help="write the logs there, and keep them (default: a temporary one)")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else [one.__name__ for one in (*FACTS, *SCENARIOS)]
    known = {one.__name__ for one in (*FACTS, *SCENARIOS)}
    for name in names:
        if name not in known:
            parser.error(f"unknown name '{name}'")
    args.facts = [one for one in FACTS if one.__name__ in names]
    args.scenarios = [one for one in SCENARIOS if one.__name__ in names]
    return args


class Run:
    """Runs scenarios one after the other, and counts those that failed."""

    def __init__(self, plane, history):
        self._plane, self._history = plane, history
        self.failed = 0

    def run(self, scenario, *more):
        started = time.monotonic()
        scene = scenes.Scene(self._plane, self._history)
        try:
            scenario(scene, *more)
            found = scene.end()
        except Failed as error:
            found = str(error).splitlines()
        result = "failed" if found else "passed"
        self.failed += bool(found)
        title = scenario.__doc__.splitlines()[0]
        print(f"{result} {time.monotonic() - started:5.1f} s  {scenario.__name__}: {title}", flush=True)
        for line in found:
            print(f"    {line}", flush=True)


def pod_stages(directory):
    file = directory / "pod_stages.yaml"
    file.write_text("\n---\n".join(stage.read_text() for stage in (BENCH / "pod_ready_stage.yaml", DELETION)))
    return file


def main():
    args = arguments()
    programs = {name: kueue.find_program(name, "kueue") for name in ("kwok", "kueue")}
    with kueue.temporary_directory(args.directory) as directory, ControlPlane(directory, []) as plane:
        manager = kueue.Kueue(plane, programs["kueue"])
        plane.apply(*sorted((ROOT / "manifests" / "crd").glob("*.yaml")))
        manager.install()
        with Kwok(plane, programs["kwok"], pod_stages(plane.directory), nodes=len(scenes.NODES)):
            scenes.label_nodes(plane)
            run = Run(plane, History(plane))
            processes = Processes(manager, args.bin / "oarlock-operator")
            try:
                processes.start_kueue()
                for fact in args.facts:
                    run.run(fact)
                for scenario in args.scenarios:
                    processes.restore()
                    run.run(scenario, *([processes] if scenario in WITH_PROCESSES else []))
            finally:
                processes.stop()
    print(f"{len(args.facts) + len(args.scenarios) - run.failed} passed, {run.failed} failed")
    return 1 if run.failed else 0


class Processes:
    """Kueue's manager and the operator, which some scenarios stop and start."""

    def __init__(self, manager, operator):
        self.manager, self._operator = manager, operator
        self._running, self._oarlock = {}, None

    def start_kueue(self):
        self._running["kueue"] = self.manager.start()

    def start_operator(self):
        self._oarlock = self._oarlock or InstalledOarlock(self.manager.plane, self._operator)
        self._running["operator"] = self._oarlock.start()

    def restore(self):
        """Starts what a scenario that failed has stopped."""
        for name, start in (("kueue", self.start_kueue), ("operator", self.start_operator)):
            if name not in self._running:
                start()
            self._running[name].check()

    def stop_kueue(self):
        self._running.pop("kueue").stop()

    def stop_operator(self):
        self._running.pop("operator").stop()

    def stop(self):
        while self._running:
            self._running.popitem()[1].stop()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"error: {failure}")
