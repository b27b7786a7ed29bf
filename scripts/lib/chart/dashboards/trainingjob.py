"""The dashboard of one training job, or of several: progress, learning curves, step time, GPUs, ranks, checkpoints."""

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
from .queries import (
    BY_JOB,
    JOB,
    JOB_LEGEND,
    NAMESPACE,
    STEP_TIME_PHASES,
    accelerators,
    compute_time_per_step,
    goodput,
    increase,
    of_jobs,
    of_operator,
    phase_share,
    quantile,
    rate,
    remaining_seconds,
    restarts,
    state_query,
)

# Pods are named <job>-<attempt>-<node rank>.
LOGS = '{namespace=~"${namespace:pipe}", pod=~"(${trainingjob:pipe})-[0-9]+-[0-9]+"}'
MANY_RANKS = 16
OPERATOR_STEP = "30s"  # the chart's scrape interval of the operator


def by_job(function: str, metric: str) -> str:
    return f"{function} by ({BY_JOB}) ({metric}{{{JOB}}})"


def age(metric: str) -> str:
    return f"time() - max by ({BY_JOB}) ({metric}{{{JOB}}} > 0)"


def add_status(board: Board) -> None:
    board.row(
        "Status",
        stat_panel(
            "State",
            "The state is the phase in the status of the job.",
            "none",
            Query(state_query(JOB), JOB_LEGEND),
            mappings=style.state_numbers(),
            limits=style.thresholds(style.GRAY),
            filled=True,
        ),
        stat_panel(
            "Step",
            "The step is the number of optimizer steps completed over all attempts.",
            "locale",
            Query(by_job("max", "trainer_current_step"), JOB_LEGEND),
            sparkline=True,
        ),
        stat_panel(
            "Progress",
            "Progress is the completed share of the steps of the run.",
            "percentunit",
            Query(of_operator("trainingjob_progress_ratio", JOB), JOB_LEGEND),
            decimals=1,
            sparkline=True,
        ),
        stat_panel(
            "Time remaining",
            "The remaining time is estimated from the current rate of steps.",
            "s",
            Query(remaining_seconds(JOB), JOB_LEGEND),
            decimals=1,
        ),
        stat_panel(
            "Restarts",
            "Group restarts are counted since the job was created. The alert TrainingJobRestartStorm fires at three in half an"
            " hour.",
            "none",
            Query(restarts(JOB), JOB_LEGEND),
            limits=style.thresholds(style.GREEN, (1, style.ORANGE), (3, style.RED)),
        ),
        stat_panel(
            "Goodput",
            "Goodput is the time of new steps over the time of the allocated accelerators in the selected time range.",
            "percentunit",
            Query(goodput(JOB, "$__range"), JOB_LEGEND),
            decimals=1,
            instant=True,
            limits=style.thresholds(style.RED, (0.5, style.ORANGE), (0.8, style.GREEN)),
        ),
    )


def add_training(board: Board) -> None:
    board.row(
        "Training",
        graph(
            "Loss",
            "The training loss is the mean over the ranks at the last logged step, and the validation loss is that of the last"
            " evaluation.",
            "none",
            Query(by_job("max", "trainer_loss"), f"{JOB_LEGEND} training"),
            Query(by_job("max", "trainer_validation_loss"), f"{JOB_LEGEND} validation"),
            minimum=None,
        ),
        graph(
            "Gradient norm",
            "The norm is that of all gradients before clipping at the last logged step. Jobs with gradient clipping by norm"
            " report it.",
            "none",
            Query(by_job("max", "trainer_gradient_norm"), JOB_LEGEND),
        ),
        graph(
            "Learning rate",
            "The learning rate is that of the last step.",
            "sci",
            Query(by_job("max", "trainer_learning_rate"), JOB_LEGEND),
        ),
        graph(
            "Non-finite steps",
            "Steps with an infinite or NaN loss or gradient are counted on the rank with the most of them. The alert"
            " TrainingJobNonFiniteLoss fires at the first one.",
            "none",
            Query(f"max by ({BY_JOB}, kind) ({increase('trainer_nonfinite_steps_total', JOB)})", f"{JOB_LEGEND} {{{{kind}}}}"),
            decimals=0,
        ),
    )


