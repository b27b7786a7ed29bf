#!/usr/bin/env python3
"""Holds Grafana dashboards to the rules of Grafana's dashboard-linter that matter here.

usage: lint_dashboards.py DASHBOARD...
"""
import json
import pathlib
import re
import sys

COUNTER = re.compile(r"\b[a-z_]+_total\b")
RATED = re.compile(r"\b(?:rate|irate|increase)\(\s*[a-z_]+_total\b")
GAUGE_LIKE = {"trainer_recomputed_steps_total"}  # shown as it is: what an attempt lost, counted once


def problems(board):
    if not re.fullmatch(r"[a-z0-9-]{1,40}", board.get("uid", "")):
        yield "uid: must be stable and short"
    if board.get("editable") is not False:
        yield "editable: must be false, or changes are lost by an upgrade"
    variables = {v["name"]: v for v in board["templating"]["list"]}
    if variables.get("datasource", {}).get("type") != "datasource":
        yield "templating: the first variable must choose the data source"
    for name, variable in variables.items():
        if variable["type"] == "query" and (variable["refresh"] != 2 or variable["allValue"] != ".+" or not variable["multi"]):
            yield f"variable {name}: must be multi, with allValue .+ and refresh on time range"
    ids = [panel["id"] for panel in board["panels"]]
    if len(ids) != len(set(ids)):
        yield "panels: an id is there twice"
    for panel in board["panels"]:
        if panel["type"] == "row":
            continue
        where = f"panel '{panel['title']}'"
        if not panel.get("description", "").endswith("."):
            yield f"{where}: needs a description, a sentence"
        if not panel["fieldConfig"]["defaults"].get("unit"):
            yield f"{where}: needs a unit"
        if panel["datasource"]["uid"] != "${datasource}":
            yield f"{where}: must use the variable for its data source"
        for target in panel["targets"]:
            query = target["expr"]
            for name in re.findall(r"\$(\w+)", query):
                if name not in variables and name != "__rate_interval":
                    yield f"{where}: there is no variable ${name}"
            if re.search(r"\[\d+[smh]\]", query):
                yield f"{where}: a fixed range instead of $__rate_interval"
            if len(COUNTER.findall(query)) != len(RATED.findall(query)) + sum(query.count(name) for name in GAUGE_LIKE):
                yield f"{where}: a counter outside of rate() or increase(): {query}"


def main():
    failed = False
    for path in map(pathlib.Path, sys.argv[1:]):
        for problem in problems(json.loads(path.read_text())):
            print(f"{path.name}: {problem}", file=sys.stderr)
            failed = True
    sys.exit(1 if failed or len(sys.argv) == 1 else 0)


if __name__ == "__main__":
    main()
