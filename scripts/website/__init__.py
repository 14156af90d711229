"""The static site over results/. scripts/website.py is its command line.

    records      the committed records: their names, pages, machines and commands
    leaderboard, trend, gallery   the pages over all records
    command      writes the site

The pages use the styles, scripts and templates of scripts/report.
"""

from .command import main, write_site  # noqa: F401
