#!/usr/bin/env bash
# Executes docs/first-job.md and docs/install.md on a cluster that has no operator yet and, for the first job, the storage of an
# ordinary cluster: a default StorageClass whose volumes are local to a node, or no StorageClass at all.
# There is no registry: scripts/images load has put the images on the nodes, under the names that the chart and the operator use.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/lib/common.sh
source scripts/lib/cluster/versions.sh
use_cluster
helm() { "$(program helm)" "$@"; }
work=$(mktemp -d)
manifests=$OARLOCK_SOURCE/manifests  # that the commands of the pages use
finish() {
  local status=$?
  [[ $status -eq 0 ]] || describe_world >&2
  helm uninstall oarlock --namespace oarlock-system >/dev/null 2>&1 || true
  kubectl delete namespace team-a --wait=false >/dev/null 2>&1 || true
  kubectl delete tj --all -A --wait=false >/dev/null 2>&1 || true
  [[ ! -e $work/storage ]] || restore_storage || true
  kubectl apply -f manifests/crd -f manifests/install.yaml >/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
restore_storage() {
  kubectl delete pvc,pv,storageclass --all --wait --timeout=180s >/dev/null
  kubectl create -f "$work/storage" >/dev/null
  rm "$work/storage"
}

# run_blocks PAGE FIRST [LAST]: its blocks that say they are executed here, from the FIRSTth to the LASTth.
run_blocks() {
  local page=$1 first=$2 last=${3:-$2} block command
  block=$(awk -v first="$first" -v last="$last" '/^<!-- executed by tests\/e2e\/install_page_test.sh/ {++n; next}
    n >= first && n <= last && /^```sh/ {inside = 1; next} /^```/ {inside = 0} inside' "docs/$page.md")
  [[ -n $block ]] || broken "docs/$page.md has no block $first"
  local started
  while IFS= read -r command; do
    printf '$ %s\n' "$command"
    started=$SECONDS
    (cd "$work" && eval "${command//charts\/oarlock/$OARLOCK_SOURCE/charts/oarlock}") || broken "$command"
    echo "($((SECONDS - started)) s)"
  done <<<"${block//manifests\//$manifests/}"
}
# small_job NAMESPACE NAME: of one pod and a few steps.
small_job() {
  job_from_example "$2" '.spec.nodes = 1 | del(.spec.trainer.epochs) | .spec.trainer.steps = 5 | del(.spec.trainer.checkpoint)
    | del(.spec.template.spec.topologySpreadConstraints)' | jq 'del(.metadata.namespace)' | kubectl --namespace "$1" apply -f -
}

# remove_oarlock: also what the garbage collector would remove, because it detects a new CRD only after up to half a minute.
remove_oarlock() {
  helm uninstall oarlock --namespace oarlock-system --ignore-not-found --wait >/dev/null
  kubectl delete -f manifests/install.yaml --ignore-not-found --wait >/dev/null
  kubectl delete trainingjobs --all --all-namespaces --wait >/dev/null
  kubectl delete pods,services --all-namespaces --selector oarlock.dev/job-name --wait >/dev/null
  kubectl delete pvc --all --wait >/dev/null
  kubectl delete -f manifests/crd --ignore-not-found --wait >/dev/null
  wait_for 180 "nothing of it is left" bash -c '[[ -z $(kubectl get pods -A -o name) ]] && ! kubectl get crd trainingjobs.oarlock.dev && ! kubectl get namespace oarlock-system'
}
# first_job STORAGE: from an empty cluster to a finished job.
first_job() {
  local begin=$SECONDS
  step "docs/first-job.md, $1"
  run_blocks first-job 1 | tee "$work/first-job"
  echo "TIME from helm install to the end of the job, $1: $((SECONDS - begin)) s"
  expect_field first-job '.status.conditions[?(@.type=="CheckpointsNotKept")].reason' EmptyDir
}

step "a cluster without Oarlock and without the storage of scripts/cluster"
commands=$(awk '/^```sh/ {inside = ++n == 1; next} /^```/ {inside = 0} inside' docs/first-job.md | wc -l)
[[ $commands -le 5 ]] || broken "a new user's way has $commands commands"
remove_oarlock
# Volumes that were used, and the two directories of this test, are not handed out again.
kubectl get storageclass,pv -o json | jq '.items |= map(select(.kind == "StorageClass" or .status.phase == "Available")
  | del(.status, .metadata.uid, .metadata.resourceVersion, .metadata.creationTimestamp))' >"$work/all"
mapfile -t directories < <(jq -r '.items[] | .spec.hostPath.path // empty' "$work/all" | tail -2)
[[ ${#directories[@]} == 2 ]] || broken "scripts/cluster has no two volumes left"
jq '.items |= map(select(.spec.hostPath.path as $path | $ARGS.positional | index($path) | not))' --args "${directories[@]}" <"$work/all" >"$work/storage"
kubectl delete storageclass,pv --all --wait >/dev/null
first_job "no StorageClass"
accuracy=$(grep -o '"accuracy":[0-9.]*' "$work/first-job" | tail -1 | cut -d: -f2)
awk -v a="${accuracy:-0}" 'BEGIN {exit !(a >= 0.89)}' || broken "the accuracy is '$accuracy'"
remove_oarlock

step "an ordinary default StorageClass: ReadWriteOnce, on the node that the pod is assigned to"
kubectl create -f - >/dev/null <<MANIFEST
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
MANIFEST
for node in 1 2; do
  kubectl create -f - >/dev/null <<MANIFEST
apiVersion: v1
kind: PersistentVolume
metadata: {name: local-$node}
spec:
  storageClassName: standard
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  local: {path: ${directories[node - 1]}}
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node$node]}]}]}
MANIFEST
done
# Training to the end once is enough: what differs here is the storage.
manifests=$work/manifests
mkdir -p "$manifests/examples"
sed 's/epochs: 3/steps: 120/' "$OARLOCK_SOURCE/manifests/examples/first-job.yaml" >"$manifests/examples/first-job.yaml"
grep -q 'steps: 120' "$manifests/examples/first-job.yaml" || broken "first-job.yaml has no epochs: 3"
first_job "default StorageClass"

step "docs/first-job.md: the checkpoints are kept"
run_blocks first-job 2
expect_field kept-job '.status.conditions[?(@.type=="CheckpointsNotKept")].status' ""
[[ $(kubectl get pvc kept-job-checkpoints -o 'jsonpath={.spec.storageClassName} {.status.phase}') == "standard Bound" ]] || broken "$(kubectl get pvc)"
[[ -n $(compgen -G "${directories[0]}/kept-job/step-*" || compgen -G "${directories[1]}/kept-job/step-*") ]] || broken "the claim has no checkpoint: $(ls -R "${directories[@]}")"
kubectl delete trainingjob kept-job >/dev/null
kubectl delete pods --selector oarlock.dev/job-name=kept-job --wait >/dev/null
restore_storage
manifests=$OARLOCK_SOURCE/manifests

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
