"""The operator as a process with the permissions and the admission policy of manifests/install.yaml."""
import json
import urllib.request

import yaml  # Debian's python3-yaml, which the webhooks need, too
from systems import ROOT, Oarlock


class InstalledOarlock(Oarlock):
    def __init__(self, plane, program):
        super().__init__(plane, program, ROOT / "manifests")
        installed = yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text(encoding="utf-8"))
        manifest = plane.directory / "install.json"
        manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [
            item for item in installed if item and item["kind"] != "Deployment"]}))
        plane.apply(manifest)
        self.kubeconfig = plane.account("oarlock-system", "oarlock-operator")

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self._probe_port.number}/metrics", timeout=5) as answer:
            return answer.read().decode()
