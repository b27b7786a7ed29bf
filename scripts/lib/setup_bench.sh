# scripts/setup bench: Python PyTorch of the same version, the rival in benchmarks and the maker of goldens. Its import
# needs the whole CUDA set (about 5 GB unpacked), which is why nothing else depends on it.
apt_install python3 python3-venv

kPythonTorch=$OARLOCK_CACHE/python-torch-2.11.0
install_python_torch() {
  rm -rf "$kPythonTorch.new"
  python3 -m venv "$kPythonTorch.new"
  say "installing PyTorch 2.11.0 for Python (about 2.5 GB of downloads)"
  "$kPythonTorch.new/bin/python" -m pip install --quiet torch==2.11.0 numpy safetensors || die -c 69 "pip could not install torch 2.11.0"
  "$kPythonTorch.new/bin/python" -c 'import torch; assert torch.__version__.startswith("2.11.0")' || die "the PyTorch that was installed does not work"
  mv "$kPythonTorch.new" "$kPythonTorch"
}
# A virtual environment contains its own path, so only `bin/python` of it is used, never its scripts.
[[ -x $kPythonTorch/bin/python ]] || with_lock python-torch install_python_torch
