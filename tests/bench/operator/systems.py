"""The systems under test: how each is installed, started and given a job."""
import json
import pathlib
import re
import subprocess
import sys
import urllib.error
import urllib.request

import webhooks
from processes import Failed, Process, wait_until
from workload import PODS_PER_JOB, pod_spec

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from reserved_port import ReservedPort  # noqa: E402


class System:
    """`user` is who it is to the API server, `helpers` who else makes requests for its jobs.

    Its lists, in this order, are emptied after a run.
    """

    name = user = ""
    helpers = ()

    def __init__(self, plane):
        self.plane = plane
        self.kubeconfig = plane.user(self.user)
        self._probe_port, self._metrics_port, self._webhook_port = ReservedPort(), ReservedPort(), ReservedPort()

    def install(self):
        """Before each start."""
        raise NotImplementedError

    def uninstall(self):
        """After each stop: what would keep the API server waiting for the process."""

    def command(self, probe_port):
        """What to start, with environment variables; it answers /readyz on that port."""
        raise NotImplementedError

    def job(self, namespace, scheduler="default-scheduler"):
        """(target to POST to, body with @NAME@ for the name)."""
        raise NotImplementedError

    def owned_lists(self, namespace):
        """Kinds of objects of its jobs in addition to pods and Services, the jobs first."""
        raise NotImplementedError

    def lists(self, namespace):
        core = f"/api/v1/namespaces/{namespace}"
        return [*self.owned_lists(namespace), f"{core}/pods", f"{core}/services"]

    def start(self, wait=True):
        port = self._probe_port.number
        command, environment = self.command(port)
        process = Process(command, self.plane.directory / f"{self.user}.log", environment)
        if wait:
            def ready():
                process.check()
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                        return answer.status == 200
                except (urllib.error.URLError, OSError):
                    return False

            wait_until(ready, f"{self.name} to be ready", 120)
            self._wait_for_admission(process)
        return process

    def _wait_for_admission(self, process):
        """Waits until a job passes admission: /readyz does not cover the webhooks (JobSet's start later)."""
        target, body = self.job("default")
        body = {**body, "metadata": {"name": "admission-probe"}}
        refusal = None

        def admitted():
            nonlocal refusal
            process.check()
            try:
                self.plane.call("POST", f"{target}?dryRun=All", body)
                return True
            except Failed as error:
                refusal = error
                return False

        try:
            wait_until(admitted, f"a job of {self.name} to be admitted", 120, 0.1)
        except Failed as error:
            raise Failed(f"{error}: {refusal}") from refusal


def image_environment():
    """What the operator's image sets."""
    lines = (ROOT / "docker" / "operator.Dockerfile").read_text(encoding="utf-8").splitlines()
    return dict(line.removeprefix("ENV ").split("=", 1) for line in lines if line.startswith("ENV "))


class Oarlock(System):
    name, user = "Oarlock", "bench-oarlock"

    def __init__(self, plane, program, manifests):
        super().__init__(plane)
        self._program, self._manifests = program, manifests
        flags = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
        # One replica needs no election; the rivals run without election as well.
        self._election = re.search(r"--leader-elect(?:ion)?\b", flags)

    def install(self):
        self.plane.apply(*sorted(pathlib.Path(self._manifests, "crd").glob("*.yaml")))

    def command(self, probe_port):
        command = [self._program, "--kubeconfig", self.kubeconfig, "--listen-address", "127.0.0.1", "--port",
                   str(probe_port)]
        if self._election:
            command.append(f"{self._election.group(0)}=false")
        return command, image_environment()

    def job(self, namespace, scheduler="default-scheduler"):
        return f"/apis/oarlock.dev/v1alpha1/namespaces/{namespace}/trainingjobs", {
            "apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "@NAME@"},
            "spec": {"nodes": PODS_PER_JOB, "template": {"spec": pod_spec("trainer", scheduler)}}}

    def owned_lists(self, namespace):
        return [f"/apis/oarlock.dev/v1alpha1/namespaces/{namespace}/trainingjobs"]


