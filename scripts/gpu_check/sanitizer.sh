#!/usr/bin/env bash
# sanitizer.sh TOOL COMMAND...: runs the command under compute-sanitizer and prints {"tool", "errors", "summary"}. Exit status 1:
# compute-sanitizer found errors; 77: it cannot run here, or the command failed although it found none.
set -uo pipefail
tool=$1
shift
source scripts/gpu_check/json.sh
command -v compute-sanitizer > /dev/null || { echo "there is no compute-sanitizer" >&2; exit 77; }
log=$(compute-sanitizer --tool "$tool" --print-limit 5 "$@" 2>&1)
summary=$(grep -E 'SUMMARY|not supported|Error:' <<< "$log" | tail -n 3)
errors=$(sed -n 's/.*SUMMARY: \([0-9]*\) \(error\|hazard\).*/\1/p' <<< "$log" | tail -n 1)
if [ -z "$errors" ] || grep -q 'Device not supported' <<< "$log" ||
  { [ "$errors" = 0 ] && grep -q 'Target application returned an error' <<< "$log"; }; then
  tail -n 3 <<< "$log" >&2
  exit 77
fi
printf '{"tool": %s, "errors": %s, "summary": %s}\n' "$(json_string "$tool")" "$errors" "$(json_string "$summary")"
if [ "$errors" != 0 ]; then
  grep -m 3 '^=========' <<< "$log" >&2
  exit 1
fi
