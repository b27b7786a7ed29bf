#!/usr/bin/env python3
"""Writes the chart's Grafana dashboards from the lists below, in Grafana's classic JSON.

usage: dashboards.py OUTPUT_FOLDER

A panel is (title, description, unit, {legend: query}). The data source is a variable of the dashboard.
"""
import json
import pathlib
import sys

JOB = 'namespace=~"$namespace", trainingjob=~"$trainingjob"'
STEP_PHASES = "data_wait|forward|backward|comm|optimizer"

FLEET = {
    "uid": "oarlock-fleet",
    "title": "Oarlock / Fleet",
    "description": "All training jobs: number, progress and efficiency.",
    "variables": [("namespace", "label_values(trainingjob_info, namespace)")],
    "rows": [
        ("Jobs", [
            ("Jobs by phase", "Current number of jobs by phase.", "short",
             {"{{phase}}": 'sum by (phase) (trainingjob_status_phase{namespace=~"$namespace"})'}),
            ("Jobs finished per hour", "Jobs that became Complete or Failed.", "short",
             {"{{result}}": 'sum by (result) (rate(trainingjob_jobs_finished_total{namespace=~"$namespace"}[$__rate_interval])) * 3600'}),
            ("Group restarts", "Group restarts within half an hour by reason.", "short",
             {"{{reason}}": 'sum by (reason) (trainingjob_reason:restarts:delta30m{namespace=~"$namespace"}) or 0 * sum(trainingjob_info{namespace=~"$namespace"})'}),
            ("Pods", "Desired pods of all jobs, and pods by state.", "short",
             {"desired": 'sum(trainingjob_spec_replicas{namespace=~"$namespace"})',
              "{{state}}": 'sum by (state) (trainingjob_status_replicas{namespace=~"$namespace"})'}),
        ]),
        ("Efficiency", [
            ("Goodput", "Share of the ranks' time in forward, backward, communication and optimizer.", "percentunit",
             {"{{namespace}}/{{trainingjob}}": 'trainingjob:trainer_goodput:ratio_rate15m{namespace=~"$namespace"}'}),
            ("Throughput", "Samples per second over all ranks of a job.", "short",
             {"{{namespace}}/{{trainingjob}}": 'trainingjob:trainer_samples:rate5m{namespace=~"$namespace"}'}),
            ("Progress", "Completed share of the steps of a job.", "percentunit",
             {"{{namespace}}/{{trainingjob}}": 'trainingjob_progress_ratio{namespace=~"$namespace"}'}),
            ("Time since the last step", "Of the most recent rank; the threshold of the alert TrainingJobStalled is ten minutes.", "s",
             {"{{namespace}}/{{trainingjob}}": 'time() - max by (namespace, trainingjob) (trainer_last_step_timestamp_seconds{namespace=~"$namespace"} > 0)'}),
        ]),
    ],
}

