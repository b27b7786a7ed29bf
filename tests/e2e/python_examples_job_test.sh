#!/usr/bin/env bash
# The examples for PyTorch, Lightning and Transformers as TrainingJobs of two pods whose image has Debian's Python without Oarlock:
# progress, a rank that is killed and trains again in its pod, a rank that is stopped, and an interruption after which the job resumes.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/lib/common.sh
source scripts/lib/common.sh
# shellcheck source=scripts/lib/cluster/oci_archive.sh
source scripts/lib/cluster/oci_archive.sh
# shellcheck source=tests/e2e/any_image/images.sh
source tests/e2e/any_image/images.sh
python=$(basename "$(realpath /usr/bin/python3)")
frameworks=$OARLOCK_CACHE/transformers-5.24.0/lib/$python/site-packages
[[ -d $frameworks ]] || broken "$frameworks does not exist: run scripts/setup frameworks"
torch=$(dirname "${OARLOCK_TORCH_DIR:?is set by ctest}")
jobs=(pytorch lightning transformers)
use_operator
work=$(mktemp -d)
finish() {
  local status=$?
  [[ $status -eq 0 ]] || describe_world >&2
  rm -rf "$work"
  for job in "${jobs[@]}"; do kubectl delete "tj/$job" "pvc/$job-checkpoints" --ignore-not-found --wait=false >/dev/null 2>&1 || true; done
}
trap finish EXIT

# training_job NAME ARGUMENTS STALL_TIMEOUT: the job of the example. PyTorch and the frameworks have 1.7 GB, so the pods see those of this machine.
# shellcheck disable=SC2016  # $name and others are jq's
training_job() {
  kubectl create --dry-run=client -o json -f "examples/$1/trainingjob.yaml" | jq --arg path "$work/libraries:$frameworks:$torch:$PWD/python" --arg libraries "$work/libraries" \
    --arg script "$PWD/examples/$1/train.py" --argjson arguments "$2" --argjson stall "$3" --args '($ARGS.positional | to_entries
      | map({name: "machine-\(.key)", path: .value})) as $directories
    | .spec.failurePolicy.backoffSeconds = 0 | .spec.stallPolicy = {timeoutSeconds: $stall}
    | .spec.template.spec |= (.volumes = ($directories | map({name, hostPath: {path, type: "Directory"}}))
      | .containers[0] |= (.image = "docker.io/test/python:1" | .command = ["python3", $script] | .args = $arguments
        | .volumeMounts = ($directories | map({name, mountPath: .path, readOnly: true}))
        | .env = ({PYTHONPATH: $path, LD_LIBRARY_PATH: $libraries, OMP_NUM_THREADS: "1", PYTHONDONTWRITEBYTECODE: "1", PYTHONUNBUFFERED: "1", HF_HOME: "/tmp"}
          | to_entries | map({name: .key, value}))))' -- "$frameworks" "$torch" "$PWD/python" "$PWD/examples" "$work/libraries"
}

# in_pod POD CODE: runs Python in its container; rank_process is the program's process.
in_pod() {
  kubectl exec "$1" -c trainer -- python3 -c "import glob, os
rank_process = min(int(f.split('/')[2]) for f in glob.glob('/proc/[0-9]*/stat') if open(f).read().rsplit(')', 1)[1].split()[1] == '1' and b'train.py' in open(f[:-4] + 'cmdline', 'rb').read())
$2"
}
# wait_for_job SECONDS JOB WHAT COMMAND...: as wait_for, but ends when the job has failed.
has_failed_or() { is_phase "$1" Failed || "${@:2}"; }
wait_for_job() {
  wait_for "$1" "$3" has_failed_or "$2" "${@:4}"
  ! is_phase "$2" Failed || broken "$2: $(field "$2" '.status.conditions[?(@.type=="Failed")].message')"
}
step_of() { field "$1" .status.progress.step; }
stalled_message() { field "$1" '.status.conditions[?(@.type=="Stalled")].message'; }
is_phase() { [[ $(field "$1" .status.phase) == "$2" ]]; }
other_process_runs() { [[ $(in_pod "$1" 'print(rank_process)') != "$2" ]]; }
has_attempt() { [[ $(field "$1" .status.attempt) == "$2" ]]; }

mkdir "$work/libraries"
python3 -c "import sys; sys.path.insert(0, 'tests/support'); import torch_python; torch_python.variables(sys.argv[1])" "$work/libraries"
python_image README.md python3 "$python" "lib$python-stdlib" libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 \
  libncursesw6 libtinfo6 libreadline8 libdb5.3 libnsl2 libtirpc3 libcrypt1 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 \
  libkeyutils1 libgcc-s1 libstdc++6
lap "to the image"

for job in "${jobs[@]}"; do
  step "$job"
  kubectl delete "tj/$job" "pvc/$job-checkpoints" --ignore-not-found --timeout=120s
  arguments='["--epochs", "1000000"]' stall=15
  # Ranks above 0 report nothing, so the launcher of their node opens its port a minute after their start.
  [[ $job != transformers ]] || arguments='["--max_steps", "1000000"]' stall=75
  training_job "$job" "$arguments" "$stall" | kubectl apply -f -
  wait_for_job 300 "$job" "$job reports steps" progress_is_over "$job" step 0
  wait_for_job 60 "$job" "$job reports its loss" bash -c "[[ -n \$(kubectl get tj $job -o 'jsonpath={.status.progress.loss}') ]]"
  kubectl get tj "$job" -o wide
  lap "to progress"

  process=$(in_pod "$job-0-1" 'print(rank_process); os.kill(rank_process, 9)')
  killed=$(date +%s.%N)
  wait_for_job 60 "$job" "rank 1 runs again" other_process_runs "$job-0-1" "$process"
  awk -v killed="$killed" -v now="$(date +%s.%N)" 'BEGIN {printf "its process runs again after at most %.1f s\n", now - killed}'
  wait_for_job 120 "$job" "the restart is counted" bash -c "[[ \$(kubectl get tj $job -o 'jsonpath={.status.inPodRestarts.total}') == 1 ]]"
  before=$(step_of "$job")
  wait_for_job 240 "$job" "$job trains again" bash -c "[[ \$(kubectl get tj $job -o 'jsonpath={.status.progress.step}') != $before ]]"
  expect_field "$job" .status.restarts.total 0
  lap "to the restart in the pod"

  in_pod "$job-0-1" 'os.kill(rank_process, 19)'
  wait_for_job 120 "$job" "$job is stalled" is_phase "$job" Stalled
  stalled_message "$job"; echo
  [[ $(stalled_message "$job") == *"rank 1 on node "*"is stopped"* ]] || broken "the message does not name rank 1"
  in_pod "$job-0-1" 'os.kill(rank_process, 18)'
  wait_for_job 120 "$job" "$job runs again" is_phase "$job" Running
  lap "to the stall"

  before=$(step_of "$job")
  read -r node id < <(kubectl get pod "$job-0-0" -o 'jsonpath={.spec.nodeName} {.status.containerStatuses[0].containerID}{"\n"}' | sed 's|containerd://||')
  scripts/cluster node "${node#node}" ctr tasks kill --signal SIGTERM "$id"
  wait_for_job 120 "$job" "attempt 1 begins" has_attempt "$job" 1
  expect_field "$job" '.status.attempts[0].reason' Interrupted
  wait_for_job 240 "$job" "attempt 1 resumes" progress_is_over "$job" step "$before"
  expect_field "$job" .status.attempt 1
  lap "to the resumed attempt"
  kubectl delete "tj/$job" --timeout=120s
done
