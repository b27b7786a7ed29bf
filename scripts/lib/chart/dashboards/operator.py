"""The dashboard of the operator, in the style of those of controller-runtime and of the Kubernetes control plane."""

from . import style
from .panels import (
    Board,
    PrometheusAnnotation,
    Query,
    explore_url,
    fixed_color,
    graph,
    override,
    query_variable,
    stat_panel,
    timeline,
    usage_by_class,
)
from .queries import CLUSTER, accelerators, quantile, rate

STEP = "30s"  # the chart's scrape interval of the operator
OPERATOR = f'{CLUSTER}, namespace=~"$namespace", job=~"$job"'
CONTROLLER = f'{OPERATOR}, controller="trainingjob"'
QUEUE = f'{OPERATOR}, name="trainingjob"'
LOGS = '{namespace=~"${namespace:pipe}", container="operator"}'


def query(expr: str, legend: str) -> Query:
    return Query(expr, legend, STEP)


def quantiles(metric: str, selector: str, by: str = "", legend: str = "") -> list[Query]:
    return [query(quantile(q, metric, selector, by), f"{legend}p{round(100 * q)}") for q in (0.5, 0.9, 0.99)]


def summed(by: str, metric: str, selector: str) -> str:
    return f"sum by ({by}) ({rate(metric, selector)})"


def share_of_errors() -> str:
    errors, total = (f"sum({rate(f'controller_runtime_reconcile{kind}_total', CONTROLLER)})" for kind in ("_errors", ""))
    return f"{errors} / ({total} > 0) or 0 * {total}"


def share_of_failed_requests() -> str:
    # A 404 or 409 is a normal answer to a controller, and 410 to a watch: others have changed or deleted an object.
    failed = f'{OPERATOR}, code=~"<error>|4..|5..", code!~"404|409|410"'
    total = f"sum({rate('rest_client_requests_total', OPERATOR)})"
    return f"(sum({rate('rest_client_requests_total', failed)}) or 0 * {total}) / ({total} > 0)"


def add_status(board: Board) -> None:
    board.row(
        "Status",
        stat_panel(
            "Replicas",
            "Each operator process that Prometheus scrapes is counted.",
            "none",
            query(f"count(controller_runtime_max_concurrent_reconciles{{{CONTROLLER}}})", "replicas"),
            limits=style.thresholds(style.RED, (1, style.GREEN)),
        ),
        stat_panel(
            "Leaders",
            "One replica holds the lease. During a handover, the series of two scrapes may overlap.",
            "none",
            query(f"sum(leader_election_master_status{{{OPERATOR}}})", "leaders"),
            limits=style.thresholds(style.RED, (1, style.GREEN)),
        ),
        stat_panel(
            "Reconcile errors",
            "The share of reconciles that end with an error should be near 0. The alert OarlockReconcileErrors fires above"
            " 10 %.",
            "percentunit",
            query(share_of_errors(), "errors"),
            decimals=1,
            sparkline=True,
            limits=style.thresholds(style.GREEN, (0.01, style.ORANGE), (0.1, style.RED)),
        ),
        stat_panel(
            "Failed API requests",
            "A request failed if it has no response, or a status of 400 or more other than 404, 409 and 410.",
            "percentunit",
            query(share_of_failed_requests(), "failed"),
            decimals=1,
            sparkline=True,
            limits=style.thresholds(style.GREEN, (0.01, style.ORANGE), (0.1, style.RED)),
        ),
        stat_panel(
            "Work queue depth",
            "The depth is the number of jobs that wait for a worker.",
            "none",
            query(f"sum(workqueue_depth{{{QUEUE}}})", "depth"),
            sparkline=True,
            limits=style.thresholds(style.GREEN, (100, style.ORANGE)),
        ),
        stat_panel(
            "Cache failures",
            "Consecutive failed lists and watches are counted for the resource with the most. The alert OarlockCacheStale fires"
            " at five.",
            "none",
            query(f"max(oarlock_cache_consecutive_failures{{{OPERATOR}}})", "failures"),
            limits=style.thresholds(style.GREEN, (1, style.ORANGE), (5, style.RED)),
        ),
    )


