"""The dashboard of all training jobs: their states, a table with links to each job, efficiency, queues, and restarts."""

from grafana_foundation_sdk.models import common as options

from . import style
from .panels import (
    Board,
    Column,
    Query,
    dashboard_url,
    data_links,
    explore_url,
    fixed_color,
    graph,
    override,
    query_variable,
    stat_panel,
    table_panel,
    usage,
    usage_by_class,
)
from .queries import (
    BY_JOB,
    JOB_LEGEND,
    NAMESPACE,
    accelerators,
    goodput,
    increase,
    of_operator,
    quantile,
    rate,
    remaining_seconds,
    restarts,
)

OPERATOR_STEP = "30s"  # the chart's scrape interval of the operator; that of the ranks is 15 s
ROW_LOGS = '{namespace="${__data.fields.namespace}", pod=~"${__data.fields.trainingjob}-[0-9]+-[0-9]+"}'


def jobs_in(state: str) -> str:
    jobs = of_operator("trainingjob_status_phase", f'{NAMESPACE}, phase="{state}"')
    return f"count({jobs}) or vector(0)"


def time_in_queue(*labels: str) -> str:
    waiting = of_operator("trainingjob_queue_timestamp_seconds", f'{NAMESPACE}, state="waiting"', *labels)
    return f"time() - {waiting}"


def add_overview(board: Board) -> None:
    states = ("Running", "Pending", "Stalled", "Restarting", "Failed")
    meanings = {
        "Running": "A job is running while all of its ranks run and complete steps.",
        "Pending": "A job is pending until all of its pods run.",
        "Stalled": "A job is stalled while its ranks run but complete no steps.",
        "Restarting": "A job is restarting while its group of pods is replaced after a failure.",
        "Failed": "A failed job is counted until it is deleted.",
    }
    quiet = {"Stalled", "Failed"}  # a zero is good news
    board.row(
        "Overview",
        *(
            stat_panel(
                state,
                meanings[state],
                "none",
                Query(jobs_in(state), state),
                width=3,
                sparkline=True,
                limits=style.thresholds(style.GREEN if state in quiet else style.GRAY, (1, style.STATE_COLORS[state])),
            )
            for state in states
        ),
        stat_panel(
            "Requested accelerators",
            "GPUs and other extended resources are counted as the pods of unfinished jobs request them.",
            "none",
            Query(
                f"sum({of_operator('trainingjob_requested_accelerators', NAMESPACE, 'resource')}) or vector(0)", "accelerators"
            ),
            width=4,
            sparkline=True,
        ),
        stat_panel(
            "Goodput of all jobs",
            "Goodput is the time of new steps over the time of all allocated accelerators in the selected time range.",
            "percentunit",
            Query(goodput(NAMESPACE, "$__range", by="cluster"), "goodput"),
            width=5,
            decimals=1,
            instant=True,
            limits=style.thresholds(style.RED, (0.5, style.ORANGE), (0.8, style.GREEN)),
        ),
    )


