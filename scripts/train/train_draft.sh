#!/usr/bin/env bash
# Trains the draft model for SmolLM2-135M-Instruct from scratch. Stages: environment, text, training, export, golden values, evaluation.
# Text and training resume where they were stopped. On a GPU the defaults differ: more text, one epoch, larger batches.
#
#   scripts/train/train_draft.sh [PROMPTS.jsonl [QUESTION_IDS]]    prompts to evaluate on, never used in training
#   TEXT="--tokens 3e6" TRAIN="--epochs 2" SIZES="128 256" OUT=DIR   TEXT: options of generate.py; TRAIN: options of train.py;
#                                                                     SIZES: widths to train (default 256, see draft.py); OUT: folder of width
#                                                                     256, other widths go to OUT-WIDTH
#   BOOST=1 SIZES="256 128"    boost-tuning (train.py): every draft after the first one is trained on what the earlier ones get wrong, and its
#                              folder ends with -boosted. The strategy merged_trees drafts with all of them together.
# On two cores, TEXT="--minutes 40" TRAIN="--minutes 34 --epochs 5" takes an hour and a half.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-models/draft/smollm2-135m-instruct}
. scripts/train/prepare.sh

earlier=() # with BOOST: the drafts before this one
for size in ${SIZES:-256}; do
  place=$out after=()
  [ "$size" = 256 ] || place=$out-$size
  if [ ${#earlier[@]} -gt 0 ]; then
    place=$place-boosted after=(--boost "${earlier[@]}")
  fi
  "$python" scripts/train/train.py --target "$target" --cache "$cache" --out "$place" --size "$size" "${after[@]}" ${TRAIN:-}
  [ -z "${BOOST:-}" ] || earlier+=("$place")
  "$python" scripts/train/golden.py --target "$target" --draft "$place"
  if [ $# -gt 0 ]; then
    "$python" scripts/train/evaluate.py "$1" --ids "${2:-}" --target "$target" --cache "$cache" --draft "$place"
  fi
done
