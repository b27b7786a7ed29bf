# shellcheck shell=bash disable=SC2154  # the variables of scripts/release
# The images, built by BuildKit from docker/*.Dockerfile.

kZeroDigest=sha256:0000000000000000000000000000000000000000000000000000000000000000

image_repository() { echo "$registry/oarlock/${1%-cuda}"; }
image_suffix() { [[ $1 != *-cuda ]] || echo -cuda; }
image_reference() { echo "$(image_repository "$1"):$version$(image_suffix "$1")"; }

# The tags of the index: X.Y.Z, and of a final release also X.Y, which moves with the patch releases.
image_tags() {
  echo "$version$(image_suffix "$1")"
  is_prerelease || echo "${version%.*}$(image_suffix "$1")"
}

take_image_name() {
  name=${1:-}
  is_one_of "$name" "${kImages[@]}" || usage_error "unknown image '$name'; the images are: ${kImages[*]}"
}

build_image() {
  local name arch="" check=no work options
  take_image_name "${1:-}"; shift
  while [[ $# -gt 0 ]]; do
    case $1 in
      --arch) [[ $# -ge 2 ]] || die -c 64 "--arch needs an architecture"; arch=$2; shift 2 ;;
      --check) check=yes; shift ;;
      *) usage_error "unknown argument '$1'" ;;
    esac
  done
  [[ -n $arch ]] || arch=$(host_arch)
  is_one_of "$arch" "${kArchitectures[@]}" || usage_error "unknown architecture '$arch'"
  [[ $dry_run == true ]] || need docker jq
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the directory of now
  trap "rm -rf '$work'" EXIT
  options=(--file "$OARLOCK_ROOT/docker/${name%-cuda}.Dockerfile" --platform "linux/$arch" --build-arg "VERSION=$version"
    --build-arg "REVISION=$(commit_id)")
  [[ -z ${OARLOCK_REPOSITORY_URL:-} ]] || options+=(--label "org.opencontainers.image.source=$OARLOCK_REPOSITORY_URL")
  [[ $name != *-cuda ]] || options+=(--build-arg VARIANT=cuda)
  if [[ $check == yes ]]; then
    outside docker buildx build "${options[@]}" --output type=cacheonly "$OARLOCK_ROOT"
    return
  fi
  require_registry
  SOURCE_DATE_EPOCH=$(commit_time) outside docker buildx build "${options[@]}" --attest type=sbom --attest type=provenance,mode=max \
    --output "type=image,name=$(image_repository "$name"),push-by-digest=true,name-canonical=true,push=true" \
    --metadata-file "$work/metadata.json" "$OARLOCK_ROOT"
  mkdir -p "$out/digests"
  if [[ $dry_run == true ]]; then echo "$kZeroDigest"; else jq -er '."containerimage.digest"' "$work/metadata.json"; fi >"$out/digests/$name.$arch" ||
    die "docker buildx build has reported no digest"
}

join_images() {
  local name arch tag tags=() sources=() repository digest
  take_image_name "${1:-}"
  [[ $# -eq 1 ]] || usage_error "unknown argument '$2'"
  [[ $dry_run == true ]] || need docker jq cosign
  require_registry
  repository=$(image_repository "$name")
  for arch in "${kArchitectures[@]}"; do sources+=("$repository@$(digest_of "$name.$arch" image)"); done
  for tag in $(image_tags "$name"); do tags+=(--tag "$repository:$tag"); done
  outside docker buildx imagetools create "${tags[@]}" "${sources[@]}"
  digest=$kZeroDigest
  [[ $dry_run == true ]] || digest=$(docker buildx imagetools inspect "$(image_reference "$name")" --format '{{ json .Manifest }}' | jq -er .digest)
  outside cosign sign --yes --recursive "$repository@$digest"
  echo "$digest" >"$out/digests/$name"
  say "$(image_reference "$name") is $digest"
}
