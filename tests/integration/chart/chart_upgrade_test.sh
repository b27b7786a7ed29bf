#!/usr/bin/env bash
# A release of the previous chart, with its names of values, is upgraded and rolled back on a real API server.
# tests/data/oarlock-0.1.0.tgz is what `helm package` made of that chart.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
helm() { "$(program helm)" --namespace oarlock-system "$@"; }
deployment() { kubectl -n oarlock-system get deployment oarlock-operator -o "jsonpath={$1}"; }
# expect PATH VALUE: of the operator's Deployment.
expect() { [[ $(deployment "$1") == "$2" ]] || broken "$1 is '$(deployment "$1")', not '$2'"; }
pod=.spec.template.spec

start_server

step "a release of chart 0.1.0"
helm install oarlock tests/data/oarlock-0.1.0.tgz --set replicas=2 --set 'image.pullSecrets[0].name=own' --set 'operator.extraArgs={--startup-timeout=120}' \
  --set 'operator.extraEnv[0].name=NO_PROXY' --set 'operator.extraEnv[0].value=10.96.0.0/16' --set tests.trainerImage=registry.example.com/trainer:1 >/dev/null
uid=$(deployment .metadata.uid)
expect .spec.replicas 2

step "--reuse-values is refused"
helm upgrade oarlock "$kChart" --reuse-values >"$work/answer" 2>&1 && broken "the upgrade with --reuse-values succeeded"
grep -q "upgrade with --reset-then-reuse-values instead of --reuse-values" "$work/answer" || broken "$(cat "$work/answer")"

step "the upgrade keeps what the old names set"
helm upgrade oarlock "$kChart" --reset-then-reuse-values >"$work/notes"
expect .metadata.uid "$uid"
expect '.metadata.labels.helm\.sh/chart' "oarlock-$(sed -n 's/^version: //p' "$kChart/Chart.yaml")"
expect .spec.replicas 2
expect "$pod.imagePullSecrets[*].name" own
expect "$pod.containers[0].env[*].name" NO_PROXY
expect "$pod.containers[0].image" "docker.io/oarlock/operator:$(<VERSION)"
[[ $(deployment "$pod.containers[0].args") == *--startup-timeout=120* ]] || broken "the operator's arguments are $(deployment "$pod.containers[0].args")"
for name in replicas image.pullSecrets operator.extraArgs operator.extraEnv tests.trainerImage; do
  grep -q "DEPRECATED: the value $name was renamed" "$work/notes" || broken "the notes do not name $name: $(cat "$work/notes")"
done
grep -q "kubectlImage" "$work/notes" && broken "the notes name a value that is not set"

step "the new names replace them"
helm upgrade oarlock "$kChart" --set replicaCount=3 --set 'imagePullSecrets={own}' --set podSecurityContext.runAsUser=null >"$work/notes"
grep -q DEPRECATED "$work/notes" && broken "$(cat "$work/notes")"
expect .metadata.uid "$uid"
expect .spec.replicas 3
expect "$pod.securityContext.runAsUser" ""

step "the rollback restores the old release"
helm rollback oarlock 1 >/dev/null
expect .metadata.uid "$uid"
expect .spec.replicas 2
expect '.metadata.labels.helm\.sh/chart' oarlock-0.1.0
expect "$pod.securityContext.runAsUser" 65532
