# scripts/setup build: what the trainer needs, the operator's libraries, and what the tests on this machine need.
# shellcheck source=scripts/lib/setup_trainer.sh
source "$OARLOCK_ROOT/scripts/lib/setup_trainer.sh"

apt_install git libsimdjson-dev libgtest-dev libgmock-dev mmseqs2-examples slurmctld slurmd slurm-client tinyproxy-bin \
  bash groff-base zsh fish   # completions and man pages of oarlock
