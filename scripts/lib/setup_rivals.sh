# shellcheck shell=bash
# scripts/setup rivals: the operators that scripts/bench operator compares with ours, and kwok, from their Go modules.

# shellcheck source=scripts/lib/cluster/versions.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
# shellcheck source=scripts/lib/cluster/build.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/build.sh"
# shellcheck source=scripts/lib/cluster/rivals.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/rivals.sh"

apt_install ca-certificates curl jq openssl python3 python3-pip
with_lock cluster-build build_rivals kwok training-operator jobset
