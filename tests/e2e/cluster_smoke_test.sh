#!/usr/bin/env bash
# Proves that scripts/cluster gives a Kubernetes on which Oarlock can run: pods on two nodes that find each other by name,
# the API from inside a pod, logs, exec, shared storage, faults; and that 'down' leaves nothing behind.
# shellcheck source=scripts/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib/common.sh"
# shellcheck source=scripts/lib/cluster/versions.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
# shellcheck source=scripts/lib/cluster/oci_archive.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/oci_archive.sh"

case ${1:-} in
  '') ;;
  *)
    cat <<'USAGE'
usage: tests/e2e/cluster_smoke_test.sh

Starts a separate cluster (name: smoke), and stops it. Needs root and scripts/setup cluster; takes
half a minute. Prints a line for each check; exit status 0 if all passed, 1 if not.

example: tests/e2e/cluster_smoke_test.sh
USAGE
    [[ $1 == -h || $1 == --help ]] && exit 0
    exit 64 ;;
esac

export OARLOCK_CLUSTER_NAME=smoke
unset OARLOCK_CLUSTER_DIR KUBECONFIG
cluster=$OARLOCK_ROOT/scripts/cluster
dir=$OARLOCK_CACHE/clusters/smoke
passed=0 failed=0
work=$(mktemp -d)
clean_up() { "$cluster" down >/dev/null 2>&1 || true; rm -rf "$work"; }
trap clean_up EXIT

check() {
  local what=$1 started=$SECONDS; shift
  if "$@" >"$work/output" 2>&1; then
    passed=$((passed + 1)); echo "PASS $what ($((SECONDS - started)) s)"
  else
    failed=$((failed + 1)); echo "FAIL $what: $*"; tail -n 20 "$work/output" | sed 's/^/     /'
  fi
}
# within SECONDS COMMAND...: tries until it succeeds.
within() {
  local deadline=$((SECONDS + $1)); shift
  until "$@"; do [[ $SECONDS -lt $deadline ]] || return 1; sleep 0.2; done
}
prints() { local wanted=$1; shift; local got; got=$("$@") && echo "$got" && [[ $got == *"$wanted"* ]]; }
fails() { ! "$@"; }
counts() { local wanted=$1; shift; local got; got=$("$@" | wc -l); echo "$got lines"; [[ $got == "$wanted" ]]; }

# busybox for a shell and tools, kubectl as a client of the API: both are static, so the image holds just the two.
make_image() {
  mkdir -p "$work/root/bin" "$work/root/tmp" "$work/root/etc"
  chmod 755 "$work/root"; chmod 1777 "$work/root/tmp"
  install -m 755 /bin/busybox "$(program kubectl)" "$work/root/bin/"
  mv "$work/root/bin/kubectl-$kKubernetesVersion" "$work/root/bin/kubectl"
  for name in sh cat hostname id ls nslookup ping sleep touch wget; do ln -s busybox "$work/root/bin/$name"; done
  make_oci_archive "$work/image.tar" docker.io/oarlock/smoke:test "$work/root" '{"Env": ["PATH=/bin"], "Cmd": ["sh"]}'
}

manifests() {
  cat <<'MANIFEST'
apiVersion: v1
kind: Service
metadata: {name: group}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: group}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: group}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: checkpoints}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
MANIFEST
  local n
  for n in 1 2; do
    cat <<MANIFEST
