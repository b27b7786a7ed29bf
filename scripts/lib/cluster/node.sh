# shellcheck shell=bash disable=SC2154  # the variables are layout.sh's
# Nodes: each is a set of kernel namespaces with its own containerd, kubelet and kube-proxy. Needs process.sh and pki.sh.

# in_lan COMMAND...: in the network namespace that holds the bridge between the nodes and the host. It is not on the host
# itself, so that no setting or firewall of the host decides what the nodes can say to each other.
in_lan() { nsenter --target "$(pid_of lan)" --net -- "$@"; }

node_holder() { child_of "$(pid_of "node$1")"; }   # the node's first process
in_node() {
  local holder; holder=$(node_holder "$1") || die "node$1 is not running"; shift
  nsenter --target "$holder" --mount --uts --ipc --net --pid -- "$@"
}

start_lan() {
  alive lan || start lan unshare --net -- "$(program pause)"
  local lan; lan=$(pid_of lan)
  in_lan ip link add br0 type bridge forward_delay 0
  in_lan ip link set br0 up
  ip link add "$host_link" type veth peer name host netns "$lan"
  in_lan ip link set host master br0 up
  ip addr add "$host_ip/24" dev "$host_link"
  ip link set "$host_link" up
}

start_node() {
  local n=$1 node_dir=$cluster_dir/node$1 holder other
  mkdir -p "$node_dir" /var/lib/cni
  rm -f "$node_dir/ready"
  start "node$n" unshare --mount --uts --ipc --net --pid --fork --kill-child --mount-proc --propagation private -- \
    "$OARLOCK_ROOT/scripts/lib/cluster/node_init.sh" "node$n" "$node_dir" "$(program pause)"
  wait_for 60 "node$n's namespaces" test -e "$node_dir/ready"
  holder=$(node_holder "$n")
  ip link add "n$n" netns "$(pid_of lan)" type veth peer name eth0 netns "$holder"
  in_lan ip link set "n$n" master br0 up
  # No default route: nothing in this cluster has business outside. Service addresses are translated on the way out.
  in_node "$n" sh -c "ip addr add $(node_ip "$n")/24 dev eth0 && ip link set eth0 up && ip route add $service_cidr via $host_ip"
  for ((other = 1; other <= nodes; other++)); do
    [[ $other == "$n" ]] || in_node "$n" ip route add "$(node_pods "$other")/24" via "$(node_ip "$other")"
  done
  ip route replace "$(node_pods "$n")/24" via "$(node_ip "$n")" dev "$host_link"
  make_cgroup "$(node_cgroup "$n")"
  write_containerd_config "$n"
  write_kubelet_config "$n"
  write_proxy_config "$n"
  start_in_node "$n" containerd
}

node_cgroup() { echo "oarlock/slot$slot/node$1"; }
containerd_socket() { echo "$cluster_dir/node$1/containerd.sock"; }
in_containerd() { local n=$1; shift; ctr --address "$(containerd_socket "$n")" --namespace k8s.io "$@"; }

# start_in_node N containerd|kubelet|kube-proxy
start_in_node() {
  local n=$1 name=$2 node_dir=$cluster_dir/node$1 command
  case $name in
    containerd) command=(containerd --config "$node_dir/containerd.toml") ;;
    kubelet) command=("$(program kubelet)" --config "$node_dir/kubelet.yaml" --kubeconfig "$cluster_dir/node$n.kubeconfig"
      --hostname-override "node$n" --node-ip "$(node_ip "$n")" --root-dir "$node_dir/kubelet" --cert-dir "$node_dir/kubelet-pki") ;;
    kube-proxy) command=("$(program kube-proxy)" --config "$node_dir/kube-proxy.yaml" --hostname-override "node$n") ;;
    *) die -c 64 "a node has containerd, kubelet and kube-proxy, no '$name'" ;;
  esac
  start "node$n-$name" nsenter --target "$(node_holder "$n")" --mount --uts --ipc --net --pid -- "${command[@]}"
}

# nsenter waits for the program that it started, so the signal goes to the program.
stop_in_node() {
  local name=node$1-$2 parent child
  if parent=$(pid_of "$name") && child=$(child_of "$parent"); then
    kill -TERM "$child" 2>/dev/null || true
    poll 10 gone "$name" || { kill -KILL "$child" 2>/dev/null || true; poll 10 gone "$name" || true; }
  fi
  rm -f "$pid_dir/$name"
}

write_containerd_config() {
  local node_dir=$cluster_dir/node$1 snapshotter=overlayfs
  overlay_works || snapshotter=native
  mkdir -p "$node_dir/cni"
  # restrict_oom_score_adj: root without CAP_SYS_RESOURCE may not lower the score, and every sandbox would fail.
  cat >"$node_dir/containerd.toml" <<CONFIG
version = 2
root = "$node_dir/containerd"
state = "$node_dir/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart"]
[grpc]
address = "$(containerd_socket "$1")"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "oarlock.dev/pause:$kKubernetesVersion"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$node_dir/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "$snapshotter"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
CONFIG
  cat >"$node_dir/cni/10-oarlock.conflist" <<CONFIG
{"cniVersion": "1.0.0", "name": "oarlock", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(node_pods "$1")/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
CONFIG
}

