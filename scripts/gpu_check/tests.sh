#!/usr/bin/env bash
# tests.sh BACKEND N TEST_PROGRAM...: runs the tests for device number N of a backend and prints their results as a JSON object. Runs only
# suites with "OnDevice" in their name. They read the backend and the device from SPECLAB_TEST_BACKEND and SPECLAB_TEST_DEVICE. Every
# program must have such tests. A test that a program lists but does not run counts as a failure. Exit status 1: there was a failure; 77:
# all tests were skipped. If the script is interrupted, it prints the results so far.
set -uo pipefail
export SPECLAB_TEST_BACKEND=$1 SPECLAB_TEST_DEVICE=$2
shift 2
source scripts/gpu_check/json.sh
filter='*OnDevice*'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
count() { grep -c -- "$1" "$log" || true; }
programs=0 passed=0 failed=0 skipped=0 broken=0 names='' text='' why=''

collect() {  # adds the results in the log to the counts
  passed=$((passed + $(count '^\[       OK \]')))
  failed=$((failed + $(count '^\[  FAILED  \].*([0-9]* ms)$')))
  skipped=$((skipped + $(count '^\[  SKIPPED \].*([0-9]* ms)$')))
  names+=$(sed -n 's/^\[  FAILED  \] \(.*\) ([0-9]* ms)$/\1 /p' "$log" | tr -d '\n')
  text+=$(grep -A 6 -m 8 ': Failure' "$log" | cut -c 1-300)
}
report() {
  printf '{"programs": %d, "passed": %d, "failed": %d, "skipped": %d, "broken_programs": %d, "failed_tests": %s, "failures": %s}\n' \
    $programs $passed $failed $skipped $broken "$(json_string "$names")" "$(json_string "${text:0:6000}")"
}
trap 'collect; why="interrupted in $(sed -n "s/^\[ RUN      \] //p" "$log" | tail -n 1)"; report; echo "$why" >&2; exit 130' INT TERM

for program in "$@"; do
  programs=$((programs + 1))
  listed=$("$program" --gtest_list_tests --gtest_filter="$filter" 2> /dev/null | grep -c '^  ' || true)
  "$program" --gtest_filter="$filter" --gtest_color=no > "$log" 2>&1
  code=$?
  before=$((passed + failed + skipped))
  collect
  ended=$((passed + failed + skipped - before))
  if [ "$listed" = 0 ]; then
    broken=$((broken + 1)) why="${program##*/} lists no test that matches $filter: $(tail -n 1 "$log")"
  elif [ $ended != "$listed" ] || { [ $code != 0 ] && ! grep -q '^\[  FAILED  \]' "$log"; }; then
    # A signal ended the program, or it could not start, or it left tests out.
    broken=$((broken + 1)) why="${program##*/} ended with status $code after $ended of $listed tests: $(tail -n 2 "$log" | tr '\n' ' ')"
  fi
  [ -n "$why" ] || why=$(grep -m 1 -A 1 ': Skipped' "$log" | tail -n 1)
done
report
if [ $((failed + broken)) -gt 0 ]; then
  echo "$failed tests failed, $broken programs did not run all of their tests. $names$why" >&2
  exit 1
elif [ $passed = 0 ]; then
  echo "no test ran on this device: $programs programs skipped all of their $skipped tests. $why" >&2
  exit 77
fi
