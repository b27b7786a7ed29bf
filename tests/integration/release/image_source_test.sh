#!/usr/bin/env bash
# Builds the images of the operator, the trainer (CPU) and the launcher from their Dockerfiles alone: every stage, with the sources as
# docker build has them, and with nothing that was compiled before. The image of the trainer then trains with two ranks, as
# another user than root, on a root that is read-only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
[[ $(id -u) -eq 0 ]] || fail "building images needs root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OARLOCK_IMAGES=$work/images
version=$(<VERSION)

# unpack ARCHIVE DIRECTORY: the files of an OCI archive, layer by layer. No layer removes files of the one below.
unpack() {
  local manifest digest
  mkdir -p "$2" "$work/layout"
  tar -C "$work/layout" -xf "$1"
  manifest=$(jq -r '.manifests[0].digest | sub("sha256:"; "")' "$work/layout/index.json")
  jq -r '.layers[].digest | sub("sha256:"; "")' "$work/layout/blobs/sha256/$manifest" >"$work/layers"
  while read -r digest; do tar -C "$2" -xf "$work/layout/blobs/sha256/$digest"; done <"$work/layers"
  rm -rf "$work/layout"
}

scripts/images build --from-source operator trainer launcher
for image in operator trainer launcher; do
  archive=$OARLOCK_IMAGES/$image-$version.tar
  [[ -s $archive ]] || fail "there is no $archive"
  jq -e '.packages | map(.name) | index("oarlock")' "$archive.spdx.json" >/dev/null || fail "$archive.spdx.json lacks oarlock"
  echo "$image: $(($(stat -c %s "$archive") / 1000000)) MB"
done
jq -e '.packages | map(.name) | index("torch")' "$OARLOCK_IMAGES/trainer-$version.tar.spdx.json" >/dev/null || fail "the list of packages lacks LibTorch"

unpack "$OARLOCK_IMAGES/trainer-$version.tar" "$work/root"
[[ ! -e $work/root/etc/pip.conf && ! -e $work/root/etc/pip-certificates.crt ]] || fail "the image has the configuration of pip"
# shellcheck disable=SC2016  # the inner shell's
unshare --mount --pid --fork --propagation private -- sh -euc '
  mount --bind "$1" "$1"
  mount -o remount,bind,ro "$1"
  mount -t proc proc "$1/proc"
  mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
  mount --rbind /dev "$1/dev"
  exec chroot --userspec=65532:65532 "$1" /usr/bin/oarlock launch --nproc 2 -- oarlock-trainer task=image_classification \
    data.path=/usr/share/datasets/fashion-mnist model.name=cnn steps=3 batch.size=32 checkpoint.dir=/tmp/run' sh "$work/root" >"$work/log" 2>&1 ||
  { tail -n 20 "$work/log" >&2; fail "the trainer of the image does not train"; }
grep -q '"msg":"training is complete"' "$work/log" || { tail -n 20 "$work/log" >&2; fail "the training did not complete"; }
tail -n 1 "$work/log"
