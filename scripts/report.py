#!/usr/bin/env python3
"""Writes the report of a run, or of a comparison of two runs, as one HTML file that needs no network. Draws the figures of a run
and of trained heads.

    .venv/bin/python scripts/report.py RUN [--out FILE.html] [--summary FILE.json] [--only FIGURE]... [--no-figures]
    .venv/bin/python scripts/report.py --compare BASE NEW [--comparison FILE.json] [--out FILE.html]
    .venv/bin/python scripts/report.py HEAD [--only FIGURE]...

RUN is a folder that `speclab run` wrote. The report goes to RUN/report.html and its figures, as SVG and PDF, to RUN/figures/;
with --out FILE.html they go to FILE.html and FILE-figures/, and nothing is written into RUN. A committed record
(results/baselines/*) is reported only with --out, and without the figures that need its raw lines, because these lines are packed or were
not kept. A run with several targets holds one run for each target. These are reported one by one, and figures over all of
them go to RUN/figures/. A figure that has nothing to show for this run is left out; the report names it with the reason.

The numbers are those of RUN/summary.json. `speclab report RUN --json` computes them anew from the raw lines, and --summary
takes its output in place of RUN/summary.json. `speclab report RUN --out FILE.html` does both: it computes the numbers anew and
calls this script with them.

--compare runs `speclab compare BASE NEW --json` and writes what it finds to comparison.html. --comparison takes the output of that
command instead, for example of one with --aa, --rerun or --gate. The exit code is 1 if the comparison found a failure.

HEAD is a folder of heads that scripts/train/heads.py trained. Its figures, the curves of the training, go to HEAD/figures/.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

try:
    from report import main
except ModuleNotFoundError as error:
    sys.exit(
        f"report: the Python package {error.name} is missing. Run scripts/setup_python.sh and use .venv/bin/python."
    )

if __name__ == "__main__":
    sys.exit(main(description=__doc__))
