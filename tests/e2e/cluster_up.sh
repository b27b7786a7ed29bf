#!/usr/bin/env bash
# The fixture of the end-to-end tests: cluster, images and operator, exactly as the README describes.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
trap - EXIT
tests/e2e/readme_commands.sh "scripts/cluster up" "kubectl apply -f manifests/crd"
use_cluster
kubectl -n oarlock-system rollout status deployment/oarlock-operator --timeout=300s