def add_reconciles(board: Board) -> None:
    results = graph(
        "Reconcile rate",
        "A reconcile ends with success, with an error, or with a request to be repeated, immediately or later.",
        "ops",
        query(summed("result", "controller_runtime_reconcile_total", CONTROLLER), "{{result}}"),
        width=8,
        stacked=True,
    )
    for result, shade in {
        "success": style.GREEN,
        "requeue_after": style.BLUE,
        "requeue": style.YELLOW,
        "error": style.RED,
    }.items():
        results.override_by_name(result, override(color=fixed_color(shade)))
    board.row(
        "Reconciliation",
        results,
        graph(
            "Reconcile errors",
            "A panic is a reconcile that ended with an exception.",
            "ops",
            query(summed("controller", "controller_runtime_reconcile_errors_total", CONTROLLER), "errors"),
            query(summed("controller", "controller_runtime_reconcile_panics_total", CONTROLLER), "panics"),
            width=8,
        ),
        graph(
            "Reconcile duration",
            "The percentiles cover the reconciles of all replicas.",
            "s",
            *quantiles("controller_runtime_reconcile_time_seconds", CONTROLLER),
            width=8,
        ),
        graph(
            "Active workers",
            "An active worker reconciles a job. At the maximum, jobs wait in the work queue.",
            "none",
            query(f"sum by (pod) (controller_runtime_active_workers{{{CONTROLLER}}})", "{{pod}}"),
            query(f"max(controller_runtime_max_concurrent_reconciles{{{CONTROLLER}}})", "maximum"),
            width=8,
            decimals=0,
        ),
        graph(
            "Longest running reconcile",
            "The duration is that of the oldest reconcile that has not ended. The alert OarlockWorkqueueStuck fires at two"
            " minutes.",
            "s",
            query(f"max by (pod) (workqueue_longest_running_processor_seconds{{{QUEUE}}})", "{{pod}}"),
            width=8,
            limits=style.thresholds("transparent", (120, style.RED)),
        ),
        graph(
            "Unfinished work",
            "Unfinished work is the sum of the durations of all reconciles that have not ended.",
            "s",
            query(f"sum by (pod) (workqueue_unfinished_work_seconds{{{QUEUE}}})", "{{pod}}"),
            width=8,
        ),
    )


def add_queue(board: Board) -> None:
    board.row(
        "Work queue",
        graph(
            "Work queue depth",
            "Priority -100 is that of expected changes, such as the appearance of a pod that the operator created.",
            "none",
            query(f"sum by (priority) (workqueue_depth{{{QUEUE}}})", "priority {{priority}}"),
            width=8,
            decimals=0,
        ),
        graph(
            "Work queue latency",
            "The latency is the time that a job waits in the work queue.",
            "s",
            *quantiles("workqueue_queue_duration_seconds", QUEUE),
            width=8,
        ),
        graph(
            "Work queue adds and retries",
            "A retry adds a job to the work queue again after an error.",
            "ops",
            query(summed("name", "workqueue_adds_total", QUEUE), "adds"),
            query(summed("name", "workqueue_retries_total", QUEUE), "retries"),
            width=8,
        ),
    )


