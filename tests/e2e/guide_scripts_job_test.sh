#!/usr/bin/env bash
# The Python DDP scripts of tests/integration/cli/guide_scripts, unchanged, as TrainingJobs with two pods: `oarlock launch` starts
# them, and one job is restarted by the operator after a rank killed itself. The lane is bench-smoke, whose set-up has PyTorch for Python.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
bin=${OARLOCK_BIN:?is set by ctest}
scripts=$OARLOCK_SOURCE/tests/integration/cli/guide_scripts
venv=${XDG_CACHE_HOME:-$HOME/.cache}/oarlock/python-torch-2.11.0
[[ -x $venv/bin/python ]] || broken "$venv does not exist: run scripts/setup bench"
python_base=$("$venv/bin/python" -c 'import sys; print(sys.base_prefix)')
use_operator
jobs=(gears comformer quantumgrav training-engine sedd)
finish() {
  local status=$?
  [[ $status -eq 0 ]] || describe_world >&2
  for job in "${jobs[@]}"; do kubectl delete "tj/$job" "pvc/$job-checkpoints" --ignore-not-found --wait=false >/dev/null 2>&1 || true; done
}
trap finish EXIT

# training_job NAME CRASH_RANK: the TrainingJob of a script, in which this rank kills itself once (none: -1). An image with PyTorch has
# several GB, so the pods see the Python and the libraries of this machine instead; their image only has the root directory.
# shellcheck disable=SC2016  # $name and others are jq's
training_job() {
  jq -n --arg name "$1" --arg crash_rank "$2" --arg image "docker.io/oarlock/operator:$(<VERSION)" --arg launcher "$bin/oarlock" \
    --arg python "$venv/bin/python" --arg script "$scripts/${1//-/_}.py" \
    --args '($ARGS.positional | unique | to_entries | map({name: "machine-\(.key)", path: .value})) as $directories
    | {apiVersion: "oarlock.dev/v1alpha1", kind: "TrainingJob", metadata: {name: $name}, spec: {
        nodes: 2, image: $image, checkpoints: {size: "1Gi"}, failurePolicy: {maxRestarts: 1, backoffSeconds: 0}, template: {spec: {
          containers: [{name: "trainer", command: [$launcher, "launch", "--", $python, $script], workingDir: "/checkpoints",
            env: [{name: "CRASH_RANK", value: $crash_rank}, {name: "PYTHONUNBUFFERED", value: "1"}, {name: "PYTHONDONTWRITEBYTECODE", value: "1"}],
            volumeMounts: ($directories | map({name, mountPath: .path, readOnly: true}))}],
          volumes: ($directories | map({name, hostPath: {path, type: "Directory"}}))}}}}' -- /usr "$bin" "$scripts" "$venv" "${extra_directories[@]}"
}
extra_directories=()
[[ $python_base == /usr || $python_base == /usr/* ]] || extra_directories+=("$python_base")

# expect_start JOB ATTEMPT TEXT: the first rank of this attempt printed that it starts so, with two ranks.
expect_start() {
  local log
  log=$(kubectl logs "$1-$2-0")
  [[ $log == *"$3 with 2 ranks"* ]] || broken "attempt $2 of $1 does not start '$3 with 2 ranks': $log"
}

# expect_model JOB: the script has written its model to the claim, which is a directory of this machine.
expect_model() {
  local volume directory
  volume=$(kubectl get pvc "$1-checkpoints" -o 'jsonpath={.spec.volumeName}')
  directory=$(kubectl get pv "$volume" -o 'jsonpath={.spec.hostPath.path}')
  [[ -s $directory/model.pt ]] || broken "$1 has no model: $(ls -l "$directory")"
}

# has_ended JOB: it is complete or failed.
has_ended() {
  local phase
  phase=$(field "$1" .status.phase)
  [[ $phase == Complete || $phase == Failed ]]
}

# Removes the leftovers of a killed test, which would be read as the results of this one.
for job in "${jobs[@]}"; do
  kubectl delete "tj/$job" "pvc/$job-checkpoints" --ignore-not-found --timeout=120s
done
for job in "${jobs[@]}"; do
  started=$SECONDS
  crash_rank=-1 restarts=0 before="starts at epoch 0"
  [[ $job != sedd ]] || before="starts at step 0"
  [[ $job != gears ]] || crash_rank=1 restarts=1
  step "$job"
  training_job "$job" "$crash_rank" | kubectl apply -f -
  wait_for 240 "$job has ended" has_ended "$job"
  [[ $(field "$job" .status.phase) == Complete ]] || broken "$job: $(field "$job" '.status.conditions[?(@.type=="Failed")].message')"
  expect_field "$job" .status.attempt "$restarts"
  expect_field "$job" .status.restarts.total "$restarts"
  if [[ $job == gears ]]; then
    expect_start "$job" 1 "starts at epoch 1"
  else
    expect_start "$job" 0 "$before"
  fi
  expect_model "$job"
  echo "$job took $((SECONDS - started)) s, on $(kubectl get pods -l "oarlock.dev/job-name=$job" -o 'jsonpath={.items[*].spec.nodeName}')"
done
