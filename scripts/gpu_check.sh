#!/usr/bin/env bash
# Measures SpecLab on the GPU of this machine in three parts of less than ten minutes each, the most important part first:
# 1: tests, forwards of the 8B shape, speculation. 2: forwards of the smaller models, kernels, prefill. 3: forwards of the 8B shape with launches
# that do not overlap and as graphs, comparison with transformers, sanitizers, profiles.
# Needs bash, coreutils, the CUDA toolkit and the driver. Builds nothing: the programs come from a bundle (scripts/gpu_bundle.sh) or from an
# earlier build in build/release.
# After each stage, its result is in results/gpu/<device>/check-partN.json (scripts/gpu_check/record.sh). If the status of a stage is not "ok",
# the end of its output is in check-partN.log. A stage that runs again replaces its result. If the results are under
# results/gpu, there is a python3 and this is no dry run, results/gpu/README.md is written at the end.
# If a stage did not succeed, its status says why: "unavailable" (a program, a device or a tool is missing, or no time was left), "capped"
# (its time limit was reached, or the check was interrupted) or "failed". Exit status: 1 if a stage failed, 2 if nothing could begin, 130 if the
# check was interrupted, else 0.
#   scripts/gpu_check.sh [--part 1|2|3] [--stages NAME,NAME] [--model FILE | --model-parts FILE,FILE] [--device N] [--seconds N] [--cap N] [--out DIR]
# --part: this part alone; otherwise all of them, one after the other. --stages: these stages alone; "tests" stands for all tests_*.
# --seconds: time limit of each part. --cap: time limit of each stage, unless its own limit is shorter.
#   scripts/gpu_check.sh --plan   prints parts, stages and limits. Exit status 1 if the limits of the stages of a part add up to the limit of the part (--seconds) or more.
#   scripts/gpu_check.sh --backend host-simt|cpu   a dry run of everything at tiny sizes, into build/gpu_dry_run/.
# --draft DRAFT: the draft for a --model that is not the default. --plant hang=STAGE,slow=STAGE,sticky=SUITE (dry runs alone): makes a stage
# hang or last too long, or makes the tests of a suite fail as after a CUDA error that stays: every later CUDA call of the process fails too.
# --plant-seconds N (usually 5): the limit of a planted stage, and how long one that ignores SIGTERM may go on after it.
# --shapes ONE/EIGHT (dry runs alone): the shapes that stand for the 1B and the 8B model, for a --model that is smaller than the default.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 2
exec < /dev/null

fail() {
  printf 'gpu_check: %s\n' "$@" >&2
  exit 2
}

backend=cuda device=0 out='' seconds='' most=6000 wanted='' wanted_part='' parts='' plan=false plants='' shapes='' draft=models/draft/smollm2-135m-instruct
usual_grace=5 planted_cap=5  # seconds from SIGTERM to SIGKILL; limit and grace of a planted stage
model="${SPECLAB_MODELS:-models}/SmolLM2-135M-Instruct.Q4_1.gguf"
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
while [ $# -gt 0 ]; do
  if [ "$1" = --plan ]; then plan=true; shift; continue; fi
  [ $# -gt 1 ] || fail "$1 needs a value, or it is not an option. The head of scripts/gpu_check.sh lists the options."
  case "$1" in
    --backend) backend=$2 ;;
    --device) device=$2 ;;
    --model) model=$2 ;;
    --model-parts) parts=$2 ;;
    --part) wanted_part=$2 ;;
    --stages) wanted=$2 ;;
    --seconds) seconds=$2 ;;
    --cap) most=$2 ;;
    --out) out=$2 ;;
    --draft) draft=$2 ;;
    --plant) plants=$2 ;;
    --plant-seconds) planted_cap=$2 ;;
    --shapes) shapes=$2 ;;
    *) fail "unknown option $1. The head of scripts/gpu_check.sh lists the options." ;;
  esac
  shift 2
