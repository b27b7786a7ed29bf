#!/usr/bin/env python3
"""Copies the chart for a release: its images are those of a registry, and its links those of the repository.

usage: stage_chart.py ROOT TARGET --registry REGISTRY --url URL
"""
import argparse
import pathlib
import re
import shutil
import sys


def use_registry(values, registry):
    """`values` (the text of values.yaml, whose comments are kept) with the registry of each of our images."""
    lines, changed = values.splitlines(keepends=True), 0
    for number, line in enumerate(lines):
        image = re.match(r"( +)repository: (oarlock/(?:operator|trainer|launcher))\s*$", line)
        if not image:
            continue
        indent, repository = image.groups()
        # The other keys of this image: the lines around with the same or a larger indentation.
        first = last = number
        while first > 0 and lines[first - 1].startswith(indent):
            first -= 1
        while last + 1 < len(lines) and lines[last + 1].startswith(indent):
            last += 1
        for key in range(first, last + 1):
            if re.match(rf"{indent}registry:", lines[key]):
                lines[key] = f"{indent}registry: {registry}\n"
                break
        else:
            lines[number] = f"{indent}repository: {registry}/{repository}\n"
        changed += 1
    if not changed:
        sys.exit("error: charts/oarlock/values.yaml: there is no image with repository: oarlock/operator")
    return "".join(lines)


def use_addresses(chart, registry, url):
    """`chart` (the text of Chart.yaml, with its annotations for Artifact Hub) with the published images and links."""
    home = re.search(r"(?m)^home: (\S+)$", chart)
    if not home or "docker.io/oarlock/" not in chart:
        sys.exit("error: charts/oarlock/Chart.yaml: there is no home, or no image of docker.io/oarlock")
    return chart.replace("docker.io/oarlock/", f"{registry}/oarlock/").replace(home.group(1), url)


def main():
    parser = argparse.ArgumentParser(add_help=False, usage=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--registry", required=True)
    parser.add_argument("--url", required=True)
    options = parser.parse_args()
    shutil.copytree(options.root / "charts/oarlock", options.target)
    values = options.target / "values.yaml"
    values.write_text(use_registry(values.read_text(), options.registry))
    chart = options.target / "Chart.yaml"
    chart.write_text(use_addresses(chart.read_text(), options.registry, options.url))


if __name__ == "__main__":
    main()
