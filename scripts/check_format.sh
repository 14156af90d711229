#!/usr/bin/env bash
# Fails when a C++ or CUDA file of core, strategies, experiments, python, scripts or tests is not formatted as .clang-format
# says, when a Python file of scripts, tests or python is not formatted as ruff.toml says, or when ruff finds a mistake there.
#   scripts/check_format.sh         reports what is wrong
#   scripts/check_format.sh --fix   formats the files in place, and corrects the mistakes that ruff can correct
# clang-format and ruff come from .venv (scripts/setup_python.sh); other versions format differently.
# Without one of the two the exit status is 1, or 77 (skipped) if SPECLAB_OFFLINE is set.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
fix=0
case "${1:-}" in
  "") ;;
  --fix) fix=1 ;;
  *) echo "check_format: unknown option $1. The only option is --fix." >&2; exit 2 ;;
esac
if [ ! -x .venv/bin/clang-format ] || [ ! -x .venv/bin/ruff ]; then
  echo "check_format: .venv has no clang-format or no ruff. Run scripts/setup_python.sh." >&2
  exit $([ -n "${SPECLAB_OFFLINE:-}" ] && echo 77 || echo 1)
fi
mapfile -t sources < <(find core strategies experiments python scripts tests -name '*.h' -o -name '*.cpp' -o -name '*.cu')
if [ $fix = 1 ]; then
  .venv/bin/clang-format -i "${sources[@]}"
  .venv/bin/ruff check --fix --quiet scripts tests python
  .venv/bin/ruff format --quiet scripts tests python
  exit 0
fi
status=0
.venv/bin/clang-format --dry-run -Werror "${sources[@]}" || status=1
.venv/bin/ruff check --quiet scripts tests python || status=1
.venv/bin/ruff format --check --quiet scripts tests python || status=1
if [ $status != 0 ]; then
  echo "check_format: run scripts/check_format.sh --fix and commit the result." >&2
  exit 1
fi
echo "format: ok"
