#!/usr/bin/python3
"""Runs every query of every dashboard against a Prometheus; fails on an error and on a query without data.

usage: dashboard_queries.py [--only REGEX] [--unavailable REGEX] PROMETHEUS_URL START_SECONDS DASHBOARD...
       dashboard_queries.py --samples DASHBOARD...

The queries are those of panels, annotations and variables, with the variables at "All". --only selects the queries with
a metric that matches. Queries with a metric that matches --unavailable must be valid, but may have no data: the programs
of this run cannot export it. --samples uses a Prometheus with the series of sample_series.py, and thus covers the metrics
of GPUs too: first without the label "cluster" and without honorLabels of the DCGM exporter, then with both.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

Series = dict[str, Any]
METRIC = re.compile(r"([a-zA-Z_:][\w:]*)\{")
LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
SCRAPE_SECONDS = 15  # Grafana's default for a Prometheus data source


class QueryError(Exception):
    pass


@dataclasses.dataclass
class Prometheus:
    url: str
    start: float
    end: float
    step: float

    def get(self, path: str, **parameters: object) -> Any:
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=30
            ) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(f"{error.code}: {error.read().decode()}") from error

    def range(self, query: str) -> list[Series]:
        result = self.get("query_range", query=query, start=self.start, end=self.end, step=self.step)["result"]
        return [series for series in result if series["values"]]

    def instant(self, query: str) -> list[Series]:
        result: list[Series] = self.get("query", query=query, time=self.end)["result"]
        return result

    def label_values(self, selector: str, label: str) -> list[str]:
        values: list[str] = self.get(f"label/{label}/values", **{"match[]": selector, "start": self.start, "end": self.end})
        return values


@dataclasses.dataclass
class Variables:
    """The values of a dashboard's variables, and Grafana's own."""

    prometheus: Prometheus
    values: dict[str, str] = dataclasses.field(default_factory=dict)

    def expand(self, text: str, min_step: str = "") -> str:
        """The text with values in place of variables. `min_step` is the target's lower limit of the step."""
        scrape = max(SCRAPE_SECONDS, seconds(min_step)) if self.prometheus.step >= SCRAPE_SECONDS else self.prometheus.step
        step = max(self.prometheus.step, scrape)
        own = {
            "__rate_interval": f"{max(step + scrape, 4 * scrape):.0f}s",
            "__interval": f"{step:.0f}s",
            "__range": f"{self.prometheus.end - self.prometheus.start:.0f}s",
        }
        known = {**self.values, **own}
        return re.sub(r"\$([a-zA-Z_]\w*)", lambda match: known[match[1]], text)


def seconds(duration: str) -> int:
    """Of a duration such as 30s or 2m; 0 for an empty one."""
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]] if duration else 0


def resolve(board: dict[str, Any], prometheus: Prometheus, chosen: dict[str, str]) -> tuple[Variables, list[str]]:
    """The variables, at `chosen` or at "All", and the problems of those whose queries give no values."""
    variables, problems = Variables(prometheus), []
    for variable in board["templating"]["list"]:
        name = variable["name"]
        if variable["type"] != "query":
            continue
        match = LABEL_VALUES.fullmatch(variable["query"]["query"])
        if match is None:
            raise QueryError(f"variable {name}: not a label_values() query")
        found = prometheus.label_values(variables.expand(match[1]), match[2])
        if not found and name != "cluster":  # a Prometheus of one cluster has no label of this name
            problems.append(f"variable {name}: no values")
        variables.values[name] = chosen.get(name) or variable.get("allValue") or f"({'|'.join(found)})"
    return variables, problems


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels, including those of collapsed rows."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def queries(board: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(where, expression, lower limit of the step) of each query."""
    for panel in panels(board):
        for target in panel.get("targets", []):
            yield f"panel '{panel['title']}' {target['refId']}", target["expr"], target.get("interval", "")
    for annotation in board["annotations"]["list"]:
        yield f"annotation '{annotation['name']}'", annotation["target"]["expr"], ""


def check(board: dict[str, Any], prometheus: Prometheus, only: str = "", unavailable: str = "") -> tuple[int, int, list[str]]:
    """The number of queries with data, that of the others that may have none, and the problems."""
    variables, problems = resolve(board, prometheus, {})
    good = empty = 0
    for where, expression, min_step in queries(board):
        metrics = METRIC.findall(expression)
        if only and not any(re.fullmatch(only, metric) for metric in metrics):
            continue
        try:
            if prometheus.range(variables.expand(expression, min_step)):
                good += 1
            elif unavailable and any(re.fullmatch(unavailable, metric) for metric in metrics):
                empty += 1
            else:
                problems.append(f"{where}: no data: {variables.expand(expression, min_step)}")
        except QueryError as error:
            problems.append(f"{where}: {error}")
    return good, empty, problems


def check_all(paths: list[pathlib.Path], prometheus: Prometheus, only: str = "", unavailable: str = "") -> bool:
    """Prints the problems and a summary. Returns whether there are none, and at least one query has data."""
    good = empty = bad = 0
    for path in paths:
        with_data, without, problems = check(json.loads(path.read_text()), prometheus, only, unavailable)
        good, empty, bad = good + with_data, empty + without, bad + len(problems)
        for problem in problems:
            print(f"{path.name}: {problem}", file=sys.stderr)
    print(
        f"{good} of {good + empty + bad} queries give data"
        + (f", {empty} need metrics that this run cannot have" if empty else "")
    )
    return bad == 0 and good > 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--unavailable", default="")
    parser.add_argument("--samples", action="store_true")
    parser.add_argument("arguments", nargs="+")
    options = parser.parse_args()
    if options.samples:
        import sample_format
        import sample_prometheus

        ok = True
        for cluster in ("", "east"):
            with sample_prometheus.serve(cluster) as url:
                prometheus = Prometheus(url, sample_format.START, sample_format.START + sample_format.DURATION, SCRAPE_SECONDS)
                ok = check_all([pathlib.Path(path) for path in options.arguments], prometheus) and ok
    else:
        url, start, *paths = options.arguments
        ok = check_all(
            [pathlib.Path(path) for path in paths],
            Prometheus(url, float(start), time.time(), 2),
            options.only,
            options.unavailable,
        )
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
