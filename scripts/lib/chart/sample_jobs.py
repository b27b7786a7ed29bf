"""The series of the ranks of sample jobs, and of their GPUs."""

import math
import random
from collections import defaultdict
from collections.abc import Callable

from sample_format import DURATION, LEAD, RANK_INTERVAL, START, WAIT_BUCKETS, Labels, Series

STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


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
