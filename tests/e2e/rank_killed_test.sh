#!/usr/bin/env bash
# SIGKILL to one rank's container in the middle of training, and the operator killed at that moment: one group restart,
# resumed from the checkpoint, Complete, counted once. The dashboards show the restart.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/prometheus.sh"
use_operator
finish() {
  local status=$?
  [[ $status -eq 0 ]] || { cat "$prometheus_work/queries" 2>/dev/null; describe_world; } >&2
  end_prometheus
}
trap finish EXIT
start_prometheus charts/oarlock/files/rules/oarlock.rules.yml
started=$(date +%s)

step "a job with a checkpoint every few steps"
job_from_example killed '.spec.trainer.epochs = 3 | .spec.trainer.checkpoint.every_steps = 50 | .spec.trainer.gradient.clip_norm = 10' | kubectl apply -f -
wait_for 600 "a checkpoint is reported" bash -c '[[ $(kubectl get tj killed -o "jsonpath={.status.progress.checkpointStep}") -gt 0 ]]'
write_targets
wait_for 180 "the operator exports the job's metrics" query_is 'count(trainingjob_info{trainingjob="killed"})' 1

step "kill rank 1's container, and the operator with it"
read -r node id < <(kubectl get pod killed-0-1 -o 'jsonpath={.spec.nodeName} {.status.containerStatuses[?(@.name=="trainer")].containerID}{"\n"}' | sed 's|containerd://||')
old_operator=$(operator_pod)
scripts/cluster node "${node#node}" ctr tasks kill --signal SIGKILL "$id"
kubectl -n oarlock-system delete pod "$old_operator" --grace-period=0 --force
wait_for 180 "another operator pod is ready" bash -c "[[ \$(kubectl -n oarlock-system get pods -l app.kubernetes.io/component=operator -o 'jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type==\"Ready\")].status} {end}') == *=True* ]] && ! kubectl -n oarlock-system get pod $old_operator"

step "the group is restarted once and completes"
wait_for 240 "the pods of attempt 1 are there" kubectl get pod killed-1-0 killed-1-1
wait_for 180 "both of them run" bash -c '[[ $(kubectl get pods -l oarlock.dev/job-name=killed,oarlock.dev/attempt=1 --field-selector=status.phase=Running -o name | wc -l) == 2 ]]'
write_targets
wait_for 180 "the gradient norm of attempt 1 is exported" query_is 'count(trainer_gradient_norm{pod="killed-1-0"})' 1
kubectl wait trainingjob/killed --for=condition=Complete --timeout=10m
expect_field killed .status.restarts.total 1
expect_field killed .status.attempt 1
expect_field killed .status.phase Complete
[[ -z $(kubectl get pods -l oarlock.dev/job-name=killed,oarlock.dev/attempt=2 -o name) ]] || broken "there are pods of an attempt 2"
resumed=$(resumed_from killed-1-0)
[[ ${resumed:-0} -gt 0 ]] || broken "attempt 1 did not resume from a checkpoint"
echo "resumed from step $resumed"

step "the dashboards show the restart, the recovery and the gradient norm"
restart_is_shown() {
  scripts/lib/chart/dashboard_queries.py --only 'trainingjob_restarts_total|trainingjob_recovery_seconds_bucket|trainer_gradient_norm' \
    "$prometheus_url" "$started" charts/oarlock/files/dashboards/*.json >"$prometheus_work/queries" 2>&1
}
wait_for 120 "these queries give data" restart_is_shown
cat "$prometheus_work/queries"
