#!/usr/bin/env bash
# What scripts/bench operator does to its control plane that scripts/cluster has no command for.
# usage: bench_operator_plane.sh user DIR NAME           a kubeconfig of an administrator of this name; prints its path
#        bench_operator_plane.sh restart-apiserver DIR   kills the API server and starts it again
#        bench_operator_plane.sh pid DIR PROGRAM         prints the process id
# shellcheck source=scripts/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=scripts/lib/cluster/versions.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
# shellcheck source=scripts/lib/cluster/layout.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/layout.sh"
# shellcheck source=scripts/lib/cluster/process.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/process.sh"
# shellcheck source=scripts/lib/cluster/pki.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/pki.sh"
# shellcheck source=scripts/lib/cluster/control_plane.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/control_plane.sh"

# A killed process may keep its socket for a moment after it is seen as gone.
port_is_free() { ! (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }

command=$1
use_cluster_dir "$2"
load_state || die -c 69 "there is no cluster in $2"
case $command in
  user)
    make_kubeconfig "$3" "/O=system:masters/CN=$3"
    echo "$cluster_dir/$3.kubeconfig" ;;
  restart-apiserver)
    end kube-apiserver
    poll 10 port_is_free "$api_ip" 6443
    start_apiserver
    wait_for_apiserver ;;
  pid) pid_of "$3" ;;
  *) die -c 64 "unknown command '$command'" ;;
esac
