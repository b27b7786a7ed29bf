# shellcheck shell=bash
# scripts/setup tracking: the programs with which tests read back what the trainer reports, from PyPI, in a virtual
# environment for each, and a browser for TensorBoard's pages.
apt_install chromium fonts-dejavu-core pngquant python3 python3-venv

# install_reader NAME VERSION MODULE: creates $OARLOCK_CACHE/NAME-VERSION with the packages of
# scripts/lib/tracking/NAME.txt, unless it has them: a copy of the file is in it. A virtual environment knows its own path,
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

reader tensorboard 2.20.0 tensorboard
reader wandb 0.31.0 wandb
reader mlflow 3.17.2 mlflow.server
reader playwright 1.65.2 playwright.sync_api
