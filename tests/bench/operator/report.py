"""The figures and their goals as a Markdown table."""
import dataclasses
import statistics

COLUMNS = ("figure", "Oarlock", "raw loop", "training-operator", "training-operator, tuned", "JobSet", "goal", "")


@dataclasses.dataclass
class Row:
    figure: str
    values: dict  # by column: text
    goal: str = ""
    reached: bool | None = None

    def cells(self):
        verdict = {True: "reached", False: "missed", None: ""}[self.reached]
        return [self.figure, *(self.values.get(column, "–") for column in COLUMNS[1:-2]), self.goal, verdict]


def median(runs, key):
    """Of the runs that have this figure; None if none has."""
    values = [run[key] for run in runs if run.get(key) is not None]
    return statistics.median(values) if values else None


def text(value, form):
    return "–" if value is None else format(value, form)


def create_rows(create):
    for jobs, pairs in create.items():
        ratios = [pair["ours"]["seconds"] / pair["raw"]["seconds"] for pair in pairs]
        ours, raw = (statistics.median(pair[side]["seconds"] for pair in pairs) for side in ("ours", "raw"))
        ratio = statistics.median(ratios)
        pods = 4 * int(jobs)
        yield Row(f"{jobs} jobs created, s", {"Oarlock": f"{ours:.2f} ({pods / ours:.0f} pods/s)",
                                              "raw loop": f"{raw:.2f} ({pods / raw:.0f} pods/s)"})
        yield Row(f"{jobs} jobs created, ratio to raw",
                  {"Oarlock": f"{ratio:.2f} ({min(ratios):.2f}–{max(ratios):.2f})", "raw loop": "1"}, "≤ 1.1", ratio <= 1.1)


def running_rows(running):
    """`running`: system -> its runs at the first number of jobs."""
    ours, rivals = running.get("Oarlock"), {name: runs for name, runs in running.items() if name != "Oarlock"}
    if ours is None:
        return
    jobs = ours[0]["jobs"]

    def row(figure, key, form, goal="", reached=None):
        values = {name: text(median(runs, key), form) for name, runs in running.items()}
        return Row(figure, values, goal, reached)

    if ours[0]["kwok"]:
        walls = row(f"{jobs} jobs all Running, s", "running", ".1f")
        for name, runs in running.items():
            if median(runs, "running") is None:
                walls.values[name] = f"not in time ({statistics.median(run['pods'] for run in runs):.0f} pods)"
        yield walls
    cpu = median(ours, "cpu")
    finished = [median(runs, "cpu") for runs in rivals.values() if median(runs, "running") is not None]
    reached = cpu <= min(finished) / 4 if finished and cpu is not None else None
    yield row(f"controller CPU for {jobs} jobs, s", "cpu", ".2f", "≤ 1/4 of each rival's", reached)
    requests = median(ours, "requests_per_job_helped")
    theirs = [median(runs, "requests_per_job_helped") for runs in rivals.values() if median(runs, "running") is not None]
    reached = requests <= min(theirs) if theirs and requests is not None else None
    yield row("API requests per job, the Job controller's too", "requests_per_job_helped", ".1f", "the fewest", reached)
    yield row("API requests per job, of the process", "requests_per_job", ".1f")
    yield row("start of the process to its first write, s", "cold_start", ".2f", "≤ 0.3", median(ours, "cold_start") <= 0.3)
    yield row("RSS idle, MiB", "rss_idle", ".1f", "≤ 15 (aim 12)", median(ours, "rss_idle") <= 15)
    yield row(f"RSS after {jobs} jobs, MiB", "rss_after", ".1f")
    yield row("RSS, its peak, MiB", "rss_peak", ".1f")
    if median(ours, "rest_writes") is not None:
        yield row("writes at rest", "rest_writes", ".0f", "0", max(run["rest_writes"] for run in ours if "rest_writes" in run) == 0)
        yield row("RSS at rest, MiB", "rss_rest", ".1f", "≤ 15", median(ours, "rss_rest") <= 15)
        yield row("CPU at rest", "rest_cpu", ".2%", "≤ 1 %", median(ours, "rest_cpu") <= 0.01)


# The figures of the part queued: key of a run, what it is, its format, and whether ours is to be a third of JobSet's.
QUEUED = (
    ("queued", "{jobs} jobs on hold, until all Workloads exist, s", ".1f", False),
    ("running", "{jobs} queued jobs, admission until all pods run, s", ".1f", False),
    ("cpu_ms_per_job", "controller CPU per queued job, ms", ".2f", True),
    ("rss_peak", "RSS, its peak with {jobs} queued jobs, MiB", ".1f", True),
    ("requests_per_job", "API requests per queued job, of the process", ".1f", True),
    ("requests_per_job_helped", "API requests per queued job, the Job controller's too", ".1f", True),
    ("cpu_of_controller_manager", "kube-controller-manager's CPU, s", ".1f", False),
    ("cpu_of_kueue", "Kueue's CPU (not counted), s", ".1f", False),
)


def queued_rows(queued):
    """`queued`: system -> its runs, those of a round at the same index."""
    for key, figure, form, has_goal in QUEUED if queued else ():
        values = {name: text(median(runs, key), form) for name, runs in queued.items()}
        ratio = None
        if len(queued) == 2:
            ratio = statistics.median(ours[key] / theirs[key] for ours, theirs in zip(queued["Oarlock"], queued["JobSet"]))
            values["Oarlock"] += f" ({ratio:.2f} of JobSet's)"
        jobs = next(iter(queued.values()))[0]["jobs"]
        yield Row(figure.format(jobs=jobs), values, "≤ 1/3 of JobSet's" if has_goal else "",
                  ratio <= 1 / 3 if has_goal and ratio is not None else None)


def memory_rows(memory):
    if not memory:
        return
    pods = f"{memory['pods']:,} pods"
    for key, when in (("rss_after_burst", "created"), ("rss_after_start", "found at the start")):
        yield Row(f"RSS, {pods}, {when}, MiB", {"Oarlock": f"{memory[key]:.1f}"})
    reached = memory["rss_after_relist"] <= 40 if memory["pods"] >= 10000 else None
    yield Row(f"RSS, {pods}, after a relist, MiB", {"Oarlock": f"{memory['rss_after_relist']:.1f}"}, "≤ 40", reached)


def rows(results):
    found = [*create_rows(results.get("create", {})), *running_rows(results.get("running", {}))]
    if "alone" in results:
        found += running_rows({"Oarlock": [results["alone"]]})
    for jobs, runs in results.get("larger", {}).items():
        found.append(Row(f"{jobs} jobs all Running, s", {"Oarlock": text(median(runs, "running"), ".1f")}))
        found.append(Row(f"controller CPU for {jobs} jobs, s", {"Oarlock": text(median(runs, "cpu"), ".2f")}))
    return [*found, *queued_rows(results.get("queued")), *memory_rows(results.get("memory"))]


def table(found):
    lines = [list(COLUMNS), *(row.cells() for row in found)]
    keep = [i for i, column in enumerate(COLUMNS) if i in (0, len(COLUMNS) - 2, len(COLUMNS) - 1)
            or any(line[i] != "–" for line in lines[1:])]
    widths = [max(len(line[i]) for line in lines) for i in keep]
    drawn = ["| " + " | ".join(line[i].ljust(width) for i, width in zip(keep, widths)) + " |" for line in lines]
    drawn.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(drawn)
