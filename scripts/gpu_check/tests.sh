#!/usr/bin/env bash
# tests.sh BACKEND N SUITE PROGRAM: runs one suite of the tests for device number N of a backend (suites.sh) and prints its results as a JSON
# object. The tests read the backend and the device from SPECLAB_TEST_BACKEND and SPECLAB_TEST_DEVICE. Exit status 1: a test
# failed, the program lists no test of the suite, or a listed test did not run, for example because an error of CUDA ended the program; 77:
# all tests were skipped. If the script is interrupted, it prints the results so far.
# tests.sh --check PROGRAM: exit status 1 if a test of the program belongs to no suite or to several, or if there is no test.
set -uo pipefail
source scripts/gpu_check/json.sh
source scripts/gpu_check/suites.sh

listed() {  # PROGRAM FILTER -> Suite.test, one in a line
  "$1" --gtest_list_tests --gtest_filter="$2" 2> /dev/null | sed -n -e 's/  #.*//' -e '/^[^ ].*\.$/h' -e '/^  /{s/^  //;G;s/\(.*\)\n\(.*\)/\2\1/;p}'
}

if [ "$1" = --check ]; then
  all=$(listed "$2" '*')
  [ -n "$all" ] || { echo "${2##*/} lists no test" >&2; exit 1; }
  problems=$({
    echo "$all"
    for suite in "${suites[@]}"; do listed "$2" "$(suite_filter "$suite")"; done
  } | sort | uniq -c | awk '$1 == 1 {print $2 " belongs to no suite"} $1 > 2 {print $2 " belongs to several suites"}')
  [ -z "$problems" ] || { printf '%s\nscripts/gpu_check/suites.sh names the suites.\n' "$problems" >&2; exit 1; }
  exit 0
fi

export SPECLAB_TEST_BACKEND=$1 SPECLAB_TEST_DEVICE=$2
suite=$3 program=$4
filter=$(suite_filter "$suite") || { echo "there is no suite $suite; scripts/gpu_check/suites.sh names the suites" >&2; exit 2; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
count() { grep -c -- "$1" "$log" || true; }

report() {  # counts what is in the log and prints it
  passed=$(count '^\[       OK \]')
  failed=$(count '^\[  FAILED  \].*([0-9]* ms)$')
  skipped=$(count '^\[  SKIPPED \].*([0-9]* ms)$')
  names=$(sed -n 's/^\[  FAILED  \] \(.*\) ([0-9]* ms)$/\1 /p' "$log" | tr -d '\n')
  first=$(grep -A 6 -m 1 ': Failure\|^unknown file' "$log" | grep -v '^\[\|^$' | tail -n +2 | tr '\n' ' ' | cut -c 1-300)
  text=$(grep -A 6 -m 8 ': Failure\|^unknown file' "$log" | cut -c 1-300)
  last=$(sed -n 's/^\[ RUN      \] //p' "$log" | tail -n 1)
  ended=$((passed + failed + skipped))
  printf '{"suite": "%s", "tests": %d, "passed": %d, "failed": %d, "skipped": %d, "not_run": %d, "failed_tests": %s, "failures": %s}\n' \
    "$suite" "$tests" "$passed" "$failed" "$skipped" $((tests - ended)) "$(json_string "$names")" "$(json_string "${text:0:6000}")"
}
interrupted() {
  if [ -n "$running" ]; then { kill -KILL $running; wait $running; } 2> /dev/null; fi
  report
  echo "interrupted in ${last:-no test}, after $ended of $tests tests" >&2
  exit 130
}

running='' tests=0
trap interrupted INT TERM
tests=$(listed "$program" "$filter" | grep -c .)
"$program" --gtest_filter="$filter" --gtest_color=no > "$log" 2>&1 &
running=$!
wait $running
code=$?
trap - INT TERM
report
if [ "$tests" = 0 ]; then
  echo "${program##*/} lists no test of the suite $suite: $(tail -n 1 "$log")" >&2
  exit 1
elif [ $ended != "$tests" ] || { [ $code != 0 ] && [ "$failed" = 0 ]; }; then
  # A signal ended the program, or it could not start, or it left tests out.
  echo "${program##*/} ended with status $code in $last, after $ended of $tests tests: $(tail -n 2 "$log" | tr '\n' ' ')" >&2
  exit 1
elif [ "$failed" -gt 0 ]; then
  echo "$failed of $tests tests failed, the first one ${names%% *}: $first" >&2
  exit 1
elif [ "$passed" = 0 ]; then
  echo "no test of the suite $suite ran on this device: all $skipped skipped. $(grep -m 1 -A 1 ': Skipped' "$log" | tail -n 1)" >&2
  exit 77
fi
