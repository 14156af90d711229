#!/usr/bin/env bash
# run_part.sh PART OUT [OPTION...]: runs one part of the GPU check on the machine with the GPU. gpu_bundle.sh puts this script into the last
# transfer, with files.sha256. Unless an earlier part has unpacked this bundle, the script checks that all files have arrived, and unpacks it.
# Then it runs scripts/gpu_check.sh for what remains of 580 seconds, and ends with the exit status of that script. Exit status 2 before
# that: a file is missing or damaged, the bundle cannot be unpacked, or the arguments are wrong.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.." || exit 2
[ $# -ge 2 ] || { echo "run_part: expected PART OUT [option of gpu_check.sh ...], got '$*'" >&2; exit 2; }
part=$1 out=$2
shift 2
if ! cmp -s "$here/files.sha256" speclab-gpu/complete; then  # nothing is unpacked yet, or another bundle
  wrong=$(sha256sum --check --quiet "$here/files.sha256" 2>&1 | grep -v '^sha256sum: WARNING') || true
  if [ -n "$wrong" ]; then
    printf 'run_part: %s\n' "$(head -n 1 <<< "$wrong"). Carry its folder again; manifest.json lists the files of each call." >&2
    exit 2
  fi
  rm -rf speclab-gpu
  cat transfer*/bundle.part* | tar -xz && cp "$here/files.sha256" speclab-gpu/complete || exit 2
fi
cd speclab-gpu || exit 2
model=()
[ -f models/SmolLM2-135M-Instruct.Q4_1.gguf ] || model=(--model-parts "$(printf '%s,' "$here"/../transfer*/model.part*)")
exec scripts/gpu_check.sh --part "$part" --seconds $((580 - SECONDS)) --out "$out" "${model[@]}" "$@"
