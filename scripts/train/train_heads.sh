#!/usr/bin/env bash
# Trains heads for SmolLM2-135M-Instruct from scratch. Stages: environment, text, then the training of one head after the other.
# A script that was stopped goes on with the same command, in the text and in each training. But with --minutes in TEXT each call writes
# more text, and on other text all trainings begin anew; so give the amount of text as --tokens.
#
#   scripts/train/train_heads.sh
#   HEADS="medusa eagle3"     which heads, in this order: blockwise, medusa, hydra, mlp_speculator, eagle, hass, eagle3, block, pass
#                             (default: all). These are kinds of heads.py; hass is eagle with the training of HASS.
#   TEXT="--tokens 3e6" TRAIN="--minutes 60" OUT=DIR    TEXT: options of generate.py, as for train_draft.sh, which trains on the same text;
#                                                       TRAIN: options of heads.py, for each head; OUT: folder that gets a folder of
#                                                       each head (default models/heads/smollm2-135m-instruct)
# A training stops after 30 minutes by default, so all heads take four and a half hours after the text.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-models/heads/smollm2-135m-instruct}
heads=${HEADS:-blockwise medusa hydra mlp_speculator eagle hass eagle3 block pass}

options_of() { # NAME: the options of heads.py for this head
  case $1 in
    blockwise | medusa | hydra | mlp_speculator | eagle | eagle3 | block | pass) echo "--kind $1" ;;
    hass) echo "--kind eagle --unroll 3 --ranking 1" ;;
    *)
      echo "train_heads: HEADS: there is no head $1, expected names of the list in scripts/train/train_heads.sh." >&2
      return 2
      ;;
  esac
}

for head in $heads; do # before the text, which takes long
  options_of "$head" > /dev/null
done
. scripts/train/prepare.sh
for head in $heads; do
  "$python" scripts/train/heads.py --target "$target" --cache "$cache" --out "$out/$head" $(options_of "$head") ${TRAIN:-}
done
