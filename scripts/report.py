#!/usr/bin/env python3
"""Draws the figures of a run and writes report.html, one self-contained file.

    .venv/bin/python scripts/report.py RUN [--out FILE.html] [--summary FILE.json] [--only FIGURE]... [--no-figures]

RUN is a folder that `speclab run` wrote. The report goes to RUN/report.html and its figures, as SVG and PDF, to RUN/figures/;
with --out FILE.html they go to FILE.html and FILE-figures/, and nothing is written into RUN. The raw lines of a
committed record (results/baselines/*) are packed or were not kept, so the record is reported without them, and only with
--out. A run with several targets holds one run for each target. These are reported one by one, and figures over all of
them go to RUN/figures/. A figure that has nothing to show for this run is left out; the report names it with the reason.

The numbers are those of RUN/summary.json. `speclab report RUN --json` computes them anew from the raw lines, and --summary
takes its output in place of RUN/summary.json. `speclab report RUN --out FILE.html` does both: it computes the numbers anew and
calls this script with them.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

try:
    import jinja2
    import markupsafe

    import figures
    from figures import style, waterfall
    from figures.record import BadRun, Ladder, NotApplicable, Run
except ModuleNotFoundError as error:
    sys.exit(
        f"report: the Python package {error.name} is missing. Run scripts/setup_python.sh and use .venv/bin/python."
    )

TEMPLATE = pathlib.Path(__file__).resolve().parent / "report_template.html"

RULE, PREDICTED = "rule", "predicted"  # these columns are no metrics
# The column shows the first of these predictions that the case has, as in experiments/analysis/table.cpp.
PREDICTIONS = ("cascade_measured_t", "tree_speedup", "measured_t_speedup", "mixture_speedup")
# Columns of the table of cases: (metric, heading, format, explanation).
COLUMNS = [
    ("speedup", "speedup", "{:.2f}", "decode time per emitted token of the autoregressive reference / of the case"),
    (PREDICTED, "predicted", "{:.2f}", "speedup predicted from the acceptance and the calibrated times of forwards"),
    (
        "speed_over_chain",
        "over chain",
        "{:.2f}",
        "trees: speed / speed of the fastest chain from the same draft in this run",
    ),
    ("tokens_per_second", "tokens/s", "{:.1f}", "decoding only, median over repeats"),
    ("tau", "τ", "{:.2f}", "tokens emitted per step, the bonus or correction token included"),
    (RULE, "rule", "", "the acceptance rule that τ and both α belong to"),
    ("alpha", "α", "{:.3f}", "accepted / (accepted + rejections) by this rule; untested tokens do not count"),
    ("alpha_min", "α by Σmin", "{:.3f}", "mean expected acceptance by this rule at tested positions; agrees with α"),
    ("draft_utilization", "utilization", "{:.3f}", "accepted / drafted tokens: a naive estimate of α, too low"),
    ("c", "c", "{:.3f}", "time of a draft forward / of a target forward over one row, from the calibration"),
    ("c_hat", "ĉ", "{:.3f}", "operations of the draft / of the target, per token"),
    ("ops_factor", "operations", "{:.2f}", "operations per emitted token, case / autoregressive reference"),
    ("distance", "distance", "{:.3f}", "lossy rules: mean total variation from the target's law"),
]

FEW_PROMPTS = 10  # an interval over fewer prompts shows their number; same as kFewClusters in core/measure/stats.h
LEAST_PROMPTS = 3  # prompts that a noise floor needs
MEANINGLESS_NOISE = 0.5
OTHER_TEXTS = " *"  # mark after a speedup
OTHER_TEXTS_NOTE = "* The texts of this case differ from those of its reference: the speedup compares the time per emitted token of different texts."
DRIFT = "machine_drift"


def shown(value, pattern="{:.3g}"):
    return "" if value is None else pattern.format(value)


def span_text(span, pattern):
    """[1.20, 1.26]; "" without a span."""
    return "" if not span or None in span else f" [{pattern.format(span[0])}, {pattern.format(span[1])}]"


def interval(case, span, pattern):
    """An interval over prompts, with their number if it is small: [1.20, 1.26] (n = 9)."""
    text = span_text(span, pattern)
    return text + f" (n = {case.prompts})" if text and case.prompts < FEW_PROMPTS else text


def with_interval(case, metric, pattern):
    value = case.metric(metric)
    if value is None:
        return ""
    mark = OTHER_TEXTS if metric == "speedup" and of_other_texts(case) else ""
    return shown(value, pattern) + interval(case, case.metric(f"{metric}_ci95"), pattern) + mark


def predicted(case):
    """The predicted speedup of a case for its kind of draft; None without one."""
    return next((value for value in map(case.predicted, PREDICTIONS) if value is not None), None)


def of_other_texts(case):
    """True if the text of the case differs from the text of its reference, so that its speedup compares different texts. False for older
    records, which do not say."""
    return case.metric("texts_equal") is False and case.metric("speedup") is not None


def share_of_step(case, share, span):
    """A share in per cent with its interval: "-1.3 [-7.6, 4.9]"."""
    return f"{100 * share:.1f}" + interval(case, span and [100 * end for end in span], "{:.1f}")


def unexplained_share(case):
    """Share of the step time that the calibration leaves unexplained, and its interval. What the term machine_drift
    explains counts as unexplained here, because it is no calibrated cost. None for a case without a waterfall."""
    last = case.waterfall[-1] if case.waterfall else {}
    if last.get("residual_share") is None:
        return None
    steps = [term["step"] for term in case.waterfall]
    if "unexplained_share" in last:
        return last["unexplained_share"], last["unexplained_share_ci95"]
    if DRIFT not in steps:
        return last["residual_share"], last.get("residual_share_ci95")
    # An older record lacks the field. The share follows from its terms, but the interval does not.
    known = case.waterfall[steps.index(DRIFT) - 1]["speedup"]
    return 1 - last["speedup"] / known, None


def unexplained(case):
    """unexplained_share() as text, in per cent: "-1.3 [-7.6, 4.9]"."""
    found = unexplained_share(case)
    return share_of_step(case, *found) if found else ""


def left_by_drift(case):
    """The share that is still unexplained after the term machine_drift ("forwards timed again"). "" without that
    term."""
    last = case.waterfall[-1] if case.waterfall else {}
    if last.get("residual_share") is None or DRIFT not in [term["step"] for term in case.waterfall]:
        return ""
    return share_of_step(case, last["residual_share"], last.get("residual_share_ci95"))


def noise(run):
    """Says which differences of time are noise, in the words of `speclab report`."""
    prompts = max((case.prompts for case in run.cases), default=0)
    repeats = max((case.repeats for case in run.cases), default=0)
    floor = run.summary["noise_floor"]
    if prompts == 0:
        return ""
    if floor is not None and prompts >= LEAST_PROMPTS and floor <= MEANINGLESS_NOISE:
        return f"Differences of time below {100 * floor:.1f} % are noise."
    few = "repeats" if floor is None else "prompts or repeats"
    return f"Too few {few} to say which differences of time are noise (prompts: {prompts}, repeats: {repeats})."


def equality(case):
    if case.lossy:
        return "lossy"
    return {True: "yes", False: "NO", None: "same law" if case.reference else ""}[case.metric("matches_reference")]


def draw_figures(run, only, formats=("svg", "pdf"), known=figures.all_figures, folder=None):
    """Draws the figures into `folder` (default: RUN/figures/). Returns ([(figure, svg path)], [(figure without a picture, reason)])."""
    folder = folder or run.folder / "figures"
    folder.mkdir(exist_ok=True)
    drawn, left_out = [], []
    for figure in known():
        if only and figure.name not in only:
            continue
        try:
            paths = style.render(figure.draw, run, folder / figure.name, formats)
            caption = f"{figure.caption} {run.twins[0].upper()}{run.twins[1:]}." if run.twins else figure.caption
            drawn.append((dataclasses.replace(figure, caption=caption), paths[0]))
        except NotApplicable as reason:
            left_out.append((figure, str(reason)))
    return drawn, left_out


def inline_svg(name, path):
    """The SVG element with unique ids, so that one page can hold several."""
    text = path.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)


def ledger(run):
    """Predictions beside measurements: [(label, [(formula, kind, quantity, predicted, measured, error, equation, assumptions)])]."""
    rows = []
    for case in run.speculative:
        entries = [
            (
                name,
                entry.get("kind", ""),
                entry["quantity"],
                shown(entry["value"]) + span_text(entry.get("value_ci95"), "{:.3g}"),
                shown(entry.get("measured")),
                "" if entry.get("error") is None else f"{100 * entry['error']:+.1f} %",
                entry["equation"],
                entry["assumptions"],
            )
            for name, entry in (case.predictions or {}).items()
            if entry.get("value") is not None
        ]
        if entries:
            rows.append((case.label(without=()), entries))
    return rows


def published(run):
    """The published numbers that the config quotes: [(label, source, reason for a difference, [(name, published, here)])]."""
    return [
        (
            case.label(without=()) + (f" on {row['category']}" if row.get("category") else ""),
            row["source"],
            row.get("reason", ""),
            [
                (value["name"], shown(value["published"], "{:.4g}"), shown(value["here"], "{:.4g}"))
                for value in row["values"]
            ],
        )
        for case in run.cases
        for row in case.data.get("published") or []
    ]


def waterfalls(run):
    """A table for each sequence of terms, because chains have other terms than windows and trees."""
    tables = {}
    for case in run.speculative:
        if case.waterfall:
            terms = tuple(term["step"] for term in case.waterfall)
            tables.setdefault(terms, []).append(
                (case.label(without=()), case.waterfall, unexplained(case), left_by_drift(case))
            )
    return list(tables.values())


def flattened(environment):
    """Rows for the page; each list is joined into one text."""
    for key, value in environment.items():
        if isinstance(value, dict):
            for inner, content in flattened(value):
                yield f"{key} / {inner}", content
        else:
            yield key, " ".join(map(str, value)) if isinstance(value, list) else str(value)


def write_report(run, drawn, left_out, out):
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        TEMPLATE.read_text(encoding="utf-8")
    )

    def known(case, name):
        if name == RULE:
            return bool(case.data["rule"]) and case.data["reference"] is not None
        return (predicted(case) if name == PREDICTED else case.metric(name)) is not None

    def cell(case, name, pattern):
        if name == RULE:
            return case.data["rule"].replace("_", " ") if known(case, name) else ""
        return shown(predicted(case), pattern) if name == PREDICTED else with_interval(case, name, pattern)

    columns = [column for column in COLUMNS if any(known(case, column[0]) for case in run.cases)]
    html = template.render(
        run=run,
        machine=f"{run.machine}; {run.twins}" if run.twins else run.machine,
        columns=columns,
        table=[
            (
                case,
                case.label(without=()),
                [cell(case, metric, pattern) for metric, _, pattern, _ in columns],
                equality(case),
            )
            for case in run.cases
        ],
        figures=[(figure, markupsafe.Markup(inline_svg(figure.name, svg))) for figure, svg in drawn],
        left_out=left_out,
        ledger=ledger(run),
        published=published(run),
        waterfalls=waterfalls(run),
        term_names=waterfall.NAMES,
        noise=noise(run),
        other_texts=OTHER_TEXTS_NOTE if any(map(of_other_texts, run.cases)) else "",
        environment=list(flattened(run.environment)),
        config=json.dumps(
            json.loads((run.folder / "config.json").read_text(encoding="utf-8")), indent=1, ensure_ascii=False
        ),
    )
    part = out.with_name(f".{out.name}.part")
    part.write_text(html, encoding="utf-8")
    part.rename(out)


def read_summary(name):
    """The summary that `speclab report RUN --json` printed."""
    try:
        return json.loads(sys.stdin.buffer.read() if name == "-" else pathlib.Path(name).read_bytes())
    except json.JSONDecodeError as error:
        raise BadRun(f"--summary {name}: not JSON ({error}). Give what `speclab report RUN --json` prints.") from error


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


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        help="FILE.html, with its figures in FILE-figures/; default: RUN/report.html, RUN/figures/",
    )
    parser.add_argument(
        "--summary", help="read the summary from this file instead of RUN/summary.json; - is standard input"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="FIGURE",
        choices=[figure.name for figure in figures.all_figures() + figures.ladder_figures()],
        help="draw this figure only (may be repeated)",
    )
    parser.add_argument("--no-figures", action="store_true", help="write the report without figures")
    options = parser.parse_args(arguments)
    if Ladder.is_one(options.run):
        return report_ladder(options)
    try:
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
        write_report(run, drawn, left_out, out)
    except BadRun as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"report: {error.filename}: {error.strerror}. Choose another place with --out, or make it writable.",
            file=sys.stderr,
        )
        return 2
    print(f"report: {len(drawn)} figures in {folder}, report in {out}")
    for figure, reason in left_out:
        print(f"report: no {figure.name}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
