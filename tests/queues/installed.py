"""The operator as a process with the permissions and the admission policy of manifests/install.yaml."""
import json

import yaml  # Debian's python3-yaml, which the webhooks need, too
from systems import ROOT, Oarlock


def kubeconfig(plane, namespace, account):
    """A file with a token of the ServiceAccount."""
    token = plane.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
                       {"spec": {"expirationSeconds": 86400}})["status"]["token"]
    config = yaml.safe_load(plane.admin.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": token}
    file = plane.directory / f"{account}.kubeconfig"
    file.write_text(json.dumps(config))
    return file


class InstalledOarlock(Oarlock):
    def __init__(self, plane, program):
        super().__init__(plane, program, ROOT / "manifests")
        installed = yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text(encoding="utf-8"))
        manifest = plane.directory / "install.json"
        manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [
            item for item in installed if item and item["kind"] != "Deployment"]}))
        plane.apply(manifest)
        self.kubeconfig = kubeconfig(plane, "oarlock-system", "oarlock-operator")