def add_table(board: Board) -> None:
    gauge = options.TableBarGaugeCellOptions(
        mode=options.BarGaugeDisplayMode.BASIC, value_display_mode=options.BarGaugeValueMode.TEXT
    )
    background = options.TableColoredBackgroundCellOptions(mode=options.TableCellBackgroundDisplayMode.BASIC)
    text = options.TableColorTextCellOptions()

    job = dashboard_url(
        "oarlock-trainingjob", namespace="${__data.fields.namespace}", trainingjob="${__data.fields.trainingjob}"
    )
    links = data_links(
        ("Dashboard of ${__data.fields.trainingjob}", job), ("Logs of ${__data.fields.trainingjob}", explore_url(ROW_LOGS))
    )
    columns = [
        Column("Namespace", label="namespace"),
        Column("Training job", label="trainingjob", properties=override(links=links)),
        Column(
            "State", label="phase", width=110, properties=override(custom__cellOptions=background, mappings=style.state_names())
        ),
        Column(
            "Progress",
            query=of_operator("trainingjob_progress_ratio", NAMESPACE),
            unit="percentunit",
            width=180,
            properties=override(
                custom__cellOptions=gauge, min=0, max=1, decimals=1, thresholds=style.thresholds(style.BLUE).build()
            ),
        ),
        Column("Time remaining", query=remaining_seconds(NAMESPACE), unit="s", properties=override(decimals=1)),
        Column(
            "Goodput",
            query=goodput(NAMESPACE, "$__range"),
            unit="percentunit",
            properties=override(
                custom__cellOptions=text,
                decimals=1,
                thresholds=style.thresholds(style.RED, (0.5, style.ORANGE), (0.8, style.GREEN)).build(),
            ),
        ),
        Column("Samples per second", query=f"sum by ({BY_JOB}) ({rate('trainer_samples_total', NAMESPACE)})", unit="short"),
        Column(
            "Restarts",
            query=restarts(NAMESPACE),
            properties=override(
                custom__cellOptions=text, thresholds=style.thresholds("text", (1, style.ORANGE), (3, style.RED)).build()
            ),
        ),
        Column("Pods ready", query=of_operator("trainingjob_status_replicas", f'{NAMESPACE}, state="ready"')),
        Column("Pods desired", query=of_operator("trainingjob_spec_replicas", NAMESPACE)),
        Column(
            "Last step",
            query=f"time() - max by ({BY_JOB}) (trainer_last_step_timestamp_seconds{{{NAMESPACE}}} > 0)",
            unit="s",
            properties=override(
                custom__cellOptions=text, decimals=0, thresholds=style.thresholds("text", (600, style.RED)).build()
            ),
        ),
        Column("Time in queue", query=time_in_queue(), unit="s", properties=override(decimals=1)),
        Column(
            "Age",
            query=f"time() - {of_operator('trainingjob_created_timestamp_seconds', NAMESPACE)}",
            unit="s",
            properties=override(decimals=1),
        ),
    ]
    board.row(
        "Jobs",
        table_panel(
            "Training jobs",
            "The table has all jobs that exist. The name of a job links to its dashboard and to its logs.",
            columns,
            key=Query(of_operator("trainingjob_status_phase", NAMESPACE, "phase")),
            labels=["cluster"],
            sort_by="State",
        ),
    )


def add_trends(board: Board) -> None:
    by_state = graph(
        "Jobs by state",
        "Each job that exists is counted in its current state.",
        "none",
        Query(f"count by (phase) ({of_operator('trainingjob_status_phase', NAMESPACE, 'phase')})", "{{phase}}", OPERATOR_STEP),
        stacked=True,
        decimals=0,
    )
    for state, shade in style.STATE_COLORS.items():
        by_state.override_by_name(state, override(color=fixed_color(shade)))
    finished = graph(
        "Jobs finished per hour",
        "Each point counts the jobs that became Complete or Failed in the hour before it.",
        "none",
        Query(f"sum by (result) ({increase('trainingjob_jobs_finished_total', NAMESPACE, '1h')})", "{{result}}", OPERATOR_STEP),
        decimals=0,
    )
    for result in ("Complete", "Failed"):
        finished.override_by_name(result, override(color=fixed_color(style.STATE_COLORS[result])))
    board.row(
        "Trends",
        by_state,
        finished,
        graph(
            "Group restarts by reason",
            "Group restarts of the jobs that exist are counted since the creation of each job.",
            "none",
            Query(
                f"sum by (reason) ({of_operator('trainingjob_restarts_total', NAMESPACE, 'reason')})",
                "{{reason}}",
                OPERATOR_STEP,
            ),
            decimals=0,
        ),
        graph(
            "Pods",
            "Desired pods are those that all jobs request; the others are pods of the current attempts by state.",
            "none",
            Query(f"sum({of_operator('trainingjob_spec_replicas', NAMESPACE)})", "desired", OPERATOR_STEP),
            Query(
                f"sum by (state) ({of_operator('trainingjob_status_replicas', NAMESPACE, 'state')})", "{{state}}", OPERATOR_STEP
            ),
            decimals=0,
        ),
        graph(
            "Startup time",
            "The startup time runs from the creation of a job's first pods until all of them run. The percentiles cover the"
            " selected length of time before each point.",
            "s",
            Query(quantile(0.5, "trainingjob_startup_seconds", NAMESPACE, window="$__range"), "p50", OPERATOR_STEP),
            Query(quantile(0.9, "trainingjob_startup_seconds", NAMESPACE, window="$__range"), "p90", OPERATOR_STEP),
        ),
        graph(
            "Recovery time",
            "The recovery time runs from the loss of a running job's pods until all pods of the next attempt run. The"
            " percentiles cover the selected length of time before each point.",
            "s",
            Query(quantile(0.5, "trainingjob_recovery_seconds", NAMESPACE, window="$__range"), "p50", OPERATOR_STEP),
            Query(quantile(0.9, "trainingjob_recovery_seconds", NAMESPACE, window="$__range"), "p90", OPERATOR_STEP),
        ),
    )


