"""The series of an operator with a standby."""

import math
import random
from collections import defaultdict

from sample_format import DURATION, LEAD, OPERATOR_INTERVAL, START, WAIT_BUCKETS, Series
from sample_jobs import Job

RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
QUEUE_BUCKETS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10)
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8)

OPERATORS = (("oarlock-operator-7c9d8f-x2x7k", "10.1.0.2:8080"), ("oarlock-operator-7c9d8f-9pqzl", "10.1.1.2:8080"))
HANDOVER = 2700  # when the second one becomes the leader


def write_usage(out: Series, job: Job, labels: dict[str, str], time: float) -> None:
    """What the accelerators of a job have done: each pod starts within 20 s."""
    seconds: dict[str, float] = defaultdict(float)
    for index, (begin, first, end) in enumerate(job.attempts):
        repeated = 0 if index == 0 else min(90, end - first)
        for one, start, until in (
            ("pulling" if index == 0 else "recovery", begin, begin + 20),
            ("starting", begin + 20, first),
            ("recomputed", first, first + repeated),
            ("productive", first + repeated, end),
        ):
            seconds[one] += max(0, min(time, until) - start)
    seconds["checkpoint"] = 0.02 * seconds["productive"]
    seconds["productive"] *= 0.98
    for one, value in seconds.items():
        if value:
            usage = {**labels, "class": one}
            out.add("trainingjob_accelerator_seconds_total", usage, START + time, value * job.nodes * job.per_node)
    out.add("trainingjob_queued_accelerator_seconds_total", labels, START + time, 40 * job.nodes * job.per_node)


def phase_of(name: str, time: float, job: Job | None) -> str:
    """The phase of a TrainingJob in its status."""
    if job is None:
        return "Pending"
    if time < job.attempts[0][0] + 20:
        return "Pending"
    if job.attempt_at(time) is not None:
        begin = job.attempts[job.attempt_at(time) or 0][0]
        return "Running" if time >= begin + 20 else "Restarting"
    if time < job.attempts[-1][0]:
        return "Restarting"
    return "Failed" if name == "gears" else "Complete"


