#!/usr/bin/env bash
# Common mistakes of users: rejected at admission with a message, or Failed immediately with the error of the trainer.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_operator

step "refused by the API server"
refused() {   # refused WORDS JQ_FILTER
  local output
  if output=$(job_from_example refused "$2" | jq -s '{apiVersion: "v1", kind: "List", items: map(select(.kind == "TrainingJob"))}' | kubectl apply -f - 2>&1); then
    broken "the API server took a job with $2"
  fi
  grep -q "$1" <<<"$output" || broken "'$1' is not in: $output"
}
refused "nodes" '.spec.nodes = 0'
refused "trainer" '.spec.template.spec.containers[0].name = "main"'

step "a configuration error fails the job immediately with its position"
job_from_example typo '.spec.trainer.epohcs = 3' | kubectl apply -f -
kubectl wait trainingjob/typo --for=condition=Failed --timeout=300s
expect_field typo .status.restarts.total 0
message=$(field typo '.status.conditions[?(@.type=="Failed")].message')
grep -q "epohcs" <<<"$message" && grep -q "epochs" <<<"$message" || broken "the message does not name the key: $message"
echo "$message"
