#!/usr/bin/env bash
# An elastic job with failurePolicy.restartScope Rank loses its second node twice, and continues each time with one pod, in the
# same process, and takes the node in again: first the node is cordoned and the pod deleted, then the node is cut off, so that
# the launcher of its pod ends by itself. The job completes in its first attempt, without a checkpoint and without a lost step.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_operator
cordoned=
cut=
finish() {
  local status=$?
  [[ $status -eq 0 ]] || { kubectl get nodes || true; } >&2
  [[ -z $cordoned ]] || kubectl uncordon "$cordoned" >/dev/null || true
  [[ -z $cut ]] || scripts/cluster node "$cut" heal || true
  [[ $status -eq 0 ]] || describe_world >&2
  kubectl delete tj/inplace pvc/inplace-checkpoints --ignore-not-found --wait=false >/dev/null 2>&1 || true
}
trap finish EXIT

operator_node() { kubectl -n oarlock-system get pod "$(operator_pod)" -o 'jsonpath={.spec.nodeName}'; }
is_active() { [[ $(field inplace .status.elastic.activeNodes) == "$1" ]]; }
# is_replacement UID: the second pod is another one.
is_replacement() { [[ $(of_pod inplace-0-1 .metadata.uid) != "$1" ]]; }
# The number of changes of the size that rank 0 has logged.
resizes() { kubectl logs inplace-0-0 | grep -c "training continues with $1 ranks, without a checkpoint"; }

# expect_training NODES: this number of nodes trains in the first attempt, and completes steps.
expect_training() {
  wait_for 300 "$1 of 2 nodes train" is_active "$1"
  wait_for 180 "they complete a step" progress_is_over inplace step "$(field inplace .status.progress.step)"
  expect_field inplace .status.attempt 0
  [[ $(of_pod inplace-0-0 .metadata.uid) == "$first" ]] || broken "the first pod was replaced"
}

# expect_losses COUNT REASON: of pods that were replaced so far, and why the last one was.
expect_losses() {
  expect_field inplace .status.recoveries.pods "$1"
  wait_for 60 "an event names the reason $2" bash -c \
    "kubectl get events --field-selector involvedObject.name=inplace,reason=ReplacingPod -o 'jsonpath={.items[*].message}' | grep -q '$2'"
}

step "a job with a pod on each of two nodes, which saves no checkpoint before its end"
# The CPU limit makes steps as slow on each machine, so that the job outlasts the test's waits. A rank whose peer is silent detects
# it after the collective's time-out. The pods of a node that is cut off are not evicted.
# shellcheck disable=SC2016  # $name is jq's
job_from_example inplace 'del(.spec.trainer.epochs) | .spec.trainer.steps = 1500 | .spec.trainer.checkpoint = {every_steps: 1000000}
  | .spec.trainer.batch = {size: 64, per: "global"} | .spec.trainer.log.every_steps = 10
  | .spec.trainer.distributed = {timeout_seconds: 30}
  | .spec.failurePolicy = {restartScope: "Rank", maxRestarts: 5}
  | .spec.elastic = {minNodes: 1, maxNodes: 2, shrinkAfterSeconds: 15, growAfterSeconds: 0}
  | .spec.template.spec.containers[0].resources.limits.cpu = "200m"
  | .spec.template.spec.tolerations = [{key: "node.kubernetes.io/unreachable", operator: "Exists", effect: "NoExecute", tolerationSeconds: 1800}]
  | .spec.template.spec.topologySpreadConstraints[0].labelSelector.matchLabels."oarlock.dev/job-name" = $name' | kubectl apply -f -
wait_for 600 "steps are reported" progress_is_over inplace step 20
first=$(of_pod inplace-0-0 .metadata.uid)
expect_training 2
node=$(of_pod inplace-0-1 .spec.nodeName)
[[ $node != "$(of_pod inplace-0-0 .spec.nodeName)" ]] || broken "both pods are on $node"
lap "to steps with 2 nodes"

