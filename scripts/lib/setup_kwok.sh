# shellcheck shell=bash
# scripts/setup kwok: kwok alone, for scripts/bench operator truth.

# shellcheck source=scripts/lib/cluster/versions.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
# shellcheck source=scripts/lib/cluster/build.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/build.sh"
# shellcheck source=scripts/lib/cluster/rivals.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/rivals.sh"

apt_install ca-certificates curl jq openssl python3 python3-pip
with_lock cluster-build build_rivals kwok
