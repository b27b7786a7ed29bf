# scripts/setup docs: MkDocs with the Material theme in a virtual environment, for scripts/docs.
apt_install python3 python3-venv

kDocsVersions=$(sha256sum <"$OARLOCK_ROOT/scripts/lib/docs/requirements.txt" | cut -c 1-16)
kDocsEnvironment=$OARLOCK_CACHE/docs-$kDocsVersions
install_mkdocs() {
  rm -rf "$kDocsEnvironment"
  python3 -m venv "$kDocsEnvironment"
  say "installing MkDocs (about 15 MB of downloads)"
  "$kDocsEnvironment/bin/python" -m pip install --quiet --no-deps -r "$OARLOCK_ROOT/scripts/lib/docs/requirements.txt" ||
    die -c 69 "pip could not install scripts/lib/docs/requirements.txt"
}
with_lock docs once "docs-$kDocsVersions" install_mkdocs