def add_efficiency(board: Board) -> None:
    board.row(
        "Efficiency",
        graph(
            "Goodput",
            "Goodput is the time of new steps over the time of the allocated accelerators in the hour before each point. The"
            " alert TrainingJobLowGoodput fires below 50 %.",
            "percentunit",
            Query(goodput(NAMESPACE, "1h"), JOB_LEGEND, OPERATOR_STEP),
            maximum=1,
            limits=style.thresholds("transparent", (0.5, style.RED)),
        ),
        graph(
            "Progress",
            "Progress is the completed share of the steps of a job.",
            "percentunit",
            Query(of_operator("trainingjob_progress_ratio", NAMESPACE), JOB_LEGEND, OPERATOR_STEP),
            maximum=1,
        ),
        graph(
            "Samples per second",
            "The throughput of a job is the sum over its ranks.",
            "short",
            Query(f"sum by ({BY_JOB}) ({rate('trainer_samples_total', NAMESPACE)})", JOB_LEGEND),
            axis="samples/s",
        ),
        graph(
            "Time since the last step",
            "The time counts from the last step of the most recent rank of a job. The alert TrainingJobStalled fires at ten"
            " minutes.",
            "s",
            Query(f"time() - max by ({BY_JOB}) (trainer_last_step_timestamp_seconds{{{NAMESPACE}}} > 0)", JOB_LEGEND),
            limits=style.thresholds("transparent", (600, style.RED)),
        ),
        usage(
            "Accelerators by namespace",
            "Accelerators are counted while a pod that requests them has a node: the mean of the hour before each point.",
            Query(accelerators(NAMESPACE, "1h", "namespace"), "{{namespace}}", OPERATOR_STEP),
        ),
        usage_by_class(Query(accelerators(NAMESPACE, "1h", "class"), "{{class}}", OPERATOR_STEP)),
    )


def add_queues(board: Board) -> None:
    by_queue = "cluster, namespace, queue"
    queue = "{{namespace}}/{{queue}}"
    board.row(
        "Queues",
        graph(
            "Jobs waiting by queue",
            "A job waits until Kueue admits it to the quota of its queue.",
            "none",
            Query(f"count by ({by_queue}) ({time_in_queue('queue')})", queue, OPERATOR_STEP),
            width=8,
            stacked=True,
            decimals=0,
        ),
        graph(
            "Longest time in queue",
            "The time is that of the job of a queue that has waited for the longest. The alert TrainingJobNotAdmitted fires at one"
            " day.",
            "s",
            Query(f"max by ({by_queue}) ({time_in_queue('queue')})", queue, OPERATOR_STEP),
            width=8,
            limits=style.thresholds("transparent", (86400, style.RED)),
        ),
        graph(
            "Evictions per hour by reason",
            "Each point counts the attempts in the hour before it that ended because Kueue withdrew the admission, by Kueue's"
            " reason.",
            "none",
            Query(
                f"sum by (reason) ({increase('trainingjob_queue_evictions_total', NAMESPACE, '1h')})", "{{reason}}", OPERATOR_STEP
            ),
            width=8,
            decimals=0,
        ),
    )


def dashboard() -> Board:
    board = Board(
        "oarlock-fleet",
        "Oarlock / Fleet",
        "All training jobs: states, progress, efficiency and restarts, with links to the dashboard and the logs of each job.",
        "trainingjob_info",
        query_variable("namespace", "Namespace", 'label_values(trainingjob_info{cluster=~"$cluster"}, namespace)'),
    )
    add_overview(board)
    add_table(board)
    add_efficiency(board)
    add_queues(board)
    add_trends(board)
    return board
