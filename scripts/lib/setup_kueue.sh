# shellcheck shell=bash
# scripts/setup kueue: for scripts/test queues, from their Go modules, Kueue's manager, kwok, the scheduler of
# scheduler-plugins, and a control plane of the Kubernetes version that serves PodGroups.

# shellcheck source=scripts/lib/cluster/versions.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
# shellcheck source=scripts/lib/cluster/build.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/build.sh"
# shellcheck source=scripts/lib/cluster/rivals.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/rivals.sh"

apt_install ca-certificates curl jq openssl python3 python3-pip python3-yaml
with_lock cluster-build build_control_plane "$kGangKubernetesVersion"
with_lock cluster-build build_rivals kwok scheduler-plugins kueue
