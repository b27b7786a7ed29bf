#!/usr/bin/env bash
# The first process of a node, in mount, network, process, IPC and host name spaces: creates what the node must
# not share with the machine, then becomes pause, which reaps orphans. When it ends the kernel ends all that is inside.
set -euo pipefail
name=$1 node_dir=$2 pause=$3
mount --make-rshared /
# All that containerd, runc, CNI and iptables keep at fixed places goes away with the node.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock "$node_dir/cni-state"
mount --bind "$node_dir/cni-state" /var/lib/cni
echo "$name" >/proc/sys/kernel/hostname
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
# A pod that reaches another on its own node by a Service's address needs the bridged answer translated back.
[[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ]] || echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
: >"$node_dir/ready"
exec "$pause"
