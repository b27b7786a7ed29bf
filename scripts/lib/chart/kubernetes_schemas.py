#!/usr/bin/env python3
"""Writes JSON schemas in the layout of kubeconform: one file for each kind, named KIND-GROUP-VERSION.json.

The sources are OpenAPI documents of Kubernetes (swagger.json) and CustomResourceDefinitions (.yaml). The schemas are strict:
an object with known fields has no others.

usage: kubernetes_schemas.py OUTPUT_DIRECTORY SOURCE...
"""
import json
import pathlib
import sys

import yaml

INT_OR_STRING = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
QUANTITY = {"oneOf": [{"type": "string"}, {"type": "number"}]}
TYPE_META = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}


def schema_of(node):
    """Returns the node of an OpenAPI document as a strict JSON schema, without descriptions."""
    if node.get("format") == "int-or-string" or node.get("x-kubernetes-int-or-string"):
        return INT_OR_STRING
    schema = {}
    for key, value in node.items():
        if key == "$ref":
            schema[key] = value
        elif key == "properties":
            schema[key] = {name: schema_of(inner) for name, inner in value.items()}
        elif key == "additionalProperties" and isinstance(value, dict):
            schema[key] = schema_of(value)
        elif key == "items":
            schema[key] = schema_of(value)
        elif key in ("allOf", "anyOf", "oneOf"):
            schema[key] = [schema_of(inner) for inner in value]
        elif key == "not":
            schema[key] = schema_of(value)
        elif key not in ("description", "default", "example", "nullable") and not key.startswith("x-"):
            schema[key] = value
    if "properties" in schema and "type" in schema and not node.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    if node.get("nullable") and "type" in schema:
        schema["type"] = [schema["type"], "null"]
    return schema


def file_name(group, version, kind):
    return "-".join(part for part in (kind.lower(), group.split(".")[0], version.lower()) if part) + ".json"


def write(path, schema):
    path.write_text(json.dumps(schema, separators=(",", ":")))


def write_openapi(document, directory):
    definitions = {}
    for name, node in document["definitions"].items():
        definitions[name] = QUANTITY if name.endswith(".api.resource.Quantity") else schema_of(node)
        kinds = node.get("x-kubernetes-group-version-kind", [])
        if len(kinds) == 1 and "metadata" in node.get("properties", {}):  # others, such as DeleteOptions, belong to many groups
            write(directory / file_name(kinds[0]["group"], kinds[0]["version"], kinds[0]["kind"]),
                  {"$ref": f"definitions.json#/definitions/{name}"})
    write(directory / "definitions.json", {"definitions": definitions})


def write_crd(crd, directory):
    spec = crd["spec"]
    for version in spec["versions"]:
        schema = schema_of(version["schema"]["openAPIV3Schema"])
        schema["properties"] = {**schema["properties"], **TYPE_META}
        write(directory / file_name(spec["group"], version["name"], spec["names"]["kind"]), schema)


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for source in map(pathlib.Path, sys.argv[2:]):
        if source.suffix == ".json":
            write_openapi(json.loads(source.read_text()), directory)
        else:
            for crd in yaml.safe_load_all(source.read_text()):
                write_crd(crd, directory)


if __name__ == "__main__":
    main()
