#!/usr/bin/env bash
# The README's job on two real nodes: one pod on each, Complete, its progress in kubectl, and all ranks in Prometheus.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/prometheus.sh"
use_operator
finish() {
  local status=$?
  [[ $status -eq 0 ]] || { cat "$prometheus_work/queries" 2>/dev/null; describe_world; } >&2
  end_prometheus
}
trap finish EXIT

step "a real Prometheus"
start_prometheus charts/oarlock/files/rules/oarlock.rules.yml

started=$(date +%s)
step "apply"
kubectl apply -f manifests/examples/first-job.yaml
wait_for 300 "both pods run" bash -c '[[ $(kubectl get pods -l oarlock.dev/job-name=first-job --field-selector=status.phase=Running -o name | wc -l) == 2 ]]'
nodes=$(kubectl get pods -l oarlock.dev/job-name=first-job -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | wc -l)
[[ $nodes == 2 ]] || broken "the two pods are on $nodes node(s)"
write_targets

step "Prometheus scrapes the operator and both ranks"
wait_for 240 "both ranks step" query_is 'count(count by (rank) (trainer_steps_total > 0))' 2
wait_for 120 "all three targets are up" query_is 'sum(up{job=~"oarlock-operator|trainingjobs"})' 3
wait_for 120 "the operator counts its reconciles" query_is 'count(controller_runtime_reconcile_total{controller="trainingjob",result="success"} > 0)' 1
wait_for 120 "the ranks export the world size" query_is 'max(trainer_world_size)' 2

step "progress is pulled from rank 0"
wait_for 180 "status.progress moves" bash -c '[[ $(kubectl get tj first-job -o "jsonpath={.status.progress.step}") -gt 0 ]]'
[[ $(field first-job .status.phase) == Running ]] || broken "the phase is $(field first-job .status.phase) while it trains"

step "the rest of the README"
tests/e2e/readme_commands.sh "kubectl wait" "kubectl get tj"
expect_field first-job .status.phase Complete
expect_field first-job .status.worldSize 2
expect_field first-job .status.restarts.total 0
expect_field first-job '.status.conditions[?(@.type=="Complete")].status' True
expect_field first-job '.status.conditions[?(@.type=="Running")].status' False
expect_field first-job .status.nodes.succeeded 2
# The API server rebuilds the columns some time after it has accepted the CRD.
columns_are_shown() { [[ $(kubectl get tj) =~ ^NAME\ +STATE\ +READY\ +STEP\ +PROGRESS\ +RESTARTS\ +AGE ]]; }
wait_for 120 "kubectl get tj shows the columns" columns_are_shown

step "trained, and equal on both ranks"
logs=$(kubectl logs first-job-0-0)
accuracy=$(grep -o '"accuracy":[0-9.]*' <<<"$logs" | tail -1 | cut -d: -f2)
awk -v a="${accuracy:-0}" 'BEGIN {exit !(a >= 0.89)}' || broken "the accuracy is '$accuracy'"
grep -q '"parameters_bitwise_equal":true' <<<"$logs" || broken "the summary does not say that the ranks' parameters are equal"
echo "accuracy $accuracy"

step "every query of every dashboard has data"
# This job cannot export these: it has no GPU, no tokens, no gradient clipping and no queue, and it does not fail or recover.
# rank_killed_test has those of restarts; dashboard_queries.py --samples evaluates the queries of all of them.
unavailable='DCGM_\w+|trainer_device_\w+|trainer_tokens_total|trainer_gradient_norm|trainingjob_restarts_total|trainingjob_recovery_seconds_bucket'
unavailable+='|trainingjob_rank_recover\w+|trainingjob_queue_\w+|trainingjob_replaced_pods_total|trainer_recovery_duration_seconds_\w+'
# A counter that begins at the end, as that of finished jobs, needs two scrapes for a rate.
all_give_data() { scripts/lib/chart/dashboard_queries.py --unavailable "$unavailable" "$prometheus_url" "$started" charts/oarlock/files/dashboards/*.json >"$prometheus_work/queries" 2>&1; }
wait_for 120 "every query gives data" all_give_data
cat "$prometheus_work/queries"
[[ $(query 'count(ALERTS{alertstate="firing"})') == "" ]] || broken "alerts fire: $(query 'ALERTS{alertstate="firing"}')"