done
case "$backend" in cuda | host-simt | cpu) ;; *) fail "--backend $backend: expected cuda, or host-simt or cpu for a dry run" ;; esac
case "$wanted_part" in '' | 1 | 2 | 3) ;; *) fail "--part $wanted_part: expected 1, 2 or 3" ;; esac
slower=1  # factor of the usual limits: ten in a dry run, because a simulated GPU is slow and the machine may be busy
if [ $plan = false ] && [ "$backend" != cuda ]; then slower=10; fi
seconds=${seconds:-$((580 * slower))}
[[ $seconds =~ ^[0-9]+$ && $most =~ ^[0-9]+$ && $device =~ ^[0-9]+$ ]] || fail "--seconds $seconds --cap $most --device $device: expected whole numbers"
[[ $planted_cap =~ ^[1-9][0-9]*$ ]] || fail "--plant-seconds $planted_cap: expected a whole number of at least 1"
dry_run=true
[ "$backend" = cuda ] && dry_run=false
[ $dry_run = true ] || [ -z "$plants" ] || fail "--plant $plants: only a dry run may be made to fail; add --backend host-simt or --backend cpu"
[ $dry_run = true ] || [ -z "$shapes" ] || fail "--shapes $shapes: only a dry run takes other shapes; add --backend host-simt or --backend cpu"
[[ -z $shapes || $shapes =~ ^[^/]+/[^/]+$ ]] || fail "--shapes $shapes: expected two shapes with a / between them, such as ffn=112/ffn=176,vocab=400"

program() {  # prints the path of a program in the bundle or in a build; nothing when there is none
  local path
  for path in "bin/$1" "build/release/$1" "build/release/tests/$1"; do
    if [ -x "$path" ]; then echo "$path"; return; fi
  done
}

# Lets the loader find CUDA's libraries if it does not know the toolkit. The folder comes last in the path, so that it overrides nothing.
if nvcc=$(command -v nvcc); then
  nvcc=$(readlink -f "$nvcc")
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${nvcc%/*/*}/lib64"
fi

source scripts/gpu_check/json.sh
source scripts/gpu_check/machine.sh
source scripts/gpu_check/suites.sh
source scripts/gpu_check/record.sh
source scripts/gpu_check/stage.sh

# Sizes of the models and measurements. The speed goals on the results page (GOALS in scripts/gpu_check/gpu_page.py) are stated for these
# sizes, so change both together. A dry run uses the smallest sizes of the default model that run every stage.
if [ $dry_run = false ]; then
  one='hidden=2048,heads=32,kv_heads=8,ffn=4480'  # 2.5 GB, the size of Llama-3.2-1B, but 30 layers
  eight='hidden=4096,layers=32,heads=32,kv_heads=8,head_dim=128,ffn=14336,vocab=128256'  # 15 GB, like Llama-3.1-8B
  times=(--rows 1,2,4,8,16,24,32,48,64,96,128 --context 128,2048,8000 --tokens 33 --repeats 9)
  few=(--rows 1,2,4,8 --context 128,2048 --tokens 33 --repeats 9)
  prompts=(--prompts 512,2048 --repeats 5)
  run=()
else
  shapes=${shapes:-ffn=1600/ffn=1664,vocab=49280}
  one=${shapes%/*} eight=${shapes#*/}
  times=(--rows 1,2 --context 16 --tokens 2 --repeats 1)
  few=("${times[@]}")
  prompts=(--prompts 17 --repeats 1)
  run=(--set options.max_tokens=4 --set drafts.skip20.layers.keep=1 --set prompts.limit=1 --set calibration.rounds=1 --set 'cases.1.gamma=[2]')
