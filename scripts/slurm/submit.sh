#!/usr/bin/env bash
# Runs an experiment as a Slurm job array: each task measures one shard (speclab run --shard i/N), and a job that depends on the array
# merges the shards (speclab merge) when all of them are finished.
#   scripts/slurm/submit.sh CONFIG N [sbatch options] [-- options of speclab run]
# N: number of shards, at most the number of prompts. For example, with eight cores for each task:
#   scripts/slurm/submit.sh configs/gamma_sweep.json 8 --partition=long --cpus-per-task=8 --constraint=epyc -- --threads 8
# All tasks must run on one kind of machine (--constraint), because speclab merge refuses shards of different machines.
#
# The folder of the run is results/runs/NAME-TIME, or SPECLAB_OUT from the environment. All nodes must see it and this checkout. It gets
# shard-1 to shard-N, merged and logs. SPECLAB_BINARY: the binary, default build/release/speclab. SPECLAB_MOST_RESTARTS: see shard.sh.
# After a requeue, a pre-emption, a failure of its node or the end of its time, a task goes on where it was interrupted
# (scripts/slurm/shard.sh). If the config needs a table of costs ("budget": "auto" or the schedule bandit) and the options name none
# (--costs), the first shard measures the table and the others use it. They may start as soon as the first shard has started.
# The last line of the output names the jobs. Exit status 2: something is wrong, and nothing was submitted.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

fail() {
  printf 'submit: %s\n' "$@" >&2
  exit 2
}

[ $# -ge 2 ] || fail "usage: scripts/slurm/submit.sh CONFIG N [sbatch options] [-- options of speclab run]"
config=$(realpath -m "$1") count=$2
shift 2
[[ $count =~ ^[1-9][0-9]{0,5}$ ]] || fail "N is \"$count\". It must be a number of shards, 1 or more."
[ -f "$config" ] || fail "there is no file $config."
batch=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  batch+=("$1")
  shift
done
[ $# -eq 0 ] || shift
options=("$@")

speclab=$(realpath "${SPECLAB_BINARY:-$root/build/release/speclab}")
[ -x "$speclab" ] || fail "there is no binary $speclab. Build it, or set SPECLAB_BINARY."
command -v sbatch > /dev/null || fail "there is no sbatch. Run this on a machine of a Slurm cluster."
name=$(basename "$config" .json)
out=$(realpath -m "${SPECLAB_OUT:-$root/results/runs/$name-$(date +%Y%m%d-%H%M%S)}")
cd "$root"
[[ $config != "$root"/* ]] || config=${config#"$root"/}  # records name the config relative to the checkout

# The config, the options and the number of shards are checked before a job waits in the queue.
"$speclab" run "$config" --dry-run --shard "$count/$count" "${options[@]}" > /dev/null || exit 2
plan=$("$speclab" run "$config" --dry-run --json "${options[@]}")
costs=own
if grep -qE '"budget": "auto"|"schedule": "bandit"' <<< "$plan" && [[ " ${options[*]} " != *" --costs"[\ =]* ]]; then
  costs=of-first
  ! grep -q '"target_name":' <<< "$plan" ||
    fail "the config has several targets and chooses drafts by costs. Give all shards one table with --costs, or set \"budget\" to \"fixed\"."
fi

mkdir -p "$out/logs"
common=(--parsable --chdir="$root" --requeue --open-mode=append --signal=B:USR1@120 --job-name="speclab-$name"
  --output="$out/logs/shard-%a.log")
work=(scripts/slurm/shard.sh "$speclab" "$config" "$out" "$count" "$costs" "${options[@]}")
if [ "$costs" = of-first ] && [ "$count" -gt 1 ]; then
  first=$(sbatch "${common[@]}" "${batch[@]}" --array=1 "${work[@]}")
  first=${first%%;*}  # sbatch prints the name of the cluster after ";"
  rest=$(sbatch "${common[@]}" "${batch[@]}" --array="2-$count" --dependency="after:$first" "${work[@]}")
  jobs=$first:${rest%%;*}
else
  jobs=$(sbatch "${common[@]}" "${batch[@]}" --array="1-$count" "${work[@]}")
  jobs=${jobs%%;*}
fi
merge=$(sbatch --parsable --chdir="$root" --job-name="merge-$name" --output="$out/logs/merge.log" "${batch[@]}" \
  --dependency="afterok:$jobs" --kill-on-invalid-dep=yes scripts/slurm/merge.sh "$speclab" "$out")
printf 'The merged run will be %s/merged. Logs: %s/logs\n' "$out" "$out"
printf 'shards %s merge %s\n' "$jobs" "${merge%%;*}"
