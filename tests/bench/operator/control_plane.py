"""A control plane of the benchmark's own, and kwok, which plays the kubelets."""
import os
import pathlib
import subprocess

from audit import AuditLog, policy
from cluster_api import PLANE, ROOT, ClusterApi
from processes import Process, run, wait_until

HERE = pathlib.Path(__file__).resolve().parent
FAKE_NODES = 100


class ControlPlane(ClusterApi):
    """etcd, kube-apiserver, controller-manager and scheduler in a directory; the requests of `users` are audited.

    `environment` is that of scripts/cluster, `arguments` are more of kube-apiserver.
    """

    def __init__(self, directory, users, environment=None, arguments=()):
        super().__init__(directory, pathlib.Path(directory) / "c")
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

    def __enter__(self):
        # Ends the control plane when this process has ended in whatever way.
        subprocess.Popen(["setsid", "sh", "-c", f"while kill -0 {os.getpid()} 2>/dev/null; do sleep 1; done; "
                          f"[ ! -d {self.cluster} ] || exec {self._cluster_script} down --dir {self.cluster}"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run([self._cluster_script, "up", "--control-plane-only", "--dir", self.cluster], env=self._environment)
        return self

    def __exit__(self, *_):
        run([self._cluster_script, "down", "--dir", self.cluster])

    def restart_apiserver(self):
        run([PLANE, "restart-apiserver", self.cluster], env=self._environment)

    def pid(self, program):
        return int(run([PLANE, "pid", self.cluster, program]))


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
