"""The API of a cluster that scripts/cluster has started, for an administrator."""
import http.client
import json
import pathlib
import re
import ssl

from processes import Failed, run, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLANE = ROOT / "scripts" / "lib" / "bench_operator_plane.sh"


class ClusterApi:
    """`cluster` is the directory of the cluster; files of the caller are written to `directory`.

    The names of namespaces that it makes begin with `prefix`.
    """

    def __init__(self, directory, cluster, prefix="bench"):
        self.directory, self.cluster = pathlib.Path(directory), pathlib.Path(cluster)
        self._prefix, self._namespaces = prefix, 0
        self.kubeconfigs = {}

    def user(self, name):
        """The path of a kubeconfig for an administrator of this name."""
        if name not in self.kubeconfigs:
            self.kubeconfigs[name] = run([PLANE, "user", self.cluster, name]).strip()
        return self.kubeconfigs[name]

    def account(self, namespace, name):
        """The path of a kubeconfig with a token of a ServiceAccount."""
        import yaml  # Debian's python3-yaml; only Kueue and the installed operator need it

        token = self.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
                          {"spec": {"expirationSeconds": 86400}})["status"]["token"]
        config = yaml.safe_load(self.admin.read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": token}
        file = self.directory / f"{name}.kubeconfig"
        file.write_text(json.dumps(config))
        return file

    @property
    def admin(self):
        return self.cluster / "admin.kubeconfig"

    def connect(self, timeout=30):
        pki = self.cluster / "pki"
        context = ssl.create_default_context(cafile=pki / "ca.crt")
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        address = re.search(r"server: https://(\S+)", self.admin.read_text()).group(1)
        return http.client.HTTPSConnection(address, context=context, timeout=timeout)

    def watch(self, target):
        """Yields the type and object of each change until the API server ends the watch; first, the objects that exist."""
        listed = self.call("GET", target)
        for item in listed["items"]:
            yield "ADDED", item
        version = listed["metadata"]["resourceVersion"]
        separator = "&" if "?" in target else "?"
        connection = self.connect(timeout=None)
        try:
            connection.request("GET", f"{target}{separator}watch=1&resourceVersion={version}")
            for line in connection.getresponse():
                event = json.loads(line)
                yield event["type"], event["object"]
        finally:
            connection.close()

    def call(self, method, target, body=None, content_type="application/json", kept=None):
        """`kept`: a connection of connect(), which remains open."""
        connection = kept or self.connect()
        try:
            connection.request(method, target, body and json.dumps(body), {"Content-Type": content_type})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            if not kept:
                connection.close()
        if answer.status >= 300:
            raise Failed(f"{method} {target}: {answer.status} {text.decode(errors='replace')[:500]}")
        return json.loads(text)

    def kubectl_command(self, *arguments):
        return [self.cluster / "bin" / "kubectl", "--kubeconfig", self.admin, *arguments]

    def kubectl(self, *arguments):
        """Its output."""
        return run(self.kubectl_command(*arguments))

    def apply(self, *files):
        for file in files:
            self.kubectl("apply", "--server-side", "-f", file)

    def _create(self, target, body):
        """False: it is there already."""
        try:
            self.call("POST", target, body)
            return True
        except Failed as error:
            if "AlreadyExists" not in str(error):
                raise
            return False

    def keep_namespace(self, name):
        """Creates it unless it is there: one that is deleted goes away slowly."""
        self._create("/api/v1/namespaces", {"metadata": {"name": name}})

    def apply_object(self, target, name, body):
        """Creates, or replaces what is there."""
        if not self._create(target, body):
            self.call("DELETE", f"{target}/{name}")
            self.call("POST", target, body)

    def make_namespace(self):
        self._namespaces += 1
        name = f"{self._prefix}-{self._namespaces}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

        def account():
            try:
                return self.call("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")
            except Failed:
                return None

        wait_until(account, f"the ServiceAccount of namespace {name}")
        return name