fi
speclab=$(program speclab)
bench=$(program speclab_bench)
tests=$(program test_on_device)
scratch=$(mktemp -d) || exit 2
kept=$scratch/kept.json  # what a stage has measured so far, if it writes that while it runs
trap 'rm -rf "$scratch"' EXIT
failures=0 succeeded=0 interrupted=false
use=(--backend "$backend" --device "$device")
as_json() {  # a=1,b=2 -> {"a": 1, "b": 2}
  local text=${1//=/'": '}
  echo "{\"${text//,/', "'}}"
}

forwards() {  # NAME CAP [INFLATE]
  stage "forwards_$1" "$2" - "$speclab" bench --model "$model" ${3:+--inflate "$3"} "${times[@]}" "${use[@]}" --json --out "$kept"
}
with_kernels() {  # KERNELS NAME CAP [INFLATE]
  stage "forwards_$2_$1" "$3" - "$speclab" bench --model "$model" ${4:+--inflate "$4"} "${few[@]}" "${use[@]}" --kernels "$1" --json --out "$kept"
}
prefill() {  # NAME CAP [INFLATE]: prefill with our kernels and, unless the backend is cpu, with cuBLASLt
  local library=(--prefill cublaslt)
  [ "$backend" != cpu ] || library=()
  stage "prefill_$1" "$2" - "$speclab" bench --model "$model" ${3:+--inflate "$3"} "${prompts[@]}" "${library[@]}" "${use[@]}" --json --out "$kept"
}
speculation() {  # NAME CAP [INFLATE]
  [ $mode = list ] || wanted_stage "speculation_$1" || return 0
  local target="{\"model\": \"$model\"${3:+, \"inflate\": $(as_json "$3")}}" folder="$scratch/run_$1"
  [ -n "${3:-}" ] || target="\"$model\""
  stage "speculation_$1" "$2" "$folder/summary.json" "$speclab" run configs/gpu_check.json --set "target=$target" --set "drafts.distilled.model=$draft" "${run[@]}" "${use[@]}" --out "$folder"
}

short=("$speclab" generate --model "$model" --draft "$draft" --strategy speculative_sampling --prompt "Why is the sky blue?" --set max_tokens=8 --set budget=fixed "${use[@]}")

# All stages in order. In a part, the limits add up to less than the time of the part; --plan prints them.
part_1() {
  local suite
  for suite in "${suites[@]}"; do
    [ $mode = list ] || wanted_stage "tests_$suite" || continue
    stage "tests_$suite" "$(suite_cap "$suite")" - "${tests:+scripts/gpu_check/tests.sh}" "$backend" "$device" "$suite" "$tests"
  done
  forwards 8b 85 "$eight"
  speculation 8b 105 "$eight"
  speculation 1b 45 "$one"
  speculation 135m 40
}
part_2() {
  forwards 135m 45
  forwards 1b 55 "$one"
  with_kernels persistent 135m 30
  with_kernels persistent 1b 40 "$one"
  stage kernels 180 - "${bench:+scripts/gpu_check/kernels.sh}" "$bench" --model "$model" --draft "$draft" "${use[@]}"
  prefill 135m 45
  prefill 8b 100 "$eight"
}
part_3() {
  with_kernels serial 8b 40 "$eight"
  with_kernels graphs 8b 40 "$eight"
  stage transformers 90 - python3 scripts/gpu_check/transformers_times.py --model "$model" "${use[@]}"
  stage memcheck 110 - "${speclab:+scripts/gpu_check/sanitizer.sh}" memcheck "${short[@]}"
  stage racecheck 110 - "${speclab:+scripts/gpu_check/sanitizer.sh}" racecheck "${short[@]}"
  stage profile 100 - "${speclab:+scripts/gpu_check/profile.sh}" "${short[@]}" --profile-steps
  stage gaps 60 - "${speclab:+scripts/gpu_check/gaps.sh}" "${short[@]}" --set max_tokens=64 --set device_loop=on --set device_graph=round --profile-steps
}
each_part() { for p in 1 2 3; do part $p; "part_$p"; done; }

mode=list
each_part
if [ $plan = true ]; then print_plan; exit; fi
stage_named() {  # WORD OPTION: the stage of that name; a suite may be named without "tests_"
  local name
  for name in "$1" "tests_$1"; do
    if [ -n "${part_of[$name]:-}" ]; then echo "$name"; return; fi
  done
  fail "$2: there is no stage $1. scripts/gpu_check.sh --plan lists the stages."
}

# Which stages run. "machine" describes the GPU; it runs with every part, unless --stages leaves it out.
declare -A chosen=()
if [ -z "$wanted" ]; then
  chosen[machine]=1
  for name in "${names[@]}"; do [ "${wanted_part:-${part_of[$name]}}" != "${part_of[$name]}" ] || chosen[$name]=1; done
fi
IFS=, read -r -a words <<< "$wanted"
for word in "${words[@]}"; do
  case $word in
    machine) chosen[machine]=1; continue ;;
    tests) found=$(printf 'tests_%s ' "${suites[@]}") ;;
    *) found=$(stage_named "$word" "--stages $wanted") || exit 2 ;;
  esac
  for name in $found; do
    [ -z "$wanted_part" ] || [ "${part_of[$name]}" = "$wanted_part" ] || fail "--part $wanted_part --stages $wanted: stage $name belongs to part ${part_of[$name]}"
    chosen[$name]=1
  done
