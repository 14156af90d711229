#!/usr/bin/env bash
# kernels.sh SPECLAB_BENCH OPTIONS...: runs the benchmarks cuda/... and prints Google Benchmark's JSON. Exit status 77: there are no
# such benchmarks.
set -uo pipefail
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$@" --benchmark_filter='^cuda/' --benchmark_out="$out" --benchmark_out_format=json > /dev/null || exit
if ! grep -q '"run_name"' "$out"; then
  echo "${1##*/} has no benchmark whose name begins with cuda/ for this backend" >&2
  exit 77
fi
cat "$out"
