#!/usr/bin/env bash
# Installs the Debian packages that SpecLab needs. quickstart.sh, test.sh, .ci/run and other scripts call it.
# Does nothing and needs no network if they are installed. Exit status 2: a package is missing and cannot be installed.
#   scripts/setup.sh           install what is missing
#   scripts/setup.sh --check   print what is missing; exit status 2 if something is
#   scripts/setup.sh --list    print the list
#   scripts/setup.sh --fuzz    also install what only scripts/fuzz.sh needs: clang 16 and llvm-cov
#   scripts/setup.sh --browser  also install what only the tests of pages in a browser need: Chromium
#   scripts/setup.sh --memcheck  also install what only scripts/sanitize.sh needs: valgrind
#   scripts/setup.sh --slurm   also install what only scripts/slurm/test_slurm.sh needs: Slurm and munge
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config ccache git ca-certificates
  nlohmann-json3-dev            # JSON
  libboost-dev                  # Boost.Math and other headers
  libboost-program-options-dev  # command line
  libboost-context-dev          # fibers: the simulated GPU
  libfmt-dev                    # text formatting
  libhwy-dev                    # portable SIMD
  libssl-dev                    # SHA-256
  libre2-dev                    # regular expressions of --filter, in linear time
  libsentencepiece-dev          # tokenizers in SentencePiece's own form
  libgtest-dev libgmock-dev libbenchmark-dev
  scour                         # makes committed figures smaller
  python3 python3-venv python3-pip  # model download, figures and report, in a virtual environment
  python3-dev                   # headers for the Python package
)

case "${1:-}" in
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  --fuzz) packages+=(clang-16 libclang-rt-16-dev llvm-16) ;;  # only for scripts/fuzz.sh; clang 14 has no std::source_location
  --browser) packages+=(chromium) ;;                # only for tests/python/report
  --memcheck) packages+=(valgrind) ;;               # only for scripts/sanitize.sh
  --slurm) packages+=(slurm-wlm munge) ;;           # only for scripts/slurm/test_slurm.sh
  --check | "") ;;
  *) echo "setup: unknown option $1. Options: --check, --list, --fuzz, --browser, --memcheck, --slurm." >&2; exit 2 ;;
esac

if ! command -v dpkg-query > /dev/null; then
  echo "setup: this system has no dpkg. SpecLab is set up for Debian 12; elsewhere install the equivalents of:" >&2
  printf '  %s\n' "${packages[*]}" >&2
  exit 2
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

echo "setup: missing: ${missing[*]}"
install="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "${1:-}" = --check ]; then
  exit 2
elif [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo > /dev/null && sudo -n true 2> /dev/null; then
  as_root=(sudo -n)
elif command -v sudo > /dev/null && [ -t 0 ]; then
  as_root=(sudo)
else
  echo "setup: not root, and sudo does not work here. Have an administrator run:" >&2
  echo "  apt-get update && $install" >&2
  exit 2
fi

run() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" < /dev/null; }
run apt-get update -q || {
  echo "setup: 'apt-get update' failed. Check the network and /etc/apt/sources.list, then run this again." >&2
  exit 2
}
run apt-get install -y -q --no-install-recommends "${missing[@]}" || {
  echo "setup: installing failed. See the messages above; SpecLab is set up for Debian 12 (bookworm)." >&2
  exit 2
}
echo "setup: installed ${#missing[@]} packages"
