#!/usr/bin/env bash
# Slurm, without Kubernetes: a real controller and two real nodes, each in a separate network namespace, run
# examples/protein_diffusion/slurm.sbatch (the guide's script) with srun, and `oarlock launch` under srun. The script runs in
# its own process and network namespaces: no process outlives it, and parallel runs share no port.
set -euo pipefail
: "${OARLOCK_BIN:?}" "${OARLOCK_SOURCE:?}"
if [[ ${1:-} != inside ]]; then
  exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" inside
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'FAILED: %s\n' "$*" >&2
  tail -n 20 "$work"/*.log "$work"/*.out >&2 || true
  exit 1
}
# until_true SECONDS WHAT COMMAND...: waits for a condition.
until_true() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [[ $SECONDS -lt $deadline ]] || fail "timed out while waiting until $what"
    read -rt 0.1 <> <(:) || true
  done
}

mount -t tmpfs tmpfs /run
mkdir -p /run/netns "$work"/{bin,state,spool-node1,spool-node2}
for node in 1 2; do ip netns add "node$node" && ip -n "node$node" link set lo up; done
ip link add veth1 netns node1 type veth peer name veth2 netns node2
for node in 1 2; do
  ip -n "node$node" addr add "10.77.0.$node/24" dev "veth$node" && ip -n "node$node" link set "veth$node" up
done
# `ip netns exec` would hide /sys/fs/cgroup, which slurmd requires.
on() { local node=$1; shift; nsenter --net="/run/netns/node$node" "$@"; }

host=$(hostname -s)
export SLURM_CONF=$work/slurm.conf PATH=$work/bin:$PATH
cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host(10.77.0.1)
SlurmctldPort=17001
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
# A requeued job waits for its old credential to expire.
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=10
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
NodeName=node1 NodeHostname=$host NodeAddr=10.77.0.1 Port=17002 CPUs=4 State=UNKNOWN
NodeName=node2 NodeHostname=$host NodeAddr=10.77.0.2 Port=17003 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP
CONF
on 1 slurmctld -D >"$work/slurmctld.out" 2>&1 &
for node in 1 2; do on "$node" slurmd -D -N "node$node" >"$work/slurmd$node.out" 2>&1 & done
two_idle_nodes() { [[ $(on 1 sinfo -h -o '%D %T' 2>/dev/null) == "2 idle" ]]; }
until_true 240 "two nodes are idle" two_idle_nodes

ln -s "$OARLOCK_BIN/oarlock-test-trainer" "$work/bin/oarlock-trainer"
ln -s "$OARLOCK_BIN/oarlock" "$work/bin/oarlock"
cat >"$work/trainer.yaml" <<'YAML'
task: tiny
steps: 20
batch: {size: 16}
threads: 1
log: {every_steps: 5}
distributed: {rendezvous_timeout_seconds: 180}
YAML
# expect_trained LOG WHAT: four ranks on two nodes, one of which logs that the parameters are equal on all.
expect_trained() {
  python3 - "$1" <<'EOF' || { cat "$1" >&2; fail "$2"; }
import json, sys
lines = [json.loads(line[line.index("{"):]) for line in open(sys.argv[1]) if "{" in line and line.rstrip().endswith("}")]
[done] = [line for line in lines if line.get("msg") == "training is complete"]
assert done["rank"] == 0 and done["world_size"] == 4 and done["parameters_bitwise_equal"] is True, done
[met] = [line for line in lines if line.get("msg") == "all ranks are connected"]
assert met["world_size"] == 4, met
EOF
  printf 'ok: %s\n' "$2"
}

# Node names do not resolve here: the master is found at the address from which srun was started.
on 1 srun --nodes=2 --ntasks-per-node=2 -K oarlock-trainer --config "$work/trainer.yaml" --log-format json \
  >"$work/srun.log" 2>&1 || fail "srun oarlock-trainer"
expect_trained "$work/srun.log" "srun, four tasks"

# One task for each node, which starts the node's ranks.
# shellcheck disable=SC2016  # the step's shell expands them
on 1 srun --nodes=2 --ntasks-per-node=1 -K bash -c 'oarlock launch --nproc 2 --nnodes "$SLURM_NNODES" \
    --node-rank "$SLURM_NODEID" --master-addr "$SLURM_LAUNCH_NODE_IPADDR" --master-port 29500 --no-prefix -- \
    oarlock-trainer --config "$0" --log-format json' "$work/trainer.yaml" >"$work/launch.log" 2>&1 || fail "srun oarlock launch"
expect_trained "$work/launch.log" "srun, one launcher for each node"

# A rank that fails ends the job; no other rank hangs.
status=0
on 1 srun --nodes=2 --ntasks-per-node=2 -K oarlock-trainer --config "$work/trainer.yaml" model.fault.kind=nan \
  >"$work/failed.log" 2>&1 || status=$?
[[ $status -ne 0 ]] || fail "a rank failed, but srun exited with 0"
printf 'ok: a failure ends the step with %s\n' "$status"

# The guide's script is queued, and requeued while it trains. It resumes from its newest checkpoint.
sed -e 's/ntasks-per-node=4/ntasks-per-node=2/' -e '/gres=/d' "$OARLOCK_SOURCE/examples/protein_diffusion/slurm.sbatch" >"$work/job.sbatch"
export CONFIG=$work/trainer.yaml SCRATCH=$work
job=$(on 1 sbatch --parsable --output="$work/job.log" "$work/job.sbatch" steps=150 model.fault.kind=slow \
  --log-format json)
checkpoints=$work/experiments/$job
has_checkpoint() { compgen -G "$checkpoints/step-*/manifest.json" >/dev/null; }
until_true 240 "there is a checkpoint" has_checkpoint
on 1 scontrol requeue "$job"
is_over() { [[ $(on 1 scontrol -o show job "$job") == *JobState=COMPLETED* ]]; }
until_true 400 "the requeued job is over" is_over
[[ $(on 1 scontrol -o show job "$job") == *Restarts=1* ]] || fail "the job was not requeued"
python3 - "$work/job.log" <<'EOF' || fail "the requeued job did not resume"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
met = [line for line in lines if line.get("msg") == "all ranks are connected"]
assert [line["world_size"] for line in met] == [4, 4], met
resumed = [line for line in lines if line.get("msg") == "resuming from a checkpoint"]
assert len(resumed) == 1 and resumed[0]["resumed_from_step"] > 0, resumed
[done] = [line for line in lines if line.get("msg") == "training is complete"]
assert done["step"] == 150 and done["parameters_bitwise_equal"] is True, done
print("ok: requeued, and resumed at step", resumed[0]["resumed_from_step"])
EOF
