#!/usr/bin/env bash
# Two ranks in two network namespaces, as on two nodes: they must choose the interface that reaches the other, whatever
# the master's own name resolves to on its host, with IPv4 and with IPv6 alone. Runs in a separate user namespace: needs no root.
set -euo pipefail
if [[ ${1:-} != inside ]]; then
  exec unshare --user --map-root-user --net --mount --pid --fork --kill-child "$0" inside
fi
trainer=$OARLOCK_BIN/oarlock-test-trainer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mount -t tmpfs tmpfs /run
mkdir -p /run/netns
for node in a b; do ip netns add "$node" && ip -n "$node" link set lo up; done
ip link add veth-a netns a type veth peer name veth-b netns b
ip -n a addr add 10.77.0.1/24 dev veth-a && ip -n a link set veth-a up
ip -n b addr add 10.77.0.2/24 dev veth-b && ip -n b link set veth-b up

cat >"$work/trainer.yaml" <<'YAML'
task: tiny
steps: 20
batch: {size: 16}
distributed: {rendezvous_timeout_seconds: 120}
YAML

# rank NODE RANK MASTER_ADDR
rank() {
  ip netns exec "$1" env RANK="$2" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 NODE_RANK="$2" MASTER_ADDR="$3" MASTER_PORT=29500 \
    "$trainer" --config "$work/trainer.yaml" --log-format json
}

# expect_trained WHAT MASTER_ADDR_OF_A MASTER_ADDR_OF_B
expect_trained() {
  rank a 0 "$2" 2>"$work/a" & local first=$!
  rank b 1 "$3" 2>"$work/b" & local second=$!
  local status=0
  wait "$first" || status=$?
  wait "$second" || status=$?
  if [[ $status -ne 0 ]] || ! grep -q '"parameters_bitwise_equal":true' "$work/a"; then
    printf 'FAILED: %s (status %s)\n' "$1" "$status" >&2
    cat "$work/a" "$work/b" >&2
    exit 1
  fi
  printf 'ok: %s\n' "$1"
}

expect_trained "the master's address is known on both" 10.77.0.1 10.77.0.1
# Debian's /etc/hosts maps a host's own name to 127.0.1.1, and a pod's own name may not be in DNS yet.
expect_trained "on its own host the master's name means loopback" 127.0.1.1 10.77.0.1
expect_trained "on its own host the master's name does not resolve" no..such..name 10.77.0.1

# A cluster with IPv6 only: no interface has an IPv4 address, not even loopback, and DNS has none.
for node in a b; do
  ip -n "$node" addr flush dev "veth-$node"
  ip -n "$node" addr del 127.0.0.1/8 dev lo
done
ip -n a addr add fd00:77::1/64 dev veth-a nodad
ip -n b addr add fd00:77::2/64 dev veth-b nodad
printf '::1 localhost\nfd00:77::1 job-0-0.job.default.svc\n' >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
expect_trained "IPv6 alone, the master's address" fd00:77::1 fd00:77::1
expect_trained "IPv6 alone, the master's name" job-0-0.job.default.svc job-0-0.job.default.svc
expect_trained "IPv6 alone, on its own host the master's name means loopback" localhost fd00:77::1

# As a kubelet probes and Prometheus scrapes it.
ip netns exec a "$trainer" --config <(sed 's/^steps: .*/steps: 1000000/' "$work/trainer.yaml") --metrics-port 9400 2>"$work/a" & served=$!
deadline=$((SECONDS + 180))
until ip netns exec b curl -fsS -m 5 'http://[fd00:77::1]:9400/healthz' >/dev/null 2>&1; do
  if [[ $SECONDS -ge $deadline ]]; then echo "FAILED: the rank's server is not reached" >&2; cat "$work/a" >&2; exit 1; fi
  sleep 0.2
done
for page in metrics statusz; do ip netns exec b curl -fsS -m 30 -o /dev/null "http://[fd00:77::1]:9400/$page"; done
kill -KILL "$served"
echo "ok: IPv6 alone, the rank's server"