---
apiVersion: v1
kind: Pod
metadata: {name: rank-$n, labels: {app: group}}
spec:
  hostname: rank-$n
  subdomain: group
  nodeName: node$n
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 65532, runAsGroup: 65532, runAsNonRoot: true}
  containers:
  - name: main
    image: docker.io/oarlock/smoke:test
    command: [sh, -c, "echo rank $n speaks; cd /tmp; echo page of rank $n >index.html; busybox httpd -f -p 8080 -h /tmp"]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    resources: {limits: {memory: 64Mi, cpu: 200m}}
    volumeMounts: [{name: data, mountPath: /data}, {name: shm, mountPath: /dev/shm}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: checkpoints}}
  - {name: shm, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
MANIFEST
  done
  cat <<'MANIFEST'
---
apiVersion: v1
kind: Pod
metadata: {name: hog}
spec:
  restartPolicy: Always   # containerd may report the end of a container before its OOM event: the reason is then Error
  containers:
  - name: main
    image: docker.io/oarlock/smoke:test
    command: [sh, -c, "x=0123456789abcdef; while true; do x=$x$x; done"]
    resources: {limits: {memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: fails}
spec:
  restartPolicy: Never
  containers: [{name: main, image: docker.io/oarlock/smoke:test, command: [sh, -c, "echo the reason >/dev/termination-log; exit 42"]}]
MANIFEST
}

in_rank() { local n=$1; shift; kubectl exec "rank-$n" -- "$@"; }
status_of() { kubectl get "$1" -o "jsonpath={$2}"; }
addresses_of_both() {
  in_rank 2 nslookup group.default.svc.cluster.local | tee "$work/answer"
  grep -qw "$(status_of pod/rank-1 .status.podIP)" "$work/answer" && grep -qw "$(status_of pod/rank-2 .status.podIP)" "$work/answer"
}
host_can_reach_pod() { curl -fsS -m 5 "http://$(status_of pod/rank-2 .status.podIP):8080/"; }

marked_processes() { grep -lzxF "OARLOCK_CLUSTER_MARK=$dir" /proc/[0-9]*/environ 2>/dev/null || true; }
leftover_processes() { marked_processes; grep -lF "$dir/" /proc/[0-9]*/cmdline 2>/dev/null || true; }
leftover_mounts() { grep -hF "$dir" /proc/[0-9]*/mountinfo 2>/dev/null || true; }
namespaces_of_nodes() { for file in $(marked_processes | sed 's,environ,ns/net,'); do readlink "$file" || true; done | sort -u | grep -vxF "$(readlink /proc/self/ns/net)"; }
leftover_cgroups() { find /sys/fs/cgroup -type d -path "*/oarlock/slot$slot*" 2>/dev/null; }

check "up" "$cluster" up
[[ $failed == 0 ]] || exit 1
check "up again does nothing" prints "up already" bash -c "'$cluster' up 2>&1"
eval "$("$cluster" env)"
slot=$(sed -n 's/^slot=//p' "$dir/state")
check "nodes have separate network namespaces" test "$(namespaces_of_nodes | wc -l)" -ge 3
check "an image is made" make_image
check "the image is loaded on both nodes" "$cluster" load-image "$work/image.tar"
check "the API takes the manifests" kubectl create -f <(manifests)
check "a pod on each node is Ready" kubectl wait --for=condition=Ready --timeout=180s pod/rank-1 pod/rank-2
if [[ $failed -gt 0 ]]; then kubectl describe pods | tail -n 60; tail -n 20 "$dir"/log/*.log; exit 1; fi
check "logs" within 60 prints "rank 1 speaks" kubectl logs rank-1
check "exec" prints "rank-2" in_rank 2 hostname
check "node 1 reads node 2 by its name behind the headless Service" within 60 prints "page of rank 2" in_rank 1 wget -qO- http://rank-2.group:8080/
check "node 2 reads node 1 by its name behind the headless Service" within 60 prints "page of rank 1" in_rank 2 wget -qO- http://rank-1.group.default.svc.cluster.local:8080/
check "the headless Service names both pods" within 60 addresses_of_both
check "a Service with an address" within 60 prints "page of rank" in_rank 1 wget -qO- http://web:8080/
# shellcheck disable=SC2016  # the pod's own files
check "a pod reaches the API at kubernetes.default.svc" within 60 prints '"major": "1"' \
  in_rank 1 sh -c 'kubectl --server=https://kubernetes.default.svc --token="$(cat /var/run/secrets/kubernetes.io/serviceaccount/token)" --certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt get --raw /version'
check "a pod finds the API by its environment" within 60 prints '"major": "1"' in_rank 2 kubectl get --raw /version
check "the host reaches a pod" within 60 host_can_reach_pod
check "a claim that node 1 writes" in_rank 1 sh -c 'echo step 7 >/data/checkpoint'
check "is read on node 2" prints "step 7" in_rank 2 cat /data/checkpoint
check "memory on /dev/shm" in_rank 1 touch /dev/shm/x
check "a pod over its memory is OOMKilled" within 180 prints OOMKilled status_of pod/hog '.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].lastState.terminated.reason'
check "an exit code is reported" within 120 prints 42 status_of pod/fails '.status.containerStatuses[0].state.terminated.exitCode'
check "and its termination message" prints "the reason" status_of pod/fails '.status.containerStatuses[0].state.terminated.message'
check "a cut link makes the node NotReady" bash -c "$cluster node 2 cut && kubectl wait --for=condition=Ready=unknown --timeout=180s node/node2"
check "a healed one makes it Ready" bash -c "$cluster node 2 heal && kubectl wait --for=condition=Ready --timeout=180s node/node2"
check "a node loses its power" bash -c "$cluster node 2 kill && kubectl wait --for=condition=Ready=unknown --timeout=180s node/node2"
check "and comes back" bash -c "$cluster node 2 boot && kubectl wait --for=condition=Ready --timeout=180s node/node2"
check "with its pod, restarted" within 180 prints "1" status_of pod/rank-2 '.status.containerStatuses[0].restartCount'
check "down" "$cluster" down
check "down again does nothing" "$cluster" down
# The kernel takes namespaces apart some time after their last process or mount. Their numbers are not compared: a
# namespace that another cluster makes meanwhile may have the number of one that has ended.
check "no process is left" within 30 counts 0 leftover_processes
check "no mount is left" within 30 counts 0 leftover_mounts
check "no network interface is left" within 30 fails ip link show "oarlock$slot"
check "no cgroup is left" within 30 counts 0 leftover_cgroups
check "no file is left" fails ls -d "$dir"

echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