TRAININGJOB = {
    "uid": "oarlock-trainingjob",
    "title": "Oarlock / Training job",
    "description": "One training job: learning curves, step time breakdown, and ranks.",
    "variables": [("namespace", "label_values(trainer_world_size, namespace)"),
                  ("trainingjob", 'label_values(trainer_world_size{namespace=~"$namespace"}, trainingjob)')],
    "rows": [
        ("Learning", [
            ("Loss", "Mean training loss over the ranks, and loss of the last evaluation.", "none",
             {"training": "max(trainer_loss{%s})" % JOB, "evaluation": "max(trainer_validation_loss{%s})" % JOB}),
            ("Learning rate", "Learning rate of the last step.", "none", {"learning rate": "max(trainer_learning_rate{%s})" % JOB}),
            ("Optimizer steps", "Completed steps over all attempts, and target of the run.", "short",
             {"completed": "max(trainer_current_step{%s})" % JOB, "target": "max(trainer_target_steps{%s})" % JOB}),
            ("Non-finite steps", "Steps with an infinite or NaN loss or gradient.", "short",
             {"{{kind}}": "sum by (kind) (increase(trainer_nonfinite_steps_total{%s}[$__rate_interval]))" % JOB}),
        ]),
        ("Steps", [
            ("Throughput", "Samples per second over all ranks.", "short",
             {"samples/s": "sum(rate(trainer_samples_total{%s}[$__rate_interval]))" % JOB}),
            ("Step duration", "Median and 99th percentile, including data loading.", "s",
             {"median": "histogram_quantile(0.5, sum by (le) (rate(trainer_step_duration_seconds_bucket{%s}[$__rate_interval])))" % JOB,
              "p99": "histogram_quantile(0.99, sum by (le) (rate(trainer_step_duration_seconds_bucket{%s}[$__rate_interval])))" % JOB}),
            ("Step time breakdown", "Time of all ranks by phase; the sum is the number of ranks.", "short",
             {"{{phase}}": "sum by (phase) (rate(trainer_phase_seconds_total{%s}[$__rate_interval]))" % JOB}),
            ("Time blocked on collectives and data", "Share of the step time that ranks wait for gradients of other ranks, and for data.", "percentunit",
             {"communication": 'sum(rate(trainer_phase_seconds_total{%s, phase="comm"}[$__rate_interval])) / sum(rate(trainer_phase_seconds_total{%s, phase=~"%s"}[$__rate_interval]))' % (JOB, JOB, STEP_PHASES),
              "data": 'sum(rate(trainer_phase_seconds_total{%s, phase="data_wait"}[$__rate_interval])) / sum(rate(trainer_phase_seconds_total{%s, phase=~"%s"}[$__rate_interval]))' % (JOB, JOB, STEP_PHASES)}),
            ("Model FLOPS", "Floating-point operations per second of all ranks, for matrix products, convolutions and attention of the model.", "flops",
             {"model": "sum(rate(trainer_model_flops_total{%s}[$__rate_interval]))" % JOB}),
            ("Prefetched batches", "At 0, training waits for data; at capacity, data loading waits for training.", "short",
             {"rank {{rank}}": "max by (rank) (trainer_data_queue_batches{%s})" % JOB,
              "capacity": "max(trainer_data_queue_capacity_batches{%s})" % JOB}),
        ]),
        ("Ranks", [
            ("Compute time per rank (excluding waits)", "Data, forward, backward and optimizer per step; the slowest rank limits all ranks.", "s",
             {"rank {{rank}}": 'sum by (rank) (rate(trainer_phase_seconds_total{%s, phase=~"data_wait|forward|backward|optimizer"}[$__rate_interval])) / sum by (rank) (rate(trainer_steps_total{%s}[$__rate_interval]))' % (JOB, JOB)}),
            ("Memory", "Resident memory of the largest rank of each pod.", "bytes",
             {"{{pod}}": 'max by (pod) (process_resident_memory_bytes{%s})' % JOB}),
            ("Collective bandwidth", "Bytes of the tensors of each rank in collectives per second.", "Bps",
             {"rank {{rank}}": "sum by (rank) (rate(trainer_collective_bytes_total{%s}[$__rate_interval]))" % JOB}),
            ("Time since the last step", "Time since the last step by rank.", "s",
             {"rank {{rank}}": "time() - max by (rank) (trainer_last_step_timestamp_seconds{%s} > 0)" % JOB}),
        ]),
        ("Checkpoints and restarts", [
            ("Checkpoint age", "Age of the newest checkpoint: the work that a failure would lose.", "s",
             {"age": "time() - max(trainer_last_checkpoint_timestamp_seconds{%s} > 0)" % JOB}),
            ("Checkpoints", "Saves and restores per hour, by result.", "short",
             {"{{operation}} {{result}}": "sum by (operation, result) (rate(trainer_checkpoint_operations_total{%s}[$__rate_interval])) * 3600" % JOB}),
            ("Save duration", "From the copy in memory until the checkpoint is durable; training continues meanwhile.", "s",
             {"mean": 'sum(rate(trainer_checkpoint_duration_seconds_sum{%s, operation="save"}[$__rate_interval])) / sum(rate(trainer_checkpoint_duration_seconds_count{%s, operation="save"}[$__rate_interval]))' % (JOB, JOB)}),
            ("Recomputed steps", "Steps after the checkpoint that ran again after a restart.", "short",
             {"steps": "sum(trainer_recomputed_steps_total{%s})" % JOB}),
        ]),
    ],
}

