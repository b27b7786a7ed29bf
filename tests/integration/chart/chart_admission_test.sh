#!/usr/bin/env bash
# A real API server admits all that the chart renders, at the restricted Pod Security level, and under the rules of OpenShift's
# security context constraint restricted-v2 with the values that the chart's README gives.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
objects() { /usr/bin/python3 tests/integration/chart/admission_objects.py "$@"; }
render() { helm template oarlock "$kChart" --namespace oarlock-system "$@"; }
# admit: whether the API server accepts the objects of standard input; nothing is stored.
admit() { kubectl apply --server-side --force-conflicts --dry-run=server -f - 2>&1; }

start_server --apply manifests/crd
kubectl label namespace oarlock-system pod-security.kubernetes.io/enforce=restricted >/dev/null
for namespace in team-a team-b; do kubectl create namespace "$namespace"; kubectl -n "$namespace" create serviceaccount default; done >/dev/null

step "all combinations of values are admitted"
for values in "$kChart"/ci/*-values.yaml; do
  render --values "$values" | objects >"$work/objects.json"
  # Pods need an existing service account; the names differ between the combinations.
  jq -r '.items[] | select(.kind == "Pod") | .spec.serviceAccountName // "default"' "$work/objects.json" | sort -u | while read -r account; do
    kubectl -n oarlock-system get serviceaccount "$account" >/dev/null 2>&1 || kubectl -n oarlock-system create serviceaccount "$account" >/dev/null
  done
  admit <"$work/objects.json" >"$work/answer" || broken "$values: $(grep -v serverside-applied "$work/answer")"
  admitted=$(grep -c "serverside-applied" "$work/answer")
  [[ $admitted == "$(jq '.items | length' "$work/objects.json")" ]] || broken "$values: $admitted objects were admitted"
  echo "$(basename "$values"): $admitted objects"
done

step "the API server finds mistakes"
render | objects Deployment | jq '.items[0].spec.template.spec.containers[0].image = ""' | admit >"$work/answer" && broken "a Deployment without an image is admitted"
grep -q "spec.template.spec.containers\[0\].image: Required value" "$work/answer" || broken "$(cat "$work/answer")"
render --set podSecurityContext=null | objects Pod >"$work/objects.json"
is_rejected() { ! admit <"$work/objects.json" >"$work/answer"; }
wait_for 120 "the restricted level rejects pods without a security context" is_rejected
grep -q 'violates PodSecurity "restricted' "$work/answer" || broken "$(cat "$work/answer")"

step "a policy that requires queues"
job() { jq -n --arg name "$1" --argjson labels "$2" '{apiVersion: "oarlock.dev/v1alpha1", kind: "TrainingJob", metadata: {name: $name, namespace: "team-a", labels: $labels}, spec: {image: "a"}}'; }
# change NAME PATCH [OPTION...]: a merge patch of a job. refused WORDS COMMAND...: the policy denies it.
change() { kubectl -n team-a patch trainingjob "$1" --type=merge --patch "$2" "${@:3}"; }
refused() {
  "${@:2}" >"$work/answer" 2>&1 && broken "admitted: ${*:2}"
  grep -qF "$1" "$work/answer" || broken "${*:2}: $(cat "$work/answer")"
}
queue() { jq -cn --argjson queue "$1" '{metadata: {labels: {"kueue.x-k8s.io/queue-name": $queue}}}'; }
job old '{}' | kubectl create -f - >/dev/null
job idle '{}' | jq '.spec.suspend = true' | kubectl create -f - >/dev/null
render --values "$kChart/ci/queues-values.yaml" | objects ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding |
  jq '.items |= map(select(.metadata.name == "oarlock-queues"))' | kubectl create -f - >/dev/null
kubectl label namespace team-a example.com/tenant=true >/dev/null
is_rejected() { ! job new '{}' | kubectl create --dry-run=server -f - >"$work/answer" 2>&1; }
wait_for 120 "a job without a queue is rejected" is_rejected
grep -qF "need the label kueue.x-k8s.io/queue-name" "$work/answer" || broken "$(cat "$work/answer")"
job new '{}' | jq '.metadata.namespace = "team-b"' | kubectl create --dry-run=server -f - >/dev/null
kubectl -n team-a create rolebinding test --clusterrole=cluster-admin --serviceaccount=oarlock-system:oarlock-test >/dev/null
helm_test_creates_it() { job new '{}' | kubectl create --as=system:serviceaccount:oarlock-system:oarlock-test --dry-run=server -f -; }
wait_for 120 "helm test may create its job" helm_test_creates_it
job new '{"kueue.x-k8s.io/queue-name": "a"}' | kubectl create -f - >/dev/null
refused "cannot be changed; suspend the job first" change new "$(queue '"b"')"
refused "need the label" change new "$(queue null)"
change new '{"status": {"queue": {"name": "a"}}}' --subresource=status >/dev/null   # it waits
change new "$(queue '"b"')" >/dev/null
change new '{"status": {"queue": {"name": "b", "clusterQueue": "c"}}}' --subresource=status >/dev/null
refused "cannot be changed; suspend the job first" change new "$(queue '"a"')"
change new '{"spec": {"suspend": true}}' >/dev/null
change new "$(queue '"a"')" >/dev/null
refused "need the label" change new "$(queue null)"
change old '{"metadata": {"annotations": {"a": "b"}}}' >/dev/null   # as the garbage collector changes finalizers
change old '{"spec": {"suspend": true}}' >/dev/null
refused "need the label" change old '{"spec": {"suspend": false}}'
refused "need the label" change idle '{"spec": {"suspend": false}}'
change idle "$(queue '"a"' | jq -c '.spec.suspend = false')" >/dev/null
kubectl delete validatingadmissionpolicybinding oarlock-queues >/dev/null

step "restricted-v2 rejects a fixed user"
kubectl apply -f tests/integration/chart/restricted_v2.yaml >/dev/null
kubectl label namespace oarlock-system security-context-constraint=restricted-v2 >/dev/null
render | objects Pod >"$work/objects.json"
# The API server reads policies and labels of namespaces from caches: it may admit the first of three pods and reject the others.
all_are_rejected() {
  ! admit <"$work/objects.json" >"$work/answer" && [[ $(grep -c "runAsUser must be in the range 1000700000 to 1000709999, not 65532" "$work/answer") == 3 ]]
}
wait_for 120 "all three pods are rejected" all_are_rejected

step "and whatever else it does not allow"
kubectl create namespace openshift >/dev/null
kubectl -n openshift create serviceaccount default >/dev/null
kubectl label namespace openshift security-context-constraint=restricted-v2 >/dev/null
while IFS='|' read -r change message; do
  jq -n "{apiVersion: \"v1\", kind: \"Pod\", metadata: {name: \"a\", namespace: \"openshift\"}, spec: {containers: [{name: \"a\", image: \"a\"}]}} | .spec$change" >"$work/pod.json"
  is_rejected() { ! admit <"$work/pod.json" >"$work/answer"; }
  wait_for 120 "restricted-v2 rejects $change" is_rejected
  grep -qF "$message" "$work/answer" || broken "$change: $(cat "$work/answer")"
done <<'CHANGES'
.initContainers = [{name: "b", image: "b", securityContext: {runAsUser: 0}}]|runAsUser must be in the range 1000700000 to 1000709999, not 0
.securityContext.fsGroup = 65532|fsGroup must be in the range
.containers[0].securityContext.privileged = true|privileged containers
.containers[0].securityContext.allowPrivilegeEscalation = true|allowPrivilegeEscalation must be false
.containers[0].securityContext.capabilities.add = ["SYS_ADMIN"]|no capability
.securityContext.seccompProfile.type = "Unconfined"|seccomp profile
.containers[0].securityContext.seccompProfile.type = "Unconfined"|seccomp profile
.hostNetwork = true|the host's network
.volumes = [{name: "a", hostPath: {path: "/"}}]|only volumes without access to the host
CHANGES

step "and admits what sets no user"
# pods WHAT ARGUMENT...: the pods of operator, helm test and its job are admitted without a user.
pods() {
  render "${@:2}" | objects Pod >"$work/objects.json"
  [[ $(jq -c '[.items[] | .metadata.name] | sort' "$work/objects.json") == '["deployment-oarlock-operator","oarlock-test","trainingjob-oarlock-test"]' ]] || broken "$1: other pods: $(jq -c '[.items[].metadata.name]' "$work/objects.json")"
  admit <"$work/objects.json" >"$work/answer" || broken "$1: $(cat "$work/answer")"
  echo "$1: $(grep -c serverside-applied "$work/answer") pods"
}
pods "OpenShift detected" --api-versions security.openshift.io/v1
pods "OpenShift stated" --values "$kChart/ci/openshift-values.yaml"
pods "no fixed user" --values "$kChart/ci/no-fixed-user-values.yaml"
pods "a user of the range" --set podSecurityContext.runAsUser=1000700042,podSecurityContext.fsGroup=1000700000
pods "OpenShift, with a certificate" --values "$kChart/ci/openshift-values.yaml" --set metrics.tls.secretName=certificate

step "Helm detects OpenShift on a cluster"
kubectl apply -f - >/dev/null <<'SCC'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: securitycontextconstraints.security.openshift.io}
spec:
  group: security.openshift.io
  names: {kind: SecurityContextConstraints, plural: securitycontextconstraints}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
SCC
wait_for 120 "the group security.openshift.io is served" kubectl get securitycontextconstraints
kubectl -n oarlock-system delete serviceaccounts --all >/dev/null
helm install oarlock "$kChart" --namespace oarlock-system --take-ownership >/dev/null
context=$(kubectl -n oarlock-system get deployment oarlock-operator -o 'jsonpath={.spec.template.spec.securityContext}')
[[ $context == '{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}' ]] || broken "the Deployment has the security context $context"
