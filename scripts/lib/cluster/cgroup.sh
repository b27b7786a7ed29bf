# The cgroups below which the kubelets put their pods: /oarlock/slotS/nodeN, in every hierarchy. Needs layout.sh.

# Prints the mount point of every cgroup hierarchy: many with version 1, one with version 2.
cgroup_mounts() {
  local kind=cgroup
  [[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]] && kind=cgroup2
  awk -v kind="$kind" '{for (i = 7; i < NF; i++) if ($i == "-" && $(i + 1) == kind) print $5}' /proc/self/mountinfo | sort -u
}

make_cgroup() {
  local mount part path file
  while read -r mount; do
    path=$mount
    for part in ${1//\// }; do
      # Version 2 hands controllers down only where each parent says so.
      [[ ! -e $path/cgroup.subtree_control ]] || sed 's/\([a-z]\+\)/+\1/g' "$path/cgroup.controllers" >"$path/cgroup.subtree_control" ||
        die -c 69 "cannot delegate cgroup controllers below $path: is this a container without its own cgroup root?"
      path=$path/$part
      mkdir -p "$path"
      # A new cpuset of version 1 is empty, and no process can enter an empty one.
      for file in cpuset.cpus cpuset.mems; do
        [[ ! -e $path/cgroup.clone_children || ! -e $path/$file ]] || cat "$path/../$file" >"$path/$file"
      done
    done
  done < <(cgroup_mounts)
}

# Removes a cgroup and all below it; they are empty once the node has ended.
remove_cgroup() {
  local mount
  while read -r mount; do
    [[ -d $mount/$1 ]] || continue
    find "$mount/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
    rmdir --ignore-fail-on-non-empty "$mount/${1%/*}" 2>/dev/null || true
  done < <(cgroup_mounts)
}
