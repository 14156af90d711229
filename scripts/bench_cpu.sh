#!/usr/bin/env bash
# Benchmarks the CPU engine on this machine. Writes a record and a page, results/cpu/NAME.json.gz and results/cpu/NAME.md. NAME
# is made of the CPU's model, its vector instructions and the number of cores. Takes about nine minutes. Run nothing else in that
# time. The page says how steady the machine was.
#   scripts/bench_cpu.sh [--model PATH] [--draft PATH] [--out DIR] [--repetitions N]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
scripts/setup.sh
scripts/get_model.sh
cmake --preset release > /dev/null
cmake --build --preset release --target speclab speclab_bench
exec python3 scripts/bench_cpu/bench_cpu.py "$@"
