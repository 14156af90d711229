#!/usr/bin/env bash
# tests.sh BACKEND N TEST_PROGRAM...: runs the tests that need a device and prints a JSON object with what they found. Those tests have
# "OnDevice" in the name of their suite, take backend and device from SPECLAB_TEST_BACKEND and SPECLAB_TEST_DEVICE, and skip without
# them. Exit 1 when a test failed, 77 when none ran.
set -uo pipefail
export SPECLAB_TEST_BACKEND=$1 SPECLAB_TEST_DEVICE=$2
shift 2
source scripts/gpu_check/json.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
count() { grep -c -- "$1" "$log" || true; }
passed=0 failed=0 skipped=0 broken=0 names='' last=''
for program in "$@"; do
  "$program" --gtest_filter='*OnDevice*' --gtest_color=no > "$log" 2>&1
  code=$?
  passed=$((passed + $(count '^\[       OK \]')))
  failed=$((failed + $(count '^\[  FAILED  \].*([0-9]* ms)$')))
  skipped=$((skipped + $(count '^\[  SKIPPED \].*([0-9]* ms)$')))
  names+=$(sed -n 's/^\[  FAILED  \] \(.*\) ([0-9]* ms)$/\1 /p' "$log" | tr -d '\n')
  # A program that fails without a failed test was ended by a signal or could not begin.
  if [ $code != 0 ] && ! grep -q '^\[  FAILED  \]' "$log"; then
    broken=$((broken + 1)) last="${program##*/} ended with status $code: $(tail -n 2 "$log" | tr '\n' ' ')"
  fi
done
printf '{"programs": %d, "passed": %d, "failed": %d, "skipped": %d, "broken_programs": %d, "failed_tests": %s}\n' \
  $# $passed $failed $skipped $broken "$(json_string "$names")"
if [ $((failed + broken)) -gt 0 ]; then
  echo "$failed tests failed, $broken programs broke. $names$last" >&2
  exit 1
elif [ $passed = 0 ]; then
  echo "none of $# test programs has a test for this device ($skipped skipped)" >&2
  exit 77
fi
