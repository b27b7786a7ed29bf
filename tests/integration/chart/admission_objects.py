#!/usr/bin/env python3
"""Prints rendered manifests as one JSON list: without prometheus-operator's objects, and with the jobs of ConfigMaps and the pods
that the Deployments and jobs would have.

usage: admission_objects.py [KIND...] < MANIFESTS    prints objects of these kinds only
"""
import json
import sys

import yaml


def nested_jobs(document):
    for text in (document.get("data") or {}).values():
        if isinstance(text, str) and text.startswith("apiVersion: oarlock.dev/"):
            yield yaml.safe_load(text)


def pod_of(document):
    template = document["spec"]["template"]
    name = document["kind"].lower() + "-" + document["metadata"]["name"]
    metadata = {**template.get("metadata", {}), "name": name, "namespace": document["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def main():
    documents = [document for document in yaml.safe_load_all(sys.stdin) if document]
    documents = [document for document in documents if not document["apiVersion"].startswith("monitoring.coreos.com/")]
    documents += [job for document in documents for job in nested_jobs(document)]
    documents += [pod_of(document) for document in documents if document["kind"] in ("Deployment", "TrainingJob")]
    wanted = [document for document in documents if not sys.argv[1:] or document["kind"] in sys.argv[1:]]
    json.dump({"apiVersion": "v1", "kind": "List", "items": wanted}, sys.stdout)


if __name__ == "__main__":
    main()
