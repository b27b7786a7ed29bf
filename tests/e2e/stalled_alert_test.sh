#!/usr/bin/env bash
# A rank that hangs: the alert TrainingJobStalled fires for its job, with its runbook, and ends when the rank continues.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/prometheus.sh"
use_operator
finish() {
  local status=$?
  [[ $status -eq 0 ]] || { curl -fsS "$prometheus_url/api/v1/rules?type=alert" | jq '.data.groups[].rules[] | select(.name == "TrainingJobStalled")'; describe_world; } >&2
  end_prometheus
  kubectl delete tj stalled --wait=false >/dev/null 2>&1 || true
}
trap finish EXIT

step "the chart's rule, with seconds in place of minutes"
rules=$prometheus_work/short.yml
sed '/alert: TrainingJobStalled/,/annotations:/ { s/> 600/> 10/; s/for: 5m/for: 4s/ }' charts/oarlock/files/rules/oarlock.rules.yml >"$rules"
cmp -s "$rules" charts/oarlock/files/rules/oarlock.rules.yml && broken "the rule has other numbers now"
start_prometheus "$rules"

step "a job that trains"
job_from_example stalled '.spec.trainer.epochs = 1000 | .spec.trainer.distributed.timeout_seconds = 600' | kubectl apply -f -
wait_for 600 "it steps" bash -c '[[ $(kubectl get tj stalled -o "jsonpath={.status.progress.step}") -gt 0 ]]'
write_targets
stalled='ALERTS{alertname="TrainingJobStalled", alertstate="firing", namespace="default", trainingjob="stalled"}'
wait_for 180 "Prometheus has its steps" query_is 'count(count by (rank) (trainer_steps_total{trainingjob="stalled"} > 0))' 2
[[ -z $(query "$stalled") ]] || broken "the alert fires while the job trains"

step "one of its ranks hangs"
read -r node id < <(kubectl get pod stalled-0-1 -o 'jsonpath={.spec.nodeName} {.status.containerStatuses[?(@.name=="trainer")].containerID}{"\n"}' | sed 's|containerd://||')
of_rank() { scripts/cluster node "${node#node}" ctr tasks kill --all --signal "$1" "$id"; }
of_rank SIGSTOP
wait_for 240 "the alert fires" query_is "$stalled" 1
runbook=$(curl -fsS "$prometheus_url/api/v1/alerts" | jq -r '.data.alerts[] | select(.labels.alertname == "TrainingJobStalled") | .annotations.runbook_url')
[[ -f docs/runbooks/$(basename "$runbook") ]] || broken "the alert's runbook is '$runbook'"

step "the rank continues"
of_rank SIGCONT
wait_for 180 "the alert ends" query_is "$stalled" ""
expect_field stalled .status.phase Running
expect_field stalled .status.restarts.total 0
