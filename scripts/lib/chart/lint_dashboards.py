#!/usr/bin/env python3
"""Checks Grafana dashboards against the Foundation SDK's schema, the rules of Grafana's dashboard-linter that matter
here, and the metrics of the programs.

usage: lint_dashboards.py REPOSITORY DASHBOARD...

The metrics are those of docs/metrics-trainer.md and docs/metrics-operator.md, which the programs generate, and of
dcgm_exporter.prom, a sample in the format of NVIDIA's DCGM exporter with the names of its default-counters.csv. The
sample series must have the same names and labels. Needs the Grafana Foundation SDK in PYTHONPATH.
"""

import json
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from grafana_foundation_sdk.models.prometheus import Dataquery

import draw_dashboards
import sample_series
from dashboard_queries import LABEL_VALUES, panels, queries

Board = dict[str, Any]
HERE = pathlib.Path(__file__).resolve().parent

METRICS_ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \| ([^|]*) \|", re.M)
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^{}]*)\}")
GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right) \(([^()]*)\)")
VARIABLE = re.compile(r"\$\{?(\w+)")
OWN_VARIABLES = {"__rate_interval", "__interval", "__range", "__data", "__url_time_range", "__from", "__to"}
TARGET_LABELS = {"cluster", "namespace", "pod", "job", "instance", "trainingjob"}  # of Prometheus, docs/operate.md
RENAMED_LABELS = {"exported_namespace", "exported_pod", "exported_container"}  # without honorLabels
PROCESS_METRICS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"}
# Counters that a panel shows as they are: what an attempt repeated, and those of the job's status.
SHOWN_COUNTERS = {
    "trainer_recomputed_steps_total",
    "trainingjob_rank_recoveries_total",
    "trainingjob_rank_recovery_seconds_total",
    "trainingjob_replaced_pods_total",
    "trainingjob_restarts_total",
}
# What precedes a metric of the operator about a job, because each replica exports it.
DEDUPLICATED = re.compile(r"max by \([^()]*\) \((?:(?:max_over_time|rate|increase)\()?$")
RATED = re.compile(r"\b(?:rate|increase)\((\w+)\{")
# The fields that the Prometheus data source adds to the schema of annotations.
ANNOTATION_FIELDS = {"target", "titleFormat", "textFormat", "useValueForTime"}


# ---- Schema -----------------------------------------------------------------------------------------------------------


