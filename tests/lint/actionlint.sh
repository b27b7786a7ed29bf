#!/usr/bin/env bash
# Checks .github: the workflows with actionlint, which also runs shellcheck over their steps, and all files with their schemas.
# usage: actionlint.sh SOURCE_DIR
source "$1/scripts/lib/common.sh"
source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
source "$OARLOCK_ROOT/scripts/lib/lint_tools.sh"
cd "$OARLOCK_ROOT"
"$(program actionlint)" -color .github/workflows/*.yaml
check() { "$kLintEnvironment/bin/check-jsonschema" --builtin-schema "vendor.$1" "${@:2}"; }
check github-workflows .github/workflows/*.yaml
check dependabot .github/dependabot.yml
check github-issue-config .github/ISSUE_TEMPLATE/config.yml
forms=()
for file in .github/ISSUE_TEMPLATE/*; do [[ $file == */config.yml ]] || forms+=("$file"); done
check github-issue-forms "${forms[@]}"
