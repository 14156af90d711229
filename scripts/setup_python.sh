#!/usr/bin/env bash
# Makes the project's virtual environment .venv and installs scripts/requirements.txt into it (figures, report, tests).
# Python code that needs these packages uses this environment, because Debian's pip refuses to install into the system. A later run
# does nothing unless scripts/requirements.txt has changed.
#   scripts/setup_python.sh          environment and packages
#   scripts/setup_python.sh --bare   environment only (enough for downloading a model)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$root/.venv"
requirements="$root/scripts/requirements.txt"
stamp="$venv/requirements.sha256"

mkdir -p "$root/.cache"
exec 9> "$root/.cache/setup_python.lock"
flock 9  # another script may be making the environment at the same time

# An environment without a working pip is left from an interrupted run, so it is made again.
if ! "$venv/bin/python" -m pip --version > /dev/null 2>&1; then
  echo "python: making $venv"
  rm -rf "$venv"
  python3 -m venv "$venv" || {
    rm -rf "$venv"
    echo "python: 'python3 -m venv' failed. Run scripts/setup.sh first (package python3-venv)." >&2
    exit 2
  }
fi
[ "${1:-}" = --bare ] && exit 0

wanted=$(sha256sum < "$requirements")
if [ "$(cat "$stamp" 2> /dev/null || true)" = "$wanted" ]; then
  exit 0
fi
echo "python: installing scripts/requirements.txt"
"$venv/bin/python" -m pip install --disable-pip-version-check --no-input --quiet --only-binary=:all: -r "$requirements" < /dev/null || {
  echo "python: installing scripts/requirements.txt failed. Check the network (pip needs a package index), then run this again." >&2
  exit 2
}
echo "$wanted" > "$stamp"
