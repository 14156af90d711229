# Describes the GPU and its software, for gpu_check.sh.

device_slug() {  # N -> "nvidia-h200"
  local name
  name=$(nvidia-smi --id="$1" --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
  sed -e 's/[^A-Za-z0-9]\+/-/g' -e 's/^-\|-$//g' <<< "${name:-no-device}" | tr '[:upper:]' '[:lower:]'
}

# Prints whether MPS runs and how that is known, as a JSON object. MPS shares the GPU among processes.
mps_state() {
  local pipe="${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}/control" runs=unknown why code=0
  pgrep -f 'nvidia-cuda-mps-(control|server)' > /dev/null 2>&1 || code=$?
  if [ $code = 0 ]; then
    runs=yes why="a process of it runs"
  elif [ -e "$pipe" ]; then
    runs=yes why="its control pipe $pipe exists"
  elif [ $code = 1 ]; then
    runs=no why="no process of it runs, and there is no $pipe"
  else
    why="there is no $pipe, but pgrep cannot list processes"
  fi
  printf '{"runs": %s, "why": %s}' "$(json_string "$runs")" "$(json_string "$why")"
}

# machine FILE N PROGRAM: writes the description of GPU number N to FILE as a JSON object. PROGRAM is the path of speclab, or empty.
# Prints one line if there is no nvidia-smi, if nvidia-smi reports an error, or if other processes use the GPU.
machine() {
  local fields=(name driver_version compute_cap memory.total memory.used clocks.sm clocks.mem clocks.max.sm clocks.max.mem
    temperature.gpu power.draw power.limit clocks_throttle_reasons.active persistence_mode ecc.mode.current compute_mode)
  local values='' others='' toolkit='' cuda='' i
  if command -v nvidia-smi > /dev/null; then
    values=$(nvidia-smi --id="$2" --query-gpu="$(IFS=,; echo "${fields[*]}")" --format=csv,noheader 2>&1 | head -n 1)
    cuda=$(nvidia-smi --id="$2" 2> /dev/null | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p' | head -n 1)
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
    printf '}, "other_processes": %s, "mps": %s, "cuda_driver": %s, "toolkit": %s, "speclab": %s, "cpu": %s}\n' "${others:-0}" \
      "$(mps_state)" "$(json_string "$cuda")" "$(json_string "$toolkit")" \
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
