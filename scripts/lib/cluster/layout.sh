# shellcheck shell=bash disable=SC2034,SC2154  # its variables are for the other files
# Where a cluster's things are. Needs common.sh and versions.sh.
#
# Addresses are derived from a slot, a small number that etcd holds locked (flock on an inherited descriptor) while it
# runs: two clusters never share one, and a crash frees it.
#   127.124.0.(SLOT+1)             etcd, and in --control-plane-only mode everything; ::1 with --ipv6
#   10.123.SLOT.1                  the host: kube-apiserver and CoreDNS of a full cluster
#   10.123.SLOT.(10+N)             node N
#   10.244.(8*SLOT+N).0/24         the pods of node N
kSlots=32       # what fits into 10.244.0.0/16 with
kMaxNodes=7     # nodes each

cluster_name=${OARLOCK_CLUSTER_NAME:-oarlock}
[[ $cluster_name =~ ^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$ ]] ||
  die -c 64 "OARLOCK_CLUSTER_NAME must be a short lower-case name (at most 20 of a-z, 0-9 and -), not '$cluster_name'"
cluster_dir=${OARLOCK_CLUSTER_DIR:-$OARLOCK_CACHE/clusters/$cluster_name}

# Sets what depends on the directory; called again when --dir names another one.
use_cluster_dir() {
  mkdir -p "$(dirname "$1")"
  cluster_dir=$(realpath -m "$1")
  # A Unix socket's path holds at most 107 bytes, and containerd's is the longest.
  [[ ${#cluster_dir} -le 70 ]] || die -c 64 "the cluster's directory must have a shorter path (at most 70 bytes): $cluster_dir"
  log_dir=$cluster_dir/log
  pid_dir=$cluster_dir/pid
  pki_dir=$cluster_dir/pki
}
use_cluster_dir "$cluster_dir"

use_slot() {
  slot=$1
  loopback=127.124.0.$((slot + 1))
  service_cidr=10.96.0.0/16
  api_service_ip=10.96.0.1
  if [[ $family == ipv6 ]]; then
    loopback=::1   # there is no other: one such cluster at a time in a network namespace
    service_cidr=fd00:96::/112
    api_service_ip=fd00:96::1
  fi
  host_ip=10.123.$slot.1
  host_link=oarlock$slot
  api_ip=$host_ip
  [[ $mode == full ]] || api_ip=$loopback
}
in_url() { if [[ $1 == *:* ]]; then echo "[$1]"; else echo "$1"; fi; }
node_ip() { echo "10.123.$slot.$((10 + $1))"; }
node_pods() { echo "10.244.$((8 * slot + $1)).0"; }

mode=full         # or: control-plane (no nodes), api (no nodes, and no controllers either)
nodes=2
family=ipv4       # or: ipv6 (not with nodes)

# The state file is written before anything is started, and lists what 'down' must end.
save_state() {
  printf '%s\n' "slot=$slot" "mode=$mode" "nodes=$nodes" "family=$family" "cluster_name=$cluster_name" >"$cluster_dir/state"
}
load_state() {
  [[ -e $cluster_dir/state ]] || return 1
  # shellcheck source=/dev/null
  source "$cluster_dir/state"
  use_slot "$slot"
}

# Takes the first free slot and keeps it locked on descriptor 8, which etcd inherits.
take_slot() {
  local candidate directory=/tmp/oarlock-slots
  mkdir -p "$directory"
  chmod 1777 "$directory" 2>/dev/null || true   # it may be another user's, and then it is so already
  for ((candidate = 0; candidate < kSlots; candidate++)); do
    { exec 8>>"$directory/$candidate"; } 2>/dev/null || continue
    if flock -n 8 && ! ip link show "oarlock$candidate" >/dev/null 2>&1; then
      chmod 666 "$directory/$candidate" 2>/dev/null || true
      use_slot "$candidate"
      return
    fi
    exec 8>&-
  done
  die -c 75 "all $kSlots slots for clusters on this machine are taken: end one with 'scripts/cluster down'"
}
