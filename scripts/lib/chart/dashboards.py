#!/usr/bin/env python3
"""Writes the chart's Grafana dashboards from the lists below, in Grafana's classic JSON.

usage: dashboards.py OUTPUT_FOLDER

A panel is (title, what it tells, unit, {legend: query}). A query names no data source: the variable does.
"""
import json
import pathlib
import sys

JOB = 'namespace=~"$namespace", trainingjob=~"$trainingjob"'
STEP_PHASES = "data_wait|forward|backward|comm|optimizer"

FLEET = {
    "uid": "oarlock-fleet",
    "title": "Oarlock / Fleet",
    "description": "All training jobs: how many there are, how they go, and where their time is spent.",
    "variables": [("namespace", "label_values(trainingjob_info, namespace)")],
    "rows": [
        ("Jobs", [
            ("Jobs by phase", "How many jobs are in each phase now.", "short",
             {"{{phase}}": 'sum by (phase) (trainingjob_status_phase{namespace=~"$namespace"})'}),
            ("Jobs that ended", "Jobs that became Complete or Failed, per hour.", "short",
             {"{{result}}": 'sum by (result) (rate(trainingjob_jobs_finished_total{namespace=~"$namespace"}[$__rate_interval])) * 3600'}),
            ("Restarts", "Restarts of whole groups within half an hour, by what made them necessary.", "short",
             {"{{reason}}": 'sum by (reason) (trainingjob_reason:restarts:delta30m{namespace=~"$namespace"}) or 0 * sum(trainingjob_info{namespace=~"$namespace"})'}),
            ("Pods", "Pods that jobs ask for, and those that are ready.", "short",
             {"wanted": 'sum(trainingjob_spec_replicas{namespace=~"$namespace"})',
              "{{state}}": 'sum by (state) (trainingjob_status_replicas{namespace=~"$namespace"})'}),
        ]),
        ("Efficiency", [
            ("Goodput", "Share of the ranks' time that went into forward, backward, communication and optimizer.", "percentunit",
             {"{{namespace}}/{{trainingjob}}": 'trainingjob:trainer_goodput:ratio_rate15m{namespace=~"$namespace"}'}),
            ("Samples per second", "Over all ranks of a job.", "short",
             {"{{namespace}}/{{trainingjob}}": 'trainingjob:trainer_samples:rate5m{namespace=~"$namespace"}'}),
            ("Progress", "Share of a job's steps that is done.", "percentunit",
             {"{{namespace}}/{{trainingjob}}": 'trainingjob_progress_ratio{namespace=~"$namespace"}'}),
            ("Time since the last step", "Of the rank that stepped last; the alert TrainingJobStalled begins at ten minutes.", "s",
             {"{{namespace}}/{{trainingjob}}": 'time() - max by (namespace, trainingjob) (trainer_last_step_timestamp_seconds{namespace=~"$namespace"} > 0)'}),
        ]),
    ],
}