OPERATOR = {
    "uid": "oarlock-operator",
    "title": "Oarlock / Operator",
    "description": "The operator: reconciles, API requests and leader election.",
    "variables": [],
    "rows": [
        ("Reconciliation", [
            ("Reconcile rate", "Reconciles per second by result.", "reqps",
             {"{{result}}": 'sum by (result) (rate(controller_runtime_reconcile_total{controller="trainingjob"}[$__rate_interval]))'}),
            ("Reconcile duration", "Median and 99th percentile.", "s",
             {"median": 'histogram_quantile(0.5, sum by (le) (rate(controller_runtime_reconcile_time_seconds_bucket{controller="trainingjob"}[$__rate_interval])))',
              "p99": 'histogram_quantile(0.99, sum by (le) (rate(controller_runtime_reconcile_time_seconds_bucket{controller="trainingjob"}[$__rate_interval])))'}),
            ("Work queue depth", "Jobs that wait for a worker.", "short", {"depth": 'sum(workqueue_depth{name="trainingjob"})'}),
            ("Workers", "Busy workers, and all workers.", "short",
             {"busy": 'sum(controller_runtime_active_workers{controller="trainingjob"})',
              "all": 'sum(controller_runtime_max_concurrent_reconciles{controller="trainingjob"})'}),
        ]),
        ("API server", [
            ("Request rate", "Requests per second by method and status code.", "reqps",
             {"{{method}} {{code}}": "sum by (method, code) (rate(rest_client_requests_total[$__rate_interval]))"}),
            ("Longest running reconcile", "The threshold of the alert OarlockWorkqueueStuck is two minutes.", "s",
             {"seconds": 'max(workqueue_longest_running_processor_seconds{name="trainingjob"})'}),
            ("Leader", "1 for the leader, 0 for other replicas.", "short",
             {"{{instance}}": "max by (instance) (leader_election_master_status)"}),
            ("CPU", "CPU cores used by the operator.", "short",
             {"{{instance}}": 'sum by (instance) (rate(process_cpu_seconds_total{job=~".*operator.*"}[$__rate_interval]))'}),
        ]),
    ],
}


def datasource():
    return {"type": "prometheus", "uid": "${datasource}"}


def variable(name, query):
    return {"name": name, "type": "query", "datasource": datasource(), "query": {"query": query, "refId": name}, "definition": query,
            "refresh": 2, "multi": True, "includeAll": True, "allValue": ".+", "sort": 1, "current": {"text": "All", "value": "$__all"}}


def panel(number, x, y, title, description, unit, queries):
    targets = [{"refId": chr(ord("A") + i), "datasource": datasource(), "expr": query, "legendFormat": legend, "range": True}
               for i, (legend, query) in enumerate(queries.items())]
    return {"id": number, "type": "timeseries", "title": title, "description": description, "datasource": datasource(),
            "gridPos": {"h": 8, "w": 12, "x": x, "y": y}, "targets": targets,
            "fieldConfig": {"defaults": {"unit": unit, "custom": {"fillOpacity": 8, "showPoints": "never"}}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}}


def dashboard(spec):
    panels, number, y = [], 0, 0
    for title, members in spec["rows"]:
        number += 1
        panels.append({"id": number, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        y += 1
        for i, member in enumerate(members):
            number += 1
            panels.append(panel(number, 12 * (i % 2), y + 8 * (i // 2), *member))
        y += 8 * ((len(members) + 1) // 2)
    templating = [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source", "current": {}}]
    templating += [variable(*entry) for entry in spec["variables"]]
    return {"uid": spec["uid"], "title": spec["title"], "description": spec["description"], "tags": ["oarlock"], "editable": False,
            "schemaVersion": 42, "version": 1, "time": {"from": "now-1h", "to": "now"}, "refresh": "30s", "timezone": "browser",
            "templating": {"list": templating}, "panels": panels, "annotations": {"list": []}, "links": []}


def main():
    folder = pathlib.Path(sys.argv[1])
    for spec in (FLEET, TRAININGJOB, OPERATOR):
        path = folder / (spec["uid"] + ".json")
        path.write_text(json.dumps(dashboard(spec), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
