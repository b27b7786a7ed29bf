# shellcheck shell=bash disable=SC2154  # the variables of scripts/release
# The archive of the command line.

# The newest version of glibc that a program may need, so that it runs on the distributions in docs/versioning.md.
kGlibcMaximum=2.35

archive_name() { echo "oarlock_${version}_linux_$1"; }

host_arch() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) die -c 69 "archives can be built on amd64 only, this machine is $(uname -m)" ;;
  esac
}

# build_command_line ARCH: prints the build directory with the program.
build_command_line() {
  local arch=$1 preset=cli-$1 variable=OARLOCK_BUILD_DIR_${1^^} log=$OARLOCK_LOGS/build-cli-$1.log
  if [[ -n ${!variable:-} ]]; then
    [[ -x ${!variable}/bin/oarlock ]] || die -c 66 "$variable: ${!variable}/bin/oarlock does not exist"
    realpath "${!variable}"
    return
  fi
  say "building oarlock for $arch"
  configure "$preset"
  ( cd "$OARLOCK_ROOT" && cmake --build --preset "$preset" ) >"$log" 2>&1 ||
    { tail -n 30 "$log" >&2; die "the build of preset $preset failed; its output is in $log"; }
  echo "$OARLOCK_ROOT/build/$preset"
}

# reject PROGRAM ARCH REASON: fails, except in a rehearsal with a program that was built for this machine.
reject() {
  local given=OARLOCK_BUILD_DIR_${2^^}
  [[ $dry_run == true && -n ${!given:-} ]] || die -c 65 "$1 $3"
  warn "$1 $3"
}

# Rejects a program that is for another architecture, or needs more than the C library.
check_portable() {
  local program=$1 arch=$2 machine needed glibc problem=""
  local -A machines=([amd64]="Advanced Micro Devices X86-64" [arm64]="AArch64")
  machine=$(LC_ALL=C readelf --file-header "$program" | sed -nE 's/^ *Machine: *(.*)$/\1/p')
  [[ $machine == "${machines[$arch]}" ]] || die -c 65 "$program is for '$machine', not for $arch"
  needed=$(LC_ALL=C readelf --dynamic "$program" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | grep -vE '^(libc\.so\.6|libm\.so\.6|ld-linux-.*)$' | paste -sd' ' || true)
  glibc=$(LC_ALL=C readelf --version-info "$program" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
  if [[ -n $needed ]]; then problem="needs shared libraries that other distributions do not have: $needed"
  elif [[ $(printf '%s\n' "$glibc" "$kGlibcMaximum" | sort -V | tail -n 1) != "$kGlibcMaximum" ]]; then problem="needs glibc $glibc, newer than $kGlibcMaximum"
  fi
  [[ -z $problem ]] || reject "$program" "$arch" "$problem"
}

# Runs the program if this machine can, and compares its version.
check_program_version() {
  local program=$1 arch=$2 run=() output
  if [[ $arch != "$(host_arch)" ]]; then
    command -v qemu-aarch64-static >/dev/null && [[ -d $OARLOCK_CACHE/sysroot-arm64 ]] ||
      { warn "$program is not run, because qemu-user-static or the sysroot is not there (scripts/setup arm64)"; return 0; }
    run=(qemu-aarch64-static -L "$OARLOCK_CACHE/sysroot-arm64")
  fi
  output=$(${run[@]+"${run[@]}"} "$program" --version 2>&1) || output="does not start: $output"
  [[ $output == "oarlock $version" ]] || reject "$program" "$arch" "prints '$output', VERSION is $version"
}

make_archive() {
  local arch="" build_dir directory name work created licenses
  while [[ $# -gt 0 ]]; do
    case $1 in
      --arch) [[ $# -ge 2 ]] || die -c 64 "--arch needs an architecture"; arch=$2; shift 2 ;;
      *) usage_error "unknown argument '$1'" ;;
    esac
  done
  [[ -n $arch ]] || arch=$(host_arch)
  is_one_of "$arch" "${kArchitectures[@]}" || usage_error "unknown architecture '$arch'"
  need cmake ninja python3 readelf
  build_dir=$(build_command_line "$arch")
  name=$(archive_name "$arch")
  mkdir -p "$out"
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the directory of now
  trap "rm -rf '$work'" EXIT
  directory=$work/$name
  # Everything that the component installs, so that man pages and completions are included once there are some.
  cmake --install "$build_dir" --prefix "$directory" --component cli --strip >"$work/install.log" 2>&1 ||
    { tail -n 5 "$work/install.log" >&2; die "cmake --install $build_dir failed"; }
  check_portable "$directory/bin/oarlock" "$arch"
  check_program_version "$directory/bin/oarlock" "$arch"
  created=$(TZ=UTC date --date="@$(commit_time)" +%Y-%m-%dT%H:%M:%SZ)
  licenses=$directory/share/doc/oarlock
  mkdir -p "$licenses"
  install -m 644 "$OARLOCK_ROOT/LICENSE" "$OARLOCK_ROOT/CHANGELOG.md" "$licenses"
  python3 "$kLib/packages.py" --build "$build_dir" --program bin/oarlock --name "$name" --version "$version" --arch "$arch" \
    --created "$created" --url "${OARLOCK_REPOSITORY_URL:-}" --licenses "$licenses/THIRD-PARTY-LICENSES" >"$work/spdx.json"
  tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w \
    --mtime="@$(commit_time)" --format=gnu "$name" | gzip --no-name --best >"$work/archive"
  mv "$work/archive" "$out/$name.tar.gz"
  mv "$work/spdx.json" "$out/$name.spdx.json"
  chmod 644 "$out/$name".*
  say "wrote $out/$name.tar.gz ($(($(stat -c %s "$out/$name.tar.gz") / 1000)) kB)"
}