# Whether the kernel can stack file systems in the cluster's directory (not where that is itself such a stack).
overlay_works() {
  local try=$cluster_dir/overlay-try result=1
  mkdir -p "$try/lower" "$try/upper" "$try/work" "$try/merged"
  unshare --mount --propagation private -- \
    mount -t overlay overlay -o "lowerdir=$try/lower,upperdir=$try/upper,workdir=$try/work" "$try/merged" 2>/dev/null && result=0
  rm -rf "$try"
  return $result
}

write_kubelet_config() {
  local node_dir=$cluster_dir/node$1
  mkdir -p "$node_dir/kubelet" "$node_dir/pod-logs" "$node_dir/plugins"
  : >"$node_dir/resolv.conf"
  # Disk pressure is the machine's own affair here: no image is collected, no pod evicted for it.
  cat >"$node_dir/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $pki_dir/ca.crt}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$(containerd_socket "$1")
cgroupDriver: cgroupfs
cgroupRoot: /$(node_cgroup "$1")
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [$host_ip]
clusterDomain: cluster.local
resolvConf: $node_dir/resolv.conf
podLogsDir: $node_dir/pod-logs
volumePluginDir: $node_dir/plugins
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
makeIPTablesUtilChains: false
serializeImagePulls: false
nodeLeaseDurationSeconds: ${OARLOCK_NODE_LEASE:-8}
CONFIG
}

write_proxy_config() {
  # The connection tracking limits belong to the machine and cannot be set from a network namespace.
  cat >"$cluster_dir/node$1/kube-proxy.yaml" <<CONFIG
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $cluster_dir/kube-proxy.kubeconfig}
mode: iptables
clusterCIDR: 10.244.0.0/16
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {minSyncPeriod: 0s}
nodePortAddresses: ["127.0.0.0/8"]
CONFIG
}

# Stops a node immediately: killing its first process ends the processes, mounts and links inside.
stop_node() {
  local n=$1
  end "node$n"
  rm -f "$pid_dir/node$n-"*
  in_lan ip link del "n$n" 2>/dev/null || true   # else it is there until the kernel has taken the namespaces apart
  # The namespaces are gone a moment after their last process, and with them what is mounted in the directory.
  poll 10 remove_cgroup "$(node_cgroup "$n")" || warn "some cgroups of node$n are still in use"
}

# load_images ARCHIVE...: loads images on all nodes in parallel.
load_images() {
  local archive index name digest layout n jobs job
  for archive in "$@"; do
    index=$(tar -xOf "$archive" --occurrence=1 index.json 2>/dev/null || echo '{}')   # an archive of Docker's has none
    name=$(jq -r '.manifests[0].annotations["io.containerd.image.name"] // ""' <<<"$index")
    digest=$(jq -r '.manifests[0].digest // ""' <<<"$index")
    layout='' jobs=()
    for ((n = 1; n <= nodes; n++)); do
      if [[ -n $name && $(in_containerd "$n" images ls "name==$name") == *" $digest "* ]]; then continue; fi
      if [[ -n $name && -z $layout ]]; then
        layout=$(mktemp -d "$cluster_dir/layout.XXXXXX")
        tar -C "$layout" --no-same-owner -xf "$archive"
      fi
      load_image "$n" "$archive" "$layout" "${digest#sha256:}" & jobs+=($!)
    done
    for job in ${jobs[@]+"${jobs[@]}"}; do wait "$job" || die "$archive could not be loaded"; done
    [[ -z $layout ]] || rm -rf "$layout"
  done
}

# load_image N ARCHIVE LAYOUT MANIFEST: the layout is the unpacked archive, if it is one of ours. Sending an archive through
# containerd's socket takes longer than all the rest, so its blobs are linked to where containerd keeps them, and
# containerd only registers them.
load_image() {
  local n=$1 archive=$2 layout=$3 manifest=$4 snapshotter
  snapshotter=$(sed -n 's/^snapshotter = "\(.*\)"/\1/p' "$cluster_dir/node$n/containerd.toml")
  if [[ -n $layout ]] && register_blobs "$n" "$layout" "$manifest" "$snapshotter" 2>>"$log_dir/load-image.log"; then return 0; fi
  in_containerd "$n" images import --snapshotter "$snapshotter" "$archive" >/dev/null   # any archive, slowly
}

register_blobs() {
  local n=$1 layout=$2 manifest=$3 snapshotter=$4 digest size config
  local content=$cluster_dir/node$n/containerd/io.containerd.content.v1.content/blobs/sha256
  config=$(jq -er .config.digest "$layout/blobs/sha256/$manifest") || return 1
  mkdir -p "$content" || return 1
  while read -r digest size; do
    [[ -e $content/${digest#sha256:} ]] || ln "$layout/blobs/sha256/${digest#sha256:}" "$content/" || return 1
    in_containerd "$n" content ingest --expected-digest "$digest" --expected-size "$size" "$digest" <"$content/${digest#sha256:}" || return 1
  done < <(jq -r '.layers[] | "\(.digest) \(.size)"' "$layout/blobs/sha256/$manifest")
  tar -C "$layout" -c oci-layout index.json "blobs/sha256/$manifest" "blobs/sha256/${config#sha256:}" |
    in_containerd "$n" images import --snapshotter "$snapshotter" - >/dev/null
}
