#!/usr/bin/env bash
# Takes a fresh Debian 12 to a measured table: installs packages, gets the target model, makes a Release build, runs the experiment
# configs/quickstart.json, and makes figures and a report. A second call skips what is already there. Each run of the experiment gets its
# own folder.
#   scripts/quickstart.sh [CONFIG]   runs another experiment instead of configs/quickstart.json
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
config=$(realpath "${1:-$root/configs/quickstart.json}")
cd "$root"
[ -f "$config" ] || { echo "quickstart: there is no file $config. Choose one of: $(ls configs/*.json)" >&2; exit 2; }

times=()
stage() {  # name, command...
  local name=$1 start=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@"
  times+=("$(printf '%-26s %4d s' "$name" $((SECONDS - start)))")
  printf -- '-- %s\n' "${times[-1]}"
}

build() {
  local options
  read -ra options < <(scripts/quickstart/quickstart_options.sh)
  cmake "${options[@]}" > /dev/null
  cmake --build build/release --target speclab
}

run="results/runs/$(basename "$config" .json)-$(date +%Y%m%d-%H%M%S)"
stage "packages" scripts/setup.sh
stage "target model" scripts/get_model.sh
stage "Python packages" scripts/setup_python.sh
stage "build (Release)" build
stage "experiment" build/release/speclab run "${config#"$PWD"/}" --out "$run"
stage "figures and report" .venv/bin/python scripts/report.py "$run"

printf '\n== Done in %d s\n' "$SECONDS"
printf '   %s\n' "${times[@]}"
cat << TEXT

   table and raw records   $run/summary.json, $run/cases/
   figures (SVG, PDF)      $run/figures/
   report                  $run/report.html   (open it in a browser; it is one file)
   times explained         build/release/speclab explain $run
TEXT
