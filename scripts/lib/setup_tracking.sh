# shellcheck shell=bash
# scripts/setup tracking: the programs with which tests read back what the trainer reports, from PyPI, in a virtual
# environment for each.
apt_install python3 python3-venv
# shellcheck source=scripts/lib/readers.sh
source "$OARLOCK_ROOT/scripts/lib/readers.sh"

reader tensorboard 2.20.0 tensorboard
reader wandb 0.31.0 wandb
reader mlflow 3.17.2 mlflow.server
reader safetensors 0.8.0 safetensors