done
IFS=, read -r -a words <<< "$plants"
for word in "${words[@]}"; do
  case $word in hang=?* | slow=?* | sticky=?*) ;; *) fail "--plant $plants: expected hang=STAGE, slow=STAGE or sticky=SUITE, separated by commas" ;; esac
  name=$(stage_named "${word#*=}" "--plant $plants") || exit 2
  [[ $word != sticky=* || $name == tests_* ]] || fail "--plant $plants: ${word#*=} is no suite of the tests"
  planted[$name]=${word%%=*}
done
run_parts=()
for p in 1 2 3; do
  [ "${wanted_part:-$p}" = $p ] || continue
  for name in "${names[@]}"; do
    if [ "${part_of[$name]}" = $p ] && [ -n "${chosen[$name]:-}" ]; then run_parts+=($p); break; fi
  done
done
[ ${#run_parts[@]} -gt 0 ] || run_parts=("${wanted_part:-1}")  # --stages machine

# Checks everything that can be wrong before anything is measured or replaced.
device_name=$backend
[ $dry_run = true ] || device_name=$(device_slug "$device")
if [ -z "$out" ]; then
  if [ $dry_run = true ]; then out="build/gpu_dry_run/$backend"; else out="results/gpu/$device_name"; fi
fi
mkdir -p "$out" 2> /dev/null && : 2> /dev/null > "$out/.writable" && rm "$out/.writable" || fail "--out $out: cannot write there"
for p in "${run_parts[@]}"; do require_record $p; done
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

if [ ! -e "$model" ]; then
  fail "there is no model $model. Run scripts/get_model.sh, or give --model, or --model-parts with the parts of scripts/gpu_bundle.sh."
fi

# How many seconds the programs wait for a step that the GPU runs by itself. This is less than the time limit of most stages, so that a program
# can report a hanging GPU before the limit ends the program.
export SPECLAB_DEVICE_WAIT_SECONDS=${SPECLAB_DEVICE_WAIT_SECONDS:-20}
interrupt() {
  interrupted=true
  [ -n "$stage_process" ] || exit 130
  kill -TERM "$stage_process" 2> /dev/null
}
trap interrupt INT TERM
mode=run
machine "$scratch/machine" "$device" "$speclab" > "$scratch/machine_problem"
problem=$(< "$scratch/machine_problem")
for p in "${run_parts[@]}"; do
  part "$p"
  if wanted_stage machine; then
    write_stage machine "$([ -z "$problem" ] && echo ok || echo unavailable)" "$problem" 0 0 nvidia-smi "$scratch/machine"
  fi
  "part_$p"
done

if [ $dry_run = false ] && [[ $out == results/gpu/* ]] && command -v python3 > /dev/null; then python3 scripts/gpu_check/gpu_page.py; fi
echo "gpu_check: $SECONDS s, $(for p in "${run_parts[@]}"; do printf '%s ' "$(record_file "$p")"; done)"
if [ $dry_run = false ] && [ $failures = 0 ] && [ $succeeded = 0 ] && [ -n "$problem" ]; then exit 2; fi  # no usable GPU
exit $((failures > 0))
