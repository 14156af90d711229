# Describes the GPU and its software, for gpu_check.sh.

device_slug() {  # N -> "nvidia-h200"
  local name
  name=$(nvidia-smi --id="$1" --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
  sed -e 's/[^A-Za-z0-9]\+/-/g' -e 's/^-\|-$//g' <<< "${name:-no-device}" | tr '[:upper:]' '[:lower:]'
}

# machine FILE N PROGRAM: writes the description to FILE as a JSON object. If something is missing for a measurement, prints what.
machine() {
  local fields=(name driver_version compute_cap memory.total memory.used clocks.sm clocks.mem clocks.max.sm clocks.max.mem
    temperature.gpu power.draw power.limit clocks_throttle_reasons.active)
  local values='' others='' toolkit='' i
  if command -v nvidia-smi > /dev/null; then
    values=$(nvidia-smi --id="$2" --query-gpu="$(IFS=,; echo "${fields[*]}")" --format=csv,noheader 2>&1 | head -n 1)
    others=$(nvidia-smi --id="$2" --query-compute-apps=pid,used_memory --format=csv,noheader 2> /dev/null | grep -c '[0-9]')
  fi
  command -v nvcc > /dev/null && toolkit=$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
  IFS=, read -r -a values <<< "$values"
  {
    printf '{"gpu": {'
    if [ ${#values[@]} = ${#fields[@]} ]; then
      for i in "${!fields[@]}"; do
        printf '%s%s: %s' "$([ "$i" = 0 ] || echo ', ')" "$(json_string "${fields[$i]}")" "$(json_string "${values[$i]# }")"
      done
    fi
    printf '}, "other_processes": %s, "toolkit": %s, "speclab": %s, "cpu": %s}\n' "${others:-0}" "$(json_string "$toolkit")" \
      "$(json_string "$([ -n "$3" ] && "$3" --version 2> /dev/null)")" \
      "$(json_string "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores")"
  } > "$1"
  if ! command -v nvidia-smi > /dev/null; then
    echo "there is no nvidia-smi: no driver on this machine"
  elif [ ${#values[@]} != ${#fields[@]} ]; then
    echo "nvidia-smi says: ${values[*]}"
  elif [ "${others:-0}" != 0 ]; then
    echo "$others other process(es) use this GPU: do not trust the times"
  fi
}
