#!/usr/bin/env bash
# Measures SpecLab on the GPU of this machine in under ten minutes, the most important stages first. Writes
# results/gpu/<device>/<stage>.json after each stage, and results/gpu/README.md at the end if there is a python3. Needs bash,
# coreutils, the CUDA toolkit and the driver. The programs come with a bundle (scripts/gpu_bundle.sh) or are built here.
# If a stage did not finish, its status says why: "unavailable" (a program, a device or a tool is missing, or no time was left), "capped"
# (its time limit was reached) or "failed". Exit status: 1 if a stage failed, 2 if nothing could begin, else 0.
#   scripts/gpu_check.sh [--model FILE | --model-parts FILE,FILE] [--stages NAME,NAME] [--device N] [--seconds N] [--cap N] [--out DIR]
# --seconds: time limit of the whole check. --cap: time limit of each stage, unless its own limit is shorter.
#   scripts/gpu_check.sh --backend host-simt|cpu   a dry run of everything at tiny sizes, into build/gpu_dry_run/
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 2
exec < /dev/null

fail() {
  printf 'gpu_check: %s\n' "$@" >&2
  exit 2
}

backend=cuda device=0 out='' seconds=580 most=600 wanted='' parts=''
model="${SPECLAB_MODELS:-models}/SmolLM2-135M-Instruct.Q4_1.gguf"
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
while [ $# -gt 0 ]; do
  [ $# -gt 1 ] || fail "$1 needs a value, or it is not an option. The head of scripts/gpu_check.sh lists the options."
  case "$1" in
    --backend) backend=$2 ;;
    --device) device=$2 ;;
    --model) model=$2 ;;
    --model-parts) parts=$2 ;;
    --stages) wanted=",$2," ;;
    --seconds) seconds=$2 ;;
    --cap) most=$2 ;;
    --out) out=$2 ;;
    *) fail "unknown option $1. The head of scripts/gpu_check.sh lists the options." ;;
  esac
  shift 2
done
case "$backend" in cuda | host-simt | cpu) ;; *) fail "--backend $backend: expected cuda, or host-simt or cpu for a dry run" ;; esac
[[ $seconds =~ ^[0-9]+$ && $most =~ ^[0-9]+$ && $device =~ ^[0-9]+$ ]] || fail "--seconds $seconds --cap $most --device $device: expected whole numbers"
dry_run=true
[ "$backend" = cuda ] && dry_run=false

# The model may come in parts, because the size of a transfer may be limited. The joined file gets its name only after its hash was checked.
if [ -n "$parts" ]; then
  IFS=, read -r -a files <<< "$parts"
  mkdir -p "$(dirname "$model")" || exit 2
  cat -- "${files[@]}" > "$model.joining" || fail "the parts of the model could not be read: $parts"
  got=$(sha256sum < "$model.joining" | cut -d' ' -f1)
  if [ "$got" != "$model_sha256" ]; then
    bytes=$(stat -c %s "$model.joining")
    rm -f "$model.joining"
    fail "the joined model ($bytes bytes) has SHA-256 $got, expected $model_sha256. Name all parts, in order."
  fi
  mv "$model.joining" "$model"
fi

program() {  # prints the path of a program in the bundle or in a build; nothing when there is none
  local path
  for path in "bin/$1" "build/release/$1" "build/release/tests/$1"; do
    if [ -x "$path" ]; then echo "$path"; return; fi
  done
}

# Lets the loader find CUDA's libraries if it does not know the toolkit. The folder comes last in the path, so that it overrides nothing.
if nvcc=$(command -v nvcc); then
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$(dirname "$(readlink -f "$nvcc")")")/lib64"
fi

source scripts/gpu_check/json.sh
source scripts/gpu_check/machine.sh

if [ -z "$out" ]; then
  if [ $dry_run = true ]; then out="build/gpu_dry_run/$backend"; else out="results/gpu/$(device_slug "$device")"; fi
fi
mkdir -p "$out" || fail "cannot write to $out"
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
failures=0

