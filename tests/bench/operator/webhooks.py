"""What a Go operator's webhooks need outside of a cluster: a certificate, and URLs in place of Services."""
import base64
import dataclasses
import json
import pathlib
import shutil

from processes import run


SERVED = ("ca.crt", "tls.crt", "tls.key")


@dataclasses.dataclass
class Certificate:
    """Files ca.crt, ca.key, tls.crt and tls.key in a directory."""

    directory: pathlib.Path

    def _encoded(self, name):
        return base64.b64encode((self.directory / name).read_bytes()).decode()

    def ca_bundle(self):
        return self._encoded("ca.crt")

    def secret(self, name):
        files = ("ca.crt", "ca.key", "tls.crt", "tls.key")
        return {"metadata": {"name": name}, "type": "Opaque", "data": {file: self._encoded(file) for file in files}}

    def install(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        for file in SERVED:
            shutil.copy(self.directory / file, directory / file)


def remove_certificate(directory):
    """What Certificate.install made."""
    for file in SERVED:
        (directory / file).unlink(missing_ok=True)
    for left in (directory, directory.parent):
        try:
            left.rmdir()
        except OSError:
            return  # in use by another process


def certificate(directory, ca_name, dns_name):
    """Of a server on 127.0.0.1 that is also called `dns_name`.

    cert-controller, which training-operator uses, recreates everything unless the authority's certificate is valid for
    its own name and its key is in the old RSA format (pkg/rotator/rotator.go).
    """
    directory.mkdir(parents=True, exist_ok=True)
    run(["openssl", "genrsa", "-traditional", "-out", "ca.key", "2048"], cwd=directory)
    run(["openssl", "req", "-x509", "-new", "-key", "ca.key", "-days", "365", "-subj", f"/CN={ca_name}", "-addext",
         f"subjectAltName=DNS:{ca_name}", "-out", "ca.crt"], cwd=directory)
    run(["openssl", "genrsa", "-traditional", "-out", "tls.key", "2048"], cwd=directory)
    run(["openssl", "req", "-new", "-key", "tls.key", "-subj", f"/CN={dns_name}", "-out", "tls.csr"], cwd=directory)
    (directory / "extensions").write_text(f"subjectAltName=DNS:{dns_name},DNS:localhost,IP:127.0.0.1\n"
                                       "extendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n")
    run(["openssl", "x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days",
         "365", "-extfile", "extensions", "-out", "tls.crt"], cwd=directory)
    return Certificate(directory)


def register(plane, manifest, names, port, ca_bundle, selectors=None):
    """Applies the webhook configurations of a manifest under the names given, their Services become URLs.

    `selectors`: of some webhooks, by name, which objects they see.
    """
    import yaml  # Debian's python3-yaml; only the rivals need it

    for document in yaml.safe_load_all(manifest.read_text()):
        if not document:
            continue
        document["metadata"] = {"name": names[document["metadata"]["name"]]}
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": ca_bundle}
            if webhook["name"] in (selectors or {}):
                webhook["objectSelector"] = selectors[webhook["name"]]
        file = plane.directory / f"{document['metadata']['name']}.json"
        file.write_text(json.dumps(document))
        plane.apply(file)


def unregister(plane, *names):
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        target = f"/apis/admissionregistration.k8s.io/v1/{kind}"
        for item in plane.call("GET", target)["items"]:
            if item["metadata"]["name"] in names:
                plane.call("DELETE", f"{target}/{item['metadata']['name']}")
