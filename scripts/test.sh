#!/usr/bin/env bash
# Builds SpecLab and runs its fast tests. The last line is "N passed, N failed, N skipped". The exit status is 0 if nothing failed.
#   scripts/test.sh            downloads the target model; fails without it. Without a GPU, device code is compiled for sm_90 alone.
#   scripts/test.sh --all      also runs the long tests, and compiles device code for every architecture; continuous integration does this
#   scripts/test.sh --offline  uses no network; skips (and counts) tests that need the target model, and Python tests if their packages are missing
# The options can be combined.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
exec < /dev/null

offline=0 all=0
for option in "$@"; do
  case "$option" in
    --offline) offline=1 ;;
    --all) all=1 ;;
    *) echo "test: unknown option $option. The options are --all and --offline." >&2; exit 2 ;;
  esac
done

stage() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

stage "packages"
if [ $offline = 1 ]; then
  scripts/setup.sh --check
  export SPECLAB_OFFLINE=1  # tests that need the model call GTEST_SKIP
else
  unset SPECLAB_OFFLINE
  scripts/setup.sh
  scripts/setup.sh --browser || echo "test: no Chromium. The tests of pages in a browser are skipped."
  stage "target model"
  scripts/get_model.sh
  stage "Python packages"
  scripts/setup_python.sh
fi

stage "build"
options=()
[ -e build/release/tests/test_base ] || options+=(-DSPECLAB_UNITY=ON)  # the first build of the tests compiles several sources at once
[ $all = 1 ] || [ -e /dev/nvidia0 ] || options+=(-DSPECLAB_CUDA_ARCHITECTURES=90-real)
cmake --preset release "${options[@]}" > build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; exit 1; }
rm -f build-configure.log
cmake --build --preset release

stage "tests"
junit="$root/build/release/fast_tests.xml"
rm -f "$junit"
status=0
labels='^fast$'
[ $all = 0 ] || labels='^(fast|long)$'
ctest --test-dir build/release -L "$labels" -j "$(nproc)" --no-tests=error --output-on-failure --output-junit "$junit" || status=$?
stage "result"
python3 scripts/checks/count_tests.py "$junit" || status=1
exit $((status != 0))
