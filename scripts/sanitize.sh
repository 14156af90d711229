#!/usr/bin/env bash
# Runs the engine under tools that are too slow for scripts/test.sh. (AddressSanitizer has the preset `asan`.)
#   scripts/sanitize.sh thread     ThreadSanitizer: test_base, test_backend, test_decoding and test_model, without their tests of the simulated GPU
#   scripts/sanitize.sh memory     valgrind's memcheck: decodes with a tiny model, without and with drafts; fails on errors and on definite leaks
#   scripts/sanitize.sh            both
# Exit status 1: a tool found something; the message names the test or the command.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
exec < /dev/null

failed=0
check() {  # name, command...
  local name=$1
  shift
  if "$@"; then echo "-- $name: nothing found"; else echo "-- $name: FOUND, see above"; failed=1; fi
}

thread() {
  scripts/setup.sh
  cmake --preset tsan -DSPECLAB_UNITY=ON > /dev/null
  cmake --build --preset tsan --target test_base test_backend test_decoding test_model
  # The simulated GPU runs fibers on one thread and looks for races itself. It is left out because ThreadSanitizer mistakes the
  # stacks of the fibers for calls that go deeper and deeper, and runs out of mappings.
  local simulated='*Simulated*:*Simt*:*Cuda*:GridBarrier*:InnerBlocks*:*Persistent*:*Device*:*Planned*'
  export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 ${TSAN_OPTIONS:-}"
  for tests in base backend decoding model; do
    check "test_$tests under ThreadSanitizer" "build/tsan/tests/test_$tests" --gtest_brief=1 --gtest_filter="-$simulated"
  done
}

memory() {
  scripts/setup.sh --memcheck
  cmake --preset release > /dev/null
  cmake --build --preset release --target speclab
  local model=tests/golden/families/llama
  for strategy in autoregressive prompt_lookup; do
    check "a decode ($strategy) under memcheck" valgrind --quiet --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=1 \
      build/release/speclab generate --model "$model" --strategy "$strategy" --prompt "1 2 3 1 2" --set max_tokens=8 --threads 2
  done
}

case "${1:-both}" in
  thread | memory) "$1" ;;
  both) thread; memory ;;
  *) echo "sanitize: unknown tool $1. There are thread and memory." >&2; exit 2 ;;
esac
exit $failed
