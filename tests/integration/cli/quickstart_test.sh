#!/usr/bin/env bash
# The README's first command: a trained model, and a second call that does not train again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
broken() { printf 'FAILED: %s\n' "$*" >&2; tail -n 30 "$work/log" >&2; exit 1; }

scripts/quickstart --workdir "$work/runs" >"$work/log" 2>&1 || broken "the first run ended with $?"
accuracy=$(grep -oE 'test accuracy [0-9.]+' "$work/log" | tail -n 1 | grep -oE '[0-9.]+')
awk -v a="${accuracy:-0}" 'BEGIN { exit !(a >= 0.89 && a < 1) }' || broken "the accuracy is '$accuracy'"
grep -q '2 ranks with bitwise equal parameters' "$work/log" || broken "equal parameters are not reported"
grep -qE 'speed: [0-9.]+ samples/s' "$work/log" || broken "no speed"
checkpoint=$(sed -nE 's/.*checkpoint: (.*)/\1/p' "$work/log" | tail -n 1)
[[ -s $checkpoint/model.safetensors && -s $checkpoint/manifest.json ]] || broken "no checkpoint in '$checkpoint'"

scripts/quickstart --workdir "$work/runs" >"$work/log" 2>&1 || broken "the second run ended with $?"
grep -q 'complete already' "$work/log" || broken "the second run does not say that the training was complete"

# On a terminal: progress instead of log lines, and the same summary. The checkout has the programs of the first run.
script -qec "scripts/quickstart --workdir '$work/runs'" /dev/null </dev/null >"$work/log" 2>&1 || broken "the run on a terminal ended with $?"
grep -q 'ranks       2, with bitwise equal parameters' "$work/log" || broken "no table of results on a terminal"
grep -q "trained: test accuracy $accuracy, 2 ranks with bitwise equal parameters" "$work/log" || broken "no summary on a terminal"

# The programs of a release, from its archive and from its directory; nothing is built.
tar -czf "$work/release.tar.gz" -C "${OARLOCK_BIN%/bin}" --transform 's,^,oarlock-release/,' bin/oarlock bin/oarlock-trainer
for release in "$work/release.tar.gz" "${OARLOCK_BIN%/bin}"; do
  XDG_CACHE_HOME=$work/cache scripts/quickstart --from "$release" --workdir "$work/runs" >"$work/log" 2>&1 || broken "--from $release ended with $?"
  grep -q 'complete already' "$work/log" || broken "--from $release did not find the run"
  ! grep -q 'building' "$work/log" || broken "--from $release built something"
done

# A program whose LibTorch is not where the program searches for it, as on another machine than the one that built it.
mkdir -p "$work/moved/bin"
cp "$OARLOCK_BIN/oarlock" "$OARLOCK_BIN/oarlock-trainer" "$work/moved/bin"
python3 - "$work/moved/bin/oarlock-trainer" <<'PYTHON'
import re, sys
program = open(sys.argv[1], "rb").read()
moved, count = re.subn(rb"/([^\0:]*)(/torch-2\.11\.0/torch/lib)", lambda match: b"/" + b"-" * len(match[1]) + match[2], program)
assert count == 1, count
open(sys.argv[1], "wb").write(moved)
PYTHON
! "$work/moved/bin/oarlock-trainer" --version >/dev/null 2>&1 || broken "the changed program still finds LibTorch"
scripts/quickstart --from "$work/moved" --workdir "$work/runs" >"$work/log" 2>&1 || broken "--from moved programs ended with $?"
grep -q 'complete already' "$work/log" || broken "the moved programs did not find the run"

# The archive of a release.
rm "$work/moved/bin/oarlock-trainer"
status=0
scripts/quickstart --from "$work/moved" >"$work/log" 2>&1 || status=$?
[[ $status == 66 ]] && grep -q 'archives of a release contain oarlock only' "$work/log" || broken "a directory without the trainer ended with $status"
status=0
scripts/quickstart --from "$work" >"$work/log" 2>&1 || status=$?
[[ $status == 66 ]] || broken "a directory without programs ended with $status, not 66"
status=0
scripts/quickstart --colour >"$work/log" 2>&1 || status=$?
[[ $status == 64 ]] || broken "an unknown option ended with $status, not 64"
echo "accuracy $accuracy"
