#!/usr/bin/env bash
# An elastic job whose second node is cordoned: it continues with one pod from its checkpoint, grows back when the node is
# available again, is scaled, and completes. Only the pod that was deleted counts as a restart.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_operator
cordoned=
finish() {
  local status=$?
  [[ $status -eq 0 ]] || { kubectl get nodes || true; describe_world; } >&2
  [[ -z $cordoned ]] || kubectl uncordon "$cordoned" >/dev/null || true
  kubectl delete tj/elastic pvc/elastic-checkpoints --ignore-not-found --wait=false >/dev/null 2>&1 || true
}
trap finish EXIT

has_pods() { [[ $(kubectl get pods -l "oarlock.dev/job-name=elastic,oarlock.dev/attempt=$1" -o 'jsonpath={.items[*].metadata.name}') == "$2" ]]; }
shows() { [[ $(kubectl get tj elastic --no-headers) =~ ^elastic\ +"$1"\ +"$2"\  ]]; }

# expect_refusal WHAT TEXT COMMAND...: the API server refuses the command, with this text.
expect_refusal() {
  local what=$1 text=$2 answer
  shift 2
  if answer=$("$@" 2>&1); then broken "$what was accepted: $answer"; fi
  [[ $answer == *"$text"* ]] || broken "$what was refused with '$answer'"
}

# expect_training ATTEMPT NODES STEP: this attempt runs with this number of pods, and continues from STEP or later.
expect_training() {
  local attempt=$1 nodes=$2 step=$3 pods="elastic-$1-0" resumed
  [[ $nodes == 1 ]] || pods+=" elastic-$1-1"
  wait_for 180 "attempt $attempt has the pods $pods" has_pods "$attempt" "$pods"
  wait_for 180 "kubectl get shows Running and $nodes/$nodes" shows Running "$nodes/$nodes"
  kubectl get tj elastic
  expect_field elastic .status.attempt "$attempt"
  expect_field elastic .status.worldSize "$nodes"
  expect_field elastic .status.elastic.nodes "$nodes"
  has_resumed() { [[ -n $(resumed_from "elastic-$attempt-0") ]]; }
  wait_for 180 "attempt $attempt has resumed from a checkpoint" has_resumed
  resumed=$(resumed_from "elastic-$attempt-0")
  echo "attempt $attempt resumed from step $resumed; the last known one was $step"
  [[ $resumed -ge $step ]] || broken "attempt $attempt resumed from step $resumed, and not from $step or later"
  wait_for 300 "attempt $attempt trains" progress_is_over elastic step "$resumed"
  expect_field elastic .status.attempt "$attempt"
}

# expect_restarts REASON...: each of them happened once; only the deletion of the pod was no free restart, and it followed progress.
expect_restarts() {
  local expected actual
  expected=$(printf '%s=1\n' "$@" | sort)
  actual=$(field elastic '.status.restarts' | jq -r '.reasons[] | "\(.reason)=\(.count)"' | sort)
  [[ $actual == "$expected" ]] || broken "the restarts are '$actual', not '$expected'"
  expect_field elastic .status.restarts.total $#
  expect_field elastic .status.restarts.charged 0
  expect_field elastic .status.restarts.afterProgress.count 1
}

step "a job with a pod on each of two nodes"
# It may shrink and grow when the test has set the times: on a slow machine, it would restart earlier and more often. It ends
# when the test has changed its number of steps, so that it is long enough on each machine.
# shellcheck disable=SC2016  # $name is jq's
job_from_example elastic 'del(.spec.trainer.epochs) | .spec.trainer.steps = 1000000 | .spec.trainer.checkpoint.every_steps = 25
  | .spec.trainer.batch = {size: 64, per: "global"}
  | .spec.elastic = {minNodes: 1, maxNodes: 2, shrinkAfterSeconds: 600, growAfterSeconds: 3600}
  | .spec.template.spec.topologySpreadConstraints[0].labelSelector.matchLabels."oarlock.dev/job-name" = $name' | kubectl apply -f -
