# shellcheck shell=bash
# scripts/setup lint: what checks the sources.

# shellcheck source=scripts/lib/cluster/versions.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
# shellcheck source=scripts/lib/cluster/build.sh
source "$OARLOCK_ROOT/scripts/lib/cluster/build.sh"
# shellcheck source=scripts/lib/lint_tools.sh
source "$OARLOCK_ROOT/scripts/lib/lint_tools.sh"

apt_install clang-format-19 clang-tidy-19 shellcheck lua5.1 python3 python3-pip python3-venv python3-yaml jq mypy

# shellcheck source=scripts/lib/chart/grafana_sdk.sh
source "$OARLOCK_ROOT/scripts/lib/chart/grafana_sdk.sh"
install_grafana_sdk

# check-jsonschema has the schemas of the forge's configuration files.
install_check_jsonschema() {
  rm -rf "$kLintEnvironment"
  python3 -m venv "$kLintEnvironment"
  "$kLintEnvironment/bin/python" -m pip install --quiet --no-deps -r "$OARLOCK_ROOT/scripts/lib/lint_requirements.txt" ||
    die -c 69 "pip could not install scripts/lib/lint_requirements.txt"
}
with_lock lint once "$(basename "$kLintEnvironment")" install_check_jsonschema

build_actionlint() {
  [[ ! -x $(program actionlint) ]] || return 0
  go_dir=$(ensure_go)
  build_module_program actionlint github.com/rhysd/actionlint "$kActionlintVersion" github.com/rhysd/actionlint/cmd/actionlint
  rm -rf "$kGoWork"
}
with_lock cluster-build build_actionlint
