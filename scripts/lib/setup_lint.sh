# scripts/setup lint: what checks the sources.
apt_install clang-format-19 clang-tidy-19 shellcheck python3 python3-pip mypy

# shellcheck source=scripts/lib/chart/grafana_sdk.sh
source "$OARLOCK_ROOT/scripts/lib/chart/grafana_sdk.sh"
install_grafana_sdk
