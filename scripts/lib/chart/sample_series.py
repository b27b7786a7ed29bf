#!/usr/bin/env python3
"""Writes an hour of sample series of the trainer, the operator and the DCGM exporter in the OpenMetrics format.

usage: sample_series.py OUTPUT [CLUSTER]

The series have the names and labels of the real ones, which lint_dashboards.py compares with docs/metrics-*.md and with
dcgm_exporter.prom. Their values are invented: a GPU job that recovers twice and restarts after an Xid error, a job with a straggler, a job
that completes, one that fails, one that waits in a queue, and an operator with a standby. They serve to evaluate every
query without a cluster or a GPU, and to draw the previews in docs/dashboards. With CLUSTER, all series have the label
"cluster" of this value, and those of GPUs are as scraped with honorLabels.
"""

import pathlib
import sys

from sample_format import Series
from sample_jobs import sample_jobs, write_gpus
from sample_operator import OPERATORS, write_jobs_of_operator, write_operator


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
