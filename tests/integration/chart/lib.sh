# shellcheck shell=bash
# Shared by the chart's tests against a real API server: etcd and kube-apiserver alone, so objects are admitted and nothing runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
source scripts/lib/common.sh
source scripts/lib/cluster/versions.sh

kChart=charts/oarlock
work=$(mktemp -d)
stop_server() {
  scripts/cluster down --dir "$work/cluster" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap stop_server EXIT

step() { printf '== %s\n' "$*"; }
broken() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}
helm() { "$(program helm)" "$@"; }
kubectl() { "$(program kubectl)" "$@"; }

# start_server ARGUMENT...: starts etcd and kube-apiserver with these arguments of scripts/cluster up.
start_server() {
  scripts/cluster up --api-only --dir "$work/cluster" "$@"
  export KUBECONFIG=$work/cluster/admin.kubeconfig
  kubectl create namespace oarlock-system >/dev/null
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2
  until "${@:3}" >/dev/null 2>&1; do
    [[ $SECONDS -lt $deadline ]] || broken "after $1 s still not: $what"
    sleep 0.2
  done
}
