#!/usr/bin/env bash
# Tests scripts/slurm on a Slurm cluster of one node that it starts on this machine, as root, with a configuration, ports and a munge key of its
# own. Other Slurm or munge daemons are left alone. Needs root, the packages slurm-wlm and munge (installed if they are missing), a binary
# (SPECLAB_BINARY, default build/release/speclab) and the target model. Works in a container without systemd and without cgroups.
#   scripts/slurm/test_slurm.sh [--keep]    --keep: keeps the folder of the test
# It runs configs/smoke.json in two shards, and meanwhile
#   takes the node down and brings it back,
#   kills speclab in one task with SIGKILL, as the system does when memory runs out,
#   requeues that task, as Slurm does with a job that it pre-empts,
#   sends it the signal that says that its time is up.
# After each of these, every line that was finished before must still be in the record, so at most the line in flight was lost. In the end the
# merged record must equal that of a run in one piece, except for times.
# Exit status: 0 all is as it must be, 1 something is not, 2 the test could not begin.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
exec < /dev/null

cannot() { printf 'test_slurm: %s\n' "$@" >&2; exit 2; }

keep=false
case "${1:-}" in
  "") ;;
  --keep) keep=true ;;
  *) cannot "unknown option $1. The only option is --keep." ;;
esac
[ "$(id -u)" -eq 0 ] || cannot "it starts daemons, so run it as root."
scripts/setup.sh --slurm
speclab=$(realpath -m "${SPECLAB_BINARY:-build/release/speclab}")
[ -x "$speclab" ] || cannot "there is no binary $speclab. Build it, or set SPECLAB_BINARY."
export SPECLAB_BINARY=$speclab

work=$(mktemp -d /tmp/speclab-slurm.XXXXXX)
chmod 755 "$work"  # munge asks for a folder that others may enter
mkdir "$work/state" "$work/spool"
node=$(hostname -s)
export SLURM_CONF=$work/slurm.conf
unset SLURM_JOB_ID SBATCH_PARTITION SBATCH_ACCOUNT SBATCH_TIMELIMIT
run=$work/run whole=$work/whole
daemons=()

clean_up() {
  local status=$?
  trap - EXIT
  set +e
  scancel --user=root > /dev/null 2>&1
  sleep 1
  [ ! -e "$work/munged.pid" ] || daemons+=("$(cat "$work/munged.pid")")
  for signal in TERM TERM TERM KILL; do
    for pid in "${daemons[@]}"; do kill -$signal "$pid" 2> /dev/null; done
    sleep 1
  done
  if $keep || [ "$status" -ne 0 ]; then echo "The folder of the test is $work"; else rm -rf "$work"; fi
  exit "$status"
}
trap clean_up EXIT

# --- the cluster ---------------------------------------------------------------------------------------------------------------------
head -c 1024 /dev/urandom > "$work/munge.key"
chmod 400 "$work/munge.key"
cat > "$SLURM_CONF" << TEXT
ClusterName=speclab-test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
SlurmUser=root
AuthType=auth/munge
# cred_expire is also the time that a requeued job waits before it starts again; the default is two minutes.
AuthInfo=socket=$work/munge.socket,cred_expire=5
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
# Nothing that needs cgroups.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
JobRequeue=1
KillWait=5
ReturnToService=2
# The node has two CPUs for Slurm, whatever the machine has.
SlurmdParameters=config_overrides
NodeName=$node NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=test Nodes=$node Default=YES MaxTime=INFINITE State=UP
TEXT

