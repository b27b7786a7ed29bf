#!/usr/bin/env bash
# examples/own-task builds against an install tree that was moved and that does not refer to the checkout, and two ranks of
# it find the slope of Kepler's third law.
set -euo pipefail
: "${OARLOCK_BUILD:?}" "${OARLOCK_SOURCE:?}" "${OARLOCK_TORCH_DIR:?}" "${OARLOCK_BIN:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

cmake --install "$OARLOCK_BUILD" --component development --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
! grep -rlF -e "$OARLOCK_SOURCE" -e "$OARLOCK_BUILD" "$work/prefix/include" "$work/prefix"/lib*/cmake "$work/prefix"/lib/*/cmake 2>/dev/null ||
  fail "the install tree names the checkout or the build directory"
# Every header of ours that an installed one includes is installed, too.
! grep -rnE '^#include "' "$work/prefix/include" || fail "an installed header includes one that a file of the program could replace"
grep -rhoE '^#include <oarlock/[^>]+>' "$work/prefix/include" | sort -u | sed 's/.*<//; s/>.*//' | while read -r header; do
  [[ -f $work/prefix/include/$header ]] || fail "$header is included by an installed header, but not installed"
done

cp -r "$OARLOCK_SOURCE/examples/own-task" "$work/task"
export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake -S "$work/task" -B "$work/build" -G Ninja "${launcher[@]}" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DOARLOCK_TORCH_DIR="$OARLOCK_TORCH_DIR" >"$work/configure.log" || { cat "$work/configure.log"; fail "it does not configure"; }
cmake --build "$work/build" >"$work/build.log" || { cat "$work/build.log"; fail "it does not build"; }

cd "$work/task"
printed=$("$work/build/kepler-trainer" --config trainer.yaml --print-config)
grep -qx '  path: planets.csv' <<<"$printed" || fail "--print-config does not show the task's own section: $printed"
"$OARLOCK_BIN/oarlock" launch --nproc 2 --no-prefix -- "$work/build/kepler-trainer" --config trainer.yaml threads=1 \
  --log-format json 2>"$work/log" || { cat "$work/log"; fail "it does not train"; }
python3 - "$work/log" <<'EOF'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
done = [line for line in lines if line.get("msg") == "training is complete"][-1]
# The least-squares line through the file: slope 1.49990, mean squared error 3.343e-6.
assert abs(done["slope"] - 1.4999) < 0.001, done
assert done["loss"] < 1e-5 and done["world_size"] == 2 and done["parameters_bitwise_equal"], done
print("slope", done["slope"], "loss", done["loss"])
EOF

# The TrainingJob of the example, as two processes.
export PATH=$work/build:$PATH
"$OARLOCK_BIN/oarlock" validate -f trainingjob.yaml || fail "trainingjob.yaml is not valid"
"$OARLOCK_BIN/oarlock" run -f trainingjob.yaml --workdir "$work/runs" --log-format json >"$work/log" 2>&1 || { cat "$work/log"; fail "trainingjob.yaml does not train"; }
grep -q '"msg":"training is complete"' "$work/log" && grep -q '"world_size":2' "$work/log" || { cat "$work/log"; fail "trainingjob.yaml did not complete with two ranks"; }
