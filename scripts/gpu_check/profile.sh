#!/usr/bin/env bash
# profile.sh COMMAND...: profiles the command with ncu and prints {"launches", "kernels": [...]}: the number of recorded launches, and the
# three kernels that take the most time. Each kernel has the number of its launches, their total time, and the means over them of the shares
# of memory bandwidth and of the tensor pipe. ncu records at most 400 launches inside the range that the command marks (speclab generate
# --profile-steps). This range has neither the packing of weights nor the prefill. ncu does not change clocks. Exit status 77: there is no
# ncu, it cannot read counters, or the command failed or marked no range.
set -uo pipefail
source scripts/gpu_check/json.sh
command -v ncu > /dev/null || { echo "there is no ncu" >&2; exit 77; }
metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active
log=$(ncu --profile-from-start off --clock-control none --launch-count 400 --metrics "$metrics" --csv --page raw --print-units base "$@" 2>&1)
code=$?
# Columns are found by name, because versions of ncu order them differently. A line of $all has, between tabs: total ns,
# number of launches, mean share of bandwidth in %, mean share of the tensor pipe in %, name.
all=$(awk -F'","' '
  /"Kernel Name"/ { for (i = 1; i <= NF; ++i) { if ($i ~ /Kernel Name/) k = i; if ($i ~ /time_duration/) t = i; if ($i ~ /dram__/) d = i; if ($i ~ /tensor/) m = i }; next }
  k && /^"[0-9]/ {
    n = $k; ns = $t; d1 = $d; m1 = $m  # the first and the last field keep a quote
    gsub(/"/, "", n); gsub(/\((int|bool|unsigned int|[A-Za-z_]+(::[A-Za-z_]+)+)\)/, "", n); sub(/\([^()]*\)$/, "", n); gsub(/[",]/, "", ns); gsub(/["\r]/, "", d1); gsub(/["\r]/, "", m1)
    count[n]++; time[n] += ns; dram[n] += d1; mma[n] += m1
  }
  END { for (n in count) printf "%.0f\t%d\t%.1f\t%.1f\t%s\n", time[n], count[n], dram[n] / count[n], mma[n] / count[n], n }' <<< "$log" | sort -rn)
rows=$(head -n 3 <<< "$all")
if [ $code != 0 ] || [ -z "$rows" ]; then
  grep '==ERROR==\|==WARNING==' <<< "$log" | tail -n 3 >&2
  echo "ncu counted no kernel in the steps (status $code)" >&2
  exit 77
fi
printf '{"launches": %s, "kernels": [' "$(awk -F'\t' '{ sum += $2 } END { print sum }' <<< "$all")"
separator=''
while IFS=$'\t' read -r time count dram mma name; do
  printf '%s{"name": %s, "launches": %s, "total_ns": %s, "dram_percent": %s, "tensor_percent": %s}' "$separator" "$(json_string "$name")" "$count" "$time" "$dram" "$mma"
  separator=', '
done <<< "$rows"
printf ']}\n'
