#!/usr/bin/env bash
# Every TrainingJob of manifests/examples and examples: `oarlock validate` accepts it, and a real kube-apiserver accepts it and the
# objects that `oarlock render` prints. The sizes of the guides' models stand in the examples. The schemas of PyTorchJob, TrainJob
# and JobSet accept the manifests that docs/guides/migrating-from-pytorchjob.md compares with ours.
set -euo pipefail
: "${OARLOCK_BIN:?}"
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
crds=$(source scripts/lib/common.sh && source scripts/lib/cluster/versions.sh && peer_crds)
work=$(mktemp -d)
trap 'scripts/cluster down --dir "$work/c" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

scripts/cluster up --api-only --apply manifests/crd --dir "$work/c" >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "no cluster"; }
eval "$(scripts/cluster env --dir "$work/c")"
kubectl wait --for=condition=Established --timeout=60s crd/trainingjobs.oarlock.dev >/dev/null
kubectl create serviceaccount default >/dev/null   # pods need it; there is no controller that creates it
for manifest in manifests/examples/*.yaml examples/migration/trainingjob.yaml examples/{own-task,pytorch,lightning,transformers}/trainingjob.yaml; do
  kubectl apply --dry-run=server --validate=strict -f "$manifest" >"$work/applied" || fail "$manifest is refused"
  grep -q '^trainingjob.oarlock.dev/.* created (server dry run)$' "$work/applied" || fail "$manifest: $(cat "$work/applied")"
  keys=()
  [[ $manifest != examples/own-task/* ]] || keys=(--any-trainer-keys)   # the program of the example is not built here
  "$OARLOCK_BIN/oarlock" validate "${keys[@]}" -f "$manifest" >"$work/valid" 2>"$work/problems" || fail "$(cat "$work/problems")"
  [[ ! -s $work/problems ]] || fail "$manifest: $(cat "$work/problems")"   # as that the trainer's part was not looked at
  "$OARLOCK_BIN/oarlock" render -f "$manifest" >"$work/rendered" || fail "$manifest is not rendered"
  kubectl create --dry-run=server --validate=strict -f "$work/rendered" >"$work/created" || fail "the pods of $manifest are refused"
  nodes=$(sed -nE 's/^[[:space:]]*nodes: ([0-9]+).*/\1/p' "$manifest")
  [[ $(grep -c '^pod/' "$work/created") == "${nodes:-1}" ]] || fail "$manifest: $(cat "$work/created")"
  cat "$work/valid"
done

kubectl create -f "$crds" >/dev/null
kubectl wait --for=condition=Established --timeout=60s crd --all >/dev/null
for manifest in examples/migration/{pytorchjob,trainjob,jobset}.yaml; do
  kubectl create --dry-run=server --validate=strict -f "$manifest" || fail "the schema of $manifest refuses it"
  # Proves that the schema is applied.
  sed 's/^spec:/spec:\n  nodes: 2/' "$manifest" | kubectl create --dry-run=server --validate=strict -f - >/dev/null 2>&1 && fail "$manifest may contain any field"
done

# shown FILE LINE...: the trainer's own reading of a manifest has these lines.
shown() {
  local manifest=manifests/examples/$1 line
  shift
  "$OARLOCK_BIN/oarlock-trainer" --config "$manifest" --print-config >"$work/printed"
  for line in "$@"; do grep -qxF -- "$line" "$work/printed" || fail "$manifest: no line '$line'"; done
}
shown image-classification.yaml '  name: resnet_like' '  width: 64' 'epochs: 200' '  size: 128' '  lr: 0.1' '  gamma: 0.2'
shown causal-set.yaml 'epochs: 50' '  size: 64' '  weight_decay: 5e-05' '  patience: 5' '  every_epochs: 10'
shown comformer.yaml 'epochs: 500' '  conv_layers: 4' '  max_neighbors: 25' '  size: 64' '  lr: 0.004' '  pct_start: 0.3'
shown gears.yaml 'epochs: 20' '  hidden_size: 64' '  split: simulation' '  weight_decay: 0.0005' '  clip_value: 1.0' '  gamma: 0.5'
shown protein-diffusion.yaml '  tokens: 36' '  hidden_size: 768' '  n_blocks: 8' '  length: 512' 'steps: 500000' \
  '  accumulation_steps: 4' '  lr: 5e-05' '  warmup_steps: 5000' '  warmup_form: sedd' '  max_length: 512'
