#!/usr/bin/env bash
# oarlock launch --preflight on three nodes, which are network namespaces with a switch between them: the node whose link
# is slowed by tc is named, as is one that nothing reaches. Runs in a separate user
# namespace: needs no root.
set -euo pipefail
if [[ ${1:-} != inside ]]; then
  exec unshare --user --map-root-user --net --mount --pid --fork --kill-child "$0" inside
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mount -t tmpfs tmpfs /run
mkdir -p /run/netns
ip link add switch type bridge
ip link set switch up
for node in 0 1 2; do
  ip netns add "n$node"
  ip link add "port$node" type veth peer name eth0 netns "n$node"
  ip link set "port$node" master switch up
  ip -n "n$node" link set lo up
  ip -n "n$node" addr add "10.77.0.1$node/24" dev eth0
  ip -n "n$node" link set eth0 up
done

# node RANK SETTINGS
node() {
  ip netns exec "n$1" env OARLOCK_REGROUP_TOKEN=secret OARLOCK_TERMINATION_LOG="$work/message$1" \
    "$OARLOCK_BIN/oarlock" launch --nnodes 3 --node-rank "$1" --master-addr 10.77.0.10 "--preflight=$2" \
    -- /bin/echo started >"$work/out$1" 2>"$work/err$1"
}

# expect WHAT SETTINGS STATUS_0 STATUS_1 STATUS_2 MESSAGE: of the launcher with exit code 79, or of node rank 0
expect() {
  local pids=() statuses=()
  for rank in 0 1 2; do
    : >"$work/message$rank"
    node "$rank" "$2" & pids+=($!)
  done
  local status from=0
  for rank in 0 1 2; do
    status=0
    wait "${pids[$rank]}" || status=$?
    statuses+=("$status")
    [[ $status -ne 79 ]] || from=$rank
  done
  if [[ ${statuses[*]} != "$3 $4 $5" ]] || ! grep -q "$6" "$work/err$from"; then
    printf 'FAILED: %s: exit codes %s\n' "$1" "${statuses[*]}" >&2
    tail -n +1 "$work"/err? "$work"/message? >&2
    exit 1
  fi
  printf 'ok: %s: %s\n' "$1" "$(cat "$work/err$from")"
}

expect "healthy" bandwidth=50,latency=100 0 0 0 'preflight passed: 6 links between 3 nodes'

for side in "-n n1 qdisc add dev eth0" "qdisc add dev port1"; do
  # shellcheck disable=SC2086  # words
  tc $side root tbf rate 10mbit burst 16kb latency 50ms
done
expect "slow node" bandwidth=50 76 79 76 'network: 4 of its 4 links are slow: [0-9]* Mbit/s (at least 50)'
grep -q '"reason":"PreflightFailed"' "$work/message1"
expect "a slow node without a limit" timeout=300 0 0 0 'preflight passed'
tc -n n1 qdisc del dev eth0 root
tc qdisc del dev port1 root

# Of node rank 0, which also coordinates.
tc -n n0 qdisc add dev eth0 root tbf rate 10mbit burst 16kb latency 50ms
tc qdisc add dev port0 root tbf rate 10mbit burst 16kb latency 50ms
expect "slow node rank 0" bandwidth=50 79 76 76 'network: 4 of its 4 links are slow'
tc -n n0 qdisc del dev eth0 root
tc qdisc del dev port0 root
expect "a limit that no link meets" latency=0.001 75 75 75 'the link from node rank 0 .* (at most 0.001)'

ip link set port2 down
expect "unreachable node" timeout=3 79 76 76 'node rank 2: did not answer in time'
