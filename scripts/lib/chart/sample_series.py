#!/usr/bin/env python3
"""Writes an hour of sample series of the trainer, the operator and the DCGM exporter in the OpenMetrics format.

usage: sample_series.py OUTPUT [CLUSTER]

The series have the names and labels of the real ones, which lint_dashboards.py compares with docs/metrics-*.md and with
dcgm_exporter.prom. Their values are invented: a GPU job that recovers twice and restarts after an Xid error, a job with a straggler, a job
that completes, one that fails, one that waits in a queue, and an operator with a standby. They serve to evaluate every
query without a cluster or a GPU, and to draw the previews in docs/dashboards. With CLUSTER, all series have the label
"cluster" of this value, and those of GPUs are as scraped with honorLabels.
"""

import math
import pathlib
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator

START = 1767780000  # 2026-01-07 10:00:00 UTC, so that the hour is within one block of Prometheus
DURATION = 3600
LEAD = 600  # before START, so that the first rates have a full window
RANK_INTERVAL, OPERATOR_INTERVAL = 15, 30  # the chart's scrape intervals

STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
WAIT_BUCKETS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
QUEUE_BUCKETS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10)
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8)

Labels = dict[str, str]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]]


class Series:
    """Samples by metric and labels, in the order of their times."""

    def __init__(self, common: Labels) -> None:
        self.common = common
        self.samples: Samples = defaultdict(list)

    def add(self, metric: str, labels: Labels, time: float, value: float) -> None:
        self.samples[metric, tuple(sorted({**self.common, **labels}.items()))].append((time, value))

    def histogram(
        self, metric: str, labels: Labels, time: float, bounds: tuple[float, ...], center: float, count: float
    ) -> None:
        """A histogram with `count` observations, log-normally distributed around `center`."""
        for bound in (*bounds, math.inf):
            share = 1.0 if bound == math.inf else 0.5 * (1 + math.erf(math.log(bound / center) / 0.5))
            self.add(
                f"{metric}_bucket", {**labels, "le": "+Inf" if bound == math.inf else f"{bound:g}"}, time, round(count * share)
            )
        self.add(f"{metric}_sum", labels, time, count * center * 1.1)
        self.add(f"{metric}_count", labels, time, round(count))

    def lines(self) -> Iterator[str]:
        for (metric, labels), samples in sorted(self.samples.items()):
            matchers = ",".join(f'{key}="{value}"' for key, value in labels)
            name = f"{metric}{{{matchers}}}"
            for time, value in samples:
                yield f"{name} {value:.10g} {time:.3f}\n"
        yield "# EOF\n"


