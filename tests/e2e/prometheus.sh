# A real Prometheus outside of the cluster, for tests that source lib.sh: start_prometheus, watch_targets, query.

prometheus_work=$(mktemp -d)
prometheus_pid=
end_prometheus() {
  [[ -z $prometheus_pid ]] || kill "$prometheus_pid" 2>/dev/null || true
  [[ -z ${prometheus_port_PID-} ]] || kill "$prometheus_port_PID" 2>/dev/null || true
  rm -rf "$prometheus_work"
}

# start_prometheus RULES: until end_prometheus, with these recording rules and alerts.
start_prometheus() {
  cat >"$prometheus_work/prometheus.yml" <<'CONFIG'
global: {scrape_interval: 2s, evaluation_interval: 2s}
rule_files: [rules.yml]
scrape_configs:
  - job_name: all
    honor_labels: true   # the operator's series of jobs have their own namespace label
    file_sd_configs: [{files: [targets.json], refresh_interval: 2s}]
CONFIG
  cp "$1" "$prometheus_work/rules.yml"
  promtool check config "$prometheus_work/prometheus.yml" >/dev/null
  local port
  coproc prometheus_port { exec python3 "$OARLOCK_SOURCE/tests/support/reserved_port.py"; }  # until this shell ends
  read -r port <&"${prometheus_port[0]}"
  prometheus_url=http://127.0.0.1:$port
  prometheus --config.file="$prometheus_work/prometheus.yml" --storage.tsdb.path="$prometheus_work/tsdb" \
    --web.listen-address="127.0.0.1:$port" >"$prometheus_work/prometheus.log" 2>&1 &
  prometheus_pid=$!
  wait_for 120 "Prometheus answers" query "vector(1)"
}

# The operator and all ranks of now. Debian's Prometheus has no Kubernetes discovery built in, so the targets come from
# kubectl through a file.
write_targets() {
  {
    kubectl -n oarlock-system get pods -l app.kubernetes.io/component=operator -o json | jq '.items | map({job: "oarlock-operator", pod: .})'
    kubectl get pods -l oarlock.dev/job-name -o json | jq '.items | map({job: "trainingjobs", pod: .})'
  } | jq -s 'add | map({targets: [.pod.status.podIP + ":" + (.pod.spec.containers[].ports[]? | select(.name == "metrics") | .containerPort | tostring)],
                      labels: ({job: .job, pod: .pod.metadata.name, namespace: .pod.metadata.namespace}
                        + if .pod.metadata.labels["oarlock.dev/job-name"] then {trainingjob: .pod.metadata.labels["oarlock.dev/job-name"]} else {} end)})' >"$prometheus_work/targets.json.new"
  mv "$prometheus_work/targets.json.new" "$prometheus_work/targets.json"
}

# query QUERY: the values of an instant query.
query() { curl -fsS --get "$prometheus_url/api/v1/query" --data-urlencode "query=$1" | jq -r '.data.result | map(.value[1]) | join(" ")'; }
query_is() { [[ $(query "$1") == "$2" ]]; }
