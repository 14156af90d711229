"""The report of a run, and of a comparison of two runs, as one HTML file each. scripts/report.py is its command line.

    values        numbers of a case as text; verdicts
    sentences     what the run says, in three sentences
    cases_table, ledger, machine, plots, texts   the parts of the page
    formula       equations of the record as MathML
    page, comparison   fill the templates (templates/) and put styles and scripts (static/) into them
    drawn         the figures of scripts/figures

The plots are drawn in the browser by static/chart.js. No plotting library is embedded, so that pages stay small.
"""

from .command import main, read_summary  # noqa: F401
from .drawn import draw_figures  # noqa: F401
from .page import run_page, write  # noqa: F401
from .values import (  # noqa: F401
    OTHER_TEXTS,
    OTHER_TEXTS_NOTE,
    equality,
    left_by_drift,
    of_other_texts,
    predicted,
    shown,
    unexplained,
    unexplained_share,
    verdict,
    with_interval,
)
