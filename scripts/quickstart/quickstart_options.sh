#!/usr/bin/env bash
# Prints the CMake options with which scripts/quickstart.sh configures build/release. With them only the program is built, with code for the GPUs
# of this machine if nvcc is installed and a GPU has sm_80 or newer. A folder that was configured with tests keeps the tests,
# so that nothing is compiled twice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if grep -qs '^SPECLAB_TESTS:BOOL=ON' build/release/CMakeCache.txt; then
  echo "--preset release"
  exit
fi
nvcc=$(command -v nvcc || echo "${CUDA_PATH:-${CUDA_HOME:-/usr/local/cuda}}/bin/nvcc")
known=$("$nvcc" --list-gpu-code 2> /dev/null || true)
architectures=()
while read -r capability; do  # such as 9.0
  code=${capability//./}
  [[ $code =~ ^[0-9]+$ ]] && [ "$code" -ge 80 ] || continue       # the kernels need sm_80 or newer
  if grep -qx "sm_$code" <<< "$known"; then architectures+=("$code-real"); else architectures+=(90-virtual); fi
done < <(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | sort -u)
if [ ${#architectures[@]} = 0 ] || [ -z "$known" ]; then
  echo "--preset quickstart -DSPECLAB_CUDA=OFF"
else
  echo "--preset quickstart -DSPECLAB_CUDA=ON -DSPECLAB_CUDA_ARCHITECTURES=$(IFS=';'; echo "${architectures[*]}")"
fi