within() {  # seconds, what is waited for, command: waits until the command succeeds
  local seconds=$1 what=$2
  shift 2
  local end=$((SECONDS + seconds))
  until "$@"; do
    if [ $SECONDS -ge $end ]; then
      printf 'FAILED: %s did not happen within %s s\n' "$what" "$seconds" >&2
      squeue --long >&2 || true
      tail -n 20 "$work"/slurmctld.log "$work"/slurmd.log "$run"/logs/*.log >&2 2> /dev/null || true
      exit 1
    fi
    sleep 0.5
  done
}

munged --key-file="$work/munge.key" --socket="$work/munge.socket" --pid-file="$work/munged.pid" --log-file="$work/munged.log" \
  --seed-file="$work/munged.seed" || cannot "munged did not start; see $work/munged.log."
slurmctld -D > "$work/slurmctld.out" 2>&1 &
daemons+=($!)
slurmd -D > "$work/slurmd.out" 2>&1 &
daemons+=($!)
node_is() { [[ $(sinfo --noheader --format=%T 2> /dev/null) == $1 ]]; }
within 60 "an idle node" node_is idle
echo "-- a cluster of one node is up: $(scontrol --version)"

# --- the same run in one piece -------------------------------------------------------------------------------------------------------
# Enough lines for all disturbances, short texts, and few rounds of the calibration.
options=(--threads 1 --set repeats=16 --set options.max_tokens=32 --set 'calibration={"rows": 4, "rounds": 3, "texts": 1}')
"$speclab" run configs/smoke.json --out "$whole" --quiet "${options[@]}" > /dev/null

# --- the array, and what happens to it -----------------------------------------------------------------------------------------------
SPECLAB_OUT=$run scripts/slurm/submit.sh configs/smoke.json 2 --cpus-per-task=1 -- "${options[@]}" | tee "$work/submit.txt"
array=$(sed -n 's/^shards \([0-9]*\) merge .*/\1/p' "$work/submit.txt")
merge=$(sed -n 's/^shards [0-9]* merge \([0-9]*\)$/\1/p' "$work/submit.txt")
[ -n "$array" ] && [ -n "$merge" ] || { echo "FAILED: submit.sh named no jobs" >&2; exit 1; }

lines_of() { cat "$run/shard-$1"/cases/*.jsonl 2> /dev/null | wc -l; }
more_lines() { [ "$(lines_of "$1")" -ge "$2" ]; }  # shard, number
restarts_of() { scontrol show job "${array}_$1" | sed -n 's/.* Restarts=\([0-9]*\).*/\1/p' | head -n 1; }
restarted() { [ "$(restarts_of "$1")" -ge "$2" ]; }
field_of() { scontrol show job "$1" | sed -n "s/.*\b$2=\([^ ]*\).*/\1/p" | head -n 1; }
writer_of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["pid"])' "$run/shard-$1/run.lock"; }
snapshot() { rm -rf "$work/before-$1"; cp -r "$run/shard-$1" "$work/before-$1"; }

disturb() {  # name, shard, command...: runs the command once the shard has three more lines; then the shard must go on with all its lines
  local name=$1 shard=$2 before restarts
  shift 2
  within 300 "three more lines of shard $shard" more_lines "$shard" $(($(lines_of "$shard") + 3))
  restarts=$(restarts_of "$shard")
  snapshot "$shard"
  "$@"
  within 120 "a restart of shard $shard after \"$name\"" restarted "$shard" $((restarts + 1))
  before=$(lines_of "$shard")
  within 300 "a further line of shard $shard after \"$name\"" more_lines "$shard" $((before + 1))
  scripts/slurm/same_record.py --kept "$work/before-$shard" "$run/shard-$shard" > "$work/kept.txt" ||
    { echo "FAILED: \"$name\" lost finished lines:"; cat "$work/kept.txt"; exit 1; }
  echo "-- $name: shard $shard goes on, all $(cat "$work/before-$shard"/cases/*.jsonl | wc -l) finished lines are kept"
}

kill_speclab() { kill -KILL "$(writer_of 1)"; }
requeue_task() { scontrol requeue "${array}_1"; }
end_time() { scancel --batch --signal=USR1 "${array}_1"; }
fail_node() {
  scontrol update NodeName="$node" State=DOWN Reason=test
  within 60 "a node that is down" node_is 'down*'
  nothing_runs() { [ -z "$(squeue --noheader --states=RUNNING,COMPLETING)" ]; }
  within 60 "the end of all tasks" nothing_runs
  scontrol update NodeName="$node" State=RESUME
}

disturb "the node fails" 2 fail_node
disturb "speclab is killed" 1 kill_speclab
disturb "the task is pre-empted" 1 requeue_task
disturb "the time is up" 1 end_time

state_of_merge() { field_of "$merge" JobState; }
merged() { [[ $(state_of_merge) =~ ^(COMPLETED|FAILED|CANCELLED|NODE_FAIL|TIMEOUT) ]]; }
within 900 "the end of the merge job" merged
if [ "$(state_of_merge)" != COMPLETED ]; then
  echo "FAILED: the merge job is $(state_of_merge)" >&2
  tail -n 20 "$run"/logs/*.log >&2
  exit 1
fi
echo "-- the shards are merged"

# --- the result ----------------------------------------------------------------------------------------------------------------------
scripts/slurm/same_record.py "$whole" "$run/merged" || { echo "FAILED: the merged record differs from that of a run in one piece" >&2; exit 1; }
python3 -c 'import json, sys; sys.exit(not json.load(open(sys.argv[1]))["complete"])' "$run/merged/summary.json" ||
  { echo "FAILED: the merged run is not complete" >&2; exit 1; }
echo "-- the merged record equals that of a run in one piece, except for times"
