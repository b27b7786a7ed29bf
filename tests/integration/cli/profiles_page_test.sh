#!/usr/bin/env bash
# The files and commands of docs/guides/profiles.md: the pods have the values of the profile, and those of the job take precedence.
set -euo pipefail
: "${OARLOCK_BIN:?}"
page=$(dirname "${BASH_SOURCE[0]}")/../../../docs/guides/profiles.md
page=$(readlink -f "$page")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# The first line of each block of YAML is the name of its file.
awk '/^```yaml$/ {getline; file = $2; next} /^```$/ {file = ""} file {print > file}' "$page"
awk '/^<!-- executed by tests\/integration\/cli\/profiles_page_test.sh -->$/ {marked = 1; next}
     /^```sh$/ {shown = marked; next} /^```$/ {shown = marked = 0} shown' "$page" >commands
[[ $(wc -l <commands) == 2 ]] || fail "the page has other commands: $(cat commands)"
while read -r program arguments; do
  # shellcheck disable=SC2086  # words
  "$OARLOCK_BIN/$program" $arguments >out 2>err || fail "$program $arguments: $(cat err)"
  [[ ! -s err ]] || fail "$program $arguments: $(cat err)"
  cp out "${arguments%% *}.out"
done <commands
grep -q 'TrainingJob bert is valid' validate.out || fail "validate: $(cat validate.out)"
for value in 'registry.example.com/team-a/pytorch:2.9' 'rdma/hca: 1' 'key: nvidia.com/gpu' 'name: NCCL_IB_HCA' 'value: INFO' '- python3'; do
  [[ $(grep -cF -- "$value" render.out) -ge 2 ]] || fail "the pods do not have '$value': $(cat render.out)"
done
! grep -qF 'value: WARN' render.out || fail "the job does not take precedence"

sed 's/nodes: 2/nodes: 2\n  profile: other/' job.yaml >named.yaml
"$OARLOCK_BIN/oarlock" render named.yaml --profile profile.yaml >out 2>err && fail "a missing profile is accepted"
grep -q "there is no TrainingProfile 'other'" err || fail "$(cat err)"
"$OARLOCK_BIN/oarlock" render named.yaml 2>&1 >/dev/null | grep -q "without the values of its profile 'other'" || fail "no note"
sed 's/failurePolicy:.*/nodes: 2/' profile.yaml >wrong.yaml
"$OARLOCK_BIN/oarlock" validate wrong.yaml >out 2>err && fail "a profile with nodes is valid"
grep -q '^wrong.yaml:[0-9]*:[0-9]*: spec.nodes: belongs to a job' err || fail "$(cat err)"
"$OARLOCK_BIN/oarlock" validate profile.yaml >out 2>err || fail "validate profile.yaml: $(cat err)"
grep -q '^profile.yaml: TrainingProfile default is valid$' out || fail "validate profile.yaml: $(cat out)"

# The profile of the job's namespace precedes another one, and a job is the one with its namespace, not only its name.
{
  sed 's/namespace: team-a/namespace: oarlock-system/; s/pytorch:2.9/pytorch:operator/' profile.yaml
  echo '---'
  cat profile.yaml
} >profiles.yaml
{
  sed 's/namespace: team-a/namespace: team-b/; s/train.py/other.py/' job.yaml
  echo '---'
  cat job.yaml
} >jobs.yaml
"$OARLOCK_BIN/oarlock" render jobs.yaml --profile profiles.yaml >out 2>err || fail "render jobs.yaml: $(cat err)"
for words in 'pytorch:operator other.py' 'pytorch:2.9 train.py'; do
  read -r image program <<<"$words"
  [[ $(grep -cF -- "$image" out) == "$(grep -cF -- "- $program" out)" && $(grep -cF -- "- $program" out) == 2 ]] ||
    fail "$words: $(cat out)"
done

# Errors in pods are found in a profile, and noted before it is merged.
sed 's/operator: Exists/operator: Exist/' profile.yaml >wrong.yaml
"$OARLOCK_BIN/oarlock" validate wrong.yaml >out 2>err && fail "a profile with a wrong toleration is valid"
grep -q "^wrong.yaml:[0-9]*:[0-9]*: spec.template.spec.tolerations\[0\].operator: 'Exist' is not one of" err || fail "$(cat err)"
"$OARLOCK_BIN/oarlock" render job.yaml --profile wrong.yaml 2>&1 >/dev/null | grep -q "tolerations\[0\].operator" || fail "render: no note"

# The merged job is checked as one without a profile: a job may mount a volume of its profile only.
mount='env: [{name: NCCL_DEBUG, value: INFO}]\n          volumeMounts: [{name: scratch, mountPath: /scratch}]'
sed "s|env: .*|$mount|; s|nodes: 2|nodes: 2\n  profile: default|" job.yaml >mounts.yaml
"$OARLOCK_BIN/oarlock" render mounts.yaml --profile profile.yaml 2>&1 >/dev/null |
  grep -q "volumeMounts\[[0-9]*\].name: there is no volume 'scratch'" || fail "render mounts.yaml: no note of the missing volume"
sed 's|    spec:|    spec:\n      volumes: [{name: scratch, emptyDir: {}}]|' profile.yaml >scratch.yaml
"$OARLOCK_BIN/oarlock" render mounts.yaml --profile scratch.yaml >out 2>err || fail "render mounts.yaml: $(cat err)"
[[ ! -s err ]] || fail "render mounts.yaml with the volume: $(cat err)"

# A profile of another namespace is noted, and a live job has the profile of its status.
sed 's/namespace: team-a/namespace: oarlock-system/' profile.yaml >operator.yaml
"$OARLOCK_BIN/oarlock" render job.yaml --profile operator.yaml 2>&1 >/dev/null |
  grep -q 'TrainingProfile default of namespace oarlock-system, which applies only if the operator runs there' || fail "no note of the namespace"
{
  cat job.yaml
  printf 'status:\n  phase: Running\n  profile: {name: default, namespace: team-a, uid: u, generation: 1, spec: %s}\n' "'{\"image\": \"recorded:1\"}'"
} >live.yaml
"$OARLOCK_BIN/oarlock" render live.yaml >out 2>err || fail "render live.yaml: $(cat err)"
[[ $(grep -c 'image: "recorded:1"' out) == 2 && ! -s err ]] || fail "render live.yaml: $(cat out err)"
