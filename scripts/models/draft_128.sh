#!/usr/bin/env bash
# Makes models/draft/smollm2-135m-instruct-128, the draft of width 128 that some configs compare with the draft of width 256. Git
# does not keep its weights (5.4 MB). If the history of this clone has the weights that the committed records were measured
# with, this script takes them from there. Otherwise (a shallow clone, a download without history) it trains a draft with the
# same recipe, which takes an hour and a half on two cores. A trained draft does not have the bits of the measured one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=models/draft/smollm2-135m-instruct-128

# Each line has the name of a file, the name of its blob in git, and its SHA-256.
files="config.json 06a58ea77185bde04b90b95353cad3bf285b627c d1c8883826e4384e1c1e56b39e02a41076305ce8b2d27df06eb29957348ae1ab
golden.json ac21250ae37474c94c98ae964ecee6b84e707bee 0127604487f57de7e7cf98018bfab7c4cbfc728f432715f5db2daac5b8dbbe30
model.safetensors 3d1ee03c0f41a5e9e23c639b5b80177fcf976416 3b043bb0bd3a6610060f1687b71f4313d289c0eaa9ad5fd142b81a1f2c9bea5a"

if [ -e "$folder" ]; then
  echo "draft_128: $folder is there. Remove the folder to make it again."
  exit 0
fi

in_history() {
  local name blob sha256
  while read -r name blob sha256; do
    git cat-file -e "$blob" 2> /dev/null || return 1
  done <<< "$files"
}

if ! in_history; then
  echo "draft_128: the history of this clone does not have the measured weights. Training a draft (about 90 minutes on two cores)."
  SIZES=128 TEXT="${TEXT---minutes 40}" TRAIN="${TRAIN---minutes 34 --epochs 5}" exec scripts/train/train_draft.sh
fi

mkdir -p models/draft
part=$(mktemp -d models/draft/download.XXXXXX.part)
trap 'rm -rf "$part"' EXIT
while read -r name blob sha256; do
  git cat-file blob "$blob" > "$part/$name"
  if [ "$(sha256sum < "$part/$name" | cut -d' ' -f1)" != "$sha256" ]; then
    echo "draft_128: $name in the history has a wrong SHA-256, expected $sha256." >&2
    exit 2
  fi
done <<< "$files"
chmod 755 "$part"
mv "$part" "$folder"
echo "draft_128: $folder has the weights that the committed records were measured with"
