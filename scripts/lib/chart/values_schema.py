#!/usr/bin/env python3
"""Prints a chart's values.schema.json with the descriptions of values.yaml (the comments that begin with "# --").

Fails if a value has no description or no place in the schema, and if the schema has a value that values.yaml lacks.

usage: values_schema.py CHART_DIRECTORY
"""
import json
import pathlib
import re
import sys

import yaml

KEY = re.compile(r"^( *)([A-Za-z]+):")


def descriptions(text):
    """Returns path -> description. Paths are tuples of keys."""
    found, path, block = {}, [], []
    for line in text.splitlines():
        comment = line.strip()
        if comment.startswith("# -- "):
            block = [re.sub(r"^\(\w+\) ", "", comment[5:])]
        elif comment.startswith("# @"):
            continue
        elif comment.startswith("#"):
            if block:
                block.append(comment.lstrip("# "))
        else:
            if match := KEY.match(line):
                path[len(match[1]) // 2 :] = [match[2]]
                if block:
                    found[tuple(path)] = " ".join(block)
            block = []
    return found


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path


def has_description(path, described):
    return any(path[:length] in described for length in range(1, len(path) + 1))


def property_of(schema, path):
    """Returns the schema of the value, None if a map or an open object contains it, or raises KeyError."""
    for key in path:
        if "$ref" in schema or (key not in schema.get("properties", {}) and schema.get("additionalProperties") is not False):
            return None
        schema = schema["properties"][key]
    return schema


def without_default(schema, values, path=()):
    """Yields the paths of the schema that values.yaml lacks, deprecated ones excepted."""
    if not isinstance(values, dict) or not values:
        return
    for key, inner in schema.get("properties", {}).items():
        if inner.get("deprecated"):
            continue
        if key in values:
            yield from without_default(inner, values[key], (*path, key))
        elif schema.get("additionalProperties") is False:
            yield (*path, key)


def main():
    chart = pathlib.Path(sys.argv[1])
    text = (chart / "values.yaml").read_text()
    values, described = yaml.safe_load(text), descriptions(text)
    schema = json.loads((chart / "values.schema.json").read_text())
    problems = [f"values.yaml: {'.'.join(path)} has no description; add a comment '# -- ...' above it"
                for path in leaves(values) if not has_description(path, described)]
    for path, description in described.items():
        try:
            node = property_of(schema, path)
        except KeyError:
            problems.append(f"values.schema.json: {'.'.join(path)} of values.yaml is missing")
            continue
        if node is not None:
            rest = {key: value for key, value in node.items() if key != "description"}
            node.clear()
            node.update({"description": description, **rest})
    problems += [f"values.yaml: {'.'.join(path)} of values.schema.json has no default" for path in without_default(schema, values)]
    if problems:
        sys.exit("\n".join(problems))
    print(json.dumps(schema, indent=2))


if __name__ == "__main__":
    main()
