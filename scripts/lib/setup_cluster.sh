# shellcheck shell=bash disable=SC2031
# scripts/setup cluster: a Kubernetes for this machine, built from Go modules, and the tools for container images.

# shellcheck source=scripts/lib/cluster/versions.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
# shellcheck source=scripts/lib/cluster/build.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/build.sh"
# shellcheck source=scripts/lib/cluster/peer_examples.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/peer_examples.sh"
# shellcheck source=scripts/lib/cluster/oci_archive.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/oci_archive.sh"

# Where systemd runs, Debian starts containerd and Prometheus as they are installed. Nothing here uses those services,
# so they are kept from starting; one that was there before is left as it is.
kServices=(containerd prometheus)
install_quietly() {
  local service new=() policy=/usr/sbin/policy-rc.d made_policy=0
  for service in "${kServices[@]}"; do command -v "$service" >/dev/null || new+=("$service"); done
  if [[ ${#new[@]} -gt 0 && ! -e $policy && -d /run/systemd/system ]]; then
    printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin "$policy"
    made_policy=1
  fi
  apt_install "$@"
  [[ $made_policy == 0 ]] || as_root rm -f "$policy"
  if [[ ${#new[@]} -gt 0 && -d /run/systemd/system ]]; then as_root systemctl disable --quiet "${new[@]}" || true; fi
}

( source "$OARLOCK_ROOT/scripts/lib/setup_build.sh" )
install_quietly containerd runc containernetworking-plugins iptables iproute2 util-linux kmod openssl curl jq ca-certificates \
  gcc libc6-dev binutils python3-pip python3-yaml yamllint buildah mmdebstrap busybox-static musl-tools prometheus
with_lock cluster-build build_cluster_programs
with_lock cluster-build fetch_peer_examples

# shellcheck source=scripts/lib/chart/grafana_sdk.sh
source "$OARLOCK_ROOT/scripts/lib/chart/grafana_sdk.sh"
install_grafana_sdk

make_pause_image() {
  local root; root=$(mktemp -d)
  install -m 755 "$(program pause)" "$root/pause"
  chmod 755 "$root"
  make_oci_archive "$kPauseImage" "oarlock.dev/pause:$kKubernetesVersion" "$root" '{"Entrypoint": ["/pause"], "User": "65535:65535"}'
  rm -rf "$root"
}
[[ -e $kPauseImage ]] || make_pause_image
