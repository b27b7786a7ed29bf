#!/usr/bin/python3
"""Runs every query of every dashboard against a Prometheus; fails on an error and on one that gives nothing.

usage: dashboard_queries.py [--pictures FOLDER] PROMETHEUS_URL START_SECONDS DASHBOARD...

With --pictures it draws what the queries gave, a picture for each dashboard, laid out as Grafana does.
"""
import argparse
import json
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

VARIABLES = {"$namespace": ".+", "$trainingjob": ".+", "$__rate_interval": "10s"}


def run(url, query, start):
    """The series, or in words why there are none."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    parameters = urllib.parse.urlencode({"query": query, "start": start, "end": time.time(), "step": 2})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query_range?{parameters}", timeout=30) as answer:
            series = [one for one in json.load(answer)["data"]["result"] if one["values"]]
    except urllib.error.HTTPError as error:
        return f"{error.code}: {error.read().decode()}: {query}"
    return series or f"gives nothing: {query}"


def legend(template, labels):
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), template)


def draw(board, results, start, file):
    """results: by (panel id, ref id), the series."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot, ticker

    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    rows = (len(panels) + 1) // 2
    figure, axes = pyplot.subplots(rows, 2, figsize=(12, 2.6 * rows), layout="constrained", squeeze=False)
    figure.suptitle(board["title"])
    for axis in axes.flat[len(panels):]:
        axis.axis("off")
    for axis, panel in zip(axes.flat, panels):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        axis.set_title(panel["title"] + (f" [{unit}]" if unit not in ("none", "short", "percentunit") else ""), fontsize=9)
        if unit == "percentunit":
            axis.yaxis.set_major_formatter(ticker.PercentFormatter(1))
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        for target in panel["targets"]:
            for one in results[panel["id"], target["refId"]]:
                times, values = zip(*((when - start, float(value)) for when, value in one["values"]))
                axis.plot(times, values, label=legend(target["legendFormat"], one["metric"]) or "all", linewidth=1)
        axis.legend(fontsize=6, loc="best")
        axis.set_xlim(left=0)
    for axis in axes[-1]:
        axis.set_xlabel("seconds", fontsize=7)
    figure.savefig(file, dpi=80, format="png")
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("url")
    parser.add_argument("start", type=float)
    parser.add_argument("dashboards", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    done, failed = 0, []
    for path in arguments.dashboards:
        board, results = json.loads(path.read_text()), {}
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                done += 1
                answer = run(arguments.url, target["expr"], arguments.start)
                if isinstance(answer, str):
                    failed.append(f"{path.name}: '{panel['title']}' {answer}")
                else:
                    results[panel["id"], target["refId"]] = answer
        if arguments.pictures and not failed:
            draw(board, results, arguments.start, arguments.pictures / f"{path.stem}.png")
    print("\n".join(failed), file=sys.stderr, end="\n" if failed else "")
    print(f"{done - len(failed)} of {done} queries give data")
    sys.exit(1 if failed or done == 0 else 0)


if __name__ == "__main__":
    main()
