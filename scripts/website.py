#!/usr/bin/env python3
"""Writes a static site over results/: which cases are fastest on which machine, trends, figures, and a page for each committed record.

    .venv/bin/python scripts/website.py [--out build/site]

Open build/site/index.html in a browser; no server is needed, and no page asks for anything outside of the folder. Each number leads
to its record, if that is still committed, and to the command that measured it. A folder that holds other files is refused.
"""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent / folder) for folder in ("", "pages", "../python")]

try:
    from website import main
except ModuleNotFoundError as error:
    sys.exit(
        f"website: the Python package {error.name} is missing. Run scripts/setup_python.sh and use .venv/bin/python."
    )

if __name__ == "__main__":
    sys.exit(main(description=__doc__))
