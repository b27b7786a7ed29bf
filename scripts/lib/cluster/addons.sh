# shellcheck shell=bash disable=SC2154  # the variables are layout.sh's
# CoreDNS, and the storage that all nodes share. Needs control_plane.sh.
kSharedVolumes=32

kubectl_admin() { "$(program kubectl)" --kubeconfig "$cluster_dir/admin.kubeconfig" "$@"; }

# CoreDNS runs on the host, where the pods query it. It serves the cluster domain only, without caching (ttl 0), so that
# the new address of a pod is visible immediately.
start_coredns() {
  make_kubeconfig coredns "/CN=oarlock:coredns"
  cat >"$cluster_dir/Corefile" <<CONFIG
.:53 {
  bind $host_ip
  errors
  ready $loopback:8181
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig $cluster_dir/coredns.kubeconfig
    pods insecure
    ttl 0
  }
}
CONFIG
  start coredns "$(program coredns)" -conf "$cluster_dir/Corefile"
}
coredns_ready() { curl -fsS -m 5 "http://$loopback:8181/ready"; }

# Static volumes, for they need no provisioner: directories of the machine are the same from every node. A claim takes one;
# it is not handed out again, so there are more than a test session uses up.
apply_addons() {
  local i
  for ((i = 1; i <= kSharedVolumes; i++)); do mkdir -p "$cluster_dir/shared/$i"; chmod 777 "$cluster_dir/shared/$i"; done
  {
    cat <<'MANIFEST'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "oarlock:coredns"}
rules:
- {apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "oarlock:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "oarlock:coredns"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "oarlock:coredns"}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: oarlock-shared, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
MANIFEST
    for ((i = 1; i <= kSharedVolumes; i++)); do
      cat <<MANIFEST
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: oarlock-shared-$i}
spec:
  storageClassName: oarlock-shared
  capacity: {storage: 100Gi}
  accessModes: [ReadWriteMany, ReadWriteOnce]
  hostPath: {path: $cluster_dir/shared/$i, type: Directory}
MANIFEST
    done
  } | kubectl_admin create -f - >"$log_dir/addons.log" 2>&1 || { cat "$log_dir/addons.log" >&2; die "the cluster's add-ons were not accepted"; }
}