def add_speed(board: Board) -> None:
    def seconds_per_step(phase: str) -> str:
        selector = f'{JOB}, phase="{phase}"'
        return f"sum ({rate('trainer_phase_seconds_total', selector)}) / (sum ({rate('trainer_steps_total', JOB)}) > 0)"

    breakdown = (
        graph(
            "Step time breakdown: $trainingjob",
            "The time per step and rank is split into phases. Communication is the time in which a rank waits for the gradients"
            " of other ranks.",
            "s",
            *(Query(seconds_per_step(phase), name) for phase, (name, _) in style.STEP_PHASES.items()),
            width=24,
            height=8,
            stacked=True,
            many=True,
        )
        .repeat("trainingjob")
        .repeat_direction("h")
        .max_per_row(2)
    )
    for name, shade in style.STEP_PHASES.values():
        breakdown.override_by_name(name, override(color=fixed_color(shade)))
    board.row(
        "Speed",
        graph(
            "Samples per second",
            "The throughput of a job is the sum over its ranks.",
            "short",
            Query(f"sum by ({BY_JOB}) ({rate('trainer_samples_total', JOB)})", JOB_LEGEND),
            axis="samples/s",
        ),
        graph(
            "Tokens per second",
            "The throughput of a job is the sum over its ranks. Models of sequences report tokens.",
            "short",
            Query(f"sum by ({BY_JOB}) ({rate('trainer_tokens_total', JOB)})", JOB_LEGEND),
            axis="tokens/s",
        ),
        graph(
            "Step duration",
            "The duration of a step includes the wait for data. Mean, median and 99th percentile cover all ranks.",
            "s",
            Query(
                f"sum by ({BY_JOB}) ({rate('trainer_step_duration_seconds_sum', JOB)}) / (sum by ({BY_JOB})"
                f" ({rate('trainer_step_duration_seconds_count', JOB)}) > 0)",
                f"{JOB_LEGEND} mean",
            ),
            Query(quantile(0.5, "trainer_step_duration_seconds", JOB, BY_JOB), f"{JOB_LEGEND} p50"),
            Query(quantile(0.99, "trainer_step_duration_seconds", JOB, BY_JOB), f"{JOB_LEGEND} p99"),
        ),
        graph(
            "Communication and data share",
            "The shares are the parts of the step time in which ranks are blocked on collectives and on data.",
            "percentunit",
            Query(phase_share("comm", STEP_TIME_PHASES, JOB), f"{JOB_LEGEND} communication"),
            Query(phase_share("data_wait", STEP_TIME_PHASES, JOB), f"{JOB_LEGEND} data"),
            maximum=1,
        ),
        breakdown,
    )


def add_gpus(board: Board) -> None:
    gpu = "{{Hostname}} GPU {{gpu}}"
    board.row(
        "GPU",
        graph(
            "GPU utilization",
            "Utilization is the share of time in which a kernel was running on a GPU. The DCGM exporter reports it"
            " (DCGM_FI_DEV_GPU_UTIL).",
            "percent",
            Query(of_jobs("DCGM_FI_DEV_GPU_UTIL"), gpu),
            maximum=100,
            many=True,
        ),
        graph(
            "GPU memory used",
            "The memory in use includes that of all processes on a GPU. The DCGM exporter reports it (DCGM_FI_DEV_FB_USED).",
            "bytes",
            Query(f"1048576 * {of_jobs('DCGM_FI_DEV_FB_USED')}", gpu),
            many=True,
        ),
        graph(
            "Model FLOPs utilization (MFU)",
            "MFU is the rate of the model's floating-point operations, without recomputation, divided by the peak of the"
            " devices in the precision of the run.",
            "percentunit",
            Query(
                f"sum by ({BY_JOB}) ({rate('trainer_model_flops_total', JOB)}) / sum by ({BY_JOB})"
                f" (trainer_device_peak_flops{{{JOB}}})",
                JOB_LEGEND,
            ),
            width=8,
            maximum=1,
        ),
        graph(
            "Model FLOPS",
            "Model FLOPS count the matrix products, convolutions and attention of the model on all ranks.",
            "flops",
            Query(f"sum by ({BY_JOB}) ({rate('trainer_model_flops_total', JOB)})", JOB_LEGEND),
            width=8,
        ),
        graph(
            "Device memory of the trainer",
            "PyTorch's allocator reserves device memory and allocates it to tensors. The series are those of the rank with the"
            " most, and the lowest limit.",
            "bytes",
            Query(by_job("max", "trainer_device_memory_reserved_bytes"), f"{JOB_LEGEND} reserved"),
            Query(by_job("max", "trainer_device_memory_allocated_bytes"), f"{JOB_LEGEND} allocated"),
            Query(by_job("min", "trainer_device_memory_limit_bytes"), f"{JOB_LEGEND} limit"),
            width=8,
        ),
        graph(
            "GPU temperature",
            "The DCGM exporter reports the temperature (DCGM_FI_DEV_GPU_TEMP). Data center GPUs reduce their clocks above about"
            " 85 °C.",
            "celsius",
            Query(of_jobs("DCGM_FI_DEV_GPU_TEMP"), gpu),
            many=True,
            limits=style.thresholds("transparent", (85, style.RED)),
        ),
        graph(
            "GPU power",
            "The DCGM exporter reports the power draw of each GPU (DCGM_FI_DEV_POWER_USAGE).",
            "watt",
            Query(of_jobs("DCGM_FI_DEV_POWER_USAGE"), gpu),
            many=True,
        ),
        timeline(
            "Xid errors",
            "The DCGM exporter reports the last Xid error of each GPU (DCGM_FI_DEV_XID_ERRORS). NVIDIA's documentation explains"
            " the codes.",
            Query(of_jobs("DCGM_FI_DEV_XID_ERRORS"), gpu),
            limits=style.thresholds(style.GREEN, (1, style.RED)),
            mappings=style.value_map(
                {"0": ("none", style.GREEN), **{str(code): (text, style.RED) for code, text in style.XID_ERRORS.items()}}
            ),
        ),
        graph(
            "Allocation retries and failures",
            "A retry is a device memory allocation that succeeded only after cached memory was released.",
            "none",
            Query(f"sum by ({BY_JOB}) ({increase('trainer_device_alloc_retries_total', JOB)})", f"{JOB_LEGEND} retries"),
            Query(f"sum by ({BY_JOB}) ({increase('trainer_device_ooms_total', JOB)})", f"{JOB_LEGEND} failures"),
            decimals=0,
        ),
    )


