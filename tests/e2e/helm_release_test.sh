#!/usr/bin/env bash
# The chart's life on a real cluster: install, helm test, upgrade and rollback under a running job, uninstall.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/lib/common.sh
source scripts/lib/cluster/versions.sh
source scripts/lib/cluster/oci_archive.sh
use_cluster
helm() { "$(program helm)" --namespace oarlock-chart "$@"; }
work=$(mktemp -d)
finish() {
  local status=$?
  [[ $status -eq 0 ]] || { describe_world; kubectl -n oarlock-chart get all,events; kubectl -n oarlock-chart logs -l app.kubernetes.io/name=oarlock --all-containers --tail=40; } >&2 || true
  # The operator of the other tests continues to run, and their CRD remains.
  helm uninstall blue >/dev/null 2>&1 || true
  kubectl delete namespace oarlock-chart --wait=false >/dev/null 2>&1 || true
  kubectl delete tj --all --wait=false >/dev/null 2>&1 || true
  kubectl apply -f manifests/crd -f manifests/install.yaml >/dev/null || true
  kubectl -n oarlock-system scale deployment/oarlock-operator --replicas=1 >/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

step "an image with kubectl, for helm test"
install -D -m 755 "$(program kubectl)" "$work/root/kubectl"
mkdir -p "$work/root/tmp"
make_oci_archive "$work/kubectl.tar" docker.io/oarlock/kubectl:e2e "$work/root" '{"Entrypoint": ["/kubectl"], "User": "65532:65532"}'
scripts/cluster load-image "$work/kubectl.tar"

step "the previous chart, with a CRD that has neither successPolicy nor the column Restarts"
tar -C "$work" -xzf tests/data/oarlock-0.1.0.tgz
mv "$work/oarlock" "$work/old"
cp manifests/crd/oarlock.dev_trainingjobs.yaml "$work/old/files/"   # the jobs below may use fields that chart 0.1.0 did not have
/usr/bin/python3 - "$work/old/files/oarlock.dev_trainingjobs.yaml" <<'OLDER'
import sys, yaml
crd = yaml.safe_load(open(sys.argv[1]))
version = crd["spec"]["versions"][0]
del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["successPolicy"]
version["additionalPrinterColumns"] = [one for one in version["additionalPrinterColumns"] if one["name"] != "Restarts"]
yaml.safe_dump(crd, open(sys.argv[1], "w"))
OLDER
has_success_policy() { [[ -n $(kubectl get crd trainingjobs.oarlock.dev -o 'jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.successPolicy.type}') ]]; }

step "install as the only operator"
kubectl -n oarlock-system scale deployment/oarlock-operator --replicas=0
wait_for 180 "the other operator is gone" bash -c '[[ -z $(kubectl -n oarlock-system get pods -o name) ]]'
kubectl create namespace oarlock-chart
kubectl label namespace oarlock-chart pod-security.kubernetes.io/enforce=restricted
# Names of values of the previous chart; they work with the new one, too.
values=(--set replicas=2 --set networkPolicy.enabled=true --set tests.kubectlImage=docker.io/oarlock/kubectl:e2e)
# The CRD was applied by kubectl before: the release takes it over.
helm install blue "$work/old" --take-ownership "${values[@]}" --wait --timeout 10m
kubectl -n oarlock-chart rollout status deployment/blue-oarlock-operator --timeout=180s
[[ $(kubectl get crd trainingjobs.oarlock.dev -o 'jsonpath={.metadata.annotations.helm\.sh/resource-policy}') == keep ]] || broken "the CRD would go with the release"

has_success_policy && broken "the older CRD has successPolicy"

step "a long job runs while the release is upgraded"
job_from_example held '.spec.trainer.epochs = 1000 | .spec.trainer.checkpoint.every_steps = 50' | kubectl apply -f -
wait_for 300 "it steps" bash -c '[[ $(kubectl get tj held -o "jsonpath={.status.progress.step}") -gt 0 ]]'
pods() { kubectl get pods -l oarlock.dev/job-name=held -o 'jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}' | sort; }
before=$(pods)
step_before=$(field held .status.progress.step)
operator_before=$(kubectl -n oarlock-chart get pods -l app.kubernetes.io/component=operator -o 'jsonpath={.items[*].metadata.uid}')
# As on OpenShift: without a fixed user.
helm upgrade blue charts/oarlock "${values[@]}" --set operator.logLevel=debug --set global.compatibility.openshift.adaptSecurityContext=force --wait --timeout 10m
has_success_policy || broken "the upgrade did not bring the CRD along"
# The API server rebuilds the columns some time after it has accepted the CRD.
wait_for 120 "the upgrade brings the CRD's columns along" bash -c '[[ $(kubectl get tj held) == *RESTARTS* ]]'
operator_after=$(kubectl -n oarlock-chart get pods -l app.kubernetes.io/component=operator --field-selector=status.phase=Running -o 'jsonpath={.items[*].metadata.uid}')
[[ $operator_before != "$operator_after" ]] || broken "the upgrade did not replace the operators"
wait_for 180 "progress is reported by the new operator" bash -c '[[ $(kubectl get tj held -o "jsonpath={.status.progress.step}") -gt '"$step_before"' ]]'
[[ $(pods) == "$before" ]] || broken "the upgrade disturbed the job: $before became $(pods)"

step "helm test trains with two pods, without a fixed user"
user=$(kubectl -n oarlock-chart get deployment blue-oarlock-operator -o 'jsonpath={.spec.template.spec.securityContext.runAsUser}')
[[ -z $user ]] || broken "the operators have the user $user"
helm test blue --timeout 10m

step "rollback, and nothing is disturbed"
helm rollback blue 1 --wait --timeout 10m
has_success_policy && broken "the rollback did not take the CRD back"
step_before=$(field held .status.progress.step)
wait_for 180 "progress continues" bash -c '[[ $(kubectl get tj held -o "jsonpath={.status.progress.step}") -gt '"$step_before"' ]]'
[[ $(pods) == "$before" ]] || broken "the rollback disturbed the job: $before became $(pods)"
expect_field held .status.restarts.total 0

step "uninstall keeps the CRD and the job"
helm uninstall blue --wait --timeout 10m
kubectl get crd trainingjobs.oarlock.dev -o name
expect_field held .status.phase Running
[[ $(pods) == "$before" ]] || broken "uninstalling disturbed the job"
[[ -z $(kubectl -n oarlock-chart get deployments,services,roles -o name) ]] || broken "something of the release is left"

step "and another release takes it up"
kubectl apply -f manifests/crd -f manifests/install.yaml
kubectl -n oarlock-system scale deployment/oarlock-operator --replicas=1
step_before=$(field held .status.progress.step)
wait_for 240 "progress continues" bash -c '[[ $(kubectl get tj held -o "jsonpath={.status.progress.step}") -gt '"$step_before"' ]]'
[[ $(pods) == "$before" ]] || broken "the change of operators disturbed the job"
kubectl delete tj held --wait
