# Common functions of the end-to-end tests. They run in a dedicated cluster (OARLOCK_CLUSTER_NAME, set by ctest), which the
# fixture cluster_up starts and cluster_down ends.
set -euo pipefail

OARLOCK_SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$OARLOCK_SOURCE"

step() { printf '== %s\n' "$*"; }
broken() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

use_cluster() { eval "$(scripts/cluster env)"; }

# The cluster with the operator of manifests/install.yaml. The test before may have had another one, and its last commands do
# not wait: two operators, or one pod without an address, would be read as the only one.
use_operator() {
  use_cluster
  kubectl -n oarlock-system rollout status deployment/oarlock-operator --timeout=300s
  wait_for 180 "one operator is left" one_operator
}
one_operator() { [[ $(kubectl -n oarlock-system get pods -l app.kubernetes.io/component=operator -o name | wc -l) == 1 ]]; }

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local limit=$1 what=$2 deadline
  shift 2
  deadline=$((SECONDS + limit))
  until "$@" >/dev/null 2>&1; do
    [[ $SECONDS -lt $deadline ]] || broken "after $limit s still not: $what"
    sleep 0.5   # the pace of looking, not a wait for something to be over
  done
}

# resumed_from POD: the step of the checkpoint that it resumed from; empty if it began with step 0.
resumed_from() { kubectl logs "$1" | sed -n '0,/"resumed_from_step":/ s/.*"resumed_from_step":\([0-9]\+\).*/\1/p'; }

# field JOB JSONPATH: of a TrainingJob in the default namespace.
field() { kubectl get trainingjob "$1" -o "jsonpath={$2}"; }
expect_field() {
  local actual
  actual=$(field "$1" "$2")
  [[ $actual == "$3" ]] || broken "$1 $2 is '$actual', not '$3'"
}

# progress_is_over JOB FIELD NUMBER: of status.progress.
progress_is_over() { [[ $(field "$1" ".status.progress.$2") -gt $3 ]]; }
has_event() { [[ -n $(kubectl get events --field-selector "involvedObject.name=$1,reason=$2" -o name) ]]; }

# of_pod NAME JSONPATH
of_pod() { kubectl get pod "$1" -o "jsonpath={$2}"; }

# A node that is cordoned has the taint a moment later.
is_tainted() { [[ $(kubectl get node "$1" -o 'jsonpath={.spec.taints[*].key}') == *node.kubernetes.io/unschedulable* ]]; }
is_untainted() { ! is_tainted "$1"; }

# lap WHAT: prints the seconds since the previous one, or since the test began.
lap_start=$SECONDS
lap() {
  echo "$1: $((SECONDS - lap_start)) s"
  lap_start=$SECONDS
}

# Prints the state of the cluster. Called when a test fails.
describe_world() {
  local pod
  kubectl get trainingjobs,pods,services -A -o wide || true
  kubectl get trainingjobs -A -o yaml || true
  kubectl -n oarlock-system logs deployment/oarlock-operator --tail=60 || true
  for pod in $(kubectl get pods -o name); do
    printf -- '-- %s\n' "$pod"
    kubectl logs "$pod" --tail=15 || true
  done
}
trap '[[ $? -eq 0 ]] || describe_world >&2' EXIT

# job_from_example NAME JQ_FILTER: the example's TrainingJob and claim under another name, changed by the filter.
job_from_example() {
  kubectl create --dry-run=client -o json -f manifests/examples/fashion-mnist.yaml |
    jq --arg name "$1" "(if .kind == \"List\" then .items[] else . end)
      | .metadata.name |= sub(\"^fashion-mnist\"; \$name)
      | if .kind == \"TrainingJob\" then
          (.spec.template.spec.volumes[]? | select(.persistentVolumeClaim) | .persistentVolumeClaim.claimName) |= sub(\"^fashion-mnist\"; \$name)
          | $2
        else . end"
}

operator_pod() { kubectl -n oarlock-system get pods -l app.kubernetes.io/component=operator -o 'jsonpath={.items[0].metadata.name}'; }
