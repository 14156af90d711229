#!/usr/bin/env bash
# Makes a bundle in build/gpu/ for a machine that has a GPU, its driver and the CUDA toolkit but nothing else. The bundle and the file of the
# model are all that scripts/gpu_check.sh needs there. Both are cut into files of at most 60 MB, in transfers of limited size. Programs are stripped and
# packed with their libraries (bin/lib, found by $ORIGIN). The C and C++ runtime and CUDA's libraries come from the other machine. If this script
# runs again, it packs a new bundle only if something in the bundle has changed.
#   scripts/gpu_bundle.sh [--transfer MIB] [--tree MIB] [--check]
# A "call" is one use of the other machine: it carries at most one transfer there and runs one command. build/gpu/transferNN/ holds the files of call NN.
# --transfer: most MiB that a call may carry, default 64. --tree: how many of these MiB the checkout takes, if every call carries the checkout too.
# The default is the size of the checkout; 0 means that the calls carry no checkout.
# --check: copies the transfers to an empty folder, as the calls do, and runs some stages there as dry runs, with run_part.sh of the last transfer.
# build/gpu/manifest.json names the files (bytes, SHA-256, call) and the commands. This script also writes the commands to build/gpu/commands.txt
# and prints them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
exec < /dev/null
check=false mib=64 tree=''
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
    --tree)
      tree=${2:-}
      [[ $tree =~ ^[0-9]+$ ]] || fail "--tree '$tree': expected MiB, 0 or more"
      shift
      ;;
    *) fail "unknown option $1. The head of scripts/gpu_bundle.sh lists the options." ;;
  esac
  shift
done
if [ -z "$tree" ]; then
  tree=$(git ls-files -z --cached --others --exclude-standard 2> /dev/null | xargs -0 -r stat -c %s 2> /dev/null | awk '{ sum += $1 } END { printf "%d", sum / 1048576 + 1 }')
fi
[ $((mib - tree)) -ge 1 ] || fail "--transfer $mib --tree $tree: the checkout leaves no room. Allow more, or carry the files without the checkout (--tree 0)."
limit=$(((mib - tree) << 20)) part_bytes=60000000
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
  cp results/gpu/forecast.json "$bundle/results/gpu/"
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

inputs=("${programs[@]/#/build/gpu-build/}" scripts/gpu_check scripts/gpu_check.sh scripts/gpu_bundle.sh scripts/gpu_bundle configs models/draft/smollm2-135m-instruct tests/golden results/gpu/forecast.json "$model")
if [ -f build/gpu/bundle.tar.gz ] && [ -z "$(find -L "${inputs[@]}" -newer build/gpu/bundle.tar.gz -print -quit)" ]; then
  echo "gpu_bundle: nothing has changed since the last bundle"
else
  pack
fi
transfers build/gpu $((limit - 65536)) $part_bytes "$model" build/gpu/bundle.tar.gz
manifest build/gpu $limit  # adds files to the last transfer; the line above has left 64 KiB for them
echo "gpu_bundle: files in build/gpu, for calls of $mib MiB each; the checkout takes $tree MiB of each call"
for file in build/gpu/transfer*/*; do
  printf '  %s: %10d  %s\n' "$(basename "$(dirname "$file")")" "$(stat -c %s "$file")" "${file##*/}"
done
echo "gpu_bundle: the calls (also in build/gpu/manifest.json); a new machine needs the files of all calls"
sed 's/^/  /' build/gpu/commands.txt

if [ $check = true ]; then
  there=$(mktemp -d)
  trap 'rm -rf "$there"' EXIT
  mkdir -p "$there/build/gpu"
  cp -r build/gpu/transfer* "$there/build/gpu/"
  run_part=$(cd "$there" && echo "$PWD"/build/gpu/transfer*/run_part.sh)
  dry_run() {  # PART BACKEND STAGE...: runs these stages with the bundle alone, without the checkout and this environment
    local part=$1 backend=$2 stages
    shift 2
    stages=$(IFS=,; echo "$*")
    (cd / && env -i HOME="$there" PATH=/usr/bin:/bin bash "$run_part" "$part" "$there/records" --backend "$backend" --stages "$stages") ||
      fail "the dry run of the bundle failed"
    for stage; do
      grep -q "\"stage\": \"$stage\", \"status\": \"ok\"" "$there/records/check-part$part.json" || fail "stage $stage of the dry run: $(grep "\"$stage\"" "$there/records/check-part$part.json" | cut -c 1-300)"
    done
  }
  scripts/gpu_check/tests.sh --check build/gpu-build/tests/test_on_device
  dry_run 1 host-simt tests_operations tests_rows tests_acceptance tests_model
  rm -r "$there/records"
  dry_run 2 cpu forwards_135m
  echo "gpu_bundle: the dry run of the bundle in an empty folder passed"
fi
