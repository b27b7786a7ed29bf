#!/usr/bin/env python3
"""The operator and the real Kueue, with a real control plane; kwok plays the kubelets.

First Kueue alone, whether it still behaves as the operator relies on, then the scenarios with the operator. Each runs in a
namespace with separate queues and prints one line. After each, its whole history is checked for pods without quota and
for quota that was released too early.
"""
import argparse
import pathlib
import signal
import sys

import admission
import kueue  # extends the path of modules
import scene as scenes
from control_plane import ROOT, ControlPlane, Kwok
from history import History
from installed import InstalledOarlock
from kueue_facts import FACTS
from lifecycle import SCENARIOS as LIFECYCLE, WITH_PROCESSES
from processes import Failed
from scenario_run import ScenarioRun, add_options, pod_stages, select

SCENARIOS = (*admission.SCENARIOS, *LIFECYCLE)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, (*FACTS, *SCENARIOS))
    args = parser.parse_args()
    selected = select(parser, args, (*FACTS, *SCENARIOS))
    args.facts = [one for one in FACTS if one in selected]
    args.scenarios = [one for one in SCENARIOS if one in selected]
    return args


def main():
    args = arguments()
    programs = {name: kueue.find_program(name, "kueue") for name in ("kwok", "kueue")}
    with kueue.temporary_directory(args.directory) as directory, ControlPlane(directory, []) as plane:
        manager = kueue.Kueue(plane, programs["kueue"])
        plane.apply(*sorted((ROOT / "manifests" / "crd").glob("*.yaml")))
        manager.install()
        with Kwok(plane, programs["kwok"], pod_stages(plane.directory), nodes=len(scenes.NODES)):
            scenes.label_nodes(plane)
            history = History(plane)
            run = ScenarioRun(lambda: scenes.Scene(plane, history))
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

    def operator_metrics(self):
        return self._oarlock.metrics()

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