class Job:
    """A job's ranks over the hour.

    Times are seconds since START; each attempt is (begin, first step, end), and each recovery (end, duration, replaced pods).
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        *,
        nodes: int,
        per_node: int,
        attempts: list[tuple[float, float, float]],
        step_seconds: float,
        target: int,
        first_step: int,
        batch: int,
        tokens: int = 0,
        flops: float = 0,
        peak: float = 0,
        memory: float = 0,
        slow_rank: int | None = None,
        checkpoint_every: float = 600,
        recoveries: tuple[tuple[float, float, int], ...] = (),
        loss: Callable[[float], float],
        seed: int,
    ) -> None:
        self.namespace, self.name, self.nodes, self.per_node = namespace, name, nodes, per_node
        self.attempts, self.step_seconds, self.target, self.first_step = attempts, step_seconds, target, first_step
        self.batch, self.tokens, self.flops, self.peak, self.memory = batch, tokens, flops, peak, memory
        self.slow_rank, self.checkpoint_every, self.loss = slow_rank, checkpoint_every, loss
        self.recoveries = recoveries
        self.random = random.Random(seed)
        # The step at the begin of each attempt: that of the last checkpoint before it.
        self.resumed = [first_step]
        for begin, first, end in attempts[:-1]:
            saves = math.floor((end - first) / checkpoint_every)
            self.resumed.append(self.resumed[-1] + round(saves * checkpoint_every / step_seconds))

    def attempt_at(self, time: float) -> int | None:
        return next((i for i, (begin, _, end) in enumerate(self.attempts) if begin <= time < end), None)

    def step_at(self, time: float) -> int:
        """The newest step at this time; between attempts, that of the last one."""
        index = max((i for i, (begin, _, _) in enumerate(self.attempts) if begin <= time), default=0)
        _, first, end = self.attempts[index]
        return min(self.target, self.resumed[index] + max(0, math.floor((min(time, end) - first) / self.step_seconds)))

    def write(self, out: Series) -> None:
        for index in range(len(self.attempts)):
            for rank in range(self.nodes * self.per_node):
                self.write_rank(out, index, rank)

    def write_rank(self, out: Series, index: int, rank: int) -> None:
        begin, first, end = self.attempts[index]
        node = rank // self.per_node
        pod = f"{self.name}-{index}-{node}"
        labels = {
            "namespace": self.namespace,
            "trainingjob": self.name,
            "pod": pod,
            "rank": str(rank),
            "job": "trainingjobs",
            "instance": f"10.1.{node}.7:{9400 + rank % self.per_node}",
        }
        shares = {
            "data_wait": 0.04,
            "forward": 0.29,
            "backward": 0.45,
            "comm": 0.13,
            "optimizer": 0.05,
            "eval": 0.0,
            "checkpoint": 0.02,
            "other": 0.02,
        }
        if self.slow_rank is not None:  # this rank loads its data slowly, and the others wait for it
            shares.update(
                {"data_wait": 0.34, "comm": 0.01, "forward": 0.22, "backward": 0.32}
                if rank == self.slow_rank
                else {"comm": 0.30, "forward": 0.21, "backward": 0.32}
            )
        startup = {"startup": 0.5, "rendezvous": 0.2, "restore": 0.3}
        phases: dict[str, float] = defaultdict(float)
        time = RANK_INTERVAL * math.ceil(begin / RANK_INTERVAL)
        last = begin
        while time < end and time <= DURATION:
            starting = max(0.0, min(time, first) - min(last, first))
            training = max(0.0, max(time, first) - max(last, first))
            for phase, share in startup.items():
                phases[phase] += starting * share
            for phase, share in shares.items():
                phases[phase] += training * share * self.random.uniform(0.9, 1.1)
            last = time
            if time >= -LEAD:
                self.write_sample(out, index, rank, labels, START + time, time, phases)
            time += RANK_INTERVAL

    def write_sample(
        self, out: Series, index: int, rank: int, labels: Labels, now: float, time: float, phases: dict[str, float]
    ) -> None:
        begin, first, _ = self.attempts[index]
        done = max(0, math.floor((time - first) / self.step_seconds))
        step = min(self.target, self.resumed[index] + done)
        noise = self.random.uniform

        def put(metric: str, value: float, **more: str) -> None:
            out.add(metric, {**labels, **more}, now, value)

        for phase, seconds in phases.items():
            put("trainer_phase_seconds_total", seconds, phase=phase)
        put("trainer_world_size", self.nodes * self.per_node)
        put("trainer_steps_total", done)
        put("trainer_current_step", step)
        put("trainer_target_steps", self.target)
        put("trainer_last_step_timestamp_seconds", START + first + done * self.step_seconds if done else 0)
        put("trainer_samples_total", done * self.batch)
        put(
            "trainer_recomputed_steps_total",
            0 if index == 0 else max(0, self.step_at(self.attempts[index - 1][2] - 1) - self.resumed[index]),
        )
        put("trainer_learning_rate", 3e-4 * 0.5 * (1 + math.cos(math.pi * step / self.target)))
        put("trainer_data_queue_batches", 0 if rank == self.slow_rank else round(noise(2, 4)))
        put("trainer_data_queue_capacity_batches", 4)
        put("trainer_collective_bytes_total", done * 2.6e8, group="dp", op="all_reduce")
        for kind in ("loss", "gradient"):
            put("trainer_nonfinite_steps_total", 1 if kind == "gradient" and self.memory and time > 1500 else 0, kind=kind)
        put("process_resident_memory_bytes", (3.1e9 if self.memory else 7.5e8) * noise(0.99, 1.01))
        put("process_cpu_seconds_total", 0.9 * (time - begin))
        out.histogram("trainer_step_duration_seconds", labels, now, STEP_BUCKETS, self.step_seconds, done)
        recent = [seconds for ended, seconds, _ in self.recoveries if begin <= ended <= time]
        mean = sum(recent) / len(recent) if recent else 1
        out.histogram("trainer_recovery_duration_seconds", labels, now, WAIT_BUCKETS, mean, len(recent))
        if done:
            put("trainer_loss", self.loss(step) * noise(0.985, 1.015))
            put("trainer_validation_loss", self.loss(step - step % 500) * 1.04)
        if self.tokens:
            put("trainer_tokens_total", done * self.tokens)
            if done:
                put("trainer_gradient_norm", 0.4 + 40 / math.sqrt(step) + abs(self.random.gauss(0, 0.06)))
        if self.flops:
            put("trainer_model_flops_total", done * self.flops)
            put("trainer_device_peak_flops", self.peak)
        if self.memory:
            put("trainer_device_memory_limit_bytes", 79.1 * 2**30)
            put("trainer_device_memory_reserved_bytes", self.memory * 1.08)
            put("trainer_device_memory_allocated_bytes", self.memory * (noise(0.86, 0.9) if done else 0.3))
            put("trainer_device_alloc_retries_total", 3 if time - first > 60 else 0)
            put("trainer_device_ooms_total", 0)
        saves = math.floor(max(0.0, time - first) / self.checkpoint_every)
        newest = first + saves * self.checkpoint_every if saves else begin - 120 if index or self.first_step else None
        if newest is not None:
            put("trainer_last_checkpoint_timestamp_seconds", START + newest)
        if rank == 0:
            for operation, mode, count, seconds in (
                ("save", "async", saves, 6.5),
                ("restore", "sync", 1 if self.resumed[index] else 0, 3.2),
            ):
                put("trainer_checkpoint_operations_total", count, operation=operation, result="success")
                out.histogram(
                    "trainer_checkpoint_duration_seconds",
                    {**labels, "operation": operation, "mode": mode},
                    now,
                    WAIT_BUCKETS,
                    seconds,
                    count,
                )


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


def write_gpus(out: Series, job: Job, dead_gpu: int, honor_labels: bool) -> None:
    """The DCGM exporter's series of a job's GPUs. Without honorLabels, Prometheus renames the labels of the pod that uses a GPU."""
    generator = random.Random(7)
    for time in range(-LEAD, DURATION + 1, RANK_INTERVAL):
        index = job.attempt_at(time)
        for rank in range(job.nodes * job.per_node):
            node, gpu = divmod(rank, job.per_node)
            labels = {
                "gpu": str(gpu),
                "UUID": f"GPU-00000000-0000-0000-0000-{rank:012d}",
                "device": f"nvidia{gpu}",
                "modelName": "NVIDIA H100 80GB HBM3",
                "Hostname": f"gpu-node-{node}",
                "job": "dcgm-exporter",
                "instance": f"10.1.{node}.4:9400",
                "namespace": "gpu-operator",
                "pod": f"nvidia-dcgm-exporter-{node}",
            }
            if index is not None:  # a GPU that no pod uses has no such labels
                user = {"namespace": job.namespace, "pod": f"{job.name}-{index}-{node}", "container": "trainer"}
                labels.update(user if honor_labels else {f"exported_{name}": value for name, value in user.items()})
            busy = index is not None and time >= job.attempts[index][1]
            values = {
                "DCGM_FI_DEV_GPU_UTIL": generator.uniform(91, 98) if busy else 0,
                "DCGM_FI_DEV_FB_USED": job.memory * 1.1 / 2**20 if busy else 450,
                "DCGM_FI_DEV_GPU_TEMP": (58 + 2.5 * gpu + generator.uniform(-1, 1)) if busy else 34,
                "DCGM_FI_DEV_POWER_USAGE": generator.uniform(580, 660) if busy else 72,
                "DCGM_FI_DEV_XID_ERRORS": (
                    79 if rank == dead_gpu and job.attempts[0][2] - 20 <= time < job.attempts[-1][0] + 45 else 0
                ),
            }
            for metric, value in values.items():
                out.add(metric, labels, START + time, value)


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


OPERATORS = (("oarlock-operator-7c9d8f-x2x7k", "10.1.0.2:8080"), ("oarlock-operator-7c9d8f-9pqzl", "10.1.1.2:8080"))
HANDOVER = 2700  # when the second one becomes the leader


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


def sample_jobs() -> dict[tuple[str, str], Job | None]:
    """The jobs by namespace and name; None is a job without ranks."""
    return {
        ("language", "llama-1b"): Job(
            "language",
            "llama-1b",
            nodes=2,
            per_node=4,
            attempts=[(-1200, -1150, 2090), (2130, 2175, 4000)],
            step_seconds=0.62,
            target=20000,
            first_step=9000,
            batch=16,
            tokens=16 * 4096,
            flops=0.62 * 0.41 * 989e12,
            peak=989e12,
            memory=5.9e10,
            recoveries=((480, 3.4, 0), (1320, 27, 1)),
            loss=lambda step: 2.1 + 30 / math.sqrt(step + 20),
            seed=1,
        ),
        ("vision", "resnet50"): Job(
            "vision",
            "resnet50",
            nodes=2,
            per_node=1,
            attempts=[(300, 330, 4000)],
            step_seconds=0.9,
            target=9000,
            first_step=0,
            batch=64,
            slow_rank=1,
            loss=lambda step: 0.4 + 6.5 * math.exp(-step / 900),
            seed=2,
        ),
        ("vision", "fashion-mnist"): Job(
            "vision",
            "fashion-mnist",
            nodes=2,
            per_node=1,
            attempts=[(420, 440, 1640)],
            step_seconds=0.16,
            target=7500,
            first_step=0,
            batch=64,
            loss=lambda step: 0.2 + 2.1 * math.exp(-step / 700),
            seed=4,
        ),
        ("biology", "gears"): Job(
            "biology",
            "gears",
            nodes=1,
            per_node=1,
            attempts=[(900, 930, 1500)],
            step_seconds=0.4,
            target=20000,
            first_step=0,
            batch=32,
            loss=lambda step: 0.7 + 1.5 * math.exp(-step / 500),
            seed=5,
        ),
        ("language", "llama-8b"): None,
    }


def series(cluster: str) -> Series:
    out = Series({"cluster": cluster} if cluster else {})
    jobs = sample_jobs()
    for job in jobs.values():
        if job is not None:
            job.write(out)
    gpu_job = jobs["language", "llama-1b"]
    assert gpu_job is not None
    write_gpus(out, gpu_job, dead_gpu=6, honor_labels=bool(cluster))
    for pod, instance in OPERATORS:
        write_jobs_of_operator(out, jobs, pod, instance)
    write_operator(out)
    return out


def write(path: pathlib.Path, cluster: str = "") -> None:
    with path.open("w") as file:
        file.writelines(series(cluster).lines())


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), *sys.argv[2:3])
