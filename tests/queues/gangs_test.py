#!/usr/bin/env python3
"""The operator and a gang scheduler, with a real control plane; kwok plays the kubelets.

The scheduler is kube-scheduler of a Kubernetes version that serves PodGroups, that of scheduler-plugins, or Volcano's, which
is simulated. First a real scheduler alone, whether it behaves as the operator relies on, then the scenarios with the operator.
Each runs in a separate namespace and prints one line. After each, its whole history is checked for gangs of which only a part had
nodes, and for PodGroups that were created too late or deleted too early.
"""
import argparse
import contextlib
import signal
import sys

import kueue  # extends the path of modules
import gangs
from control_plane import ROOT, ControlPlane
from gang_facts import FACTS
from gang_scenarios import NATIVE_SCENARIOS, SCENARIOS
from installed import InstalledOarlock
from processes import Failed
from scenario_run import ScenarioRun, add_options, select
from volcano import Volcano

SYSTEMS = {system.name: system for system in (gangs.Native, gangs.SchedulerPlugins, Volcano)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=SYSTEMS, default="native", help="the scheduler (default native)")
    every = (*FACTS, *SCENARIOS, *NATIVE_SCENARIOS)
    add_options(parser, every)
    args = parser.parse_args()
    of_system = {Volcano.name: SCENARIOS, gangs.Native.name: every}.get(args.system, (*FACTS, *SCENARIOS))
    args.selected = select(parser, args, of_system)
    return args


@contextlib.contextmanager
def running(process):
    """`process` may be None."""
    try:
        yield process
    finally:
        if process:
            process.stop()


def main():
    args = arguments()
    system, kwok = SYSTEMS[args.system](), kueue.find_program("kwok", "kueue")
    with kueue.temporary_directory(args.directory) as directory, \
            ControlPlane(directory, [], system.environment, system.arguments) as plane:
        plane.apply(*sorted((ROOT / "manifests" / "crd").glob("*.yaml")))
        system.install(plane)
        with gangs.Nodes(plane, kwok), running(system.start(plane)) as scheduler:
            history = gangs.GangHistory(plane, system)
            facts = ScenarioRun(lambda: gangs.FactScene(plane, history, system))
            for fact in FACTS:
                if fact in args.selected:
                    facts.run(fact)
            run = ScenarioRun(lambda: gangs.GangScene(plane, history, system))
            scenarios = [one for one in (*SCENARIOS, *NATIVE_SCENARIOS) if one in args.selected]
            if scenarios:
                with running(InstalledOarlock(plane, args.bin / "oarlock-operator").start()) as operator:
                    for scenario in scenarios:
                        for process in (scheduler, operator):
                            if process:
                                process.check()
                        run.run(scenario)
    failed = facts.failed + run.failed
    print(f"{len(args.selected) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"error: {failure}")
