# shellcheck shell=bash
# Writes OCI archives. Their layers are not compressed, which for a load on the same machine is only a loss of time; the
# build tools' own archives always are. Needs common.sh and jq.

# make_oci_archive FILE NAME DIRECTORY CONFIG: an image of the files below DIRECTORY; CONFIG is JSON, as {"Entrypoint": ["/a"]}.
make_oci_archive() {
  local file=$1 name=$2 directory=$3 settings=$4 work layer config
  work=$(mktemp -d "$OARLOCK_CACHE/image.XXXXXX")
  mkdir -p "$work/image/blobs/sha256"
  tar -C "$directory" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$work/blob" .
  layer=$(add_blob "$work")
  jq -n --arg layer "sha256:$layer" --arg arch "$(dpkg --print-architecture)" --argjson settings "$settings" \
    '{architecture: $arch, os: "linux", config: $settings, rootfs: {type: "layers", diff_ids: [$layer]}}' >"$work/blob"
  config=$(add_blob "$work")
  jq -n --arg config "sha256:$config" --argjson config_size "$(stat -c %s "$work/image/blobs/sha256/$config")" \
    --arg layer "sha256:$layer" --argjson layer_size "$(stat -c %s "$work/image/blobs/sha256/$layer")" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
      config: {mediaType: "application/vnd.oci.image.config.v1+json", digest: $config, size: $config_size},
      layers: [{mediaType: "application/vnd.oci.image.layer.v1.tar", digest: $layer, size: $layer_size}]}' >"$work/blob"
  add_blob "$work" >"$work/manifest"
  write_archive "$work/image" "$name" "$(<"$work/manifest")" "$file"
  rm -rf "$work"
}

# archive_pushed_image DIRECTORY NAME FILE: from what 'buildah push dir:DIRECTORY' has written, one file for each digest.
archive_pushed_image() {
  local directory=$1 digest file
  mkdir -p "$directory/image/blobs/sha256"
  digest=$(sha256sum "$directory/manifest.json" | cut -d' ' -f1)
  mv "$directory/manifest.json" "$directory/$digest"
  for file in "$directory"/*; do
    if [[ ${file##*/} =~ ^[0-9a-f]{64}$ ]]; then mv "$file" "$directory/image/blobs/sha256/"; fi
  done
  write_archive "$directory/image" "$2" "$digest" "$3"
  rm -rf "$directory"
}

# write_archive LAYOUT NAME MANIFEST_DIGEST FILE
write_archive() {
  local layout=$1 name=$2 digest=$3 file=$4 type
  type=$(jq -r .mediaType "$layout/blobs/sha256/$digest")
  jq -n --arg digest "sha256:$digest" --arg type "$type" --argjson size "$(stat -c %s "$layout/blobs/sha256/$digest")" --arg name "$name" \
    '{schemaVersion: 2, manifests: [{mediaType: $type, digest: $digest, size: $size,
      annotations: {"io.containerd.image.name": $name, "org.opencontainers.image.ref.name": $name}}]}' >"$layout/index.json"
  echo '{"imageLayoutVersion": "1.0.0"}' >"$layout/oci-layout"
  mkdir -p "$(dirname "$file")"
  tar -C "$layout" -cf "$file.part" oci-layout index.json blobs
  mv "$file.part" "$file"
}

# Moves the file WORK/blob to the path that its digest determines, and prints the digest.
add_blob() {
  local digest
  digest=$(sha256sum "$1/blob" | cut -d' ' -f1)
  mv "$1/blob" "$1/image/blobs/sha256/$digest"
  echo "$digest"
}
