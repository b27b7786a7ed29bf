#!/usr/bin/env bash
# Builds the documentation as a site, and fails on a warning of MkDocs or if a page loads something from another host.
# usage: site.sh SOURCE_DIR
set -euo pipefail
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/docs build --output "$work/site"
pages=$(find "$work/site" -name '*.html' | wc -l)
[[ $pages -gt 40 ]] || { echo "the site has only $pages pages"; exit 1; }
# What a browser loads by itself. Links are not loaded.
if grep -rnoE '<(script|img|iframe|source|link rel="(stylesheet|icon|preconnect|preload)")[^>]* (src|href)="?(https?:)?//[^" >]+|url\(["'"'"']?(https?:)?//[^)]+|@import[^;]+' "$work/site" --include='*.html' --include='*.css'; then
  echo "the site loads these from other hosts"
  exit 1
fi
echo "$pages pages load nothing from other hosts"
