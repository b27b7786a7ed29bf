#!/usr/bin/env python3
"""Runs every query of every dashboard against a Prometheus; fails on an error and on one that gives nothing.

usage: dashboard_queries.py PROMETHEUS_URL START_SECONDS DASHBOARD...
"""
import json
import pathlib
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

VARIABLES = {"$namespace": ".+", "$trainingjob": ".+", "$__rate_interval": "10s"}


def run(url, query, start):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    asked = urllib.parse.urlencode({"query": query, "start": start, "end": time.time(), "step": 2})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query_range?{asked}", timeout=30) as answer:
            series = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        return f"{error.code}: {error.read().decode()}: {query}"
    return None if any(one["values"] for one in series) else f"gives nothing: {query}"


def main():
    url, start, boards = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    done, failed = 0, []
    for board in map(pathlib.Path, boards):
        for panel in json.loads(board.read_text())["panels"]:
            for target in panel.get("targets", []):
                done += 1
                if problem := run(url, target["expr"], start):
                    failed.append(f"{board.name}: '{panel['title']}' {problem}")
    print("\n".join(failed), file=sys.stderr, end="\n" if failed else "")
    print(f"{done - len(failed)} of {done} queries give data")
    sys.exit(1 if failed or done == 0 else 0)


if __name__ == "__main__":
    main()
