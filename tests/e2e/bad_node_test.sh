#!/usr/bin/env bash
# Bad nodes, in a separate cluster with four nodes: checkpoints that cannot be written, a slow network, and ranks that are
# killed twice. Jobs of three pods start on the bad node, because the spare one is cordoned. The node is named, and the
# next attempt completes on the spare one, although the bad one is free.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/lib/common.sh
source scripts/lib/common.sh
# shellcheck source=scripts/lib/cluster/oci_archive.sh
source scripts/lib/cluster/oci_archive.sh
# shellcheck source=tests/e2e/any_image/images.sh
source tests/e2e/any_image/images.sh
: "${OARLOCK_CLUSTER_NAME:?is set by ctest}"   # that of the fixture is not for this test, which ends its own
oarlock=${OARLOCK_BIN:?is set by ctest}/oarlock
work=$(mktemp -d)
finish() {
  local status=$?
  [[ $status -eq 0 ]] || describe_world >&2
  rm -rf "$work"
  scripts/cluster down   # ends the faults too, which are those of its nodes
}
trap finish EXIT

# start JOB: three pods of the script that trains until its directory has a file `finish`; the spare node is cordoned.
start() {
  kubectl cordon "$spare"
  wait_for 60 "$spare has the taint" is_tainted "$spare"
  # shellcheck disable=SC2016  # jq
  kubectl create --dry-run=client -o json -f tests/e2e/any_image/python.yaml | jq --arg job "$1" '.metadata.name = $job | .spec.nodes = 3
    | .spec.preflight = {minBandwidthMbps: 50}
    | .spec.failurePolicy = {maxRestarts: 3, backoffSeconds: 0}
    | .spec.template.spec.topologySpreadConstraints = [{maxSkew: 1, topologyKey: "kubernetes.io/hostname", whenUnsatisfiable: "DoNotSchedule",
        labelSelector: {matchLabels: {"oarlock.dev/job-name": $job}}, matchLabelKeys: ["oarlock.dev/attempt"]}]' | kubectl apply -f -
}
# nodes_of JOB ATTEMPT: of its pods, sorted.
nodes_of() {
  kubectl get pods -l "oarlock.dev/job-name=$1,oarlock.dev/attempt=$2" -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort | xargs
}
is_field() { [[ $(field "$1" "$2") == "$3" ]]; }
trains() { [[ $(field "$1" .status.attempt) == "$2" && $(field "$1" .status.phase) == Running && $(field "$1" .status.progress.step) -gt ${3:-0} ]]; }
pod_on() { kubectl get pods -l "oarlock.dev/job-name=$1,oarlock.dev/attempt=$2" --field-selector "spec.nodeName=$3" -o 'jsonpath={.items[0].metadata.name}'; }

# expect_avoided JOB NODE REASON CAUSE: the status names this node, and no other, and so does `oarlock why`, with this cause.
expect_avoided() {
  wait_for 180 "$1 avoids $2" is_field "$1" '.status.badNodes[*].avoidance' Required
  expect_field "$1" '.status.badNodes[*].name' "$2"
  expect_field "$1" '.status.badNodes[*].reason' "$3"
  expect_field "$1" '.status.badNodes[*].failures' 2
  "$oarlock" why "$1" >"$work/why" || true
  cat "$work/why"
  grep -Eq "^ *cause +$4\$" "$work/why" || broken "oarlock why does not name the cause $4"
  grep -Eq "^ *where .*node $2," "$work/why" || broken "oarlock why does not name $2"
}

