"""The command line of scripts/report.py."""

import argparse
import json
import pathlib
import sys

import figures
from figures.record import BadRun, Ladder, Run
from figures.training.head_curves import Head

from . import comparison, page
from .drawn import draw_figures


def read_json(name, expected):
    """JSON from a file, or from standard input for "-". `expected`: the command that prints it."""
    try:
        return json.loads(sys.stdin.buffer.read() if name == "-" else pathlib.Path(name).read_bytes())
    except json.JSONDecodeError as error:
        raise BadRun(f"{name}: not JSON ({error}). Give what `{expected}` prints.") from error


def read_summary(name):
    """The summary that `speclab report RUN --json` printed."""
    return read_json(name, "speclab report RUN --json")


def report_ladder(options):
    if options.out or options.summary:
        print(
            f"report: {options.run} holds runs of several targets. With --out or --summary, RUN must be the folder of one target.",
            file=sys.stderr,
        )
        return 2
    try:
        ladder = Ladder(options.run)
        names = list(ladder.runs)
        if not options.no_figures:
            drawn, left_out = draw_figures(ladder, options.only, known=figures.ladder_figures)
            print(f"report: {len(drawn)} figures over {', '.join(names)} in {options.run / 'figures'}")
            for figure, reason in left_out:
                print(f"report: no {figure.name}: {reason}", file=sys.stderr)
    except (BadRun, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    flags = ["--no-figures"] * options.no_figures + [word for name in options.only or [] for word in ("--only", name)]
    return max(main([str(options.run / name), *flags]) for name in names)


def report_head(options):
    """Draws the figures of a folder of trained heads."""
    for name in ("out", "summary", "no_figures"):
        if getattr(options, name):
            raise BadRun(
                f"{options.run} is a folder of heads. It has figures and no report; leave out --{name.replace('_', '-')}."
            )
    drawn, left_out = draw_figures(Head(options.run), options.only, known=figures.head_figures)
    print(f"report: {len(drawn)} figures in {options.run / 'figures'}")
    for figure, reason in left_out:
        print(f"report: no {figure.name}: {reason}", file=sys.stderr)
    return 0


def report_run(options):
    run = Run(options.run, read_summary(options.summary) if options.summary else None)
    if not run.has_lines:
        print(f"report: {options.run} has no raw lines; this report uses its summary.json", file=sys.stderr)
        if not options.out:
            raise BadRun(
                f"{options.run}: this is a committed record, and nothing is written into it. Name a file with --out."
            )
    out = options.out or options.run / "report.html"
    folder = out.with_name(f"{out.stem}-figures") if options.out else options.run / "figures"
    drawn, left_out = ([], []) if options.no_figures else draw_figures(run, options.only, folder=folder)
    page.write_report(run, drawn, left_out, out)
    print(f"report: {len(drawn)} figures in {folder}, report in {out}")
    for figure, reason in left_out:
        print(f"report: no {figure.name}: {reason}", file=sys.stderr)
    return 0


def report_comparison(options):
    base, new = options.compare
    out = options.out or pathlib.Path("comparison.html")
    found = (
        read_json(options.comparison, "speclab compare BASE NEW --json")
        if options.comparison
        else comparison.compare(base, new)
    )
    comparison.write_comparison(found, Run(base), Run(new), out)
    print(f"report: comparison in {out}")
    return 1 if found["failed"] else 0


def parser_of(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, nargs="?")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        help="FILE.html, with its figures in FILE-figures/; default: RUN/report.html, RUN/figures/; with --compare comparison.html",
    )
    parser.add_argument(
        "--summary", help="read the summary from this file instead of RUN/summary.json; - is standard input"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="FIGURE",
        choices=[f.name for f in figures.all_figures() + figures.ladder_figures() + figures.head_figures()],
        help="draw this figure only (may be repeated)",
    )
    parser.add_argument("--no-figures", action="store_true", help="write the report without figures")
    parser.add_argument(
        "--compare", nargs=2, metavar=("BASE", "NEW"), help="write a page that compares two runs, by `speclab compare`"
    )
    parser.add_argument(
        "--comparison",
        metavar="FILE",
        help="with --compare: read what `speclab compare BASE NEW --json` printed from this file; - is standard input",
    )
    return parser


def main(arguments=None, description=None):
    parser = parser_of(description)
    options = parser.parse_args(arguments)
    if bool(options.run) == bool(options.compare):
        parser.error("give either RUN or --compare BASE NEW")
    for name in ("summary", "only", "no_figures"):
        if options.compare and getattr(options, name):
            parser.error(f"--{name.replace('_', '-')} does not go with --compare")
    if options.comparison and not options.compare:
        parser.error("--comparison needs --compare BASE NEW")
    if options.run and Ladder.is_one(options.run):
        return report_ladder(options)
    try:
        if options.compare:
            return report_comparison(options)
        return report_head(options) if Head.is_one(options.run) else report_run(options)
    except OSError as error:
        print(
            f"report: {error.filename}: {error.strerror}. Choose another place with --out, or make it writable.",
            file=sys.stderr,
        )
        return 2
    except comparison.ERRORS as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
