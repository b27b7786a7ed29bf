"""Parts of PromQL queries that several panels share.

Series of ranks have the labels cluster, namespace, pod, trainingjob and rank; series of the operator about a job have
cluster, namespace and trainingjob, and each replica of the operator exports them, hence of_operator(). A Prometheus of
one cluster has no label "cluster": the variable then matches "".
"""

from .style import STATE_COLORS

CLUSTER = 'cluster=~"$cluster"'
NAMESPACE = f'{CLUSTER}, namespace=~"$namespace"'
JOB = f'{NAMESPACE}, trainingjob=~"$trainingjob"'
BY_JOB = "cluster, namespace, trainingjob"

JOB_LEGEND = "{{namespace}}/{{trainingjob}}"

STEP_TIME_PHASES = "data_wait|forward|backward|comm|optimizer"
COMPUTE_PHASES = "data_wait|forward|backward|optimizer"


def rate(metric: str, selector: str, window: str = "$__rate_interval") -> str:
    return f"rate({metric}{{{selector}}}[{window}])"


def increase(metric: str, selector: str, window: str = "$__rate_interval") -> str:
    return f"increase({metric}{{{selector}}}[{window}])"


def quantile(q: float, metric: str, selector: str, by: str = "", window: str = "$__rate_interval") -> str:
    """A quantile of a histogram, one series for each combination of the labels `by`."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) ({rate(metric + '_bucket', selector, window)}))"


def of_operator(metric: str, selector: str, *labels: str) -> str:
    """A gauge of the operator about each job, once, however many replicas export it."""
    return f"max by ({', '.join((BY_JOB, *labels))}) ({metric}{{{selector}}})"


def state_query(selector: str) -> str:
    """1 for Pending, 2 for Running and so on, one series per job; style.state_numbers() maps them to names."""
    return " or ".join(
        f"{number} * " + of_operator("trainingjob_status_phase", f'{selector}, phase="{name}"')
        for number, name in enumerate(STATE_COLORS, start=1)
    )


def phase_share(phases: str, of: str, selector: str) -> str:
    """The share of the time of all ranks of a job in `phases`, of the time in the phases `of`."""
    part, whole = (rate("trainer_phase_seconds_total", f'{selector}, phase=~"{one}"') for one in (phases, of))
    return f"sum by ({BY_JOB}) ({part}) / sum by ({BY_JOB}) ({whole})"


def accelerators(selector: str, window: str, by: str) -> str:
    """The mean number of allocated accelerators. The operator writes the time of a job every few minutes."""
    return f"sum by ({by}) (max by ({BY_JOB}, class) ({rate('trainingjob_accelerator_seconds_total', selector, window)}))"


def goodput(selector: str, window: str, by: str = BY_JOB) -> str:
    """The time of new steps over the time of all allocated accelerators."""
    productive = accelerators(f'{selector}, class="productive"', window, by)
    return f"{productive} / ({accelerators(selector, window, by)} > 0)"


def remaining_seconds(selector: str) -> str:
    """The time until the target step at the current rate of steps; no series while a job does not step."""
    steps = {
        metric: f"max by ({BY_JOB}) ({metric}{{{selector}}})" for metric in ("trainer_current_step", "trainer_target_steps")
    }
    speed = f"max by ({BY_JOB}) ({rate('trainer_steps_total', selector)})"
    return f"(({steps['trainer_target_steps']} > 0) - {steps['trainer_current_step']}) / ({speed} > 0)"


def restarts(selector: str) -> str:
    """The group restarts of each job over its lifetime. A job without restarts has no such series, hence the 0."""
    return (
        f"sum by ({BY_JOB}) ({of_operator('trainingjob_restarts_total', selector, 'reason')})"
        f" or 0 * {of_operator('trainingjob_info', selector)}"
    )


def compute_time_per_step(selector: str) -> str:
    """Seconds that a rank computes per step, excluding waits for other ranks."""
    labels = f"{BY_JOB}, rank"
    phases = f'{selector}, phase=~"{COMPUTE_PHASES}"'
    return (
        f"sum by ({labels}) ({rate('trainer_phase_seconds_total', phases)})"
        f" / (sum by ({labels}) ({rate('trainer_steps_total', selector)}) > 0)"
    )


def of_jobs(metric: str) -> str:
    """A metric of the DCGM exporter for the GPUs of the selected jobs, one series for each GPU of a node.

    The exporter's labels namespace and pod are those of the container that uses the GPU. Without honorLabels, Prometheus
    renames them to exported_namespace and exported_pod.
    """
    gpus = f"{metric}{{{CLUSTER}}}"
    for label in ("namespace", "pod"):
        gpus = f'label_replace({gpus}, "{label}", "$1", "exported_{label}", "(.+)")'
    jobs = f"group by (cluster, namespace, pod, trainingjob) (trainer_world_size{{{JOB}}})"
    return f"max by ({BY_JOB}, Hostname, gpu) ({gpus} * on (cluster, namespace, pod) group_left (trainingjob) {jobs})"
