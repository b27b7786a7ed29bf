"""A control plane of the benchmark's own, and kwok, which plays the kubelets."""
import http.client
import json
import os
import pathlib
import re
import ssl
import subprocess

from audit import AuditLog, policy
from processes import Failed, Process, run, wait_until

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PLANE = ROOT / "scripts" / "lib" / "bench_operator_plane.sh"
FAKE_NODES = 100


class ControlPlane:
    """etcd, kube-apiserver, controller-manager and scheduler in a directory; the requests of `users` are audited.

    `environment` is that of scripts/cluster, `arguments` are more of kube-apiserver.
    """

    def __init__(self, directory, users, environment=None, arguments=()):
        self.directory = pathlib.Path(directory)
        self._cluster = self.directory / "c"
        self._cluster_script = ROOT / "scripts" / "cluster"
        audit_policy, log = self.directory / "audit_policy.json", self.directory / "audit.log"
        audit_policy.write_text(policy(users))
        self.audit = AuditLog(log)
        # No node of kwok may count as silent while kwok is not running.
        self._environment = {
            **os.environ, "OARLOCK_NODE_GRACE": "36000",
            "OARLOCK_APISERVER_ARGS": " ".join((f"--audit-policy-file={audit_policy} --audit-log-path={log}", *arguments)),
            **(environment or {}),
        }
        self._namespaces = 0
        self.kubeconfigs = {}

    def __enter__(self):
        # Ends the control plane when this process has ended in whatever way.
        subprocess.Popen(["setsid", "sh", "-c", f"while kill -0 {os.getpid()} 2>/dev/null; do sleep 1; done; "
                          f"[ ! -d {self._cluster} ] || exec {self._cluster_script} down --dir {self._cluster}"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run([self._cluster_script, "up", "--control-plane-only", "--dir", self._cluster], env=self._environment)
        return self

    def __exit__(self, *_):
        run([self._cluster_script, "down", "--dir", self._cluster])

    def user(self, name):
        """The path of a kubeconfig for an administrator of this name."""
        if name not in self.kubeconfigs:
            self.kubeconfigs[name] = run([PLANE, "user", self._cluster, name]).strip()
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
        return self._cluster / "admin.kubeconfig"

    def restart_apiserver(self):
        run([PLANE, "restart-apiserver", self._cluster], env=self._environment)

    def pid(self, program):
        return int(run([PLANE, "pid", self._cluster, program]))

    def connect(self, timeout=30):
        pki = self._cluster / "pki"
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

    def apply(self, *files):
        for file in files:
            run([self._cluster / "bin" / "kubectl", "--kubeconfig", self.admin, "apply", "--server-side", "-f", file])

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
        name = f"bench-{self._namespaces}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

        def account():
            try:
                return self.call("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")
            except Failed:
                return None

        wait_until(account, f"the ServiceAccount of namespace {name}")
        return name


class Kwok:
    """Fake nodes (fake-0, ...) on which every pod runs immediately and forever, unless `pod_stages` is a file with other stages.

    Pods get addresses of `cidr` if their stages use them. `cpu` is that of each node.
    """

    def __init__(self, plane, program, pod_stages=None, cidr="10.0.0.1/24", nodes=FAKE_NODES, cpu=1000):
        self._plane, self._program, self._cidr = plane, program, cidr
        config = pathlib.Path(f"{program}-config")
        of_pods = [pod_stages] if pod_stages else [HERE / "pod_ready_stage.yaml",
                                                   config / "pod" / "fast" / "pod-delete.yaml"]
        stages = [config / "node" / "fast" / "node-initialize.yaml",
                  config / "node" / "heartbeat-with-lease" / "node-heartbeat-with-lease.yaml", *of_pods]
        self._stages = plane.directory / "kwok_stages.yaml"
        self._stages.write_text("\n---\n".join(stage.read_text() for stage in stages))
        for i in range(nodes):
            room = {"cpu": str(cpu), "memory": "4Ti", "pods": "10000"}
            plane.call("POST", "/api/v1/nodes", {
                "metadata": {"name": f"fake-{i}", "annotations": {"kwok.x-k8s.io/node": "fake"}},
                "status": {"capacity": room, "allocatable": room}})

    def __enter__(self):
        self._process = Process([
            self._program, "--kubeconfig", self._plane.admin, "--config", self._stages, "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--node-lease-duration-seconds=40",
            f"--cidr={self._cidr}", "--v=WARN"], self._plane.directory / "kwok.log")
        wait_until(self._nodes_ready, "kwok's nodes to be Ready", 120, 0.5)
        return self

    def _nodes_ready(self):
        self._process.check()
        nodes = self._plane.call("GET", "/api/v1/nodes")["items"]
        return all(any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
                   and not node["spec"].get("taints") for node in nodes)

    def __exit__(self, *_):
        self._process.stop()
