#!/usr/bin/env bash
# Images without Oarlock and without a shell: Debian's Python, and a C program with musl's C library on a read-only root. The
# operator puts the launcher into their pods: progress, a restart in the pods, the cause of a failure, and an interruption.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/lib/common.sh
source scripts/lib/common.sh
# shellcheck source=scripts/lib/cluster/oci_archive.sh
source scripts/lib/cluster/oci_archive.sh
# shellcheck source=tests/e2e/any_image/images.sh
source tests/e2e/any_image/images.sh
use_operator
files=tests/e2e/any_image
oarlock=${OARLOCK_BIN:?is set by ctest}/oarlock
work=$(mktemp -d)
finish() {
  local status=$?
  [[ $status -eq 0 ]] || { kubectl get tj,pods -A -o yaml | grep -A20 'launcher:'; describe_world; } >&2
  rm -rf "$work"
  kubectl delete tj/stock tj/stock-fails pvc/stock-checkpoints pvc/stock-fails-checkpoints namespace/restricted --ignore-not-found --wait=false >/dev/null 2>&1 || true
}
trap finish EXIT

c_image() {
  mkdir -p "$work/c/lib"
  musl-gcc -O1 -o "$work/c/train" "$files/train.c"
  cp /usr/lib/x86_64-linux-musl/libc.so "$work/c/lib/ld-musl-x86_64.so.1"
  load_image c
}

# starts POD: the number of starts of its rank.
starts() { kubectl logs "$1" | grep -c 'starts at step'; }
started_times() { [[ $(starts "$1") -ge $2 ]]; }
uids() { kubectl get pods -l oarlock.dev/job-name=stock -o 'jsonpath={.items[*].metadata.uid}'; }
c_field() { kubectl -n restricted get tj stock-c -o "jsonpath={$1}"; }

step "three jobs"
python_image "$files/train.py"
c_image
lap "to the images"
kubectl create namespace restricted
kubectl label namespace restricted pod-security.kubernetes.io/enforce=restricted
kubectl apply -f "$files/c.yaml" -f "$files/python.yaml"
# shellcheck disable=SC2016  # jq
kubectl create --dry-run=client -o json -f "$files/python.yaml" | jq '.metadata.name = "stock-fails" | .spec.failurePolicy = {maxRestarts: 0}
  | .spec.template.spec.containers[0].env = [{name: "FAIL_AT", value: "20"}]' | kubectl apply -f -

step "progress and loss are those that the programs report"
wait_for 120 "the C program reports steps" bash -c '[[ $(kubectl -n restricted get tj stock-c -o "jsonpath={.status.progress.step}") -gt 0 ]]'
[[ $(c_field .status.progress.targetSteps) == 150 && $(c_field .status.progress.loss) == 0.* ]] || broken "progress is $(c_field .status.progress)"
wait_for 120 "the script reports steps" progress_is_over stock step 0
kubectl get tj -A -o wide
memory=$(kubectl exec stock-0-0 -c trainer -- python3 -c 'print(open("/proc/1/status").read())' | awk '$1 == "VmRSS:" {print $2}')
[[ $memory -lt 8192 ]] || broken "the launcher takes $memory KiB"
[[ $(kubectl get tj stock -o wide --no-headers) =~ \ 2/2\ +[0-9]+\ .*\ 0\.[0-9]+ ]] || broken "kubectl get tj shows $(kubectl get tj stock -o wide)"
lap "to progress"

step "a killed process starts again in its pod"
before=$(uids)
process=$(kubectl logs stock-0-1 | sed -nE 's/.*process ([0-9]+) starts.*/\1/p')
killed=$(date +%s.%N)
kubectl exec stock-0-1 -c trainer -- python3 -c "import os; os.kill($process, 9)"
wait_for 60 "rank 1 starts again" started_times stock-0-1 2
again=$(date --date="$(kubectl logs --timestamps stock-0-1 | grep 'starts at step' | tail -n 1 | cut -d' ' -f1)" +%s.%N)
awk -v killed="$killed" -v again="$again" 'BEGIN {printf "it started again after %.1f s\n", again - killed; exit again - killed > 15}' || broken "that is too late"
wait_for 60 "rank 0 starts again" started_times stock-0-0 2
wait_for 90 "the operator counts the restart" bash -c '[[ $(kubectl get tj stock -o "jsonpath={.status.inPodRestarts.total}") == 1 ]]'
expect_field stock .status.inPodRestarts.lastRank 1
expect_field stock .status.restarts.total 0
[[ $(uids) == "$before" ]] || broken "pods were replaced"
lap "to the restart in the pods"

step "oarlock why names the exception"
kubectl wait trainingjob/stock-fails --for=condition=Failed --timeout=120s
"$oarlock" why stock-fails >"$work/why" || true
cat "$work/why"
grep -q 'ValueError: the loss is not finite at step 20' "$work/why" || broken "the exception is not named"
lap "to the cause"

step "SIGTERM in the middle is an interruption, although the program ends with exit code 0"
read -r node id < <(kubectl get pod stock-0-0 -o 'jsonpath={.spec.nodeName} {.status.containerStatuses[0].containerID}{"\n"}' | sed 's|containerd://||')
scripts/cluster node "${node#node}" ctr tasks kill --signal SIGTERM "$id"
wait_for 120 "attempt 1 starts" started_times stock-1-0 1
expect_field stock '.status.attempts[0].reason' Interrupted
[[ $(kubectl logs stock-1-0 -c trainer) =~ starts\ at\ step\ [1-9] ]] || broken "attempt 1 does not resume: $(kubectl logs stock-1-0)"
lap "to attempt 1"

step "the jobs complete"
volume=$(kubectl get pvc stock-checkpoints -o 'jsonpath={.spec.volumeName}')
touch "$(kubectl get pv "$volume" -o 'jsonpath={.spec.hostPath.path}')/stock/finish"
kubectl wait trainingjob/stock --for=condition=Complete --timeout=120s
kubectl -n restricted wait trainingjob/stock-c --for=condition=Complete --timeout=120s
expect_field stock .status.restarts.total 1
lap "to the end"
