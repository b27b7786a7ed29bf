#!/usr/bin/env python3
"""Prints the table of cli/pod_schema: one line for each type, with its fields and their types.

usage: pod_schema.py INTERNAL_GO KUBERNETES_VERSION SOURCE
"""
import sys

import yaml

ROOT = "io.k8s.api.core.v1.PodTemplateSpec"
SCALARS = {"string": "string", "numeric": "number", "boolean": "boolean", "untyped": "any"}
LEAVES = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "string",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intOrString",
}


def short(name):
    return name.rsplit(".", 1)[1]


def notation(kind, found):
    """Returns the notation of a type, and adds the named types that it mentions to `found`."""
    if "list" in kind:
        return "[]" + notation(kind["list"]["elementType"], found)
    if "map" in kind:
        return "{}" + notation(kind["map"]["elementType"], found)
    if "scalar" in kind:
        return SCALARS[kind["scalar"]]
    name = kind["namedType"]
    if name in LEAVES:
        return LEAVES[name]
    found.append(name)
    return short(name)


def main(path, version, source):
    text = open(path, encoding="utf-8").read()
    schema = yaml.load(text[text.index("`types:") + 1 : text.rindex("`")], Loader=yaml.CSafeLoader)
    types = {item["name"]: item for item in schema["types"]}
    lines, known, pending = [], set(), [ROOT]
    while pending:
        name = pending.pop(0)
        if name in known:
            continue
        known.add(name)
        found = []
        fields = [f"{field['name']}:{notation(field['type'], found)}" for field in types[name]["map"].get("fields", [])]
        lines.append(" ".join([short(name), *fields]))
        pending += found
    assert len({line.split()[0] for line in lines}) == len(lines), "two types have the same short name"
    print(f'// Written by scripts/pod_schema from {source}; do not edit.')
    print(f'R"(Kubernetes {version}')
    print("\n".join(lines))
    print(')"')


main(*sys.argv[1:])