def add_requests(board: Board) -> None:
    codes = graph(
        "API requests by status code",
        "The code <error> stands for requests without a response.",
        "reqps",
        query(summed("code", "rest_client_requests_total", OPERATOR), "{{code}}"),
        width=8,
        stacked=True,
    )
    for pattern, shade in {"2..": style.GREEN, "3..": style.BLUE, "4..": style.ORANGE, "5..|<error>": style.RED}.items():
        codes.override_by_regexp(f"/^({pattern})$/", override(color=fixed_color(shade)))
    board.row(
        "API server",
        codes,
        graph(
            "API requests by method",
            "The rate covers all requests to the API server, including the renewals of the lease.",
            "reqps",
            query(summed("method", "rest_client_requests_total", OPERATOR), "{{method}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "API request latency",
            "The 99th percentile covers all requests of a verb except watches.",
            "s",
            query(quantile(0.99, "rest_client_request_duration_seconds", OPERATOR, "verb"), "{{verb}} p99"),
            width=8,
        ),
    )


def add_accelerators(board: Board) -> None:
    board.row("Accelerators of all jobs", usage_by_class(query(accelerators(CLUSTER, "1h", "class"), "{{class}}")))


def add_cache(board: Board) -> None:
    board.row(
        "Cache and Events",
        graph(
            "Cache staleness",
            "A saw-tooth up to ten minutes is normal: the time counts from the last list, or from the start of the last"
            " watch, of each resource, and a watch lasts five to ten minutes.",
            "s",
            query(
                f"time() - max by (resource) (oarlock_cache_last_success_timestamp_seconds{{{OPERATOR}}} > 0)", "{{resource}}"
            ),
            width=8,
        ),
        graph(
            "Consecutive failures of lists and watches",
            "Lists and watches that fail in a row are counted for each resource. The alert OarlockCacheStale fires at five.",
            "none",
            query(f"max by (resource) (oarlock_cache_consecutive_failures{{{OPERATOR}}})", "{{resource}}"),
            width=8,
            decimals=0,
            limits=style.thresholds("transparent", (5, style.RED)),
        ),
        graph(
            "Discarded Events",
            "The operator discards Kubernetes Events that exceed its rate limits or that the API server rejects.",
            "ops",
            query(summed("reason", "trainingjob_events_dropped_total", OPERATOR), "{{reason}}"),
            width=8,
        ),
        graph(
            "Live reads of large jobs",
            "The operator reads jobs whose specifications exceed the budget of its cache from the API server.",
            "ops",
            query(summed("pod", "oarlock_cache_trimmed_job_reads_total", OPERATOR), "{{pod}}"),
            width=8,
        ),
        graph(
            "Unreadable objects",
            "The operator ignores objects from the API server that it cannot read.",
            "ops",
            query(summed("resource", "oarlock_cache_unreadable_objects_total", OPERATOR), "{{resource}}"),
            width=8,
        ),
        graph(
            "Jobs without series",
            "Jobs beyond the series limit have no per-job series, and thus no row in the dashboard Fleet.",
            "none",
            query(f"max(trainingjob_dropped_series{{{OPERATOR}}})", "jobs"),
            width=8,
            decimals=0,
        ),
    )


def add_process(board: Board) -> None:
    board.row(
        "Process",
        graph(
            "CPU",
            "The unit is CPU cores, the CPU time per second of a replica.",
            "none",
            query(f"sum by (pod) ({rate('process_cpu_seconds_total', OPERATOR)})", "{{pod}}"),
            width=8,
            axis="cores",
        ),
        graph(
            "Memory",
            "The memory is the resident memory of a replica. The default limit of the chart is 160 MiB.",
            "bytes",
            query(f"max by (pod) (process_resident_memory_bytes{{{OPERATOR}}})", "{{pod}}"),
            width=8,
        ),
        timeline(
            "Leader election",
            "The leader holds the lease; the standbys take over when it is not renewed.",
            query(f"max by (pod) (leader_election_master_status{{{OPERATOR}}})", "{{pod}}"),
            width=8,
            mappings=style.value_map({"1": ("Leader", style.GREEN), "0": ("Standby", style.GRAY)}),
        ),
    )


def dashboard() -> Board:
    source = 'controller_runtime_max_concurrent_reconciles{cluster=~"$cluster", controller="trainingjob"}'
    board = Board(
        "oarlock-operator",
        "Oarlock / Operator",
        "The operator: reconciliation, work queue, API requests, cache, leader election and resource usage.",
        "trainingjob_dropped_series",
        # Without a value for "All", it stands for the listed values: other controllers export the same metrics.
        query_variable("namespace", "Namespace", f"label_values({source}, namespace)", all_value=None),
        query_variable("job", "Job", f"label_values({source}, job)", all_value=None),
    )
    board.link_logs(explore_url(LOGS))
    board.annotate(
        PrometheusAnnotation(
            "Leader changes",
            style.PURPLE,
            f"(leader_election_master_status{{{OPERATOR}}} == 1) unless (leader_election_master_status{{{OPERATOR}}} offset"
            " $__interval == 1)",
            "New leader",
            "{{pod}}",
            value_is_time=False,
        )
    )
    add_status(board)
    add_reconciles(board)
    add_queue(board)
    add_requests(board)
    add_cache(board)
    add_accelerators(board)
    add_process(board)
    return board
