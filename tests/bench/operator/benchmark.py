#!/usr/bin/env python3
"""scripts/bench operator: Oarlock compared with Kubeflow's training-operator and JobSet.

All run outside of the cluster against one kube-apiserver with etcd, controller-manager and scheduler; kwok
plays 100 nodes. A job has four pods everywhere. Systems take turns, and the order changes from round to round.

  create   the time until all pods of N jobs exist, compared with a raw loop that POSTs the same jobs, Services and pods with
           the operator's own HTTP client and the same number of jobs in the making; kwok does not run, and no
           scheduler takes the pods
  running  all systems: the time until all pods run on kwok's nodes, CPU seconds of the controller's process, API
           requests by the server's audit log, memory, start to first write, and 30 s at rest
  alone    what running measures, of Oarlock alone and without kwok; only when named
  queued   Oarlock and JobSet, each with the same Kueue: what the controller costs per job while the first number of --jobs
           waits in a queue on hold, and until the pods of all of them run; only when named
  memory   Oarlock with 10,000 pods in its cache: after their creation, after the API server was killed and its watches
           had to list again, and as found by a new process
"""
import argparse
import json
import os
import pathlib
import signal
import sys
import tempfile

import queued
import report
from control_plane import ROOT, ControlPlane, Kwok
from kueue_manager import Kueue
from processes import Failed
from scenarios import Bench, Load
from systems import JobSet, Oarlock, TrainingOperator, TunedTrainingOperator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from figures import machine  # noqa: E402

EXAMPLES = """examples:
  scripts/bench operator
  scripts/bench operator --only create --pairs 5 --jobs 200
  scripts/bench operator --only running --systems oarlock,jobset --json operator.json
  scripts/bench operator --only queued --jobs 1000 --pairs 1
"""
LOAD_USER = "bench-load"
DEFAULT_PARTS = ("create", "running", "memory")
PARTS = (*DEFAULT_PARTS, "alone", "queued")
WITH_RIVALS = {"running", "queued"}
SYSTEMS = {"oarlock": Oarlock, "training-operator": TrainingOperator, "training-operator-tuned": TunedTrainingOperator,
           "jobset": JobSet}
PROGRAMS = {TrainingOperator: "training-operator", TunedTrainingOperator: "training-operator", JobSet: "jobset"}


