#!/usr/bin/env bash
# Every file of manifests/examples: a real kube-apiserver takes it, `oarlock validate` finds its trainer configuration
# right, and the sizes of the guides' models stand in it.
set -euo pipefail
: "${OARLOCK_BIN:?}"
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
work=$(mktemp -d)
trap 'scripts/cluster down --dir "$work/c" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

scripts/cluster up --api-only --apply manifests/crd --dir "$work/c" >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "no cluster"; }
eval "$(scripts/cluster env --dir "$work/c")"
kubectl wait --for=condition=Established --timeout=60s crd/trainingjobs.oarlock.dev >/dev/null
for manifest in manifests/examples/*.yaml; do
  kubectl apply --dry-run=server --validate=strict -f "$manifest" >"$work/applied" || fail "$manifest is refused"
  grep -q '^trainingjob.oarlock.dev/.* created (server dry run)$' "$work/applied" || fail "$manifest: $(cat "$work/applied")"
  "$OARLOCK_BIN/oarlock" validate -f "$manifest" >"$work/valid" 2>"$work/problems" || fail "$(cat "$work/problems")"
  [[ ! -s $work/problems ]] || fail "$manifest: $(cat "$work/problems")"   # as that the trainer's part was not looked at
  cat "$work/valid"
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
  '  accumulation_steps: 4' '  lr: 5e-05' '  warmup_steps: 5000' '  max_length: 512'
