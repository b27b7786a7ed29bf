#!/usr/bin/env bash
# Fails on a C++ file that clang-format would change.
# usage: clang_format.sh SOURCE_DIR
set -euo pipefail
cd "$1"
git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cc' '*.cu' | xargs -0 clang-format-19 --dry-run --Werror
echo "all C++ files are formatted"
