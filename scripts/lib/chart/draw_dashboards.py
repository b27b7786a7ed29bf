#!/usr/bin/env python3
"""Draws previews of the dashboards from sample series, and compares the pictures with the dashboards.

usage: draw_dashboards.py OUTPUT_DIRECTORY DASHBOARD...

A picture is a screenshot of dashboard_page.html in headless Chromium. It contains a digest of what the dashboard looks
like, by which lint_dashboards.py finds pictures that are out of date. Needs Debian's packages chromium, pngquant and prometheus.
"""

import hashlib
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from typing import Any

from dashboard_queries import SCRAPE_SECONDS, Prometheus, Variables, panels, resolve

Board = dict[str, Any]
PAGE = pathlib.Path(__file__).with_name("dashboard_page.html")
WIDTH = 1600
KEYWORD = b"Dashboard"
CHOSEN = {"oarlock-trainingjob": {"namespace": "language", "trainingjob": "llama-1b"}}


def digest(board: Board) -> str:
    """Of what a picture shows: titles, types, places, legends, units and colors, but neither queries nor descriptions."""
    look = [board["title"], [variable.get("label") for variable in board["templating"]["list"]]]
    for panel in panels(board):
        look.append(
            [
                panel["type"],
                panel["title"],
                panel["gridPos"],
                panel.get("fieldConfig"),
                panel.get("options"),
                panel.get("transformations"),
                [target.get("legendFormat") for target in panel.get("targets", [])],
            ]
        )
    for hidden in ("links",):  # data links are not visible
        look = json.loads(json.dumps(look), object_hook=lambda item: {} if item.get("id") == hidden else item)
    return hashlib.sha256(json.dumps(look, sort_keys=True).encode()).hexdigest()


# ---- The digest in a PNG file: a chunk tEXt with a keyword ------------------------------------------------------------


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """(type, content) of each chunk."""
    out, position = [], 8
    while position < len(png):
        (length,) = struct.unpack(">I", png[position : position + 4])
        out.append((png[position + 4 : position + 8], png[position + 8 : position + 8 + length]))
        position += 12 + length
    return out


def with_text(png: bytes, text: str) -> bytes:
    """The picture with a text chunk before its end."""
    out = png[:8]
    for kind, content in chunks(png):
        for name, body in ([(b"tEXt", KEYWORD + b"\0" + text.encode())] if kind == b"IEND" else []) + [(kind, content)]:
            out += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return out


def text_of(png: bytes) -> str:
    """The text of with_text(), or "" for another picture."""
    prefix = KEYWORD + b"\0"
    return next(
        (content[len(prefix) :].decode() for kind, content in chunks(png) if kind == b"tEXt" and content.startswith(prefix)), ""
    )


# ---- Data -------------------------------------------------------------------------------------------------------------


def legend(template: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), template)


def time_series(panel: Board, prometheus: Prometheus, variables: Variables) -> list[dict[str, Any]]:
    """Name and points of each series of a panel, in the order of its queries."""
    out = []
    for target in panel["targets"]:
        query = variables.expand(target["expr"], target.get("interval", ""))
        if target.get("instant"):
            found = [(one["metric"], [one["value"]]) for one in prometheus.instant(query)]
        else:
            found = [(one["metric"], one["values"]) for one in prometheus.range(query)]
        for labels, values in sorted(found, key=lambda item: sorted(item[0].items())):
            points = [[when, float(value)] for when, value in values if value not in ("NaN", "+Inf", "-Inf")]
            if points:
                out.append({"name": legend(target.get("legendFormat", ""), labels), "points": points})
    return out


def table_rows(panel: Board, prometheus: Prometheus, variables: Variables) -> list[dict[str, Any]]:
    """The rows of Grafana's transformation "merge": results with the same labels become one row."""
    rows: list[dict[str, Any]] = []
    for target in panel["targets"]:
        for one in prometheus.instant(variables.expand(target["expr"])):
            value = {f"Value #{target['refId']}": float(one["value"][1])}
            same = [row for row in rows if all(row.get(name) == text for name, text in one["metric"].items())]
            for row in same:
                row.update(value)
            if not same:
                rows.append({**one["metric"], **value})
    return rows


def events(board: Board, prometheus: Prometheus, variables: Variables) -> list[dict[str, Any]]:
    """Time and color of each annotation; points of a series that follow each other are one event, as in Grafana."""
    out = []
    for annotation in board["annotations"]["list"]:
        for one in prometheus.range(variables.expand(annotation["expr"])):
            last = 0.0
            for when, value in one["values"]:
                time = float(value) / 1000 if annotation["useValueForTime"] else when
                if time > last + prometheus.step and prometheus.start <= time <= prometheus.end:
                    out.append({"time": time, "shade": annotation["iconColor"]})
                last = max(last, time)
    return out


def page_data(board: Board, prometheus: Prometheus) -> Board:
    chosen = CHOSEN.get(board["uid"], {})
    variables, _ = resolve(board, prometheus, chosen)
    shown = [
        (variable["label"], "default" if variable["type"] == "datasource" else chosen.get(variable["name"], "All"))
        for variable in board["templating"]["list"]
    ]
    results = {
        panel["id"]: (table_rows if panel["type"] == "table" else time_series)(panel, prometheus, variables)
        for panel in panels(board)
        if panel["type"] != "row"
    }
    return {
        "board": board,
        "results": results,
        "events": events(board, prometheus, variables),
        "variables": shown,
        "values": chosen,
        "start": prometheus.start,
        "end": prometheus.end,
        "step": prometheus.step,
        "width": WIDTH,
    }


def draw(board: Board, prometheus: Prometheus, output: pathlib.Path) -> None:
    height = 84 + 38 * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) + 8
    with tempfile.TemporaryDirectory() as directory:
        page, picture = pathlib.Path(directory, "page.html"), pathlib.Path(directory, "page.png")
        page.write_text(
            PAGE.read_text().replace("/*DATA*/null", json.dumps(page_data(board, prometheus)).replace("</", "<\\/"))
        )
        run = [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--user-data-dir={directory}/profile",
            "--force-device-scale-factor=1",
            f"--window-size={WIDTH},{height}",
        ]
        title = subprocess.run(
            [*run, "--dump-dom", page.as_uri()], check=True, capture_output=True, text=True, timeout=120
        ).stdout
        if "<title>drawn</title>" not in title:
            raise RuntimeError(f"{output.name}: the script of the page failed; open {PAGE.name} with this data in a browser")
        subprocess.run([*run, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True, timeout=120)
        # 256 colors are enough, and a third of the size.
        small = subprocess.run(["pngquant", "--strip", "-"], input=picture.read_bytes(), check=True, capture_output=True).stdout
        output.write_bytes(with_text(small, digest(board)))


def main() -> None:
    import sample_format
    import sample_prometheus

    directory, *paths = map(pathlib.Path, sys.argv[1:])
    with sample_prometheus.serve() as url:
        prometheus = Prometheus(url, sample_format.START, sample_format.START + sample_format.DURATION, SCRAPE_SECONDS)
        for path in paths:
            draw(json.loads(path.read_text()), prometheus, directory / f"{path.stem}.png")


if __name__ == "__main__":
    main()
