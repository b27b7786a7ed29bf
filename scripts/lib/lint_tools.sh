# shellcheck shell=bash
# Where the tools of the lint lane are that are not Debian packages. Needs common.sh.
kLintVersions=$(sha256sum <"$OARLOCK_ROOT/scripts/lib/lint_requirements.txt" | cut -c 1-16)
kLintEnvironment=$OARLOCK_CACHE/lint-$kLintVersions