def differences(stored: Any, known: Any, path: str) -> Iterator[str]:
    """The places where a value differs from what the SDK makes of it: unknown fields, and missing defaults."""
    if isinstance(stored, dict) and isinstance(known, dict):
        for key in sorted(stored.keys() | known.keys()):
            if key not in known:
                yield f"schema: unknown field {path}.{key}"
            elif key not in stored:
                yield f"schema: missing field {path}.{key}"
            else:
                yield from differences(stored[key], known[key], f"{path}.{key}")
    elif isinstance(stored, list) and isinstance(known, list) and len(stored) == len(known):
        for index, (one, other) in enumerate(zip(stored, known, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif stored != known:
        yield f"schema: {path} is {stored!r}, not {known!r}"


def read_and_write(model: Any, stored: Any) -> Any:
    return json.loads(json.dumps(model.from_json(stored), cls=JSONEncoder))


def schema_problems(board: Board) -> Iterator[str]:
    plain = json.loads(json.dumps(board))
    for annotation in plain["annotations"]["list"]:
        yield from differences(
            annotation["target"], read_and_write(Dataquery, annotation["target"]), f"annotation '{annotation['name']}'"
        )
        for name in ANNOTATION_FIELDS:
            annotation.pop(name, None)
    try:
        known = read_and_write(Dashboard, plain)
    except Exception as error:  # the SDK raises whatever its conversion of a wrong type raises
        yield f"schema: {error!r}"
    else:
        yield from differences(plain, known, "")


# ---- Metrics ----------------------------------------------------------------------------------------------------------


def known_metrics(root: pathlib.Path) -> dict[str, set[str]]:
    """Metric -> its labels, without those of Prometheus."""
    out = {name: {"rank"} for name in PROCESS_METRICS}  # those of ranks have the label
    for page in ("trainer", "operator"):
        for name, kind, labels in METRICS_ROW.findall((root / f"docs/metrics-{page}.md").read_text()):
            own = set(re.findall(r"`(\w+)`", labels))
            if kind == "histogram":
                out.update({f"{name}_bucket": own | {"le"}, f"{name}_sum": own, f"{name}_count": own})
            else:
                out[name] = own
    for name, labels in re.findall(r"^(DCGM_\w+)\{(.*)\}", (HERE / "dcgm_exporter.prom").read_text(), re.M):
        out[name] = set(re.findall(r'(\w+)="', labels)) | RENAMED_LABELS
    return out


def query_problems(where: str, query: str, metrics: dict[str, set[str]], variables: set[str]) -> Iterator[str]:
    selectors = SELECTOR.findall(query)
    if not selectors:
        yield f"{where}: no selector with braces: {query}"
    labels = set(TARGET_LABELS)
    for metric, matchers in selectors:
        if metric not in metrics:
            yield f"{where}: no program exports {metric}"
            continue
        labels |= metrics[metric]
        used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers))
        for label in sorted(used - metrics[metric] - TARGET_LABELS):
            yield f"{where}: {metric} has no label {label}"
        if "cluster" not in used and "label_values" not in where:
            yield f"{where}: {metric} is not limited to $cluster"
        counts = metric.endswith(("_total", "_bucket", "_sum", "_count"))
        if counts and metric not in SHOWN_COUNTERS and metric not in RATED.findall(query):
            yield f"{where}: the counter {metric} is outside of rate() and increase()"
    for group in GROUPING.findall(query):
        for label in filter(None, (one.strip() for one in group.split(","))):
            if label not in labels:
                yield f"{where}: groups by the unknown label {label}"
    for name in VARIABLE.findall(re.sub(r'"\$\d"', "", query)):
        if name not in variables | OWN_VARIABLES:
            yield f"{where}: the variable ${name} does not exist"
    for match in SELECTOR.finditer(query):
        if (
            "label_values" not in where
            and match[1].startswith("trainingjob_")
            and "trainingjob" in metrics.get(match[1], ())
            and not DEDUPLICATED.search(query[: match.start()])
        ):
            yield f"{where}: {match[1]} is counted once for each replica of the operator; it needs max by (...)"
    if re.search(r"\[(?!1h\])\d+[smh]\]", re.sub(r"max_over_time\([^()]*\)", "", query)):  # "per hour" is a fixed range
        yield f"{where}: a fixed range instead of $__rate_interval"


def sample_problems(metrics: dict[str, set[str]]) -> Iterator[str]:
    """Names and labels of the sample series that no program exports."""
    for metric, labels in sorted(
        {(metric, tuple(name for name, _ in labels)) for metric, labels in sample_series.series("").samples}
    ):
        if metric not in metrics:
            yield f"sample_series.py: no program exports {metric}"
        elif unknown := set(labels) - metrics[metric] - TARGET_LABELS:
            yield f"sample_series.py: {metric} has no label {', '.join(sorted(unknown))}"


# ---- Rules ------------------------------------------------------------------------------------------------------------


def variable_problems(board: Board, metrics: dict[str, set[str]]) -> Iterator[str]:
    seen: set[str] = set()
    for variable in board["templating"]["list"]:
        name = variable["name"]
        if not variable.get("label"):
            yield f"variable {name}: needs a label"
        if variable["type"] == "query":
            match = LABEL_VALUES.fullmatch(variable["query"]["query"])
            if match is None:
                yield f"variable {name}: its query is not label_values(...)"
                continue
            selector = match[1] if "{" in match[1] else match[1] + "{}"
            yield from query_problems(f"variable {name}, label_values", selector, metrics, seen)
            if variable["refresh"] != 2 or not variable["includeAll"]:
                yield f'variable {name}: must have "All" and refresh on a change of the time range'
        seen.add(name)
    if [variable["name"] for variable in board["templating"]["list"]][:3] != ["datasource", "loki", "cluster"]:
        yield "templating: the first variables must be datasource, loki and cluster"


