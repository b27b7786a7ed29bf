#!/usr/bin/env bash
# Executes the commands of docs/guides that need a cluster: filling a claim, upgrade and rollback, and inspecting a job.
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
  kubectl delete tj,pvc,pod --all --wait=false >/dev/null 2>&1 || true
  kubectl apply -f manifests/crd -f manifests/install.yaml >/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

# run_block GUIDE NUMBER: the commands of its NUMBERth block that this test executes, with the job `upgraded` for NAME.
run_block() {
  local block command
  block=$(awk -v number="$2" '/^<!-- executed by tests\/e2e\/guides_test.sh/ {is_next = ++n == number; next}
    is_next && /^```sh/ {inside = 1; is_next = 0; next} /^```/ {inside = 0} inside' "docs/guides/$1.md")
  [[ -n $block ]] || broken "docs/guides/$1.md has no block $2"
  while IFS= read -r command; do
    command=${command//NAME/upgraded}
    printf '$ %s\n' "$command"
    (cd "$work" && eval "$command") || broken "$command"
  done <<<"$block"
}

step "an operator that helm installed"
ln -s "$OARLOCK_SOURCE/charts" "$OARLOCK_SOURCE/examples" "$work"
cp -rL /usr/share/datasets/fashion-mnist "$work/fashion-mnist"   # kubectl cp copies a link as a link
kubectl delete -f manifests/install.yaml --wait >/dev/null
helm install oarlock charts/oarlock --namespace oarlock-system --create-namespace --take-ownership --wait --timeout 5m >/dev/null

step "data.md: a claim is filled, and a job trains from it"
run_block data 1 | tee "$work/listing"
grep -q 'train-images-idx3-ubyte.gz' "$work/listing" || broken "the claim does not contain the files"
job_from_example upgraded '.spec.nodes = 1 | .spec.trainer.epochs = 1000 | .spec.trainer.checkpoint.every_steps = 20 | .spec.trainer.data.path = "/data/fashion-mnist"
  | .spec.template.spec.containers[0].volumeMounts += [{name: "data", mountPath: "/data", readOnly: true}]
  | .spec.template.spec.volumes += [{name: "data", persistentVolumeClaim: {claimName: "my-data", readOnly: true}}]' | kubectl apply -f -
wait_for 300 "it saves a checkpoint" bash -c '[[ $(kubectl get tj upgraded -o "jsonpath={.status.progress.checkpointStep}") -ge 20 ]]'

step "troubleshooting.md: inspecting a job"
run_block troubleshooting 1 >"$work/inspection" || broken "$(cat "$work/inspection")"
grep -q 'PodsRunning' "$work/inspection" && grep -q '"msg":"step"' "$work/inspection" || broken "$(cat "$work/inspection")"
run_block troubleshooting 2 | tee "$work/statusz"
grep -q '"collectiveSequence":' "$work/statusz" || broken "the state of the rank has no collectiveSequence"

step "troubleshooting.md: the reasons of pending jobs"
# pending NAME JQ_FILTER REASON TEXT: a job that the filter makes impossible has this reason, and this text in the message.
pending() {
  job_from_example "$1" ".spec.nodes = 1 | $2" | kubectl apply -f - >/dev/null
  reason_is() { [[ $(field "$1" '.status.conditions[?(@.status=="True")].reason') == "$2" && $(field "$1" '.status.conditions[?(@.status=="True")].message') == *"$3"* ]]; }
  wait_for 180 "$1 has the reason $3 with '$4'" reason_is "$1" "$3" "$4"
  field "$1" '.status.conditions[?(@.status=="True")].message'
  echo
  kubectl delete tj "$1" --wait=false >/dev/null
}
pending too-large '.spec.template.spec.containers[0].resources.requests.cpu = "1000"' Unschedulable "Insufficient cpu"
pending no-image '.spec.template.spec.containers[0].image = "registry.invalid/none:1"' ImagePullBackOff ImagePullBackOff
pending no-account '.spec.template.spec.serviceAccountName = "none"' CreateRefused "service account"
pending no-secret '.spec.template.spec.containers[0].envFrom = [{secretRef: {name: "none"}}]' CreateContainerConfigError "secret"

step "upgrade-and-rollback.md"
before=$(field upgraded .status.progress.step)
run_block upgrade-and-rollback 1
expect_field upgraded .status.restarts.total 0
run_block upgrade-and-rollback 2
wait_for 180 "it resumes" bash -c "[[ \$(kubectl get tj upgraded -o 'jsonpath={.status.progress.step}') -gt $before ]]"
expect_field upgraded .status.attempt 1
expect_field upgraded .status.restarts.total 0
run_block upgrade-and-rollback 3
expect_field upgraded .status.phase Running
[[ $(helm history oarlock --namespace oarlock-system -o json | jq length) == 3 ]] || broken "there are not three revisions"