wait_for 600 "a checkpoint is reported" progress_is_over elastic checkpointStep 0
wait_for 180 "kubectl get shows Running and 2/2" shows Running 2/2
expect_field elastic .status.attempt 0
nodes=$(kubectl get pods -l oarlock.dev/job-name=elastic -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | wc -l)
[[ $nodes == 2 ]] || broken "the two pods are on $nodes node(s)"
expect_refusal "another number of steps while it runs" "set suspend: true" \
  kubectl patch tj elastic --type merge --patch '{"spec": {"trainer": {"steps": 10}}}'
expect_refusal "an elastic job that is not elastic any more" "cannot be added or removed" \
  kubectl patch tj elastic --type json --patch '[{"op": "remove", "path": "/spec/elastic"}]'
expect_refusal "a scale to more than maxNodes" "elastic.maxNodes" kubectl scale tj/elastic --replicas 3
lap "to the first checkpoint with 2 nodes"

step "a node is cordoned, and its pod deleted: the group shrinks"
cordoned=$(of_pod elastic-0-1 .spec.nodeName)
kubectl cordon "$cordoned"
wait_for 120 "$cordoned has the taint" is_tainted "$cordoned"
kubectl patch tj elastic --type merge --patch '{"spec": {"elastic": {"shrinkAfterSeconds": 15}}}'
saved=$(field elastic .status.progress.checkpointStep)
kubectl delete pod elastic-0-1 --wait=false
wait_for 120 "pods wait for a node" bash -c '[[ -n $(kubectl get tj elastic -o "jsonpath={.status.elastic.waitingSince}") ]]'
expect_field elastic .status.attempt 1
lap "to an attempt that waits for a node"
expect_training 2 1 "$saved"
expect_field elastic .status.elastic.lastReason Shrunk
expect_restarts PodDeleted Shrunk
[[ $(of_pod elastic-2-0 .spec.nodeName) != "$cordoned" ]] || broken "elastic-2-0 is on $cordoned"
lap "to steps with 1 node"

step "the node is available again: the group grows"
kubectl uncordon "$cordoned"
wait_for 120 "$cordoned has no taint" is_untainted "$cordoned"
cordoned=
last=$(field elastic .status.progress.step)
kubectl patch tj elastic --type merge --patch '{"spec": {"elastic": {"growAfterSeconds": 5}}}'
expect_training 3 2 "$last"
expect_field elastic .status.elastic.lastReason Grown
expect_restarts PodDeleted Shrunk Grown
lap "to steps with 2 nodes"

step "kubectl scale"
last=$(field elastic .status.progress.step)
kubectl scale tj/elastic --replicas 1
expect_training 4 1 "$last"
expect_field elastic .status.elastic.lastReason Scaled
expect_restarts PodDeleted Shrunk Grown Scaled
for reason in Shrunk Grown Scaled; do wait_for 60 "there is an event $reason" has_event elastic $reason; done
lap "to steps with 1 node"

step "suspended, shortened and resumed, it completes"
kubectl patch tj elastic --type merge --patch '{"spec": {"suspend": true}}'
kubectl wait tj/elastic --for=condition=Suspended --timeout=3m
last=$(field elastic .status.progress.step)
kubectl patch tj elastic --type merge --patch "{\"spec\": {\"suspend\": false, \"trainer\": {\"steps\": $((last + 300))}}}"
kubectl wait tj/elastic --for=condition=Complete --timeout=10m
expect_field elastic .status.worldSize 1
[[ $(resumed_from elastic-5-0) -ge $last ]] || broken "attempt 5 resumed from step $(resumed_from elastic-5-0), and not from $last or later"
expect_restarts PodDeleted Shrunk Grown Scaled
lap "to the end"
kubectl get tj elastic -o 'jsonpath={range .status.attempts[*]}{.attempt}{": "}{.reason}{": "}{.message}{"\n"}{end}'
