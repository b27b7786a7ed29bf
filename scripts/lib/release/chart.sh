# shellcheck shell=bash disable=SC2154  # the variables of scripts/release
# The chart, and the manifest for clusters without Helm, with the images of the registry.

# The chart has a separate version.
chart_version() { sed -nE 's/^version: "?([^ "#]+).*/\1/p' "$OARLOCK_ROOT/charts/oarlock/Chart.yaml"; }

chart_repository() { echo "oci://$registry/oarlock/charts"; }

find_helm() {
  if [[ -x $(program helm) ]]; then program helm
  elif command -v helm; then return
  else die -c 69 "helm is not installed: run scripts/setup cluster"
  fi
}

make_chart() {
  require_registry
  require_repository_url
  need python3
  local helm work file digest other
  helm=$(find_helm)
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the directory of now
  trap "rm -rf '$work'" EXIT
  mkdir -p "$out/digests"
  python3 "$kLib/stage_chart.py" "$OARLOCK_ROOT" "$work/oarlock" --registry "$registry" --url "$OARLOCK_REPOSITORY_URL"
  "$helm" lint --quiet --strict "$work/oarlock" >"$work/lint.log" 2>&1 || { cat "$work/lint.log" >&2; die "helm lint failed"; }
  "$helm" template oarlock "$work/oarlock" --namespace oarlock-system --skip-tests >"$work/rendered.yaml"
  sed -E "s#([\"'= ])(docker\.io/)?oarlock/(operator|trainer|launcher):#\1$registry/oarlock/\3:#g" "$OARLOCK_ROOT/manifests/install.yaml" >"$out/install.yaml"
  for file in "$work/rendered.yaml" "$out/install.yaml"; do
    grep -qF "$registry/oarlock/operator:$version" "$file" || die "$(basename "$file") does not use $registry/oarlock/operator:$version"
    other=$(grep -oE "[^ \"'=]*oarlock/(operator|trainer|launcher):[^ \"']*" "$file" | grep -vF "$registry/" || true)
    [[ -z $other ]] || die "$(basename "$file") uses an image of another registry: $other"
  done
  cp "$OARLOCK_ROOT"/manifests/crd/*.yaml "$out/"
  SOURCE_DATE_EPOCH=$(commit_time) "$helm" package "$work/oarlock" --destination "$out" >"$work/package.log" || die "helm package failed"
  say "wrote $out/oarlock-$(chart_version).tgz"
  outside "$helm" push "$out/oarlock-$(chart_version).tgz" "$(chart_repository)" >"$work/push.log" 2>&1 || { cat "$work/push.log" >&2; die "helm push failed"; }
  if [[ $dry_run == true ]]; then
    cat "$work/push.log" >&2
    digest=$kZeroDigest
  else
    digest=$(sed -nE 's/^Digest: (sha256:[0-9a-f]{64})$/\1/p' "$work/push.log")
    [[ -n $digest ]] || die "helm push has reported no digest: $(paste -sd' ' "$work/push.log")"
  fi
  echo "$digest" >"$out/digests/chart"
  outside cosign sign --yes "$registry/oarlock/charts/oarlock@$digest"
  [[ -z ${ARTIFACTHUB_REPOSITORY_ID:-} ]] || publish_artifacthub_metadata
}

# Artifact Hub reads the owner of a repository of charts from an artifact with a fixed tag and these types.
publish_artifacthub_metadata() {
  sed -e "s,@REPOSITORY_ID@,$ARTIFACTHUB_REPOSITORY_ID,g" "$OARLOCK_ROOT/packaging/artifacthub/artifacthub-repo.yml" >"$out/artifacthub-repo.yml"
  ( cd "$out" && outside oras push "$registry/oarlock/charts/oarlock:artifacthub.io" \
    --config /dev/null:application/vnd.cncf.artifacthub.config.v1+yaml \
    artifacthub-repo.yml:application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml )
}
