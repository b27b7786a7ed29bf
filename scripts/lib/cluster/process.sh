# shellcheck shell=bash disable=SC2154  # the variables are layout.sh's
# Starting and ending our own processes, and never another's. Needs layout.sh.

# A process is known by its id and its start time, for ids are used again.
process_identity() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  stat=${stat##*) }            # the name before it may hold blanks
  local fields
  read -ra fields <<<"$stat"
  [[ ${fields[0]} != Z ]] || return 1
  echo "$1 ${fields[19]}"
}

# start NAME COMMAND...: in the background, with its output in a log. The process writes its own pid file before it
# becomes the command, so a crash of this script leaves none unknown. It inherits no lock, except for etcd, which holds
# the slot (layout.sh).
start() {
  local name=$1; shift
  mkdir -p "$pid_dir" "$log_dir"
  # shellcheck disable=SC2016
  OARLOCK_CLUSTER_MARK=$cluster_dir setsid bash -c '
    stat=$(<"/proc/$$/stat"); fields=(${stat##*) }); echo "$$ ${fields[19]}" >"$1"
    [[ $1 == */etcd ]] || exec 8>&-
    shift; exec "$@"' _ "$pid_dir/$name" "$@" >>"$log_dir/$name.log" 2>&1 </dev/null 9>&- &
  wait_for 60 "the start of $name" test -s "$pid_dir/$name"
}

# Prints the process id if the process that the pid file names is alive.
pid_of() {
  local known
  [[ -s $pid_dir/$1 ]] || return 1
  known=$(<"$pid_dir/$1")
  [[ $(process_identity "${known%% *}") == "$known" ]] || return 1
  echo "${known%% *}"
}

alive() { pid_of "$1" >/dev/null; }

# end NAME: kills the process. Its data are removed with the cluster, so it need not exit gracefully.
end() {
  local pid
  if pid=$(pid_of "$1"); then
    kill -KILL "$pid" 2>/dev/null || true
    poll 10 gone "$1" || warn "$1 (process $pid) cannot be killed"
  fi
  rm -f "$pid_dir/$1"
}
gone() { ! alive "$1"; }

# Prints the first child of a process: what nsenter and unshare run for us.
child_of() {
  local file stat fields
  for file in /proc/[0-9]*/stat; do
    { read -r stat <"$file"; } 2>/dev/null || continue
    read -ra fields <<<"${stat##*) }"
    if [[ ${fields[1]} == "$1" ]]; then file=${file#/proc/}; echo "${file%/stat}"; return; fi
  done
  return 1
}

# Ends whatever else carries the mark of this cluster in its environment: the net below the pid files.
stop_strays() {
  local file pid strays=()
  for file in /proc/[0-9]*/environ; do
    pid=${file#/proc/}; pid=${pid%/environ}
    [[ $pid != "$$" && $pid != "$BASHPID" ]] || continue
    if grep -qzxF "OARLOCK_CLUSTER_MARK=$cluster_dir" "$file" 2>/dev/null; then strays+=("$pid"); fi
  done
  [[ ${#strays[@]} -eq 0 ]] && return 0
  warn "ending ${#strays[@]} processes that were left over: ${strays[*]}"
  kill -KILL "${strays[@]}" 2>/dev/null || true
}

# poll SECONDS COMMAND...: true as soon as the command is, false at the deadline.
poll() {
  local deadline=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [[ $SECONDS -lt $deadline ]] || return 1
    sleep 0.05
  done
}

# wait_for SECONDS WHAT COMMAND...: poll, or die and say where the logs are.
wait_for() {
  local seconds=$1 what=$2; shift 2
  poll "$seconds" "$@" || die "timed out after $seconds s waiting for $what; the logs are in $log_dir"
}
