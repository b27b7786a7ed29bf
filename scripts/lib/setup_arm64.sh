# shellcheck shell=bash
# scripts/setup arm64: what compiles the operator and the command line for arm64 on an amd64 machine (cmake --preset arm64).

# qemu-user-static runs the result.
apt_install cmake ninja-build ccache pkg-config g++-12-aarch64-linux-gnu qemu-user-static mmdebstrap \
  nlohmann-json3-dev libcli11-dev libexpected-dev

kArm64Sysroot=$OARLOCK_CACHE/sysroot-arm64
kArm64Packages=(libc6-dev libstdc++-12-dev libssl-dev zlib1g-dev libexpected-dev nlohmann-json3-dev libfmt-dev libspdlog-dev
  libcli11-dev libyaml-cpp-dev libxxhash-dev libboost-dev libsimdjson-dev prometheus-cpp-dev)

# Unpacks Debian's arm64 packages with their dependencies. Nothing of them is executed, and nothing is installed.
unpack_arm64_sysroot() {
  local link target IFS=,
  say "unpacking the libraries for arm64"
  rm -rf "$kArm64Sysroot.new"
  # The mode chrootless needs no privileges, which a container may not have.
  mmdebstrap --quiet --mode=chrootless --variant=extract --architectures=arm64 --aptopt='APT::Install-Recommends "false"' \
    --include="${kArm64Packages[*]}" --extract-hook="$OARLOCK_ROOT/scripts/lib/release/list_packages.sh" bookworm "$kArm64Sysroot.new" >"$OARLOCK_CACHE/sysroot-arm64.log" 2>&1 ||
    { tail -n 5 "$OARLOCK_CACHE/sysroot-arm64.log" >&2; die -c 69 "mmdebstrap could not unpack the arm64 packages"; }
  # Absolute links would lead out of the directory.
  while IFS= read -r -d '' link; do
    target=$(readlink "$link")
    ln -snf "$(realpath --canonicalize-missing --no-symlinks --relative-to="$(dirname "$link")" "$kArm64Sysroot.new$target")" "$link"
  done < <(find "$kArm64Sysroot.new/usr" "$kArm64Sysroot.new/lib" -type l -lname '/*' -print0)
  mv "$kArm64Sysroot.new" "$kArm64Sysroot"   # the rename comes last, so that an interrupted run leaves nothing
}
[[ -d $kArm64Sysroot ]] || with_lock sysroot-arm64 unpack_arm64_sysroot
