#!/usr/bin/env bash
# Makes a bundle in build/gpu/ for a machine that has a GPU, its driver and the CUDA toolkit but nothing else. The bundle holds everything
# that scripts/gpu_check.sh needs there. It is cut into files of at most 60 MB and into transfers of limited size. Programs are stripped and
# packed with their libraries (bin/lib, found by $ORIGIN). The C and C++ runtime and CUDA's libraries come from the other machine. A second
# call does only the work that is left.
#   scripts/gpu_bundle.sh [--transfer MIB] [--check]
# --transfer: most MiB in one transfer, default 64. build/gpu/transferNN/ holds the files of each transfer.
# --check: unpacks the bundle in an empty folder and runs the tests and a dry run there.
# The last output is the command to run on the other machine, with the files of all transfers in one folder.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
exec < /dev/null
check=false mib=64
fail() {
  printf 'gpu_bundle: %s\n' "$@" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case "$1" in
    --check) check=true ;;
    --transfer)
      mib=${2:-}
      [[ $mib =~ ^[1-9][0-9]*$ ]] || fail "--transfer '$mib': expected MiB, 1 or more"
      shift
      ;;
    *) fail "unknown option $1. The head of scripts/gpu_bundle.sh lists the options." ;;
  esac
  shift
done
limit=$((mib << 20)) part_bytes=60000000
[ $part_bytes -le $limit ] || part_bytes=$limit
model="${SPECLAB_MODELS:-models}/SmolLM2-135M-Instruct.Q4_1.gguf"
programs=(speclab speclab_bench tests/test_on_device)
[ -f "$model" ] || fail "there is no model $model. Run scripts/get_model.sh."

export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1  # reuses objects that another build folder of this checkout compiled with the same flags
cmake -S . -B build/gpu-build -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPECLAB_CUDA=ON -DSPECLAB_TEST_ROOT=. -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST \
  '-DCMAKE_BUILD_RPATH=$ORIGIN/lib' '-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags' > /dev/null
cmake --build build/gpu-build --target "${programs[@]##*/}" ${SPECLAB_JOBS:+-j "$SPECLAB_JOBS"}

# Libraries that the other machine provides: the C and C++ runtime, the driver's libraries and the toolkit's.
theirs='/(libc|libm|libpthread|libdl|librt|libstdc\+\+|libgcc_s|libcuda|libcudart|libcublas|libcublasLt|libnvidia[^/]*)\.so'

pack() {  # writes build/gpu/bundle.tar.gz as the last file; if it is there, everything else is complete
  local bundle=build/gpu/speclab-gpu name library outside
  rm -rf build/gpu
  mkdir -p "$bundle"/{bin/lib,scripts,models/draft,tests,results/gpu}
  for name in "${programs[@]}"; do
    strip -o "$bundle/bin/${name##*/}" "build/gpu-build/$name"
    while read -r library; do
      [ -f "$library" ] || fail "$name needs $library, which is not here"
      [ -e "$bundle/bin/lib/${library##*/}" ] || strip -o "$bundle/bin/lib/${library##*/}" "$library"
    done < <(ldd "build/gpu-build/$name" | sed -n 's/.* => \(.*\) (0x.*/\1/p; s/.* => not found/missing/p' | grep -vE "$theirs")
  done
  cp -r scripts/gpu_check scripts/gpu_check.sh "$bundle/scripts/"
  cp -r configs "$bundle/"
  cp -r models/draft/smollm2-135m-instruct "$bundle/models/draft/"
  cp -r tests/golden "$bundle/tests/"
  find "$bundle" -name __pycache__ -prune -exec rm -rf {} +

  # The packed libraries must be enough: apart from the runtime, no library may come from this system or be missing.
  for name in "${programs[@]##*/}"; do
    outside=$(env -u LD_LIBRARY_PATH ldd "$bundle/bin/$name" | grep ' => ' | grep -vE "$theirs" | grep -vF "$bundle/bin/lib/" || true)
    [ -z "$outside" ] || fail "$name would use these libraries of this system: $outside"
  done
  echo "gpu_bundle: $(du -sb "$bundle" | cut -f1) bytes unpacked; on the other machine the programs need $(
    objdump -T "$bundle"/bin/speclab* "$bundle"/bin/test_* "$bundle"/bin/lib/* | grep -oE '\<(GLIBC|GLIBCXX)_[0-9.]+' | sort -Vu |
      awk -F_ '{last[$1] = $2} END {printf "glibc %s and a libstdc++ with GLIBCXX_%s", last["GLIBC"], last["GLIBCXX"]}'
  )"
  tar -C build/gpu -czf build/gpu/bundle.unfinished speclab-gpu
  rm -rf "$bundle"
  mv build/gpu/bundle.unfinished build/gpu/bundle.tar.gz
}

source scripts/gpu_bundle/gpu_transfers.sh

inputs=("${programs[@]/#/build/gpu-build/}" scripts/gpu_check scripts/gpu_check.sh scripts/gpu_bundle.sh configs models/draft/smollm2-135m-instruct tests/golden "$model")
if [ -f build/gpu/bundle.tar.gz ] && [ -z "$(find -L "${inputs[@]}" -newer build/gpu/bundle.tar.gz -print -quit)" ]; then
  echo "gpu_bundle: nothing has changed since the last bundle"
else
  pack
fi
transfers build/gpu $limit $part_bytes "$model" build/gpu/bundle.tar.gz
echo "gpu_bundle: in build/gpu"
for file in build/gpu/transfer*/*; do
  printf '  %s: %10d  %s\n' "$(basename "$(dirname "$file")")" "$(stat -c %s "$file")" "${file##*/}"
done
parts=$(cd build/gpu && printf '%s\n' transfer*/model.part* | sed 's|.*/|$PWD/|' | sort | paste -sd,)
echo "gpu_bundle: run this on the other machine, with all of these files in one folder:"
echo "  cat bundle.part* | tar -xz && speclab-gpu/scripts/gpu_check.sh --model-parts \"$parts\""

if [ $check = true ]; then
  there=$(mktemp -d)
  trap 'rm -rf "$there"' EXIT
  mkdir "$there/files"
  cp build/gpu/transfer*/* "$there/files/"
  cat "$there"/files/bundle.part* | tar -C "$there" -xz
  parts=$(printf '%s,' "$there"/files/model.part*)
  dry_run() {  # BACKEND STAGE...: runs these stages with the bundle alone, without the checkout and this environment
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