def panel_problems(panel: Board) -> Iterator[str]:
    where = f"panel '{panel['title']}'"
    description = panel.get("description", "")
    if not re.fullmatch(r"[A-Z].*[\w%)]\.", description) or len(description.split()) < 5:
        yield f"{where}: needs a description, in complete sentences"
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield f"{where}: needs a unit"
    sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
    if any(source["uid"] != "${datasource}" for source in sources):
        yield f"{where}: must use the variable for its data source"
    references = [target["refId"] for target in panel["targets"]]
    if len(references) != len(set(references)):
        yield f"{where}: a refId occurs twice"
    if panel["type"] != "table" and not all(target.get("legendFormat") for target in panel["targets"]):
        yield f"{where}: a query has no legend"


def layout_problems(board: Board) -> Iterator[str]:
    ids = [panel["id"] for panel in panels(board)]
    if len(ids) != len(set(ids)):
        yield "panels: an id occurs twice"
    cells: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            yield f"panel '{panel['title']}': exceeds the width of 24"
        for cell in (
            (x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])
        ):
            if cell in cells:
                yield f"panel '{panel['title']}': overlaps '{cells[cell]}'"
                break
            cells[cell] = panel["title"]


def link_problems(board: Board, uids: set[str]) -> Iterator[str]:
    variables = {variable["name"] for variable in board["templating"]["list"]}
    for url in re.findall(r'"url": "([^"]*)"', json.dumps(board)):
        if target := re.match(r"/d/([\w-]+)/", url):
            if target[1] not in uids:
                yield f"link to the dashboard {target[1]}, which does not exist"
        elif not url.startswith("/explore?"):
            yield f"link to {url}: neither a dashboard nor Explore"
        for name in VARIABLE.findall(url):
            if name not in variables | OWN_VARIABLES:
                yield f"link: the variable ${name} does not exist"


def board_problems(board: Board, metrics: dict[str, set[str]], uids: set[str]) -> Iterator[str]:
    if not re.fullmatch(r"[a-z0-9-]{1,40}", board.get("uid", "")):
        yield "uid: must be stable and short"
    if board.get("editable") is not False:
        yield "editable: must be false, or changes are lost by an upgrade"
    if board["graphTooltip"] != 2 or not board["refresh"] or "oarlock" not in board["tags"]:
        yield "needs a shared tooltip, a refresh interval, and the tag oarlock, by which dashboards link to each other"
    yield from schema_problems(board)
    yield from variable_problems(board, metrics)
    yield from layout_problems(board)
    yield from link_problems(board, uids)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    for panel in panels(board):
        if panel["type"] != "row":
            yield from panel_problems(panel)
    for where, query, _ in queries(board):
        yield from query_problems(where, query, metrics, variables)


def picture_problems(board: Board, picture: pathlib.Path) -> Iterator[str]:
    if not picture.exists() or draw_dashboards.text_of(picture.read_bytes()) != draw_dashboards.digest(board):
        yield f"{picture.name} shows an older version: run scripts/chart pictures"


def main() -> None:
    plugins.register_default_plugins()
    root, *paths = map(pathlib.Path, sys.argv[1:])
    boards = {path.name: json.loads(path.read_text()) for path in paths}
    uids = {board["uid"] for board in boards.values()}
    metrics = known_metrics(root)
    problems = list(sample_problems(metrics))
    for name, board in boards.items():
        problems += [f"{name}: {problem}" for problem in board_problems(board, metrics, uids)]
        problems += picture_problems(board, root / "docs/dashboards" / f"{board['uid']}.png")
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    print(
        f"{len(boards)} dashboards with {sum(1 for board in boards.values() for _ in queries(board))} queries: {len(problems)}"
        " problems"
    )
    sys.exit(1 if problems or not boards else 0)


if __name__ == "__main__":
    main()
