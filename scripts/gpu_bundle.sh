#!/usr/bin/env bash
# Makes build/gpu/: everything that scripts/gpu_check.sh needs on a machine with a GPU and nothing but the CUDA toolkit and driver, cut so
# that no file has more than 60 MB and each transfer at most 64 MiB. Programs are built with their libraries beside them (bin/lib, found by $ORIGIN) and stripped;
# the C and C++ runtime and CUDA's libraries are those of that machine.
#   scripts/gpu_bundle.sh [--check]     --check: unpacks it in an empty folder and runs the tests and a dry run there
# There, with the files of both transfers in one folder:
#   tar -xzf bundle.tar.gz && speclab-gpu/scripts/gpu_check.sh --model-parts "$PWD/model.part1,$PWD/model.part2"
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
exec < /dev/null
check=false
case "${1:-}" in
  '') ;;
  --check) check=true ;;
  *) echo "gpu_bundle: unknown option $1. The head of scripts/gpu_bundle.sh lists the options." >&2; exit 2 ;;
esac
limit=$((64 << 20)) part_bytes=60000000
model="${SPECLAB_MODELS:-models}/SmolLM2-135M-Instruct.Q4_1.gguf"
programs=(speclab speclab_bench tests/test_on_device)
fail() {
  printf 'gpu_bundle: %s\n' "$@" >&2
  exit 2
}
[ -f "$model" ] || fail "there is no model $model. Run scripts/get_model.sh."

export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1  # what the release build compiled is not compiled again
cmake -S . -B build/gpu-build -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPECLAB_TEST_ROOT=. -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST '-DCMAKE_BUILD_RPATH=$ORIGIN/lib' \
  '-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags' > /dev/null
cmake --build build/gpu-build --target "${programs[@]##*/}" ${SPECLAB_JOBS:+-j "$SPECLAB_JOBS"}

# Libraries that are that machine's own: the C and C++ runtime, the driver's, the toolkit's.
theirs='/(libc|libm|libpthread|libdl|librt|libstdc\+\+|libgcc_s|libcuda|libcudart|libcublas|libcublasLt|libnvidia[^/]*)\.so'
rm -rf build/gpu
bundle=build/gpu/speclab-gpu
mkdir -p "$bundle"/{bin/lib,scripts,models/draft,tests,results/gpu}
for name in "${programs[@]}"; do
  strip -o "$bundle/bin/${name##*/}" "build/gpu-build/$name"
  while read -r library; do
    [ -f "$library" ] || fail "$name needs $library, which is not here"
    [ -e "$bundle/bin/lib/${library##*/}" ] || strip -o "$bundle/bin/lib/${library##*/}" "$library"
  done < <(ldd "build/gpu-build/$name" | sed -n 's/.* => \(.*\) (0x.*/\1/p; s/.* => not found/missing/p' | grep -vE "$theirs")
done
cp -r scripts/gpu_check scripts/gpu_check.sh "$bundle/scripts/"
find "$bundle" -name __pycache__ -prune -exec rm -rf {} +
cp -r configs "$bundle/"
cp -r models/draft/smollm2-135m-instruct "$bundle/models/draft/"
cp -r tests/golden "$bundle/tests/"

# What is beside the programs must be enough: nothing else may come from this system but their runtime, or be missing.
for name in "${programs[@]##*/}"; do
  outside=$(env -u LD_LIBRARY_PATH ldd "$bundle/bin/$name" | grep ' => ' | grep -vE "$theirs" | grep -vF "$bundle/bin/lib/" || true)
  [ -z "$outside" ] || fail "$name takes from this system: $outside"
done

tar -C build/gpu -czf build/gpu/bundle.tar.gz speclab-gpu
split -b $part_bytes --numeric-suffixes=1 -a 1 "$model" build/gpu/model.part
first=$(stat -c %s build/gpu/model.part1)
second=$(($(stat -c %s build/gpu/bundle.tar.gz) + $(cat build/gpu/model.part[2-9] | wc -c)))
echo "gpu_bundle: $(du -sb "$bundle" | cut -f1) bytes unpacked, in build/gpu:"
(cd build/gpu && stat -c '  %10s  %n' bundle.tar.gz model.part*)
echo "  transfer 1: model.part1, $first bytes"
echo "  transfer 2: bundle.tar.gz and the other parts, $second bytes"
[ "$first" -le $limit ] && [ "$second" -le $limit ] || fail "a transfer has more than $limit bytes"
for file in build/gpu/bundle.tar.gz build/gpu/model.part*; do
  [ "$(stat -c %s "$file")" -le $part_bytes ] || fail "$file has more than $part_bytes bytes"
done
rm -rf "$bundle"

if [ $check = true ]; then
  there=$(mktemp -d)
  trap 'rm -rf "$there"' EXIT
  tar -C "$there" -xzf build/gpu/bundle.tar.gz
  parts=$(printf '%s,' "$root"/build/gpu/model.part*)
  dry_run() {  # BACKEND STAGE...: as on a machine that has nothing
    local backend=$1 stages
    shift
    stages=$(IFS=,; echo "$*")
    (cd / && env -i HOME="$there" PATH=/usr/bin:/bin "$there/speclab-gpu/scripts/gpu_check.sh" --backend "$backend" --stages "$stages" --model-parts "${parts%,}" --out "$there/records") ||
      fail "the dry run of the bundle failed"
    for stage; do
      grep -q '"status": "ok"' "$there/records/$stage.json" || fail "stage $stage of the dry run: $(grep -m 1 '"reason"' "$there/records/$stage.json")"
    done
  }
  dry_run host-simt tests
  dry_run cpu forwards_135m
  echo "gpu_bundle: the dry run of the bundle in an empty folder passed"
fi
