"""Kueue's manager as a process: its CRDs, its webhooks under a URL on loopback, and its configuration."""
import json
import os
import pathlib
import re

import webhooks
from processes import Failed, wait_until
from systems import ROOT, System

GROUP = "/apis/kueue.x-k8s.io/v1beta2"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ACCOUNT = "kueue-controller-manager"
ROLES = ("service_account", "role", "role_binding", "manager_secrets_role", "manager_secrets_role_binding")
FRAMEWORKS = ("batch/job", "pod")
PODS_READY_TIMEOUT = 30  # seconds; 30 minutes by default
WEBHOOKS = {"validating-webhook-configuration": "kueue-validating", "mutating-webhook-configuration": "kueue-mutating"}
# The manager reads the certificate of its metrics server from a fixed directory of /etc even if that server is off. It is
# given an /etc that has nothing else. A user namespace clears the death signal that the process was started with.
IN_OWN_ETC = """mount -t tmpfs none /etc && mkdir -p /etc/kueue/metrics && cp -r "$1" /etc/kueue/metrics/certs && shift &&
exec setpriv --pdeathsig KILL -- "$@\""""


class Kueue(System):
    """With TrainingJob as an external framework, and the permissions of its manifests and of our page.

    `settings` replace keys of its configuration.
    """

    name, user = "Kueue", "kueue"
    account_user = f"system:serviceaccount:kueue-system:{ACCOUNT}"  # the user of its requests

    def __init__(self, plane, program, frameworks=FRAMEWORKS, **settings):
        super().__init__(plane)
        self._frameworks, self._changes = list(frameworks), settings
        self._program, self._config = program, pathlib.Path(f"{program}-config")
        self._settings, self._certificates = plane.directory / "kueue.json", plane.directory / "kueue-certificates"

    def install(self):
        bases = self._config / "crd" / "bases"
        self.plane.apply(bases)
        # The manager ends if it does not find them.
        wait_until(lambda: self._served_kinds() >= {file.stem.split("_")[1] for file in bases.glob("*.yaml")},
                   "the API server to serve Kueue's CRDs", 60, 0.1)
        made = webhooks.certificate(self.plane.directory / "kueue-pki", "kueue-ca", "kueue.svc")
        made.install(self._certificates)
        self.plane.keep_namespace("kueue-system")
        self._grant_permissions()
        self._settings.write_text(json.dumps({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": "kueue-system",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._probe_port.number}"},
            "metrics": {"bindAddress": "0"}, "leaderElection": {"leaderElect": False},
            "webhook": {"host": "127.0.0.1", "port": self._webhook_port.number, "certDir": str(self._certificates)},
            "internalCertManagement": {"enable": False}, "featureGates": {"VisibilityOnDemand": False},
            "waitForPodsReady": {"timeout": f"{PODS_READY_TIMEOUT}s", "requeuingStrategy": {"backoffBaseSeconds": 1}},
            "integrations": {"frameworks": self._frameworks, "externalFrameworks": ["TrainingJob.v1alpha1.oarlock.dev"]},
            **self._changes}))
        # All of them, with failurePolicy Fail, as in Kueue's manifest.
        webhooks.register(self.plane, self._config / "webhook" / "manifests.yaml", WEBHOOKS, self._webhook_port.number,
                          made.ca_bundle())

    def command(self, _):
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *user, "--mount", "--", "sh", "-c", IN_OWN_ETC, "sh", self._certificates, self._program,
                "--config", self._settings, "--zap-log-level=3"], {"KUBECONFIG": self.kubeconfig}

    def _grant_permissions(self):
        documents = [(self._config / "rbac" / f"{name}.yaml").read_text(encoding="utf-8") for name in ROLES]
        guide = (ROOT / "docs" / "guides" / "queues.md").read_text(encoding="utf-8")
        documents += [block for block in re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL) if "kueue-trainingjobs" in block]
        file = self.plane.directory / "kueue_rbac.yaml"
        # As the kustomization in config/default.
        file.write_text("\n---\n".join(documents).replace("namespace: system", "namespace: kueue-system")
                        .replace("name: controller-manager", f"name: {ACCOUNT}"))
        self.plane.apply(file)
        self.kubeconfig = self.plane.account("kueue-system", ACCOUNT)

    def job(self, namespace, scheduler="default-scheduler"):
        """The object by whose admission start() detects that the webhooks are served."""
        return f"{GROUP}/resourceflavors", {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
                                            "metadata": {"name": "@NAME@"}}

    def owned_lists(self, namespace):
        return [f"{GROUP}/namespaces/{namespace}/workloads"]

    def uninstall(self):
        """What a user deletes after the manager: webhooks and CRDs, and with these all of Kueue's objects."""
        webhooks.unregister(self.plane, *WEBHOOKS.values())
        for name in self._crds():
            self.plane.call("DELETE", f"{CRDS}/{name}")
        # The manager would remove its finalizers.
        for kind in ("clusterqueues", "resourceflavors", "admissionchecks", "topologies", "cohorts"):
            if f"{kind}.kueue.x-k8s.io" in self._crds():
                for item in self.plane.call("GET", f"{GROUP}/{kind}")["items"]:
                    self.plane.call("PATCH", f"{GROUP}/{kind}/{item['metadata']['name']}",
                                    {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        wait_until(lambda: not self._crds(), "the end of Kueue's CRDs", 60, 0.2)

    def _served_kinds(self):
        try:
            return {resource["name"] for resource in self.plane.call("GET", GROUP)["resources"]}
        except Failed:  # none of them yet
            return set()

    def _crds(self):
        names = [item["metadata"]["name"] for item in self.plane.call("GET", CRDS)["items"]]
        return [name for name in names if name.endswith(".kueue.x-k8s.io")]
