# shellcheck shell=bash
# scripts/setup frameworks: Lightning, Hugging Face Transformers and Kubeflow's SDK, from PyPI, with which the tests run the
# examples in Python. Their PyTorch is the wheel of scripts/setup trainer.
apt_install python3 python3-venv
# shellcheck source=scripts/lib/readers.sh
source "$OARLOCK_ROOT/scripts/lib/readers.sh"

reader transformers 5.24.0 transformers
