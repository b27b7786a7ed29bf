# shellcheck shell=bash disable=SC2154  # the variables are layout.sh's
# etcd, kube-apiserver, kube-controller-manager and kube-scheduler, on the host. Needs process.sh and pki.sh.

make_control_plane_pki() {
  make_ca
  make_cert apiserver "/CN=kube-apiserver" "IP:$api_ip,IP:$api_service_ip,IP:127.0.0.1,DNS:localhost,DNS:kubernetes,\
DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  make_key "$pki_dir/service-account.key"
  openssl pkey -in "$pki_dir/service-account.key" -pubout -out "$pki_dir/service-account.pub"
  make_kubeconfig admin "/O=system:masters/CN=admin"
  if [[ $mode != api ]]; then
    make_kubeconfig controller-manager "/CN=system:kube-controller-manager"
    make_kubeconfig scheduler "/CN=system:kube-scheduler"
  fi
  [[ $mode != full ]] || make_cert apiserver-kubelet "/O=system:masters/CN=kube-apiserver-kubelet"
}

start_etcd() {
  local host; host=$(in_url "$loopback")
  # No fsync: a test cluster does not outlive its machine. Short election timeout, since there is one member.
  start etcd "$(program etcd)" --name oarlock --data-dir "$cluster_dir/etcd" --unsafe-no-fsync --log-level warn \
    --heartbeat-interval 20 --election-timeout 200 --snapshot-count 100000 --quota-backend-bytes 4294967296 \
    --listen-client-urls "http://$host:2379" --advertise-client-urls "http://$host:2379" \
    --listen-peer-urls "http://$host:2380" --initial-advertise-peer-urls "http://$host:2380" \
    --initial-cluster "oarlock=http://$host:2380"
}

start_apiserver() {
  local flags=() extra
  read -ra extra <<<"${OARLOCK_APISERVER_ARGS:-}"
  if [[ $mode != full ]]; then
    flags+=(--endpoint-reconciler-type none)   # it would refuse to publish a loopback address
  else
    flags+=(--kubelet-client-certificate "$pki_dir/apiserver-kubelet.crt" --kubelet-client-key "$pki_dir/apiserver-kubelet.key")
  fi
  start kube-apiserver "$(program kube-apiserver)" --etcd-servers "http://$(in_url "$loopback"):2379" \
    --bind-address "$api_ip" --advertise-address "$api_ip" --secure-port 6443 \
    --tls-cert-file "$pki_dir/apiserver.crt" --tls-private-key-file "$pki_dir/apiserver.key" --client-ca-file "$pki_dir/ca.crt" \
    --service-account-issuer https://kubernetes.default.svc.cluster.local --service-account-key-file "$pki_dir/service-account.pub" \
    --service-account-signing-key-file "$pki_dir/service-account.key" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
    --service-cluster-ip-range "$service_cidr" --kubelet-preferred-address-types InternalIP --profiling=false \
    "${flags[@]}" ${OARLOCK_FEATURE_GATES:+"--feature-gates=$OARLOCK_FEATURE_GATES"} ${extra[@]+"${extra[@]}"}
}

# With --apply. A CRD is served a moment after it was accepted, and is waited for.
apply_manifests() {
  kubectl_admin apply -f "$manifests" >"$log_dir/apply.log" 2>&1 || { cat "$log_dir/apply.log" >&2; die "$manifests was not accepted"; }
  # kubectl itself gives up on one that has no conditions yet.
  [[ -z $(kubectl_admin get crd -o name) ]] ||
    wait_for 120 "the CRDs to be served" kubectl_admin wait --for=condition=Established --timeout=10s crd --all
}

start_controllers() {
  # Higher rate limits, since most writes of the cluster come from here when a test begins.
  start kube-controller-manager "$(program kube-controller-manager)" --kubeconfig "$cluster_dir/controller-manager.kubeconfig" \
    --leader-elect=false --bind-address "$loopback" --kube-api-qps 500 --kube-api-burst 1000 \
    --service-account-private-key-file "$pki_dir/service-account.key" --root-ca-file "$pki_dir/ca.crt" \
    --use-service-account-credentials=true --profiling=false \
    --node-monitor-period 1s --node-monitor-grace-period "${OARLOCK_NODE_GRACE:-12}s" \
    ${OARLOCK_FEATURE_GATES:+"--feature-gates=$OARLOCK_FEATURE_GATES"}
  start kube-scheduler "$(program kube-scheduler)" --kubeconfig "$cluster_dir/scheduler.kubeconfig" \
    --leader-elect=false --bind-address "$loopback" --kube-api-qps 1000 --kube-api-burst 2000 --profiling=false \
    ${OARLOCK_FEATURE_GATES:+"--feature-gates=$OARLOCK_FEATURE_GATES"}
}

api_ready() {
  curl -fsS -m 5 --cacert "$pki_dir/ca.crt" --cert "$pki_dir/admin.crt" --key "$pki_dir/admin.key" "https://$(in_url "$api_ip"):6443/readyz"
}
default_account_ready() {
  curl -fsS -m 5 --cacert "$pki_dir/ca.crt" --cert "$pki_dir/admin.crt" --key "$pki_dir/admin.key" \
    "https://$(in_url "$api_ip"):6443/api/v1/namespaces/default/serviceaccounts/default"
}

# Do not wait for a process that has exited: fail immediately, with the end of its log.
api_up_or_dead() { api_ready || gone etcd || gone kube-apiserver; }
wait_for_apiserver() {
  local name
  wait_for 240 "kube-apiserver to be ready" api_up_or_dead
  for name in etcd kube-apiserver; do
    alive "$name" || { tail -n 5 "$log_dir/$name.log" >&2; die "$name has ended; its log is $log_dir/$name.log"; }
  done
}