# write_stage NAME STATUS REASON SECONDS CAP COMMAND DATA-FILE
write_stage() {
  {
    printf '{\n "schema_version": 1,\n "stage": %s,\n "status": %s,\n "reason": %s,\n' "$(json_string "$1")" "$(json_string "$2")" "$(json_string "$3")"
    printf ' "seconds": %s,\n "cap_seconds": %s,\n "command": %s,\n' "$4" "$5" "$(json_string "$6")"
    printf ' "backend": %s,\n "dry_run": %s,\n "date": "%s",\n "data": ' "$(json_string "$backend")" "$dry_run" "$(date -u +'%Y-%m-%d %H:%M UTC')"
    if [ -s "$7" ]; then cat "$7"; else echo null; fi
    echo '}'
  } > "$out/$1.json.part"
  mv "$out/$1.json.part" "$out/$1.json"
  printf '%-18s %-12s %4d s  %s\n' "$1" "$2" "${4%.*}" "${3%%$'\n'*}"
}

# stage NAME CAP DATA COMMAND... : runs the command for at most CAP seconds. DATA is the JSON file that it writes, or "-" for
# its standard output. Exit status of the command: 0 ok; 2, 77, 127 cannot run here; anything else failed.
stage() {
  local name=$1 cap=$2 data=$3 status=ok reason='' code=0 left=$((seconds - SECONDS)) begin=$SECONDS
  shift 3
  if [ -n "$wanted" ] && [[ $wanted != *",$name,"* ]]; then return; fi
  [ "$most" -lt "$cap" ] && cap=$most
  [ "$left" -lt "$cap" ] && cap=$left
  : > "$scratch/out" > "$scratch/err"
  if [ -z "$1" ]; then
    status=unavailable reason="the program is neither in bin/ nor in build/release/. scripts/gpu_bundle.sh makes a bundle that has it."
  elif [ "$cap" -lt 1 ]; then
    status=unavailable reason="the $seconds seconds of the whole check were over. --stages $name runs this one alone."
  else
    timeout --signal=INT --kill-after=5 "$cap" "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
    case $code in
      0) ;;
      124 | 137) status=capped reason="stopped after $cap seconds" ;;
      2 | 77 | 127) status=unavailable ;;
      *) status=failed ;;
    esac
    if [ $code != 0 ] && [ -z "$reason" ]; then
      reason=$(tail -n 5 "$scratch/err" | cut -c 1-1000)
      [ -n "$reason" ] || reason="exit status $code"
    fi
  fi
  [ "$data" = - ] && data="$scratch/out"
  is_json "$data" || data=/dev/null
  if [ $status = ok ] && [ "$data" = /dev/null ]; then status=failed reason="it wrote no JSON"; fi
  [ $status = failed ] && failures=$((failures + 1))
  local shown="$*"
  write_stage "$name" $status "$reason" $((SECONDS - begin)) "$cap" "${shown//"$root/"/}" "$data"
}

# Sizes of the models and measurements. The goals (gpu_page.py) name these sizes. A dry run uses the smallest sizes that run every stage.
if [ $dry_run = false ]; then
  one='hidden=2048,heads=32,kv_heads=8,ffn=4480'  # 2.5 GB, like Llama-3.2-1B
  eight='hidden=4096,layers=32,heads=32,kv_heads=8,head_dim=128,ffn=14336,vocab=128256'  # 15 GB, like Llama-3.1-8B
  times=(--rows 1,2,4,8,16,24,32,48,64,96,128 --context 128,2048,8000 --tokens 33 --repeats 9)
  few=(--rows 1,2,4,8 --context 128,2048 --tokens 33 --repeats 9)
  prompts=(--prompts 512,2048 --repeats 5)
  run=()
else
  one='ffn=1600' eight='ffn=1664,vocab=49280'
  times=(--rows 1,2 --context 16 --tokens 2 --repeats 1)
  few=("${times[@]}")
  prompts=(--prompts 17 --repeats 1)
  run=(--set options.max_tokens=4 --set prompts.limit=1 --set calibration.rounds=1 --set 'cases.1.gamma=[2]')