# expect_complete_without JOB ATTEMPT NODE: on the three others, when the spare one has room.
expect_complete_without() {
  kubectl uncordon "$spare"
  wait_for 180 "attempt $2 of $1 trains" trains "$1" "$2"
  local expected volume
  expected=$(kubectl get nodes -o name | sed 's|node/||' | grep -vx "$3" | sort | xargs)
  [[ $(nodes_of "$1" "$2") == "$expected" ]] || broken "attempt $2 of $1 runs on $(nodes_of "$1" "$2"), not on $expected"
  volume=$(kubectl get pvc "$1-checkpoints" -o 'jsonpath={.spec.volumeName}')
  touch "$(kubectl get pv "$volume" -o 'jsonpath={.spec.hostPath.path}')/$1/finish"
  kubectl wait "trainingjob/$1" --for=condition=Complete --timeout=180s
  expect_field "$1" .status.attempt "$2"
  expect_field "$1" .status.restarts.total "$2"
  expect_field "$1" '.status.badNodes[*].name' "$3"
  kubectl get tj "$1" -o 'jsonpath={range .status.attempts[*]}{.attempt}{": "}{.node}{": "}{.reason}{": "}{.message}{"\n"}{end}'
}

step "a cluster of four nodes with the operator"
scripts/cluster up --nodes 4
use_cluster
scripts/images load operator launcher
kubectl apply -f manifests/crd -f manifests/install.yaml
use_operator
python_image tests/e2e/any_image/train.py
operator_node=$(kubectl -n oarlock-system get pod "$(operator_pod)" -o 'jsonpath={.spec.nodeName}')
read -r spare bad worse < <(kubectl get nodes -o name | sed 's|node/||' | grep -vx "$operator_node" | xargs)
lap "to the cluster"

step "$worse cannot write checkpoints"
shared=$(dirname "$KUBECONFIG")/shared
scripts/cluster node "$worse" exec mount --bind "$shared" "$shared"
scripts/cluster node "$worse" exec mount -o remount,bind,ro "$shared"
start readonly
expect_avoided readonly "$worse" PreflightFailed PreflightFailed
expect_field readonly '.status.attempts[*].node' "$worse"
[[ $(field readonly '.status.attempts[0].message') == *storage:* ]] || broken "the message is $(field readonly '.status.attempts[0].message')"
lap "to the name of the node"
expect_complete_without readonly 1 "$worse"
scripts/cluster node "$worse" exec umount "$shared"
lap "to the end without it"

step "the network of $bad is slow"
for link in eth0 cni0; do   # from its pods, and to them; the second link exists since its first pod
  scripts/cluster node "$bad" exec tc qdisc add dev "$link" root tbf rate 10mbit burst 16kb latency 50ms
done
start slow
expect_avoided slow "$bad" PreflightFailed PreflightFailed
expect_field slow '.status.attempts[*].node' "$bad"
[[ $(field slow '.status.attempts[0].message') == *network:* ]] || broken "the message is $(field slow '.status.attempts[0].message')"
lap "to the name of the node"
expect_complete_without slow 1 "$bad"
for link in eth0 cni0; do scripts/cluster node "$bad" exec tc qdisc del dev "$link" root; done
lap "to the end without it"

step "$bad kills its ranks twice"
start killed
for attempt in 0 1; do
  wait_for 180 "attempt $attempt trains" trains killed "$attempt" "$(field killed .status.progress.step)"
  pod=$(pod_on killed "$attempt" "$bad")
  id=$(of_pod "$pod" '.status.containerStatuses[?(@.name=="trainer")].containerID')
  scripts/cluster node "$bad" ctr tasks kill --signal SIGKILL "${id#containerd://}"
  wait_for 120 "the failure counts" is_field killed '.status.badNodes[*].failures' "$((attempt + 1))"
  [[ $attempt == 1 ]] || expect_field killed '.status.badNodes[*].avoidance' Preferred   # so that it has a second chance
done
expect_avoided killed "$bad" PodFailed Signal
lap "to the name of the node"
expect_complete_without killed 2 "$bad"
expect_field killed '.status.attempts[*].node' "$bad $bad"
[[ $(kubectl logs "$(pod_on killed 2 "$spare")" -c trainer) =~ starts\ at\ step\ [1-9] ]] || broken "the rank on $spare does not resume"
lap "to the end without it"
