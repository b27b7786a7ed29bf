#!/usr/bin/env python3
"""Checks Chart.yaml as `ct lint` and Artifact Hub do, and that everything names the same versions.

usage: lint_chart.py REPOSITORY OLDEST_KUBERNETES NEWEST_KUBERNETES < RENDERED_MANIFESTS

The manifests are those of the chart with its defaults, tests included.
"""
import pathlib
import re
import sys

import yaml

SEMVER = re.compile(r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$")
KEYS = {"apiVersion", "name", "version", "kubeVersion", "description", "type", "keywords", "home", "sources", "dependencies",
        "maintainers", "icon", "appVersion", "deprecated", "annotations"}
REQUIRED = {"apiVersion", "name", "version", "appVersion", "kubeVersion", "description", "home", "sources", "maintainers", "icon"}
CHANGES = {"added", "changed", "deprecated", "removed", "fixed", "security"}
SUPPORTED = re.compile(r"Kubernetes\s+(1\.\d+)(?: or newer|\s+to\s+(1\.\d+))")


def images_of(node):
    """Yields the values of all keys "image", also those in the YAML documents of ConfigMaps."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "image" and isinstance(value, str):
                yield value
            elif key.endswith(".yaml") and isinstance(value, str):
                yield from images_of(yaml.safe_load(value))
            else:
                yield from images_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from images_of(value)


def check_fields(chart):
    for key in sorted(chart.keys() - KEYS):
        yield f"unknown field {key}"
    for key in sorted(REQUIRED - chart.keys()):
        yield f"the field {key} is missing"
    for key in ("version", "appVersion"):
        if not SEMVER.match(str(chart.get(key))):
            yield f"{key}: '{chart.get(key)}' is not a semantic version"
    for url in [chart.get("home"), chart.get("icon"), *chart.get("sources", [])]:
        if not str(url).startswith("https://"):
            yield f"'{url}' is not an https URL"
    for one in chart.get("maintainers", []):
        if not one.get("name") or not (one.get("url") or one.get("email")):
            yield f"maintainers: {one} has no name, or neither url nor email"
    for key, value in chart.get("annotations", {}).items():
        if not isinstance(value, str):
            yield f"annotations: {key} is not a string; add quotes"


def check_artifact_hub(chart, crds, rendered):
    def annotation(name):
        return yaml.safe_load(chart["annotations"].get(f"artifacthub.io/{name}", "[]"))

    listed = [(one["name"], one["kind"], one["version"]) for one in annotation("crds")]
    expected = [(crd["metadata"]["name"], crd["spec"]["names"]["kind"], version["name"])
                for crd in crds for version in crd["spec"]["versions"] if version["served"]]
    if listed != expected:
        yield f"artifacthub.io/crds lists {listed}; the chart has {expected}"
    listed, expected = {one["image"] for one in annotation("images")}, set(images_of(rendered))
    if listed != expected:
        yield f"artifacthub.io/images lists {sorted(listed)}; the chart renders {sorted(expected)}"
    for change in annotation("changes"):
        if change.get("kind") not in CHANGES or not change.get("description"):
            yield f"artifacthub.io/changes: {change} needs a description and a kind of {sorted(CHANGES)}"


def check_kubernetes_versions(root, chart, oldest, newest):
    if chart["kubeVersion"] != f">={oldest}.0-0":
        yield f"kubeVersion is '{chart['kubeVersion']}'; scripts/lib/cluster/versions.sh has {oldest}"
    pages = [*sorted(root.glob("*.md")), root / "charts/oarlock/README.md.gotmpl", *sorted((root / "docs").rglob("*.md"))]
    found = [(page, match) for page in pages for match in SUPPORTED.finditer(page.read_text())]
    for page, match in found:
        if match[1] != oldest or match[2] not in (None, newest):
            yield f"{page.relative_to(root)}: '{match[0]}'; the supported versions are {oldest} to {newest}"
    if root / "docs/install.md" not in [page for page, _ in found]:
        yield f"docs/install.md does not name the supported versions ('Kubernetes {oldest} to {newest}')"


def main():
    root, oldest, newest = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    directory = root / "charts/oarlock"
    chart = yaml.safe_load((directory / "Chart.yaml").read_text())
    crds = [yaml.safe_load(path.read_text()) for path in sorted((directory / "files").glob("oarlock.dev_*.yaml"))]
    rendered = [document for document in yaml.safe_load_all(sys.stdin) if document]
    problems = [*check_fields(chart), *check_artifact_hub(chart, crds, rendered), *check_kubernetes_versions(root, chart, oldest, newest)]
    version = (root / "VERSION").read_text().strip()
    if str(chart["appVersion"]) != version:
        problems.append(f"appVersion is {chart['appVersion']}; the file VERSION has {version}")
    sys.exit("\n".join(f"Chart.yaml: {problem}" for problem in problems) or 0)


if __name__ == "__main__":
    main()