def write_jobs_of_operator(out: Series, jobs: dict[tuple[str, str], Job | None], pod: str, instance: str) -> None:
    """The series about jobs, which the leader and the standbys export."""
    target = {"job": "oarlock-operator-metrics", "instance": instance, "pod": pod}
    for time in range(-LEAD, DURATION + 1, OPERATOR_INTERVAL):
        now = START + time
        finished: dict[tuple[str, str, str], int] = defaultdict(int)
        for (namespace, name), job in jobs.items():
            labels = {**target, "namespace": namespace, "trainingjob": name}
            phase = phase_of(name, time, job)
            nodes = job.nodes if job else 4
            ready = nodes if phase in ("Running", "Stalled") else 0
            out.add("trainingjob_info", {**labels, "uid": f"00000000-{name}"}, now, 1)
            out.add("trainingjob_status_phase", {**labels, "phase": phase}, now, 1)
            out.add("trainingjob_created_timestamp_seconds", labels, now, START - 600 - 7 * len(name) * 60)
            out.add("trainingjob_spec_replicas", labels, now, nodes)
            states = {
                "scheduled": 0 if job is None else nodes if phase != "Pending" else 1,
                "ready": ready,
                "succeeded": nodes if phase == "Complete" else 0,
                "failed": 1 if phase == "Failed" else 0,
            }
            for state, count in states.items():
                out.add("trainingjob_status_replicas", {**labels, "state": state}, now, count)
            if (job is None or job.memory) and phase not in ("Complete", "Failed"):
                out.add(
                    "trainingjob_requested_accelerators",
                    {**labels, "resource": "nvidia.com/gpu"},
                    now,
                    8 * nodes if job is None else job.nodes * job.per_node,
                )
            if job is None:
                queue = {**labels, "queue": namespace, "state": "waiting"}
                out.add("trainingjob_queue_timestamp_seconds", queue, now, START - 1200)
            else:
                out.add("trainingjob_progress_ratio", labels, now, job.step_at(time) / job.target)
                write_usage(out, job, labels, time)
                restarts = sum(1 for begin, _, _ in job.attempts[1:] if time >= begin - 30)
                if restarts:
                    out.add("trainingjob_restarts_total", {**labels, "reason": "DeviceFailed"}, now, restarts)
                ended = [recovery for recovery in job.recoveries if recovery[0] <= time]
                if ended:
                    out.add("trainingjob_rank_recoveries_total", labels, now, len(ended))
                    out.add("trainingjob_rank_recovery_seconds_total", labels, now, sum(one for _, one, _ in ended))
                    out.add("trainingjob_replaced_pods_total", labels, now, sum(pods for _, _, pods in ended))
            if phase in ("Complete", "Failed"):
                finished[namespace, phase, "Completed" if phase == "Complete" else "MaxRestartsExceeded"] += 1
        if pod != OPERATORS[0][0]:
            continue  # only the leader counts what jobs do
        for namespace in sorted({namespace for namespace, _ in jobs}):
            labels = {**target, "namespace": namespace}
            for result in ("Complete", "Failed"):
                reason = "Completed" if result == "Complete" else "MaxRestartsExceeded"
                out.add(
                    "trainingjob_jobs_finished_total",
                    {**labels, "result": result, "reason": reason},
                    now,
                    2 + finished[namespace, result, reason],
                )
            out.add("trainingjob_queue_evictions_total", {**labels, "reason": "Preempted"}, now, 1 + (time + LEAD) // 1800)
            out.histogram("trainingjob_startup_seconds", labels, now, WAIT_BUCKETS, 16, 5 + (time + LEAD) // 900)
            out.histogram("trainingjob_recovery_seconds", labels, now, WAIT_BUCKETS, 24, 1 + (time + LEAD) // 1200)


def write_operator(out: Series) -> None:
    generator = random.Random(3)
    uptime = 86400
    for pod, instance in OPERATORS:
        first = pod == OPERATORS[0][0]
        target = {"namespace": "oarlock-system", "job": "oarlock-operator-metrics", "pod": pod, "instance": instance}
        controller, queue = {**target, "controller": "trainingjob"}, {
            **target,
            "controller": "trainingjob",
            "name": "trainingjob",
        }
        for time in range(-LEAD, DURATION + 1, OPERATOR_INTERVAL):
            now, leads = START + time, first == (time < HANDOVER)
            work = uptime + min(time, HANDOVER) if first else max(0, time - HANDOVER)  # seconds as the leader
            burst = 1 + 6 * math.exp(-(((time - 2100) / 120) ** 2))  # at the restart
            put = out.add
            for result, speed in (("success", 1.7), ("requeue_after", 0.8), ("requeue", 0.05), ("error", 0.004)):
                put("controller_runtime_reconcile_total", {**controller, "result": result}, now, speed * work)
            put("controller_runtime_reconcile_errors_total", controller, now, 0.004 * work)
            put("controller_runtime_reconcile_panics_total", controller, now, 0)
            out.histogram("controller_runtime_reconcile_time_seconds", controller, now, RECONCILE_BUCKETS, 0.004, 2.5 * work)
            put("controller_runtime_active_workers", controller, now, round(burst * generator.uniform(0, 1.4)) if leads else 0)
            put("controller_runtime_max_concurrent_reconciles", controller, now, 16)
            put(
                "workqueue_depth",
                {**queue, "priority": "0"},
                now,
                round((burst - 1) * generator.uniform(0.5, 1.5)) if leads else 0,
            )
            put("workqueue_depth", {**queue, "priority": "-100"}, now, 0)
            put("workqueue_adds_total", queue, now, 2.6 * work)
            put("workqueue_retries_total", queue, now, 0.004 * work)
            out.histogram("workqueue_queue_duration_seconds", queue, now, QUEUE_BUCKETS, 0.0004, 2.5 * work)
            out.histogram("workqueue_work_duration_seconds", queue, now, QUEUE_BUCKETS, 0.004, 2.5 * work)
            put("workqueue_unfinished_work_seconds", queue, now, generator.uniform(0, 0.02) * burst if leads else 0)
            put("workqueue_longest_running_processor_seconds", queue, now, generator.uniform(0, 0.015) * burst if leads else 0)
            for code, method, speed in (
                ("200", "GET", 0.15),
                ("200", "PATCH", 0.4),
                ("201", "POST", 0.05),
                ("200", "PUT", 0.5),
                ("404", "GET", 0.01),
                ("409", "PATCH", 0.006),
                ("<error>", "GET", 0.0004),
            ):
                put(
                    "rest_client_requests_total",
                    {**target, "host": "10.96.0.1:443", "code": code, "method": method},
                    now,
                    speed * (work if method != "PUT" else uptime + time),
                )
            for verb, latency in (("GET", 0.006), ("PATCH", 0.012), ("POST", 0.015), ("PUT", 0.008)):
                out.histogram(
                    "rest_client_request_duration_seconds",
                    {**target, "host": "10.96.0.1:443", "verb": verb},
                    now,
                    REQUEST_BUCKETS,
                    latency,
                    30 * work,
                )
            for offset, resource in enumerate(("trainingjobs.oarlock.dev", "pods", "services")):
                labels = {**target, "resource": resource}
                put(
                    "oarlock_cache_consecutive_failures",
                    labels,
                    now,
                    1 if leads and resource == "pods" and 2400 <= time < 2460 else 0,
                )
                put("oarlock_cache_unreadable_objects_total", labels, now, 0)
                put(
                    "oarlock_cache_last_success_timestamp_seconds",
                    labels,
                    now,
                    now - (time + 130 * offset) % (420 + 45 * offset),
                )
            put("oarlock_cache_trimmed_job_reads_total", target, now, 0)
            for reason in ("rate_limited", "queue_full", "refused", "unwritable", "stopped"):
                put(
                    "trainingjob_events_dropped_total",
                    {**target, "reason": reason},
                    now,
                    2 + (time + LEAD) // 600 if first and reason == "rate_limited" else 0,
                )
            put("trainingjob_dropped_series", target, now, 0)
            put("leader_election_master_status", {**target, "name": "oarlock-operator"}, now, 1 if leads else 0)
            put("leader_election_slowpath_total", {**target, "name": "oarlock-operator"}, now, 0)
            put("process_cpu_seconds_total", target, now, 0.003 * (uptime + time) + 0.009 * work)
            put("process_resident_memory_bytes", target, now, (1.15e7 if leads else 8.6e6) + 2e5 * generator.random())
