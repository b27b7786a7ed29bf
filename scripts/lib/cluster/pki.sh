# shellcheck shell=bash disable=SC2154  # the variables are layout.sh's
# Certificates of the cluster, with openssl: elliptic keys, for they are made in milliseconds. Needs layout.sh.

make_key() { (umask 077; openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null); }

make_ca() {
  mkdir -p "$pki_dir"
  make_key "$pki_dir/ca.key"
  openssl req -x509 -new -key "$pki_dir/ca.key" -days 365 -subj "/CN=oarlock-$cluster_name" -out "$pki_dir/ca.crt"
}

# make_cert NAME SUBJECT [SUBJECT_ALT_NAMES]
make_cert() {
  local extensions=$'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth'
  [[ $# -lt 3 ]] || extensions+=$'\n'"subjectAltName=$3"
  make_key "$pki_dir/$1.key"
  openssl req -new -key "$pki_dir/$1.key" -subj "$2" |
    openssl x509 -req -CA "$pki_dir/ca.crt" -CAkey "$pki_dir/ca.key" -set_serial "0x$(openssl rand -hex 8)" -days 365 \
      -extfile <(echo "$extensions") -out "$pki_dir/$1.crt" 2>/dev/null
}

# make_kubeconfig NAME SUBJECT: a certificate and a file that holds everything, so it can be copied anywhere.
make_kubeconfig() {
  make_cert "$1" "$2"
  (umask 077; cat >"$cluster_dir/$1.kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
current-context: oarlock-$cluster_name
clusters:
- name: oarlock-$cluster_name
  cluster:
    server: https://$(in_url "$api_ip"):6443
    certificate-authority-data: $(base64 -w0 "$pki_dir/ca.crt")
contexts:
- name: oarlock-$cluster_name
  context: {cluster: oarlock-$cluster_name, user: $1}
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 "$pki_dir/$1.crt")
    client-key-data: $(base64 -w0 "$pki_dir/$1.key")
CONFIG
  )
}