fi
speclab=$(program speclab)
bench=$(program speclab_bench)
use=(--backend "$backend" --device "$device")
as_json() { echo "{\"$(sed -e 's/=/": /g' -e 's/,/, "/g' <<< "$1")}"; }  # a=1,b=2 -> {"a": 1, "b": 2}

forwards() {  # NAME CAP [INFLATE]
  stage "forwards_$1" "$2" - "$speclab" bench --model "$model" ${3:+--inflate "$3"} "${times[@]}" "${use[@]}" --json
}
persistent() {  # NAME CAP [INFLATE]
  stage "forwards_$1_persistent" "$2" - "$speclab" bench --model "$model" ${3:+--inflate "$3"} "${few[@]}" "${use[@]}" --kernels persistent --json
}
prefill() {  # NAME CAP [INFLATE]: prefill with our kernels and, on a GPU, with the toolkit's library
  local library=(--prefill cublaslt)
  [ "$backend" != cpu ] || library=()
  stage "prefill_$1" "$2" - "$speclab" bench --model "$model" ${3:+--inflate "$3"} "${prompts[@]}" "${library[@]}" "${use[@]}" --json
}
speculation() {  # NAME CAP [INFLATE]
  local target="{\"model\": \"$model\"${3:+, \"inflate\": $(as_json "$3")}}" folder="$scratch/run_$1"
  [ -n "${3:-}" ] || target="\"$model\""
  stage "speculation_$1" "$2" "$folder/summary.json" "$speclab" run configs/gpu_check.json --set "target=$target" "${run[@]}" "${use[@]}" --out "$folder"
}

machine "$scratch/machine" "$device" "$speclab" > "$scratch/machine_problem"
problem=$(< "$scratch/machine_problem")
if [ -z "$wanted" ] || [[ $wanted == *,machine,* ]]; then
  write_stage machine "$([ -z "$problem" ] && echo ok || echo unavailable)" "$problem" 0 0 nvidia-smi "$scratch/machine"
fi
if [ ! -f "$model" ]; then
  fail "there is no model $model. Run scripts/get_model.sh, or give --model, or --model-parts with the parts of scripts/gpu_bundle.sh."
fi

tests=$(program test_on_device)
stage tests 100 - "${tests:+scripts/gpu_check/tests.sh}" "$backend" "$device" "$tests"
forwards 135m 40
forwards 8b 90 "$eight"
forwards 1b 45 "$one"
persistent 135m 20
persistent 1b 25 "$one"
speculation 135m 45
speculation 8b 110 "$eight"
speculation 1b 50 "$one"
stage kernels 45 - "${bench:+scripts/gpu_check/kernels.sh}" "$bench" --model "$model" --draft models/draft/smollm2-135m-instruct "${use[@]}"
prefill 135m 30
prefill 8b 60 "$eight"
stage transformers 60 - python3 scripts/gpu_check/transformers_times.py --model "$model" "${use[@]}"
short=("$speclab" generate --model "$model" --draft models/draft/smollm2-135m-instruct --strategy speculative_sampling --prompt "Why is the sky blue?" --set max_tokens=8 "${use[@]}")
stage memcheck 40 - "${speclab:+scripts/gpu_check/sanitizer.sh}" memcheck "${short[@]}"
stage racecheck 40 - "${speclab:+scripts/gpu_check/sanitizer.sh}" racecheck "${short[@]}"
stage profile 40 - "${speclab:+scripts/gpu_check/profile.sh}" "${short[@]}"
stage gaps 40 - "${speclab:+scripts/gpu_check/gaps.sh}" "${short[@]}" --set max_tokens=64 --set device_loop=on --set device_graph=round

if [ $dry_run = false ] && command -v python3 > /dev/null; then python3 scripts/gpu_check/gpu_page.py; fi
echo "gpu_check: $SECONDS s, JSON files in $out"
exit $((failures > 0))
