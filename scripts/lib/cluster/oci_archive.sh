# Small images without a build tool: an OCI archive with one layer, written by hand. Needs common.sh and jq.

# make_oci_archive FILE NAME FOLDER CONFIG: an image of the files below FOLDER; CONFIG is JSON, as {"Entrypoint": ["/a"]}.
make_oci_archive() {
  local file=$1 name=$2 folder=$3 settings=$4 work layer config manifest
  work=$(mktemp -d "$OARLOCK_CACHE/image.XXXXXX")
  mkdir -p "$work/image/blobs/sha256"
  tar -C "$folder" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$work/blob" .
  layer=$(add_blob "$work")
  jq -n --arg layer "sha256:$layer" --arg arch "$(dpkg --print-architecture)" --argjson settings "$settings" \
    '{architecture: $arch, os: "linux", config: $settings, rootfs: {type: "layers", diff_ids: [$layer]}}' >"$work/blob"
  config=$(add_blob "$work")
  jq -n --arg config "sha256:$config" --argjson config_size "$(stat -c %s "$work/image/blobs/sha256/$config")" \
    --arg layer "sha256:$layer" --argjson layer_size "$(stat -c %s "$work/image/blobs/sha256/$layer")" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
      config: {mediaType: "application/vnd.oci.image.config.v1+json", digest: $config, size: $config_size},
      layers: [{mediaType: "application/vnd.oci.image.layer.v1.tar", digest: $layer, size: $layer_size}]}' >"$work/blob"
  manifest=$(add_blob "$work")
  jq -n --arg digest "sha256:$manifest" --argjson size "$(stat -c %s "$work/image/blobs/sha256/$manifest")" --arg name "$name" \
    '{schemaVersion: 2, manifests: [{mediaType: "application/vnd.oci.image.manifest.v1+json", digest: $digest, size: $size,
      annotations: {"io.containerd.image.name": $name}}]}' >"$work/image/index.json"
  echo '{"imageLayoutVersion": "1.0.0"}' >"$work/image/oci-layout"
  tar -C "$work/image" -cf "$work/image.tar" oci-layout index.json blobs
  mv "$work/image.tar" "$file"
  rm -rf "$work"
}

# Moves the file WORK/blob to where its digest says, and prints the digest.
add_blob() {
  local digest
  digest=$(sha256sum "$1/blob" | cut -d' ' -f1)
  mv "$1/blob" "$1/image/blobs/sha256/$digest"
  echo "$digest"
}
