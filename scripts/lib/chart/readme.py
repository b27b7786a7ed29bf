#!/usr/bin/env python3
"""Prints the chart's README.md: values.yaml as a table, with the comment above each value as its description.

usage: readme.py CHART_FOLDER
"""
import json
import pathlib
import re
import sys

import yaml

HEAD = """# The chart oarlock

The operator for [TrainingJobs](../../docs/api-reference.md), its roles, and its monitoring. `scripts/chart render` generates
this page from values.yaml; other values are rejected.

```sh
helm install oarlock charts/oarlock --namespace oarlock-system --create-namespace
helm test oarlock --namespace oarlock-system     # a real job of two pods
```

The CustomResourceDefinition is upgraded with the chart and stays when the release is uninstalled (`crds.keep`).

| value | default | meaning |
|---|---|---|
"""
KEY = re.compile(r"^( *)([A-Za-z]+):")


def comments(text):
    """Path -> the comment lines right above its key."""
    out, path, above = {}, [], []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            above.append(line.strip().lstrip("# "))
            continue
        if match := KEY.match(line):
            path[len(match[1]) // 2:] = [match[2]]
            out[".".join(path)] = " ".join(above)
        above = []
    return out


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield ".".join(path), value


def main():
    text = (pathlib.Path(sys.argv[1]) / "values.yaml").read_text()
    meaning = comments(text)
    print(HEAD, end="")
    for path, value in leaves(yaml.safe_load(text)):
        description = meaning.get(path) or meaning.get(path.rpartition(".")[0], "")  # one comment for a map on one line
        if not description:
            sys.exit(f"error: values.yaml: {path} has no comment above it; describe its meaning")
        print(f"| `{path}` | `{json.dumps(value)}` | {description} |")


if __name__ == "__main__":
    main()
