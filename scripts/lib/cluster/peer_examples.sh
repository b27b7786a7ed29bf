# shellcheck shell=bash disable=SC2154  # versions.sh's variables
# Fetches the published examples of other operators, the input of convert_peers_test, and Kueue's custom resource definitions
# for operator_queue_test, from their Go modules. They stay in the cache, with the licenses of their modules (all Apache-2.0).
# Needs build.sh.

# Module, version, and the files below it that are kept. JobSet removed its examples after v0.5.
kPeerExamples=(
  "github.com/kubeflow/training-operator $kTrainingOperatorVersion examples/pytorch examples/mpi"
  "github.com/kubeflow/mpi-operator v0.6.0 examples/v2beta1"
  "github.com/kubeflow/trainer/v2 v2.3.0 examples/yaml manifests/base/runtimes"
  "sigs.k8s.io/jobset v0.5.2 examples/pytorch examples/simple"
  "sigs.k8s.io/kueue $kKueueVersion config/components/crd/bases"
)

fetch_peer_examples() {
  local target work=$kGoWork/peer-examples entry module version directories source directory
  target=$(peer_examples)
  [[ ! -d $target ]] || return 0
  go_dir=$(ensure_go)
  rm -rf "$work"
  mkdir -p "$work" "$(dirname "$target")"
  for entry in "${kPeerExamples[@]}"; do
    read -r module version directories <<<"$entry"
    source=$(module_file "$module@$version" Dir) || die -c 69 "cannot download the module $module@$version"
    for directory in $directories; do
      [[ -d $source/$directory ]] || continue
      mkdir -p "$work/$module/$directory"
      cp -r "$source/$directory/." "$work/$module/$directory"
    done
    cp "$source/LICENSE" "$work/$module/"
  done
  find "$work" -type f ! -name '*.yaml' ! -name LICENSE -delete
  find "$work" -type d -empty -delete
  chmod -R u+w "$work"
  mv -T "$work" "$target"   # the rename comes last, so that an interrupted run leaves nothing
  rm -rf "$kGoWork"
}
