# How gpu_check.sh runs one stage, and the plan of all stages.

declare -A part_of=() cap_of=() planted=()
names=() mode=list current=0 part_begin=0 stage_process=''

# What SpecLab's programs print when there is no usable device, when the device has too little free memory, or when the program lacks the
# backend or an option; they then end with status 2. Every other error with this status is a failure. For example, the status is also 2 if
# CUDA refuses a launch.
cannot_run='backend cuda: got|--device: got|GPU .*: got (it is busy|compute capability)|memory of .* MiB more: got|unknown option|the program was built without'

part() { current=$1 part_begin=$SECONDS; }

wanted_stage() {  # NAME
  [ -n "${chosen[$1]:-}" ]
}

# stage NAME CAP DATA COMMAND... : runs the command for at most CAP seconds (in a dry run ten times as long), or less if --cap or the time
# left for the part is less. DATA is the JSON file that the command writes, or "-" for its standard output. If DATA is "-", the stage is not
# ok and the standard output is no JSON, the data come from $kept, where some commands write each result as soon as they have it. Exit status
# of the command: 0: ok, or failed if there is no JSON. 77 or 127: it cannot run here. 2: it cannot run here if it says so (cannot_run),
# otherwise it failed. 124 or 137: it was stopped at its limit. Anything else: it failed.
stage() {
  local name=$1 cap=$(($2 * slower)) data=$3
  shift 3
  if [ $mode = list ]; then
    names+=("$name") part_of[$name]=$current cap_of[$name]=$cap
    return
  fi
  if ! wanted_stage "$name"; then return; fi
  local status=ok reason='' code=0 left=$((seconds - (SECONDS - part_begin))) begin=$SECONDS grace=$usual_grace said
  local -a run=("$@")
  if [ -n "${planted[$name]:-}" ]; then  # hang and slow get a short limit, so that a dry run need not wait long
    [ "${planted[$name]}" = sticky ] || [ "$cap" -le "$planted_cap" ] || cap=$planted_cap grace=$planted_cap
    case ${planted[$name]} in
      hang) [[ $name == tests_* ]] && run=(env SPECLAB_TEST_PLANT=hang "$@") || run=(scripts/gpu_check/planted.sh hang) ;;
      slow) run=(scripts/gpu_check/planted.sh slow "$@") ;;
      sticky) run=(env SPECLAB_TEST_PLANT=sticky "$@") ;;
    esac
  fi
  [ "$most" -lt "$cap" ] && cap=$most
  [ "$left" -lt "$cap" ] && cap=$left
  : > "$scratch/out" > "$scratch/err"
  rm -f "$kept"
  if [ -z "$1" ]; then
    status=unavailable reason="the program is neither in bin/ nor in build/release/. scripts/gpu_bundle.sh makes a bundle that has it."
  elif [ "$cap" -lt 1 ]; then
    status=unavailable reason="the $seconds seconds of part $current were over. --stages $name runs this one alone."
  else
    timeout --signal=TERM --kill-after="$grace" "$cap" "${run[@]}" > "$scratch/out" 2> "$scratch/err" &
    stage_process=$!
    wait $stage_process || code=$?
    if [ $interrupted = true ]; then wait $stage_process; fi
    stage_process=''
    said=$(tail -n 5 "$scratch/err" | cut -c 1-1000)
    case $code in
      0) ;;
      124 | 137) status=capped reason="stopped after $cap seconds" ;;
      77 | 127) status=unavailable ;;
      2) if grep -qE "$cannot_run" "$scratch/err"; then status=unavailable; else status=failed; fi ;;
      *) status=failed ;;
    esac
    if [ $interrupted = true ]; then
      status=capped reason="the whole check was interrupted after $((SECONDS - begin)) seconds of this stage"
    fi
    if [ $status = capped ]; then reason+=${said:+: $said}; fi
    if [ $status != ok ] && [ -z "$reason" ]; then reason=${said:-exit status $code}; fi
  fi
  if [ "$data" = - ]; then
    data="$scratch/out"
    if [ $status != ok ] && ! is_json "$data"; then data=$kept; fi
  fi
  is_json "$data" || data=/dev/null
  if [ $status = ok ] && [ "$data" = /dev/null ]; then status=failed reason="it wrote no JSON"; fi
  [ $status = failed ] && failures=$((failures + 1))
  [ $status = ok ] && succeeded=$((succeeded + 1))
  local shown="$*"
  write_stage "$name" $status "$reason" $((SECONDS - begin)) "$cap" "${shown//"$root/"/}" "$data"
  if [ $status != ok ]; then keep_output "$name" "$status"; fi
  if [ $interrupted = true ]; then exit 130; fi
}

# keep_output NAME STATUS: the end of what a stage printed goes to a log beside the record.
keep_output() {
  local stream
  for stream in out err; do
    [ -s "$scratch/$stream" ] || continue
    printf '== %s (%s), std%s\n' "$1" "$2" $stream
    tail -c 20000 "$scratch/$stream"
    echo
  done >> "$out/check-part$current.log"
}

# write_stage NAME STATUS REASON SECONDS CAP COMMAND DATA-FILE
write_stage() {
  local replaces
  replaces=$(previous "$current" "$1")
  {
    printf '{"stage": "%s", "status": "%s", "date": "%s", "reason": %s, ' "$1" "$2" "$(date -u +'%Y-%m-%d %H:%M:%S UTC')" "$(json_string "$3")"
    printf '"seconds": %s, "cap_seconds": %s, "command": %s, ' "$4" "$5" "$(json_string "$6")"
    printf '"backend": %s, "dry_run": %s, ' "$(json_string "$backend")" "$dry_run"
    [ -z "$replaces" ] || printf '"replaces": %s, ' "$(json_string "$replaces")"
    printf '"data": '
    if [ -s "$7" ]; then tr -d '\r\n' < "$7"; else printf null; fi
    echo '}'
  } > "$scratch/entry"
  record_stage "$current" "$1" "$scratch/entry"
  printf '%-22s %-12s %4d s  %s%s\n' "$1" "$2" "${4%.*}" "${3%%$'\n'*}" "${replaces:+ [replaces the result of $replaces]}"
}

# Prints the plan. Returns 1 if the limits of the stages of a part add up to the limit of the part or more.
print_plan() {
  local name p sum=() over=0
  printf '%-5s %-22s %s\n' part stage "limit, s"
  for name in "${names[@]}"; do
    p=${part_of[$name]}
    sum[p]=$((${sum[p]:-0} + cap_of[$name]))
    printf '%-5s %-22s %s\n' "$p" "$name" "${cap_of[$name]}"
  done
  for p in 1 2 3; do
    printf '%-5s %-22s %s of %s\n' "$p" "sum" "${sum[p]}" "$seconds"
    if [ "${sum[p]}" -ge "$seconds" ]; then
      echo "gpu_check: the stages of part $p may take ${sum[p]} s, expected less than the $seconds s of a part (--seconds)" >&2
      over=1
    fi
  done
  return $over
}
