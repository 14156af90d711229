#!/usr/bin/env bash
# The job that scripts/slurm/submit.sh submits to run after the array: merges OUT/shard-* into OUT/merged. Exits with the status
# of speclab merge: 1 if the run has failed lines.
#   merge.sh SPECLAB OUT
set -euo pipefail
speclab=$1 out=$2
exec "$speclab" merge "$out"/shard-* --out "$out/merged"
