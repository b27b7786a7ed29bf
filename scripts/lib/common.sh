# Shared by every script here: where things are, how to speak, how to become root, how to not run twice.
# Source it; it sets the strict mode that all scripts use.
set -euo pipefail

OARLOCK_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
OARLOCK_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/oarlock
export OARLOCK_ROOT OARLOCK_CACHE
OARLOCK_LOGS=$OARLOCK_ROOT/build/logs  # the output of cmake and compilers; each checkout has its own
mkdir -p "$OARLOCK_CACHE"

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
warn() { printf 'warning: %s\n' "$*" >&2; }

# die [-c CODE] MESSAGE: one line, and a documented exit code (docs/exit-codes.md); 69 = something needed is not there.
die() {
  local code=1
  if [[ ${1:-} == -c ]]; then code=$2; shift 2; fi
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

# configure PRESET [OPTION...]: runs cmake, and shows its output only if it fails.
configure() {
  local preset=$1 log=$OARLOCK_LOGS/cmake-$1.log
  mkdir -p "$OARLOCK_LOGS"
  ( cd "$OARLOCK_ROOT" && cmake --preset "$preset" "${@:2}" ) >"$log" 2>&1 ||
    { tail -n 30 "$log" >&2; die "cmake --preset $preset failed; its output is in $log"; }
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die -c 77 "'$*' needs root, and there is no sudo here: run this script as root"
  fi
}

# with_lock NAME COMMAND...: one process at a time per user, however many checkouts.
with_lock() {
  local lock=$OARLOCK_CACHE/locks/$1; shift
  mkdir -p "$(dirname "$lock")"
  ( flock 9; "$@" ) 9>"$lock"
}

# Installs the Debian packages that are missing; quick when there are none.
apt_install() {
  local missing=() package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true) == installed ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  command -v apt-get >/dev/null ||
    die -c 69 "this machine has no apt-get; on Debian 12 these would be installed, here please do it by hand: ${missing[*]}"
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  local log=$OARLOCK_CACHE/apt.log
  if ! with_lock apt as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
    with_lock apt as_root apt-get -o DPkg::Lock::Timeout=300 update >"$log" 2>&1 || die -c 69 "apt-get update failed; its output is in $log"
    with_lock apt as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
      die -c 69 "apt-get install failed; its output is in $log"
  fi
}

# once STAMP COMMAND...: runs the command unless the stamp of an earlier, complete run exists. The stamp is written
# last, so an interrupted run starts over. Put everything that the result depends on into the stamp's name.
once() {
  local stamp=$OARLOCK_CACHE/stamps/$1; shift
  [[ -e $stamp ]] && return 0
  "$@"
  mkdir -p "$(dirname "$stamp")"
  : >"$stamp"
}