def add_ranks(board: Board) -> None:
    compute = compute_time_per_step(JOB)
    rank = f"{JOB_LEGEND} rank {{{{rank}}}}"
    board.row(
        "Ranks",
        graph(
            "Slowest ranks: compute time per step",
            "The time per step in data loading, forward, backward and optimizer excludes waits for other ranks. The"
            f" {MANY_RANKS} slowest ranks are shown; the slowest limits all ranks.",
            "s",
            Query(f"topk({MANY_RANKS}, {compute})", rank),
            many=True,
        ),
        graph(
            "Relative performance of the slowest rank",
            "The performance is the compute time of the fastest rank divided by that of the slowest rank. The alert"
            " TrainingJobStraggler fires below 75 %.",
            "percentunit",
            Query(f"min by ({BY_JOB}) ({compute}) / max by ({BY_JOB}) ({compute})", JOB_LEGEND),
            maximum=1,
            limits=style.thresholds("transparent", (0.75, style.RED)),
        ),
        graph(
            "Time since the last step",
            f"The {MANY_RANKS} ranks with the longest time are shown. The alert TrainingJobStalled fires at ten minutes.",
            "s",
            Query(
                f"topk({MANY_RANKS}, time() - max by ({BY_JOB}, rank) (trainer_last_step_timestamp_seconds{{{JOB}}} > 0))", rank
            ),
            many=True,
        ),
        graph(
            "Prefetched batches",
            "The ready batches are those of the rank with the fewest. At 0, training waits for data; at capacity, data loading"
            " waits for training.",
            "none",
            Query(by_job("min", "trainer_data_queue_batches"), f"{JOB_LEGEND} ready"),
            Query(by_job("max", "trainer_data_queue_capacity_batches"), f"{JOB_LEGEND} capacity"),
            decimals=0,
        ),
        graph(
            "Collective bandwidth",
            "The bandwidth is the size of the gradients that the ranks of a job reduce per second, without the overhead of the"
            " algorithm.",
            "binBps",
            Query(f"sum by ({BY_JOB}) ({rate('trainer_collective_bytes_total', JOB)})", JOB_LEGEND),
        ),
        graph(
            "Memory by pod",
            "The memory is the resident memory of the largest rank of a pod.",
            "bytes",
            Query(f"max by ({BY_JOB}, pod) (process_resident_memory_bytes{{{JOB}}})", "{{pod}}"),
            many=True,
        ),
    )


def add_accelerators(board: Board) -> None:
    board.row("Accelerators", usage_by_class(Query(accelerators(JOB, "1h", "class"), "{{class}}", OPERATOR_STEP)))


