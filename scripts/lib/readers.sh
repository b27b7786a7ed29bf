# shellcheck shell=bash
# Programs of PyPI in virtual environments below $OARLOCK_CACHE, with the versions that scripts/lib/tracking names.

# install_reader NAME VERSION MODULE: creates $OARLOCK_CACHE/NAME-VERSION with the packages of
# scripts/lib/tracking/NAME.txt, unless it has them: a copy of the file is in it. A virtual environment contains its own path,
# so only `bin/python` of it is used, never its scripts.
install_reader() {
  local target=$OARLOCK_CACHE/$1-$2 packages=$OARLOCK_ROOT/scripts/lib/tracking/$1.txt
  cmp -s "$packages" "$target/packages.txt" && return 0
  rm -rf "$target.new"
  python3 -m venv "$target.new"
  say "installing $1 $2"
  "$target.new/bin/python" -m pip install --quiet --no-deps -r "$packages" || die -c 69 "pip could not install $packages"
  "$target.new/bin/python" -c "import $3" || die "the $1 that was installed does not work"
  cp "$packages" "$target.new/packages.txt"
  rm -rf "$target"
  mv "$target.new" "$target"
}

reader() { with_lock "$1" install_reader "$@"; }
