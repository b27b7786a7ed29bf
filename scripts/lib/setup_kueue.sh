# shellcheck shell=bash
# scripts/setup kueue: Kueue's manager, and kwok, from their Go modules, for scripts/test queues.

# shellcheck source=scripts/lib/cluster/versions.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
# shellcheck source=scripts/lib/cluster/build.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/build.sh"
# shellcheck source=scripts/lib/cluster/rivals.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/rivals.sh"

apt_install ca-certificates curl jq openssl python3 python3-pip python3-yaml
with_lock cluster-build build_rivals kwok kueue
