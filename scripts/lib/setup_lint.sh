# scripts/setup lint: what checks the sources.
apt_install clang-format-19 clang-tidy-19 shellcheck python3