class TrainingOperator(System):
    """Kubeflow's training-operator. Outside of a cluster it needs its webhook's certificate where it looks for it."""

    name, user, flags = "training-operator", "bench-training-operator", ()
    NAMESPACE = "kubeflow"
    CERTIFICATES = pathlib.Path("/tmp/k8s-webhook-server/serving-certs")  # fixed in its source

    def __init__(self, plane, program):
        super().__init__(plane)
        self._program, self._config = program, pathlib.Path(f"{program}-config")

    def install(self):
        self.plane.apply(*sorted(self._config.glob("crds/kubeflow.org_*.yaml")))
        made = webhooks.certificate(self.plane.directory / f"{self.user}-pki", "training-operator-ca",
                                    "training-operator.kubeflow.svc")
        self.plane.keep_namespace(self.NAMESPACE)
        self.plane.apply_object(f"/api/v1/namespaces/{self.NAMESPACE}/secrets", "training-operator-webhook-cert",
                                made.secret("training-operator-webhook-cert"))
        made.install(self.CERTIFICATES)
        webhooks.register(self.plane, self._config / "webhook" / "manifests.yaml",
                          {"validating-webhook-configuration": "validator.training-operator.kubeflow.org"},
                          self._webhook_port.number, made.ca_bundle())

    def uninstall(self):
        webhooks.unregister(self.plane, "validator.training-operator.kubeflow.org")
        webhooks.remove_certificate(self.CERTIFICATES)

    def command(self, probe_port):
        return [self._program, "--health-probe-bind-address", f"127.0.0.1:{probe_port}", "--metrics-bind-address",
                f"127.0.0.1:{self._metrics_port.number}", "--webhook-server-port", str(self._webhook_port.number),
                *self.flags], {"KUBECONFIG": self.kubeconfig}

    def job(self, namespace, scheduler="default-scheduler"):
        def replicas(count):
            return {"replicas": count, "restartPolicy": "Never",
                    "template": {"spec": pod_spec("pytorch", scheduler)}}

        return f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs", {
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "@NAME@"},
            "spec": {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(PODS_PER_JOB - 1)}}}

    def owned_lists(self, namespace):
        return [f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"]


class TunedTrainingOperator(TrainingOperator):
    name, user = "training-operator, tuned", "bench-training-operator-tuned"
    flags = ("--kube-api-qps=1000", "--kube-api-burst=2000", "--controller-threads=4")


class JobSet(System):
    """It makes Jobs; kube-controller-manager's Job controller makes their pods."""

    name, user = "JobSet", "bench-jobset"
    helpers = ("system:serviceaccount:kube-system:job-controller",)

    def __init__(self, plane, program):
        super().__init__(plane)
        self._program, self._config = program, pathlib.Path(f"{program}-config")
        self._settings = plane.directory / "jobset.json"

    def install(self):
        self.plane.apply(*sorted(self._config.glob("crd/bases/*.yaml")))
        made = webhooks.certificate(self.plane.directory / f"{self.user}-pki", "jobset-ca", "jobset.svc")
        certificates = self.plane.directory / "jobset-certificates"
        made.install(certificates)
        self._settings.write_text(json.dumps({
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration",
            "leaderElection": {"leaderElect": False}, "internalCertManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": self._webhook_port.number, "certDir": str(certificates)}}))
        # As its kustomization does: the pod webhooks see the pods of JobSets only.
        ours = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
        webhooks.register(self.plane, self._config / "webhook" / "manifests.yaml",
                          {"validating-webhook-configuration": "jobset-validating",
                           "mutating-webhook-configuration": "jobset-mutating"},
                          self._webhook_port.number, made.ca_bundle(), {"mpod.kb.io": ours, "vpod.kb.io": ours})

    def uninstall(self):
        webhooks.unregister(self.plane, "jobset-validating", "jobset-mutating")

    def command(self, probe_port):
        return [self._program, "--config", str(self._settings), "--health-probe-bind-address",
                f"127.0.0.1:{probe_port}", "--metrics-bind-address", f"127.0.0.1:{self._metrics_port.number}"], {
                    "KUBECONFIG": self.kubeconfig}

    def job(self, namespace, scheduler="default-scheduler"):
        template = {"spec": {**pod_spec("worker", scheduler), "restartPolicy": "Never"}}
        job = {"parallelism": PODS_PER_JOB, "completions": PODS_PER_JOB, "backoffLimit": 0, "template": template}
        return f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets", {
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "@NAME@"},
            "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}]}}

    def owned_lists(self, namespace):
        return [f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets",
                f"/apis/batch/v1/namespaces/{namespace}/jobs"]
