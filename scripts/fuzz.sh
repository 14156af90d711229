#!/usr/bin/env bash
# Builds the fuzzers with clang and runs them, one after the other: scripts/fuzz.sh MINUTES [TARGET...]
#   MINUTES   of each target (a fraction will do)
#   TARGET    safetensors gguf tokenizer chat_template experiment prompts draft; all of them without one
# Limits: no crash, no undefined behaviour, no leak, at most a second of processor time and 4 times the size of the
# input (and a constant) of memory. A finding is written to build/fuzz/findings/TARGET/; repair the reader, then keep
# the input as tests/regressions/inputs/TARGET/NAME, where the fast tests read it for ever. What was executed is added
# to results/fuzz/DATE.json. Exit 1: there is a finding.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

usage() { sed -n '2,9s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ $# -ge 1 ] || usage
[[ $1 =~ ^[0-9]*\.?[0-9]+$ ]] || usage
seconds=$(awk -v minutes="$1" 'BEGIN { s = int(60 * minutes + 0.5); print s > 0 ? s : 1 }')
shift
targets=(safetensors gguf tokenizer chat_template experiment prompts draft)
for target in "$@"; do
  [[ " ${targets[*]} " == *" $target "* ]] || { echo "fuzz: no target $target. There are: ${targets[*]}" >&2; exit 2; }
done
[ $# -eq 0 ] || targets=("$@")

"$root/scripts/setup.sh" --fuzz
cmake --preset fuzz > /dev/null
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}"

status=0
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target findings=build/fuzz/findings/$target log=build/fuzz/$target.log
  mkdir -p "$corpus" "$findings" "tests/regressions/inputs/$target"
  echo "== $target: $seconds s"
  # The in-process limits are sharper; these end what does not return to the process.
  if ! nice -n 19 "build/fuzz/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -len_control=20 \
    -timeout=60 -malloc_limit_mb=256 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$findings/" \
    "$corpus" "tests/fuzz/corpus/$target" "tests/regressions/inputs/$target" > "$log" 2>&1; then
    status=1
    echo "a finding: $findings"
    grep -m3 -E '^finding:|ERROR:|runtime error|what\(\)|SUMMARY' "$log" || tail -5 "$log"
  fi
  rmdir --ignore-fail-on-non-empty "tests/regressions/inputs/$target"
  scripts/fuzz_record.py "$target" "$log" "results/fuzz/$(date -u +%F).json"
done
exit $status
