#!/usr/bin/env bash
# Builds the fuzzers with clang 16 and runs them, one after the other: scripts/fuzz.sh MINUTES [TARGET...]
#   MINUTES   time for each target, may be a fraction
#   TARGET    safetensors gguf tokenizer sentencepiece chat_template experiment prompts draft datastore ngram_model
#             record command_lines; default: all. command_lines runs the binary build/release/speclab (or the one that
#             SPECLAB_BINARY names) on random command lines and damaged run folders (tests/fuzz/command_lines.py).
# A finding is an input with a crash, undefined behaviour, a leak, more than a second of processor time, or more memory than 4 times
# its size plus a constant. Findings are written to build/fuzz/findings/TARGET/. Repair the reader, then keep the input as
# tests/regressions/inputs/TARGET/NAME, so that the fast tests read it from then on. The number of executions is added to
# results/fuzz/DATE.json; for the parsers safetensors and gguf, so is the share of their lines that the corpus reaches.
# clang comes from scripts/setup.sh --fuzz, which this script calls. The corpus stays in build/fuzz/corpus. Exit status 1:
# there is a finding.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

usage() { sed -n '2,12s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ $# -ge 1 ] || usage
[[ $1 =~ ^[0-9]*\.?[0-9]+$ ]] || usage
seconds=$(awk -v minutes="$1" 'BEGIN { s = int(60 * minutes + 0.5); print (s > 0 ? s : 1) }')
shift
targets=(safetensors gguf tokenizer sentencepiece chat_template experiment prompts draft datastore ngram_model record command_lines)
for target in "$@"; do
  [[ " ${targets[*]} " == *" $target "* ]] || { echo "fuzz: no target $target. There are: ${targets[*]}" >&2; exit 2; }
done
[ $# -eq 0 ] || targets=("$@")

libfuzzer=()
for target in "${targets[@]}"; do [ "$target" = command_lines ] || libfuzzer+=("fuzz_$target"); done
"$root/scripts/setup.sh" --fuzz
if [ ${#libfuzzer[@]} -gt 0 ]; then
  cmake --preset fuzz > /dev/null
  cmake --build --preset fuzz --target "${libfuzzer[@]}"
fi

fuzz_command_lines() {
  binary=${SPECLAB_BINARY:-build/release/speclab} findings=build/fuzz/findings/command_lines log=build/fuzz/command_lines.log
  if [ -z "${SPECLAB_BINARY:-}" ]; then
    [ -f build/release/CMakeCache.txt ] || cmake --preset release > /dev/null
    cmake --build --preset release --target speclab
  fi
  mkdir -p build/fuzz
  echo "== command_lines: $seconds s"
  # Each run takes another seed, which the log names.
  if ! nice -n 19 python3 tests/fuzz/command_lines.py --binary "$binary" --seconds "$seconds" --seed "$(date +%s)" --findings "$findings" > "$log" 2>&1; then
    status=1
    echo "a finding: $findings"
    grep -m3 -A1 '^finding:' "$log" || tail -5 "$log"
  fi
  scripts/fuzz/fuzz_record.py command_lines "results/fuzz/$(date -u +%F).json" - "$log"
}

# These options allow twice as many inputs per second as the defaults. Run a finding again without them to see where a block was allocated.
# With fewer than two stack frames LeakSanitizer would report no leak, because it ignores blocks without a known caller.
export ASAN_OPTIONS=malloc_context_size=2:quarantine_size_mb=1:thread_local_quarantine_size_kb=64
status=0
for target in "${targets[@]}"; do
  if [ "$target" = command_lines ]; then
    fuzz_command_lines
    continue
  fi
  fuzzer=build/fuzz/tests/fuzz/fuzz_$target corpus=build/fuzz/corpus/$target findings=build/fuzz/findings/$target log=build/fuzz/$target.log
  mkdir -p "$corpus" "$findings"
  seeds=("tests/fuzz/corpus/$target")
  [ ! -d "tests/regressions/inputs/$target" ] || seeds+=("tests/regressions/inputs/$target")
  case $target in tokenizer | sentencepiece | record) most=8192 ;; draft | gguf) most=4096 ;; experiment) most=2048 ;; *) most=1024 ;; esac  # small inputs are fast
  echo "== $target: $seconds s"
  # The process checks stricter limits itself. The limits here end an input from which it never returns.
  if ! LLVM_PROFILE_FILE=/dev/null nice -n 19 "$fuzzer" -max_total_time="$seconds" -max_len=$most -entropic=0 -timeout=60 -report_slow_units=60 -detect_leaks=0 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$findings/" "$corpus" "${seeds[@]}" > "$log" 2>&1; then
    status=1
    echo "a finding: $findings"
    grep -m3 -E '^finding:|ERROR:|runtime error|what\(\)|SUMMARY' "$log" || tail -5 "$log"
  fi
  coverage=-
  if [ "$target" = safetensors ] || [ "$target" = gguf ]; then  # lines of the parser that the corpus reaches
    coverage=build/fuzz/$target.coverage.json
    LLVM_PROFILE_FILE="$PWD/build/fuzz/$target.profraw" "$fuzzer" -runs=0 "$corpus" "${seeds[@]}" > /dev/null 2>&1 || true
    llvm-profdata-16 merge -sparse "build/fuzz/$target.profraw" -o "build/fuzz/$target.profdata"
    llvm-cov-16 export -summary-only "$fuzzer" -instr-profile="build/fuzz/$target.profdata" > "$coverage"
  fi
  scripts/fuzz/fuzz_record.py "$target" "results/fuzz/$(date -u +%F).json" "$coverage" "$log"
done
exit $status