step "$node is cordoned, and its pod deleted: the group continues with one node"
lost=$(of_pod inplace-0-1 .metadata.uid)
kubectl cordon "$node"
cordoned=$node
wait_for 120 "$node has the taint" is_tainted "$node"
kubectl delete pod inplace-0-1 --grace-period=1 --wait=false
wait_for 180 "the pod is created again" is_replacement "$lost"
expect_training 1
[[ $(of_pod inplace-0-1 .status.phase) == Pending ]] || broken "the new pod is not Pending"
wait_for 60 "there is an event ShrunkInPlace" has_event inplace ShrunkInPlace
expect_losses 1 "inplace-0-1 on $node was deleted"
lap "to steps with 1 node after a deletion"

step "an operator that starts does not restart the group"
# It starts on the other node, where it has a connection when $node is cut off.
kubectl -n oarlock-system rollout restart deployment/oarlock-operator
kubectl -n oarlock-system rollout status deployment/oarlock-operator --timeout=300s
wait_for 180 "one operator is left" one_operator
[[ $(operator_node) != "$node" ]] || broken "the operator is on $node"
expect_training 1
lap "to another operator"

step "$node is available again: it joins the group"
kubectl uncordon "$node"
wait_for 120 "$node has no taint" is_untainted "$node"
cordoned=
expect_training 2
wait_for 60 "there is an event GrownInPlace" has_event inplace GrownInPlace
lap "to steps with 2 nodes again"

step "$node is cut off: the group continues with one node, and the other launcher ends by itself"
lost=$(of_pod inplace-0-1 .metadata.uid)
cut=$node
scripts/cluster node "$node" cut
expect_training 1
expect_field inplace .status.recoveries.pods 1
[[ $(of_pod inplace-0-1 .metadata.uid) == "$lost" ]] || broken "the second pod was replaced while its node was cut off"
lap "to steps with 1 node after a lost connection"

step "the connection is back: the pod that has left is replaced, and the new one joins the group"
scripts/cluster node "$node" heal
cut=
wait_for 180 "the second pod is replaced" is_replacement "$lost"
expect_losses 2 "inplace-0-1 on $node ended with exit code 76: Disconnected: "
expect_training 2
lap "to steps with 2 nodes again"

step "the job completes in its first attempt"
kubectl wait trainingjob/inplace --for=condition=Complete --timeout=15m
expect_field inplace .status.attempt 0
expect_field inplace .status.restarts.total 0
expect_field inplace .status.recoveries.pods 2
expect_field inplace .status.recoveries.charged 0
expect_field inplace .status.restarts.afterProgress.count 2
expect_field inplace .status.worldSize 2
expect_field inplace .status.elastic.nodes 2
expect_field inplace .status.elastic.activeNodes 2
expect_field inplace .status.progress.step 1500
for pod in inplace-0-0 inplace-0-1; do [[ -z $(resumed_from $pod) ]] || broken "$pod resumed from a checkpoint"; done
[[ $(resizes fewer) == 2 && $(resizes more) == 2 ]] || broken "rank 0 has logged $(resizes fewer) and $(resizes more) changes of the size"
lap "to the end"

step "no step is lost or repeated, and the result is that of a trained network"
logs=$(kubectl logs inplace-0-0)
logged=$(grep '"msg":"step"' <<<"$logs" | jq 'select(.step % 10 == 0) | .step')
[[ $logged == "$(seq 10 10 1500)" ]] || broken "the steps in the log of rank 0 are not 10, 20 ... 1500: $logged"
[[ $(grep -c '"steps_lost":0' <<<"$logs") == $(grep -c '"steps_lost":' <<<"$logs") ]] || broken "steps were lost"
accuracy=$(grep -o '"accuracy":[0-9.]*' <<<"$logs" | tail -1 | cut -d: -f2)
awk -v a="${accuracy:-0}" 'BEGIN {exit !(a >= 0.85)}' || broken "the accuracy is '$accuracy'"
grep -q '"parameters_bitwise_equal":true' <<<"$logs" || broken "the summary does not say that the ranks' parameters are equal"
echo "accuracy $accuracy"
grep 'training continues with' <<<"$logs"
kubectl get trainingjob inplace -o 'jsonpath={.status.recoveries}{"\n"}{.status.elastic}{"\n"}'
