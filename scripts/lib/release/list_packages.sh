#!/bin/sh
# usage: list_packages.sh ROOT
# A hook of mmdebstrap: writes ROOT/packages, which names for each file of the downloaded packages its package, the version and
# the source package, separated by tabs. dpkg itself has no record of packages that are only unpacked.
set -eu
for deb in "$1"/var/cache/apt/archives/*.deb; do
  package=$(dpkg-deb --show --showformat='${Package}\t${Version}\t${source:Package}' "$deb")
  dpkg-deb --fsys-tarfile "$deb" | tar --list | sed -n "s,^\.\(/.*[^/]\)\$,$package\t\1,p"
done >"$1/packages"
