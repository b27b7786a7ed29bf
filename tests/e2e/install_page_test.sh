#!/usr/bin/env bash
# Does what docs/first-job.md and docs/install.md show, on a cluster that has no operator yet, and looks at what comes of it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/lib/common.sh
source scripts/lib/cluster/versions.sh
use_cluster
helm() { "$(program helm)" "$@"; }
work=$(mktemp -d)
finish() {
  local status=$?
  [[ $status -eq 0 ]] || describe_world >&2
  helm uninstall oarlock --namespace oarlock-system >/dev/null 2>&1 || true
  kubectl delete namespace team-a --wait=false >/dev/null 2>&1 || true
  kubectl delete tj --all -A --wait=false >/dev/null 2>&1 || true
  kubectl apply -f manifests/crd -f manifests/install.yaml >/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

# run_blocks PAGE FIRST [LAST]: its blocks that say they are executed here, from the FIRSTth to the LASTth.
run_blocks() {
  local page=$1 first=$2 last=${3:-$2} block command
  block=$(awk -v first="$first" -v last="$last" '/^<!-- executed by tests\/e2e\/install_page_test.sh/ {++n; next}
    n >= first && n <= last && /^```sh/ {inside = 1; next} /^```/ {inside = 0} inside' "docs/$page.md")
  [[ -n $block ]] || broken "docs/$page.md has no block $first"
  while IFS= read -r command; do
    printf '$ %s\n' "$command"
    (cd "$work" && eval "${command//charts\/oarlock/$OARLOCK_SOURCE/charts/oarlock}") || broken "$command"
  done <<<"${block//manifests\//$OARLOCK_SOURCE/manifests/}"
}
# small_job NAMESPACE NAME: of one pod and a few steps.
small_job() {
  job_from_example "$2" '.spec.nodes = 1 | del(.spec.trainer.epochs) | .spec.trainer.steps = 5 | del(.spec.trainer.checkpoint)
    | del(.spec.template.spec.topologySpreadConstraints)' | jq 'del(.metadata.namespace)' | kubectl --namespace "$1" apply -f -
}

step "a cluster without Oarlock"
kubectl delete -f manifests/install.yaml -f manifests/crd --wait >/dev/null
wait_for 180 "nothing of it is left" bash -c '[[ -z $(kubectl -n oarlock-system get pods -o name 2>/dev/null) ]] && ! kubectl get crd trainingjobs.oarlock.dev && ! kubectl get namespace oarlock-system'
kubectl delete pvc --all --wait >/dev/null

step "docs/first-job.md"
commands=$(awk '/^```sh/ {inside = 1; next} /^```/ {inside = 0} inside' docs/first-job.md | wc -l)
[[ $commands -le 5 ]] || broken "a new user's way has $commands commands"
begin=$SECONDS
run_blocks first-job 1 | tee "$work/first-job"
echo "from an empty cluster to a trained model: $commands commands, $((SECONDS - begin)) s"
accuracy=$(grep -o '"accuracy":[0-9.]*' "$work/first-job" | tail -1 | cut -d: -f2)
awk -v a="${accuracy:-0}" 'BEGIN {exit !(a >= 0.89)}' || broken "the accuracy is '$accuracy'"

step "two operators, protected metrics"
run_blocks install 1
wait_for 180 "there are two operators" bash -c '[[ $(kubectl -n oarlock-system get pods -l app.kubernetes.io/component=operator -o name | wc -l) == 2 ]]'
pod=$(operator_pod)
unauthorized() { [[ $(kubectl get --raw "/api/v1/namespaces/oarlock-system/pods/https:$pod:8080/proxy/metrics" 2>&1) == *"provide credentials"* ]]; }
wait_for 180 "metrics are refused to who has no token" unauthorized
kubectl get --raw "/api/v1/namespaces/oarlock-system/pods/https:$pod:8080/proxy/healthz" >/dev/null
small_job default with-two
kubectl wait trainingjob/with-two --for=condition=Complete --timeout=10m

step "one namespace"
run_blocks install 2
small_job team-a inside
small_job default outside
kubectl --namespace team-a wait trainingjob/inside --for=condition=Complete --timeout=10m
[[ -z $(field outside .status) ]] || broken "a job of another namespace was touched: $(field outside .status)"
[[ $(kubectl auth can-i list pods --namespace default --as system:serviceaccount:oarlock-system:oarlock-operator) == no ]] || broken "the operator has rights elsewhere"

step "rollback and removal"
run_blocks install 3
kubectl wait trainingjob/outside --for=condition=Complete --timeout=10m
run_blocks install 4
kubectl get crd trainingjobs.oarlock.dev -o name
expect_field first-job .status.phase Complete
