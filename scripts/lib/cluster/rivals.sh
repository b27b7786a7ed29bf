# shellcheck shell=bash disable=SC2154,SC2164  # versions.sh's variables; set -e ends on a failing cd
# Builds what scripts/bench operator compares with, kwok, which plays the kubelets there and in the lane queues, and Kueue and
# the scheduler of scheduler-plugins, which that lane runs. Needs build.sh.

# Of each module, the directories that its program is configured from; they are kept, the module cache is not.
declare -A kRivalModules=(
  [kwok]="sigs.k8s.io/kwok $kKwokVersion sigs.k8s.io/kwok/cmd/kwok kustomize/stage"
  [training-operator]="github.com/kubeflow/training-operator $kTrainingOperatorVersion github.com/kubeflow/training-operator/cmd/training-operator.v1 manifests/base"
  [kueue]="sigs.k8s.io/kueue $kKueueVersion sigs.k8s.io/kueue/cmd/kueue config/components"
  [scheduler-plugins]="sigs.k8s.io/scheduler-plugins $kSchedulerPluginsVersion sigs.k8s.io/scheduler-plugins/cmd/scheduler config/crd"
  [jobset]="sigs.k8s.io/jobset $kJobSetVersion sigs.k8s.io/jobset config/components"
)

# rival_config NAME: the directory with a copy of what its module is configured from.
rival_config() { echo "$(program "$1")-config"; }

# Its go.mod replaces the staging modules of Kubernetes. The proxy does not serve one of these versions.
build_scheduler_plugins() {
  [[ -x $(program scheduler-plugins) ]] && return 0
  local lib=k8s.io/csi-translation-lib
  adopt_module scheduler-plugins "$1" "$2" -e "s,$lib => $lib .*,$lib => $lib v0.34.4,"
  # As a scheduler, it has to state the version of Kubernetes that it is compiled from.
  timed_build scheduler-plugins "$(program scheduler-plugins)" "$3" "-X k8s.io/component-base/version.gitVersion=v1.${2#v0.}"
}

build_rival() {
  local name=$1 module version package directory config
  read -r module version package directory <<<"${kRivalModules[$name]}"
  if [[ $name == scheduler-plugins ]]; then build_scheduler_plugins "$module" "$version" "$package"
  else build_module_program "$name" "$module" "$version" "$package"; fi
  config=$(rival_config "$name")
  rm -rf "$config" "$config.new"
  cp -r "$(module_file "$module@$version" Dir)/$directory" "$config.new"
  chmod -R u+w "$config.new"
  mv "$config.new" "$config"   # the rename is what makes it be there
}

# build_rivals NAME...: those of them that are not built yet.
build_rivals() {
  local name missing=()
  for name in "$@"; do
    [[ -x $(program "$name") && -d $(rival_config "$name") ]] || missing+=("$name")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  go_dir=$(ensure_go)
  mkdir -p "$kGoWork"
  say "building ${missing[*]} with $("$go_dir/go" version | cut -d' ' -f3): a few minutes each, once"
  for name in "${missing[@]}"; do ( build_rival "$name" ); done
  rm -rf "$kGoWork"
}
