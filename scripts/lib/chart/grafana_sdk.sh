# shellcheck shell=bash
# The Grafana Foundation SDK for Python, from which scripts/lib/chart/dashboards builds the dashboards. Needs common.sh.

# The epoch of a version is the time at which the SDK was generated, and the rest is the version of Grafana's schema.
kGrafanaSdkVersion='1769699379!11.6.0'
kGrafanaSdkHash=92d7a8144eba0fa802e728fb70e63d74b056fb1195ff116d812ad7a4ccfa5eca
kGrafanaSdk=$OARLOCK_CACHE/grafana-foundation-sdk-${kGrafanaSdkVersion/!/-}

unpack_grafana_sdk() {
  [[ -d $kGrafanaSdk ]] && return 0
  local work; work=$(mktemp -d "$OARLOCK_CACHE/grafana-sdk.XXXXXX")
  say "downloading the Grafana Foundation SDK ${kGrafanaSdkVersion#*!}"
  printf 'grafana-foundation-sdk==%s --hash=sha256:%s\n' "$kGrafanaSdkVersion" "$kGrafanaSdkHash" >"$work/requirement.txt"
  python3 -m pip download --quiet --no-deps --require-hashes --only-binary=:all: -d "$work" -r "$work/requirement.txt" ||
    die -c 69 "pip could not download grafana-foundation-sdk $kGrafanaSdkVersion"
  python3 -m zipfile -e "$work"/grafana_foundation_sdk-*.whl "$work/site"
  mv -T "$work/site" "$kGrafanaSdk"
  rm -rf "$work"
}
install_grafana_sdk() { [[ -d $kGrafanaSdk ]] || with_lock grafana-sdk unpack_grafana_sdk; }
