#!/usr/bin/env bash
# planted.sh hang | slow COMMAND...: makes a stage of a dry run of gpu_check.sh fail on purpose (--plant). "hang" ignores SIGINT and SIGTERM.
# "slow" runs the command after ten minutes.
if [ "$1" = hang ]; then
  trap '' INT TERM
  echo "planted: this stage hangs" >&2
  while :; do sleep 1; done
fi
echo "planted: this stage is slow" >&2
sleep 600
shift
exec "$@"
