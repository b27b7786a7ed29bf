#!/bin/sh
# usage: static_packages.sh FILE [LIBRARY...]
# Writes to FILE the dpkg records of the Debian packages that static libraries belong to, each record followed by an empty
# line. A program that contains the libraries names them nowhere, and scanners look for packages.
set -eu
file=$1
shift
: >"$file"
[ $# -gt 0 ] && command -v dpkg-query >/dev/null || exit 0
for library in "$@"; do
  real=$(realpath "$library")
  # /usr/lib is /lib in the file list of packages from before the merged /usr.
  dpkg-query --search "$real" "${real#/usr}" 2>/dev/null | sed -n 's/: .*//p' | head -n 1
done | sort -u | while read -r package; do
  dpkg-query --status "$package"
  echo
done >"$file"
