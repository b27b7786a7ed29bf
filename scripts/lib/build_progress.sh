# build_with_progress LOG COMMAND...: runs a build by Ninja with its output in the file LOG, and shows its progress on
# standard error: one line that is rewritten on a terminal, otherwise a line for each ten percent. Returns the exit code
# of the command; if it failed, the failed steps and their output are printed.
build_with_progress() {
  local log=$1 status=0
  shift
  NINJA_STATUS='[%f/%t] ' "$@" 2>&1 | tee -i "$log" | show_build_progress >&2 || status=${PIPESTATUS[0]}
  [[ $status -eq 0 ]] || { grep -q '^FAILED' "$log" && sed -n '/^FAILED/,$p' "$log" || tail -n 20 "$log"; } | head -n 40 >&2
  return "$status"
}

# Reads lines such as "[12/205] Building CXX object ddp/CMakeFiles/oarlock_ddp.dir/batch_norm.cc.o", and prints
# "6 %  1:07  ddp/batch_norm.cc".
show_build_progress() {
  local line file percent text width=80 next=0 begin=$SECONDS is_terminal=no
  if [[ -t 1 ]]; then is_terminal=yes width=$(tput cols 2>/dev/null || echo 80); fi
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.+)$ ]] || continue
    percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
    file=${BASH_REMATCH[3]##* }
    [[ ! $file =~ ^(.*)CMakeFiles/[^/]+\.dir/(.*)\.o$ ]] || file=${BASH_REMATCH[1]}${BASH_REMATCH[2]}
    text=$(printf '    %3d %%  %d:%02d  %s' "$percent" $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60)) "$file")
    if [[ $is_terminal == yes ]]; then
      printf '\r\033[K%s' "${text:0:width - 1}"
    elif [[ $percent -ge $next ]]; then
      printf '%s\n' "$text"
      next=$((percent - percent % 10 + 10))
    fi
  done
  [[ $is_terminal == no ]] || printf '\r\033[K'
}
