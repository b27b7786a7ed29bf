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

step "a second release, for one namespace, leaves the CRD to the first one"
helm install oarlock "$kChart" --namespace team-a --create-namespace --set rbac.scope=namespaces >"$work/notes"
grep -q "managed by kubectl or by another release" "$work/notes" || broken "the notes do not say who manages the CRD: $(cat "$work/notes")"
owner='{.metadata.annotations.meta\.helm\.sh/release-namespace}'
[[ $(kubectl get crd trainingjobs.oarlock.dev -o "jsonpath=$owner") == oarlock-system ]] || broken "the second release took the CRD"
helm upgrade oarlock "$kChart" --namespace team-a --set rbac.scope=namespaces >/dev/null

step "a release after kubectl apply of the CRD"
helm uninstall oarlock --namespace team-a >/dev/null
helm uninstall oarlock >/dev/null
kubectl delete crd trainingjobs.oarlock.dev >/dev/null
kubectl apply -f manifests/crd >/dev/null
helm install oarlock "$kChart" >"$work/notes"
grep -q "managed by kubectl or by another release" "$work/notes" || broken "the notes do not say who manages the CRD: $(cat "$work/notes")"

step "and the commands of the notes give the CRD to it"
grep -o 'kubectl \(label\|annotate\) crd.*' "$work/notes" >"$work/commands"
source "$work/commands"
helm upgrade oarlock "$kChart" >"$work/notes"
grep -q "managed by kubectl" "$work/notes" && broken "$(cat "$work/notes")"
[[ $(kubectl get crd trainingjobs.oarlock.dev -o 'jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}') == Helm ]] || broken "the CRD has no label of Helm"
