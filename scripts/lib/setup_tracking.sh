# shellcheck shell=bash
# scripts/setup tracking: the programs with which tests read back what the trainer reports, from PyPI, in a virtual
# environment for each.
apt_install python3 python3-venv

# install_reader NAME VERSION PACKAGES...: creates $OARLOCK_CACHE/NAME-VERSION.
install_reader() {
  local target=$OARLOCK_CACHE/$1-$2
  rm -rf "$target.new"
  python3 -m venv "$target.new"
  say "installing $1 $2"
  "$target.new/bin/python" -m pip install --quiet "$1==$2" "${@:3}" || die -c 69 "pip could not install $1 $2"
  "$target.new/bin/python" -c "import $1" || die "the $1 that was installed does not work"
  mv "$target.new" "$target"
}

# A virtual environment knows its own path, so only `bin/python` of it is used, never its scripts.
reader() { [[ -x $OARLOCK_CACHE/$1-$2/bin/python ]] || with_lock "$1" install_reader "$@"; }

reader tensorboard 2.20.0 'setuptools<81'  # tensorboard imports pkg_resources
reader wandb 0.31.0

# The server with a SQL store needs mlflow-skinny and these libraries: 230 MB, where mlflow is 900.
kMlflowVersion=3.17.2
install_mlflow() {
  local target=$OARLOCK_CACHE/mlflow-$kMlflowVersion
  rm -rf "$target.new"
  python3 -m venv "$target.new"
  say "installing mlflow-skinny $kMlflowVersion"
  "$target.new/bin/python" -m pip install --quiet "mlflow-skinny==$kMlflowVersion" 'SQLAlchemy<3' 'alembic<2' 'Flask<4' \
    'Flask-CORS<7' 'aiohttp<4' 'huey<4' 'numpy<3' 'pandas<4' || die -c 69 "pip could not install mlflow-skinny $kMlflowVersion"
  "$target.new/bin/python" -c "import mlflow.server" || die "the mlflow that was installed does not work"
  mv "$target.new" "$target"
}
[[ -x $OARLOCK_CACHE/mlflow-$kMlflowVersion/bin/python ]] || with_lock mlflow install_mlflow