TRAININGJOB = {
    "uid": "oarlock-trainingjob",
    "title": "Oarlock / Training job",
    "description": "One training job: what it learns, what its steps cost, and which rank is slow.",
    "variables": [("namespace", "label_values(trainer_world_size, namespace)"),
                  ("trainingjob", 'label_values(trainer_world_size{namespace=~"$namespace"}, trainingjob)')],
    "rows": [
        ("Learning", [
            ("Loss", "Mean training loss over the ranks, and that of the last evaluation.", "none",
             {"training": "max(trainer_loss{%s})" % JOB, "evaluation": "max(trainer_validation_loss{%s})" % JOB}),
            ("Learning rate", "Of the last step.", "none", {"learning rate": "max(trainer_learning_rate{%s})" % JOB}),
            ("Steps", "Optimizer steps done over all attempts, and those of the whole run.", "short",
             {"done": "max(trainer_current_step{%s})" % JOB, "target": "max(trainer_target_steps{%s})" % JOB}),
            ("Steps that were not finite", "Steps whose loss or gradient was infinite or not a number.", "short",
             {"{{kind}}": "sum by (kind) (increase(trainer_nonfinite_steps_total{%s}[$__rate_interval]))" % JOB}),
        ]),
        ("Steps", [
            ("Samples per second", "Over all ranks.", "short",
             {"samples/s": "sum(rate(trainer_samples_total{%s}[$__rate_interval]))" % JOB}),
            ("Step duration", "Median and 99th percentile, waiting for data included.", "s",
             {"median": "histogram_quantile(0.5, sum by (le) (rate(trainer_step_duration_seconds_bucket{%s}[$__rate_interval])))" % JOB,
              "p99": "histogram_quantile(0.99, sum by (le) (rate(trainer_step_duration_seconds_bucket{%s}[$__rate_interval])))" % JOB}),
            ("Where the time goes", "Ranks by what they do: the phases of all ranks, which add up to the number of ranks.", "short",
             {"{{phase}}": "sum by (phase) (rate(trainer_phase_seconds_total{%s}[$__rate_interval]))" % JOB}),
            ("Waiting for other ranks", "Share of the steps in which ranks wait for the others' gradients, and for data.", "percentunit",
             {"communication": 'sum(rate(trainer_phase_seconds_total{%s, phase="comm"}[$__rate_interval])) / sum(rate(trainer_phase_seconds_total{%s, phase=~"%s"}[$__rate_interval]))' % (JOB, JOB, STEP_PHASES),
              "data": 'sum(rate(trainer_phase_seconds_total{%s, phase="data_wait"}[$__rate_interval])) / sum(rate(trainer_phase_seconds_total{%s, phase=~"%s"}[$__rate_interval]))' % (JOB, JOB, STEP_PHASES)}),
            ("Computing", "Floating-point operations per second of all ranks: the model's, by its matrix products, convolutions and attention.", "flops",
             {"model": "sum(rate(trainer_model_flops_total{%s}[$__rate_interval]))" % JOB}),
            ("Batches that lie ready", "None: training waits for data. As many as may: data waits for training.", "short",
             {"rank {{rank}}": "max by (rank) (trainer_data_queue_batches{%s})" % JOB,
              "may lie ready": "max(trainer_data_queue_capacity_batches{%s})" % JOB}),
        ]),
        ("Ranks", [
            ("Own part of a step", "Data, forward, backward and optimizer by rank: the slowest sets the pace of all.", "s",
             {"rank {{rank}}": 'sum by (rank) (rate(trainer_phase_seconds_total{%s, phase=~"data_wait|forward|backward|optimizer"}[$__rate_interval])) / sum by (rank) (rate(trainer_steps_total{%s}[$__rate_interval]))' % (JOB, JOB)}),
            ("Memory", "Resident memory of a pod's largest rank.", "bytes",
             {"{{pod}}": 'max by (pod) (process_resident_memory_bytes{%s})' % JOB}),
            ("Bytes in collectives", "Of this rank's tensors, per second.", "Bps",
             {"rank {{rank}}": "sum by (rank) (rate(trainer_collective_bytes_total{%s}[$__rate_interval]))" % JOB}),
            ("Time since the last step", "By rank.", "s",
             {"rank {{rank}}": "time() - max by (rank) (trainer_last_step_timestamp_seconds{%s} > 0)" % JOB}),
        ]),
        ("Checkpoints and restarts", [
            ("Age of the newest checkpoint", "What a failure would cost now.", "s",
             {"age": "time() - max(trainer_last_checkpoint_timestamp_seconds{%s} > 0)" % JOB}),
            ("Checkpoints", "Saves and restores per hour, by result.", "short",
             {"{{operation}} {{result}}": "sum by (operation, result) (rate(trainer_checkpoint_operations_total{%s}[$__rate_interval])) * 3600" % JOB}),
            ("Duration of a save", "From the copy in memory until it is on disk; training goes on meanwhile.", "s",
             {"mean": 'sum(rate(trainer_checkpoint_duration_seconds_sum{%s, operation="save"}[$__rate_interval])) / sum(rate(trainer_checkpoint_duration_seconds_count{%s, operation="save"}[$__rate_interval]))' % (JOB, JOB)}),
            ("Steps done twice", "Steps that were done before a restart, beyond the checkpoint.", "short",
             {"steps": "sum(trainer_recomputed_steps_total{%s})" % JOB}),
        ]),
    ],
}

OPERATOR = {
    "uid": "oarlock-operator",
    "title": "Oarlock / Operator",
    "description": "The operator itself: its work, its requests, its leader.",
    "variables": [],
    "rows": [
        ("Work", [
            ("Reconciles", "Per second, by result.", "reqps",
             {"{{result}}": 'sum by (result) (rate(controller_runtime_reconcile_total{controller="trainingjob"}[$__rate_interval]))'}),
            ("Reconcile time", "Median and 99th percentile.", "s",
             {"median": 'histogram_quantile(0.5, sum by (le) (rate(controller_runtime_reconcile_time_seconds_bucket{controller="trainingjob"}[$__rate_interval])))',
              "p99": 'histogram_quantile(0.99, sum by (le) (rate(controller_runtime_reconcile_time_seconds_bucket{controller="trainingjob"}[$__rate_interval])))'}),
            ("Queue", "Jobs that wait for a worker.", "short", {"depth": 'sum(workqueue_depth{name="trainingjob"})'}),
            ("Workers", "Busy ones, and how many there are.", "short",
             {"busy": 'sum(controller_runtime_active_workers{controller="trainingjob"})',
              "all": 'sum(controller_runtime_max_concurrent_reconciles{controller="trainingjob"})'}),
        ]),
        ("API server", [
            ("Requests", "Per second, by answer.", "reqps",
             {"{{method}} {{code}}": "sum by (method, code) (rate(rest_client_requests_total[$__rate_interval]))"}),
            ("Longest reconcile", "That is going on now; the alert OarlockWorkqueueStuck begins at two minutes.", "s",
             {"seconds": 'max(workqueue_longest_running_processor_seconds{name="trainingjob"})'}),
            ("Leader", "1 for the operator that works, 0 for one that stands by.", "short",
             {"{{instance}}": "max by (instance) (leader_election_master_status)"}),
            ("Processor", "Cores that the operator uses.", "short",
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
