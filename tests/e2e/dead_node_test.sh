#!/usr/bin/env bash
# A node fails: its link is cut, then its power. Nothing confirms the end of its pods, which stay Terminating; the next
# attempts run on the other node, resume from the checkpoint and complete. While the node is only cut off, its
# trainer also continues, until it is fenced. When the node is back, its pods are removed, and nothing else changes.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_operator
# The node of the operator remains available.
operator_node=$(kubectl -n oarlock-system get pod "$(operator_pod)" -o 'jsonpath={.spec.nodeName}')
dead=$(kubectl get nodes -o json | jq -r --arg own "$operator_node" '[.items[].metadata.name | select(. != $own)][0]')

repair_node() {
  scripts/cluster node "$dead" heal 2>/dev/null || true   # a node that was killed has no link
  scripts/cluster node "$dead" boot
  kubectl wait --for=condition=Ready --timeout=180s "node/$dead"
}
finish() {
  local status=$?
  [[ $status -eq 0 ]] || kubectl get trainingjobs,pods,nodes -A -o wide >&2 || true   # as it is while the node is dead
  repair_node >/dev/null 2>&1 || true
  [[ $status -eq 0 ]] || describe_world >&2
  kubectl delete tj/pair tj/writer pvc/pair-checkpoints pvc/writer-checkpoints --ignore-not-found --wait=false >/dev/null 2>&1 || true
}
trap finish EXIT

is_terminating() { [[ -n $(of_pod "$1" .metadata.deletionTimestamp) ]]; }
is_gone() { [[ -z $(kubectl get pod "$1" --ignore-not-found -o name) ]]; }
# Polled directly: before the next poll of the operator, the job may have finished.
saved_on_rank_0() { [[ $(curl -fsS -m 2 "http://$(of_pod "$1" .status.podIP):9400/statusz" | jq .checkpointStep) -gt 0 ]]; }
# A node that is cut off is reachable only from its own host.
is_fenced_off() {
  grep -q "may not write here any more: attempt 1 has taken over" "$(dirname "$KUBECONFIG")/$dead/pod-logs/default_$1_"*/trainer/*.log
}
has_ended_on_dead_node() {
  local tasks
  tasks=$(scripts/cluster node "$dead" ctr tasks ls) && ! grep -q "^$1 .*RUNNING" <<<"$tasks"
}

expect_free_restart() {   # JOB POD: of the first attempt, the one on the dead node
  expect_field "$1" .status.restarts.total 1
  expect_field "$1" .status.restarts.charged 0
  expect_field "$1" '.status.restarts.reasons[*].reason' Disrupted
  expect_field "$1" '.status.attempts[*].pod' "$2"
  expect_field "$1" '.status.attempts[*].node' "$dead"
  expect_field "$1" '.status.attempts[*].reason' DeletionByTaintManager
}

step "a job with a pod on each node, and one that trains alone on $dead"
# A dead node must not count where pods are spread. Evicted after 5 s and not immediately: the scheduler must have seen the
# taint that keeps new pods away (NoSchedule), which a busy controller manager sets a moment after the one that evicts.
# shellcheck disable=SC2016  # $name is jq's
fit_for_faults='.spec.trainer.checkpoint.every_steps = 25
  | .spec.template.spec.tolerations = [{key: "node.kubernetes.io/unreachable", operator: "Exists", effect: "NoExecute", tolerationSeconds: 5}]
  | .spec.template.spec.topologySpreadConstraints[0] |= (.nodeTaintsPolicy = "Honor" | .labelSelector.matchLabels."oarlock.dev/job-name" = $name)'
job_from_example writer "$fit_for_faults | .spec.nodes = 1 | .spec.trainer.epochs = 1000
  | .spec.template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution =
      [{weight: 100, preference: {matchExpressions: [{key: \"kubernetes.io/hostname\", operator: \"In\", values: [\"$dead\"]}]}}]" | kubectl apply -f -
wait_for 300 "writer has saved" progress_is_over writer checkpointStep 0
job_from_example pair "$fit_for_faults | del(.spec.trainer.epochs) | .spec.trainer.steps = 200" | kubectl apply -f -
wait_for 300 "pair has saved" saved_on_rank_0 pair-0-0
[[ $(of_pod writer-0-0 .spec.nodeName) == "$dead" ]] || broken "writer-0-0 is not on $dead"
stuck=$(kubectl get pods -l oarlock.dev/job-name=pair -o json | jq -r --arg node "$dead" '.items[] | select(.spec.nodeName == $node) | .metadata.name')
[[ $stuck == pair-0-[01] ]] || broken "not one pod of pair is on $dead: '$stuck'"
uid=$(of_pod "$stuck" .metadata.uid)
writer=$(of_pod writer-0-0 '.status.containerStatuses[?(@.name=="trainer")].containerID')
writer=${writer#containerd://}

step "$dead is cut off"
scripts/cluster node "$dead" cut
started=$SECONDS
wait_for 240 "the next attempts have pods" kubectl get pod pair-1-0 pair-1-1 writer-1-0
echo "the next attempts came $((SECONDS - started)) s later"
for pod in "$stuck" writer-0-0; do is_terminating "$pod" || broken "$pod is not Terminating"; done
next=$(kubectl get pod pair-1-0 pair-1-1 -o 'jsonpath={.items[*].metadata.uid}')

step "writer resumes elsewhere; the rank on $dead is fenced"
wait_for 240 "attempt 1 of writer trains" progress_is_over writer step "$(field writer .status.progress.step)"
[[ $(of_pod writer-1-0 .spec.nodeName) != "$dead" ]] || broken "writer-1-0 is on $dead"
[[ $(resumed_from writer-1-0) -gt 0 ]] || broken "attempt 1 of writer did not resume from a checkpoint"
expect_free_restart writer writer-0-0
wait_for 120 "the writer on $dead is fenced off" is_fenced_off writer-0-0
wait_for 120 "and ends" has_ended_on_dead_node "$writer"
is_terminating writer-0-0 || broken "writer-0-0 is not Terminating any more"
kubectl delete tj writer --wait=false

step "$dead loses its power; pair trains on and completes without it"
scripts/cluster node "$dead" kill
kubectl wait trainingjob/pair --for=condition=Complete --timeout=600s
expect_field pair .status.attempt 1
expect_free_restart pair "$stuck"
resumed=$(resumed_from pair-1-0)
[[ ${resumed:-0} -gt 0 ]] || broken "attempt 1 of pair did not resume from a checkpoint"
echo "resumed from step $resumed"
is_terminating "$stuck" || broken "$stuck is not Terminating any more"
[[ $(of_pod "$stuck" .metadata.uid) == "$uid" ]] || broken "$stuck is another pod now"

step "$dead comes back"
repair_node
wait_for 180 "its pods are gone" is_gone "$stuck"
wait_for 120 "its pods are gone" is_gone writer-0-0
wait_for 180 "only the pods of pair's attempt 1 are left" \
  bash -c '[[ $(kubectl get pods -l oarlock.dev/job-name=pair -o "jsonpath={.items[*].metadata.name}") == "pair-1-0 pair-1-1" ]]'
[[ $(kubectl get pod pair-1-0 pair-1-1 -o 'jsonpath={.items[*].metadata.uid}') == "$next" ]] || broken "a pod of attempt 1 was made twice"
expect_field pair .status.phase Complete
