# shellcheck shell=bash disable=SC2154  # the variables are layout.sh's
# The cgroups below which the kubelets put their pods: /oarlock/slotS/nodeN, in every hierarchy. Needs layout.sh.

# Prints the mount points of the cgroup hierarchies of the kinds named: cgroup (version 1), cgroup2.
cgroup_mounts() {
  awk -v kinds=" $* " '{for (i = 7; i < NF; i++) if ($i == "-" && index(kinds, " " $(i + 1) " ")) print $5}' /proc/self/mountinfo | sort -u
}
cgroup_kind() { if [[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]]; then echo cgroup2; else echo cgroup; fi; }

make_cgroup() {
  local mount part path file
  while read -r mount; do
    path=$mount
    for part in ${1//\// }; do
      # Version 2 passes controllers to children only if each parent enables them.
      [[ ! -e $path/cgroup.subtree_control ]] || sed 's/\([a-z]\+\)/+\1/g' "$path/cgroup.controllers" >"$path/cgroup.subtree_control" ||
        die -c 69 "cannot delegate cgroup controllers below $path: is this a container without its own cgroup root?"
      path=$path/$part
      mkdir -p "$path"
      # A new cpuset of version 1 is empty, and no process can enter an empty one.
      for file in cpuset.cpus cpuset.mems; do
        [[ ! -e $path/cgroup.clone_children || ! -e $path/$file ]] || cat "$path/../$file" >"$path/$file"
      done
    done
  done < <(cgroup_mounts "$(cgroup_kind)")
}

# Removes a cgroup and all below it, which are empty once the node has ended; false if something is left. With version 1
# the container runtime makes some in a version 2 hierarchy, too.
remove_cgroup() {
  local mount left=0
  while read -r mount; do
    [[ -d $mount/$1 ]] || continue
    find "$mount/$1" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    [[ ! -d $mount/$1 ]] || left=1
    rmdir "$mount/${1%/*}" "$mount/${1%%/*}" 2>/dev/null || true   # the last one out
  done < <(cgroup_mounts cgroup cgroup2)
  return $left
}
