#!/usr/bin/env bash
# docs/trainer-config.md equals the output of oarlock-trainer --print-reference.
set -euo pipefail
: "${OARLOCK_BIN:?}" "${OARLOCK_SOURCE:?}"
if ! diff -u "$OARLOCK_SOURCE/docs/trainer-config.md" <("$OARLOCK_BIN/oarlock-trainer" --print-reference); then
  echo "docs/trainer-config.md is out of date: oarlock-trainer --print-reference >docs/trainer-config.md" >&2
  exit 1
fi