def progress(message):
    print(f"{message} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)


def in_turn(items, round_number):
    """The same items, another one first in each round."""
    shift = round_number % len(items)
    return items[shift:] + items[:shift]


def bench_create(bench, ours, args):
    ours.install()
    namespace = bench.plane.make_namespace()
    raw = bench.raw_templates(ours, namespace)
    sides = {"raw": (None, raw), "ours": (ours, [ours.job(namespace, "nobody")])}
    pairs = {str(jobs): [] for jobs in args.jobs}
    for jobs in args.jobs:
        for pair in range(args.pairs):
            done = {}
            for side in in_turn(list(sides), pair):
                progress(f"create, {jobs} jobs, pair {pair + 1} of {args.pairs}, {side}")
                done[side] = bench.create(*sides[side], namespace, jobs)
                bench.load.purge(ours.lists(namespace))
            pairs[str(jobs)].append(done)
    return pairs


def bench_running(bench, systems, args):
    runs = {system.name: [] for system in systems}
    for number in range(args.pairs):
        for system in in_turn(systems, number):
            progress(f"running, {args.jobs[0]} jobs, round {number + 1} of {args.pairs}, {system.name}")
            runs[system.name].append(bench.running(system, args.jobs[0], 0 if number else args.rest))
    return runs


def bench_larger(bench, ours, args):
    runs = {}
    for jobs in args.jobs[1:]:
        progress(f"running, {jobs} jobs, {ours.name}")
        runs[str(jobs)] = [bench.running(ours, jobs, 0)]
    return runs


def bench_queued(bench, systems, manager, args):
    for system in systems:  # In each run, Kueue finds the CRDs of both.
        system.install()
        system.uninstall()
    runs = {system.name: [] for system in systems}
    for number in range(args.pairs):
        for system in in_turn(systems, number):
            progress(f"queued, {args.jobs[0]} jobs, round {number + 1} of {args.pairs}, {system.name}")
            runs[system.name].append(queued.measure(bench, manager, system, args.jobs[0]))
    return runs


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench operator", description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rivals", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="rounds (default 3)")
    parser.add_argument("--only", default=",".join(DEFAULT_PARTS), metavar="NAME,...", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--systems", default=",".join(SYSTEMS), metavar="NAME,...", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--jobs", default="200,1000", metavar="N,...",
                        help="how many; rivals run the first number only (default 200,1000)")
    parser.add_argument("--cache-pods", type=int, default=10000, metavar="N", help="of the part memory (default 10000)")
    parser.add_argument("--concurrency", type=int, default=16, metavar="N",
                        help="jobs created concurrently, by the raw loop and by the user: as many as the operator has "
                        "workers (default 16)")
    parser.add_argument("--rest", type=int, default=30, metavar="S", help="seconds of rest to look at (default 30)")
    parser.add_argument("--timeout", type=int, default=120, metavar="S", help="for a burst (default 120)")
    parser.add_argument("--json", metavar="FILE", help="write every figure of every run")
    args = parser.parse_args()
    args.only, args.systems = args.only.split(","), args.systems.split(",")
    for given, known in ((args.only, PARTS), (args.systems, SYSTEMS)):
        for name in given:
            if name not in known:
                parser.error(f"unknown name '{name}'; there are: {', '.join(known)}")
    try:
        args.jobs = [int(number) for number in args.jobs.split(",")]
    except ValueError:
        parser.error("--jobs takes numbers, such as 200,1000")
    if min(*args.jobs, args.pairs, args.concurrency, args.cache_pods, args.timeout, 1) < 1 or args.rest < 0:
        parser.error("numbers must be at least 1")
    if "queued" in args.only and not {"oarlock", "jobset"} & set(args.systems):
        parser.error("the part queued needs oarlock or jobset in --systems")
    if not args.rivals:  # the smoke test: what needs neither kwok nor a rival
        args.systems = ["oarlock"]
        for name in WITH_RIVALS & set(args.only):
            parser.error(f"the part {name} needs kwok and the rivals: run it by scripts/bench operator")
    return args


def main():
    args = arguments()
    binaries = pathlib.Path(args.bin)
    results = {}
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as directory:
        users = [user for system in SYSTEMS.values() for user in (system.user, *system.helpers)]
        users += [LOAD_USER, Kueue.account_user]
        with ControlPlane(directory, users) as plane:
            ours = Oarlock(plane, binaries / "oarlock-operator", ROOT / "manifests")
            bench = Bench(plane, Load(plane, binaries / "oarlock-bench-load", LOAD_USER), args.concurrency,
                          args.timeout)
            if "create" in args.only:
                results["create"] = bench_create(bench, ours, args)
            if WITH_RIVALS & set(args.only):
                def program(name):
                    return pathlib.Path(args.rivals, name).resolve()

                systems = {name: ours if SYSTEMS[name] is Oarlock else SYSTEMS[name](plane, program(PROGRAMS[SYSTEMS[name]]))
                           for name in args.systems}
                with Kwok(plane, program("kwok")):
                    if "running" in args.only:
                        results["running"] = bench_running(bench, list(systems.values()), args)
                        if "oarlock" in args.systems:
                            results["larger"] = bench_larger(bench, ours, args)
                    if "queued" in args.only:
                        both = [systems[name] for name in ("oarlock", "jobset") if name in systems]
                        results["queued"] = bench_queued(bench, both, queued.make_kueue(plane, program("kueue")), args)
            if "alone" in args.only:
                progress(f"alone, {args.jobs[0]} jobs")
                results["alone"] = bench.running(ours, args.jobs[0], args.rest, kwok=False)
            if "memory" in args.only:
                progress(f"memory, {args.cache_pods} pods")
                ours.install()
                results["memory"] = bench.memory(ours, args.cache_pods)
    found = report.rows(results)
    print(report.table(found))
    load = os.getloadavg()[0]
    cpus = len(os.sched_getaffinity(0))
    if load > 1.5 * cpus:
        print(f"\nthe machine was busy (load {load:.1f} on {cpus} cores): times are upper bounds, ratios are of neighbors in time")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "pairs": args.pairs, "concurrency": args.concurrency, **results,
                       "table": [row.cells() for row in found]}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main()
    except Failed as error:
        sys.exit(f"error: {error}")