def add_checkpoints(board: Board) -> None:
    operation = f"{JOB_LEGEND} {{{{operation}}}}"
    seconds = "trainer_checkpoint_duration_seconds"
    recovery = "trainer_recovery_duration_seconds"
    board.row(
        "Checkpoints, restarts and recoveries",
        timeline(
            "State over time",
            "The colors are those of the states in all dashboards. Annotations in the other panels mark restarts, recoveries and"
            " checkpoints.",
            Query(state_query(JOB), JOB_LEGEND),
            mappings=style.state_numbers(),
        ),
        graph(
            "Recomputed steps",
            "The current attempt repeats the steps after the checkpoint from which it resumed.",
            "none",
            Query(by_job("max", "trainer_recomputed_steps_total"), JOB_LEGEND),
            decimals=0,
        ),
        graph(
            "Checkpoint age",
            "A failure would lose the work since the newest checkpoint. The alert TrainingJobCheckpointStale fires at two"
            " hours.",
            "s",
            Query(age("trainer_last_checkpoint_timestamp_seconds"), JOB_LEGEND),
            width=8,
            limits=style.thresholds("transparent", (7200, style.RED)),
        ),
        graph(
            "Checkpoint operations per hour",
            "Each point counts the saves and restores in the hour before it, by result.",
            "none",
            Query(
                f"sum by ({BY_JOB}, operation, result) ({increase('trainer_checkpoint_operations_total', JOB, '1h')})",
                f"{operation} {{{{result}}}}",
            ),
            width=8,
        ),
        graph(
            "Checkpoint duration",
            "A save runs from the copy in memory until the checkpoint is durable, while training continues. Each point is the"
            " mean of the hour before it.",
            "s",
            Query(
                f"sum by ({BY_JOB}, operation) ({rate(seconds + '_sum', JOB, '1h')}) / (sum by ({BY_JOB}, operation)"
                f" ({rate(seconds + '_count', JOB, '1h')}) > 0)",
                operation,
            ),
            width=8,
        ),
        graph(
            "Recoveries and replaced pods",
            "A job with the restart scope Rank recovers from the loss of ranks without a restart of the group. Both are counted"
            " since the job was created.",
            "none",
            Query(of_operator("trainingjob_rank_recoveries_total", JOB), f"{JOB_LEGEND} recoveries"),
            Query(of_operator("trainingjob_replaced_pods_total", JOB), f"{JOB_LEGEND} replaced pods"),
            width=8,
            decimals=0,
        ),
        graph(
            "Time lost in recoveries",
            "The time from the loss of ranks until training continued without a restart of the group is summed since the job"
            " was created.",
            "s",
            Query(of_operator("trainingjob_rank_recovery_seconds_total", JOB), JOB_LEGEND),
            width=8,
        ),
        graph(
            "Recovery duration",
            "The duration runs from the detection of a lost rank until the rank with the longest wait continued to train. Each"
            " point is the mean of the hour before it.",
            "s",
            Query(
                f"max by ({BY_JOB}) ({rate(recovery + '_sum', JOB, '1h')} / ({rate(recovery + '_count', JOB, '1h')} > 0))",
                JOB_LEGEND,
            ),
            width=8,
        ),
    )


def annotations() -> list[PrometheusAnnotation]:
    def newest(metric: str, *labels: str) -> str:
        """The value before this step. The window bridges the time in which an operator replaces another one."""
        return f"max by ({', '.join((BY_JOB, *labels))}) (max_over_time({metric}{{{JOB}}}[10m] offset $__interval))"

    # A series begins at 1. It counts as 0 before that if the job had series before: otherwise, as in a new Prometheus, the
    # restart or recovery may be an old one.
    def increases(metric: str, *labels: str) -> str:
        now = of_operator(metric, JOB, *labels)
        return f"{now} > ({newest(metric, *labels)} or 0 * ({now} and on ({BY_JOB}) {newest('trainingjob_info')}))"

    return [
        PrometheusAnnotation(
            "Restarts",
            style.RED,
            increases("trainingjob_restarts_total", "reason"),
            f"Restart of {JOB_LEGEND}",
            "{{reason}}",
            value_is_time=False,
        ),
        PrometheusAnnotation(
            "Recoveries",
            style.ORANGE,
            increases("trainingjob_rank_recoveries_total"),
            f"Recovery of {JOB_LEGEND} without a restart",
            "",
            value_is_time=False,
        ),
        PrometheusAnnotation(
            "Checkpoints",
            style.BLUE,
            f"1000 * max by ({BY_JOB}) (trainer_last_checkpoint_timestamp_seconds{{{JOB}}} > 0)",
            f"Checkpoint of {JOB_LEGEND}",
            "",
            value_is_time=True,
        ),
    ]


def dashboard() -> Board:
    board = Board(
        "oarlock-trainingjob",
        "Oarlock / Training job",
        "Training jobs: state, learning curves, step time, GPUs, ranks and checkpoints. Select one job, or several to compare"
        " them.",
        "trainingjob_info",
        query_variable("namespace", "Namespace", 'label_values(trainingjob_info{cluster=~"$cluster"}, namespace)'),
        query_variable("trainingjob", "Training job", f"label_values(trainingjob_info{{{NAMESPACE}}}, trainingjob)"),
    )
    board.link_logs(explore_url(LOGS))
    board.annotate(*annotations())
    add_status(board)
    add_training(board)
    add_speed(board)
    add_gpus(board)
    add_ranks(board)
    add_checkpoints(board)
    add_accelerators(board)
    return board
