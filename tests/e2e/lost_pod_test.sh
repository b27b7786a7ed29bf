#!/usr/bin/env bash
# A pod of a job with failurePolicy.restartScope Rank is deleted in the middle of training: it alone is replaced, the other
# pod keeps its state, and the job completes in its first attempt without a checkpoint.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_operator

step "a job with two pods, which saves no checkpoint before its end"
job_from_example lost '.spec.trainer.epochs = 3 | .spec.trainer.checkpoint.every_steps = 1000000 | .spec.failurePolicy = {restartScope: "Rank", maxRestarts: 3}' |
  kubectl apply -f -
wait_for 600 "a step is reported" progress_is_over lost step 0
uid() { of_pod "$1" .metadata.uid; }
first=$(uid lost-0-0) second=$(uid lost-0-1)

# lose POD UID RECOVERIES: deletes the pod, and waits until another one of its name trains with the rest of the group.
lose() {
  local before deleted
  before=$(field lost .status.progress.step)
  deleted=$(date +%s%3N)
  kubectl delete pod "$1" --grace-period=1 --wait=false
  is_replaced() { [[ $(uid "$1") != "$2" && $(of_pod "$1" .status.phase) == Running ]]; }
  wait_for 180 "$1 is replaced" is_replaced "$1" "$2"
  echo "$1 runs again $(($(date +%s%3N) - deleted)) ms after its deletion"
  is_recovered() { [[ $(field lost .status.recoveries.total) -ge $1 ]]; }
  wait_for 180 "recovery $3 is reported" is_recovered "$3"
  wait_for 180 "training continues" progress_is_over lost step "$before"
}

step "its second pod is deleted"
lose lost-0-1 "$second" 1
[[ $(uid lost-0-0) == "$first" ]] || broken "the other pod was replaced, too"

step "its first pod, with rank 0, is deleted"
second=$(uid lost-0-1)
lose lost-0-0 "$first" 2
[[ $(uid lost-0-1) == "$second" ]] || broken "the other pod was replaced, too"

step "the job completes in its first attempt"
kubectl wait trainingjob/lost --for=condition=Complete --timeout=20m
expect_field lost .status.attempt 0
expect_field lost .status.restarts.total 0
expect_field lost .status.recoveries.pods 2
for pod in lost-0-0 lost-0-1; do [[ -z $(resumed_from $pod) ]] || broken "$pod resumed from a checkpoint"; done
kubectl get trainingjob lost -o 'jsonpath={.status.recoveries}{"\n"}'
