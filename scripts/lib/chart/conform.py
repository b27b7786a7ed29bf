#!/usr/bin/env python3
"""Renders the chart with each file of its directory ci, and checks the objects without a cluster:

- kubeconform accepts them with the schemas of each Kubernetes version, TrainingJobs and prometheus-operator's objects included;
- no object of the values for OpenShift sets a user or group, which the security context constraint restricted-v2 assigns;
- the common labels and annotations are on every object;
- the values of the previous chart render what the defaults render;
- Helm refuses a Kubernetes version older than the oldest supported one.

usage: conform.py CHART_DIRECTORY HELM KUBECONFORM PROMETHEUS_OPERATOR_SCHEMAS KUBERNETES_SCHEMAS...
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kubernetes_schemas  # noqa: E402

MINIMUM = 12
FIXED_IDS = {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "fsGroupChangePolicy"}
INVALID = {
    "unknown field": "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {port: [{port: 1}]}\n",
    "wrong type": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: two, selector: {}, template: {}}\n",
    "missing field": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{image: b}]}\n",
    "unknown kind": "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: a}\n",
    "monitor": "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: a}\nspec: {selector: {}, podMetricsEndpoint: []}\n",
    "job": "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\nspec: {node: 2}\n",
}


def is_object(node):
    return isinstance(node, dict) and "apiVersion" in node and "kind" in node


def nested_objects(document):
    """Yields the objects in the texts of ConfigMaps, such as the job of helm test."""
    for text in (document.get("data") or {}).values():
        if isinstance(text, str) and text.startswith("apiVersion:"):
            yield from filter(is_object, yaml.safe_load_all(text))


def security_contexts(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "securityContext":
                yield value
            yield from security_contexts(value)
    elif isinstance(node, list):
        for value in node:
            yield from security_contexts(value)


class Chart:
    def __init__(self, directory, helm):
        self.directory, self.helm = directory, helm
        chart = yaml.safe_load((directory / "Chart.yaml").read_text())
        self.oldest = re.fullmatch(r">=1\.(\d+)\.0-0", chart["kubeVersion"])[1]
        self.examples = yaml.safe_load(chart["annotations"]["artifacthub.io/crdsExamples"])

    def run_helm(self, *arguments, minor=None):
        command = [self.helm, "template", "oarlock", str(self.directory), "--namespace", "oarlock-system",
                   "--kube-version", f"1.{minor or self.oldest}.0", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def render(self, *values):
        result = self.run_helm(*(f"--values={path}" for path in values))
        if result.returncode != 0:
            sys.exit(f"{', '.join(map(str, values))}: {result.stderr.strip()}")
        documents = [document for document in yaml.safe_load_all(result.stdout) if document]
        return documents + [inner for document in documents for inner in nested_objects(document)]


def conformity(kubeconform, directories, schemas, manifests):
    """Returns kubeconform's result with the schemas of one version, whose directory is named as kubeconform expects it."""
    version = re.fullmatch(r"v(1\.\d+\.\d+)-standalone-strict", schemas.name)[1]
    kind = "{{.ResourceKind}}{{.KindSuffix}}.json"
    command = [kubeconform, "-strict", "-summary", "-kubernetes-version", version, "-schema-location", str(schemas.parent)]
    for directory in directories:
        command += ["-schema-location", f"{directory}/{kind}"]
    result = subprocess.run([*command, *map(str, manifests)], capture_output=True, text=True)
    return result.returncode, (result.stdout + result.stderr).strip(), version


def check_schemas(chart, rendered, kubeconform, monitoring, versions):
    """Yields the versions whose schemas reject an object of the chart, or accept an invalid one."""
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for crd in (chart.directory / "files").glob("oarlock.dev_*.yaml"):
            kubernetes_schemas.write_crd(yaml.safe_load(crd.read_text()), work)
        manifests = []
        for name, documents in {**rendered, "artifacthub.io-crdsExamples": chart.examples}.items():
            manifests.append(work / f"{name}.yaml")
            manifests[-1].write_text(yaml.safe_dump_all(documents))
        for schemas in versions:
            status, output, version = conformity(kubeconform, (monitoring, work), schemas, manifests)
            print(f"Kubernetes {version}: {len(rendered)} combinations: {output}")
            if status != 0 or "Skipped: 0" not in output:
                yield f"kubeconform does not accept the chart for Kubernetes {version}"
            for name, text in INVALID.items():
                (work / "invalid.yaml").write_text(text)
                if conformity(kubeconform, (monitoring, work), schemas, [work / "invalid.yaml"])[0] == 0:
                    yield f"the schemas of Kubernetes {version} accept an invalid object: {name}"


def check_users(name, documents):
    contexts = [context for document in documents for context in security_contexts(document)]
    fixed = [context for context in contexts if FIXED_IDS & context.keys()]
    if fixed or not contexts:
        yield f"ci/{name}-values.yaml: of {len(contexts)} security contexts, these set a user or group: {fixed}"


def check_common(chart, documents):
    common = yaml.safe_load((chart.directory / "ci/labels-values.yaml").read_text())
    for document in documents:
        metadata = {"labels": {}, "annotations": {}, **document["metadata"]}
        if not (common["commonLabels"].items() <= metadata["labels"].items()
                and common["commonAnnotations"].items() <= metadata["annotations"].items()):
            yield f"{document['kind']} {metadata['name']} lacks the common labels or annotations"


def main():
    chart = Chart(pathlib.Path(sys.argv[1]), sys.argv[2])
    combinations = sorted((chart.directory / "ci").glob("*-values.yaml"))
    if len(combinations) < MINIMUM:
        sys.exit(f"{chart.directory}/ci has {len(combinations)} values files; {MINIMUM} are expected")
    rendered = {path.name.removesuffix("-values.yaml"): chart.render(path) for path in combinations}
    problems = [
        *check_schemas(chart, rendered, sys.argv[3], pathlib.Path(sys.argv[4]), [pathlib.Path(directory) for directory in sys.argv[5:]]),
        *check_users("openshift", rendered["openshift"]),
        *check_users("no-fixed-user", rendered["no-fixed-user"]),
        *check_common(chart, rendered["labels"]),
    ]
    if rendered["previous-defaults"] != rendered["default"]:
        problems.append("ci/previous-defaults-values.yaml does not render the same objects as the defaults")
    too_old = int(chart.oldest) - 1
    if "incompatible with Kubernetes" not in chart.run_helm(minor=too_old).stderr:
        problems.append(f"Helm accepts the chart for Kubernetes 1.{too_old}")
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
