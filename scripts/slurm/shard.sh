#!/usr/bin/env bash
# A task of the job array that scripts/slurm/submit.sh submits: measures the shard SLURM_ARRAY_TASK_ID, or goes on with it.
#   shard.sh SPECLAB CONFIG OUT N COSTS [options of speclab run]
# COSTS: "own", or "of-first": every other shard waits until the first shard has written its table of costs, and uses this table.
#
# How the task ends:
# - speclab has finished the shard: exit status 0, also if lines failed. The merged run lists those.
# - Slurm ends the task (pre-emption, requeue, scancel, node down): it sends SIGTERM to all processes of the task. speclab then stops between
#   two steps and keeps all finished lines; the line in flight is lost. What happens to the job is up to Slurm.
# - The time limit is near (SIGUSR1, --signal of submit.sh): speclab is stopped in the same way, and the task requeues itself.
# - speclab was killed, for example because memory ran out: the task requeues itself, unless it was restarted SPECLAB_MOST_RESTARTS times
#   (default 5) already.
# - Another process still writes into the shard's folder, or the first shard wrote no table of costs in time: exit status 2.
# - Anything else is an error (a wrong config, another machine than before): speclab's exit status.
set -uo pipefail
speclab=$1 config=$2 out=$3 count=$4 costs=$5
shift 5
number=$SLURM_ARRAY_TASK_ID
job=${SLURM_ARRAY_JOB_ID}_$number
shard=$number/$count folder=$out/shard-$number
restarts=${SLURM_RESTART_COUNT:-0} most_restarts=${SPECLAB_MOST_RESTARTS:-5}
lock_wait=600    # seconds; if a node fails, a network file system may keep its lock for a while
table_wait=3600  # seconds that the first shard has for loading its models and measuring the table

say() { printf '%s %s shard %s: %s\n' "$(date '+%F %T')" "$(hostname)" "$shard" "$*"; }

back_to_the_queue() {
  say "$1; the task goes back to the queue"
  scontrol requeue "$job"
}

child='' out_of_time=false ended=false
near_the_end() {
  out_of_time=true
  [ -z "$child" ] || kill -TERM "$child" 2> /dev/null
}
trap near_the_end USR1
stop_if_told() {  # before speclab runs
  if $ended; then exit 130; fi
  if $out_of_time; then back_to_the_queue "is out of time"; exit 130; fi
}
trap 'ended=true' TERM  # speclab gets its own SIGTERM from Slurm; a second one would end it at once

if [ -e "$folder/config.json" ] || [ -e "$folder/targets.json" ]; then
  say "goes on, restart $restarts"
  words=(run --resume "$folder" --shard "$shard")  # the folder has the config and all options
  if [ -e "$folder/run.lock" ] && ! flock --wait "$lock_wait" "$folder/run.lock" true; then
    stop_if_told
    say "another process writes into $folder"
    exit 2
  fi
else
  words=(run "$config" --out "$folder" --shard "$shard" "$@")
  if [ "$costs" = of-first ] && [ "$number" != 1 ]; then
    table=$out/shard-1/environment.json
    for ((waited = 0; waited < table_wait; waited += 5)); do
      if [ -e "$table" ] || $out_of_time || $ended; then break; fi
      sleep 5
    done
    stop_if_told
    [ -e "$table" ] || { say "the first shard wrote no table of costs, $table"; exit 2; }
    words+=(--costs "$out/shard-1")
  fi
fi

stop_if_told
"$speclab" "${words[@]}" &
child=$!
while :; do
  wait "$child"
  code=$?
  kill -0 "$child" 2> /dev/null || break  # a signal to this script ends the wait, but not speclab
done
case $code in
  0) say "finished"; exit 0 ;;
  1) say "finished, with lines that failed"; exit 0 ;;
esac
sleep 1  # a SIGTERM to the whole task may reach speclab before this script
if $ended; then
  say "was ended by Slurm"
elif $out_of_time; then
  back_to_the_queue "is out of time"
elif [ "$code" -gt 128 ] && [ "$restarts" -lt "$most_restarts" ]; then
  back_to_the_queue "speclab was ended by signal $((code - 128))"
else
  say "failed with exit status $code"
fi
exit "$code"
