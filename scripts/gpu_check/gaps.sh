#!/usr/bin/env bash
# gaps.sh COMMAND...: measures with nsys how long the GPU waits between kernels inside the steps of a device program. A step ends
# with the kernel Settle. The time between steps is not counted, as in the metric gpu_busy_share. nsys itself makes the gaps longer. The script prints
# {"steps", "kernels", "inside_ns", "gaps_over_5us", "gaps_over_5us_ns", "largest_gap_ns"}. It exits with status 77 if nsys cannot run here.
set -uo pipefail
command -v nsys > /dev/null || { echo "nsys is not installed" >&2; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# nsys records only the range that the command marks (speclab generate --profile-steps): the decoding steps, not the packing of weights and not
# the prefill.
log=$(nsys profile --trace=cuda --cuda-graph-trace=node --sample=none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop \
  --output="$folder/report" "$@" 2>&1) &&
  nsys stats --report cuda_gpu_trace --format csv --force-export=true "$folder/report.nsys-rep" > "$folder/trace" 2> "$folder/problem"
code=$?
# The columns are found by their names. Copies count as work, like kernels.
found=$(awk -F, '
  /Start \(ns\)/ { for (i = 1; i <= NF; ++i) { if ($i ~ /Start/) s = i; if ($i ~ /Duration/) d = i }; next }
  s && $s ~ /^"?[0-9]+"?$/ {
    gsub(/"/, "", $s); gsub(/"/, "", $d)
    if (!begun && /LayRows/) { begun = 1; end = $s; between = 0 }
    if (!begun) next
    gap = $s - end; if (gap < 0) gap = 0
    if (!between || /Continue/) { pending += gap; if (gap > 5000) { ++long; over += gap }; if (gap > most) most = gap }
    stop = $s + $d; ++count
    if (stop > end) { pending += stop - ($s > end ? $s : end); end = stop }  # a kernel that starts early waits for the one before it
    between = /Settle|Continue/
    if (/Settle/) { ++steps; inside += pending; kernels += count; gaps = over; times = long; largest = most; pending = count = 0 }
  }
  END { if (steps) printf "{\"steps\": %d, \"kernels\": %d, \"inside_ns\": %.0f, \"gaps_over_5us\": %d, \"gaps_over_5us_ns\": %.0f, \"largest_gap_ns\": %.0f}\n", steps, kernels, inside, times, gaps, largest }
' "$folder/trace" 2> /dev/null)
if [ $code != 0 ] || [ -z "$found" ]; then
  tail -n 2 <<< "$log" >&2
  [ -s "$folder/problem" ] && tail -n 2 "$folder/problem" >&2
  echo "nsys saw no step (status $code)" >&2
  exit 77
fi
echo "$found"
