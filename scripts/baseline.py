#!/usr/bin/env python3
"""Keeps baseline runs under results/baselines/ and writes the pages that show them.

    .venv/bin/python scripts/baseline.py adopt RUN MACHINE/CONFIG [--figures NAME,NAME] [--summary FILE] [--finding FILE]
    .venv/bin/python scripts/baseline.py expand MACHINE/CONFIG DIR
    .venv/bin/python scripts/baseline.py pages
    .venv/bin/python scripts/baseline.py check

adopt   copies a finished run with its raw lines (python/speclab/kept_lines.py), draws its figures, appends the run to
        the history (scripts/history.py), and writes the pages. A raw line is one line of JSON for a prompt, seed and
        repeat of a case. A run with several targets becomes one baseline MACHINE/CONFIG-TARGET for each target.
        --figures draws only the named figures. --summary keeps FILE instead of RUN/summary.json; FILE is what
        `speclab report RUN --json` of a newer version printed. --finding keeps FILE as finding.md: what the run shows,
        whether it agrees with its paper, and why, in about three sentences. results/README.md prints them. A run that
        replaces another one does not keep the finding of the other.
expand  makes a run folder with raw lines from a committed run.
pages   writes results/README.md, results/lookahead.md and the measured parts of README.md again.
check   exits with 1 if the pages are not what `pages` would write.

Every number on a page comes from a committed record.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent / folder) for folder in ("", "pages", "../python")]

import calibration_goal
import history
import lookahead_page
import report

import figures
from figures.record import BadRun, Ladder, Run
from speclab import kept_lines, record

ROOT = pathlib.Path(__file__).resolve().parents[1]
KEPT = ["config.json", "environment.json", "summary.json", lookahead_page.VERDICT]
FINDING = "finding.md"
CATEGORY_METRICS = (
    "tokens",
    "steps",
    "tau",
    "alpha",
    "copied_4grams",
    "speedup",
    "speedup_ci95",
)  # kept in a committed summary
FRONT_FIGURE = "speedup_gamma"
PARTS = ("figure", "table")  # parts of README.md, each between its own marks
MARKS = {part: (f"<!-- {part}: written by scripts/baseline.py -->", f"<!-- end of {part} -->") for part in PARTS}
RESULTS_HEAD = """# Measured runs

Written by `scripts/baseline.py pages` from the records in `results/baselines/`; do not edit. [SCHEMA.md](SCHEMA.md) describes the format of a record, the [glossary](../docs/glossary.md) defines the terms, and [measuring](../docs/measuring.md) says how the times are measured. [Trends](trend.md) shows how the runs change from commit to commit.

- In brackets: 95 % intervals, bootstrap over prompts; n is the number of prompts, shown if it is below ten.
- **equal to autoregressive**: `yes`: ids and logits rows are bit for bit those of autoregressive decoding (with coupled sampling only the ids). `same law`: the texts are other samples of the target's law.
- **speedup, predicted**: from the measured acceptance and the calibrated times of forwards. The times of the case itself are not used.
- **τ, at most**: the largest τ that a lossless rule can have on the drafts of the case. On trees: the largest τ of a lossless rule that decides one position after the other.
- **accepted at a position**: share of the visited positions at which a drafted child was emitted. **at most**: the largest such share of a lossless rule that decides one position after the other. A rule over whole paths, such as `block`, may exceed it.
- **speed / best chain**: tokens per second of a case with trees, divided by the tokens per second of the fastest chain of the same draft in the run.
- **unexplained**: the part of a step's time that the calibration does not explain (`speclab explain`). If the interval contains 0, the unexplained part is no more than noise.
- **without machine drift**: the part that is still unexplained after a correction for the machine's speed at that moment. Short probes during the decoding, or the calibration rounds next to it, measured this speed. In older records
  forwards between the steps measured it. These forwards have the case's own row counts, so this correction also removes errors of the calibration.
"""
FRONT_ROWS = 5  # rows of the table in README.md
FRONT_WIDTH = 160  # longest line of README.md
NONE_YET = "No baseline run has been committed yet. Run `scripts/quickstart.sh` and see your own machine's numbers."
TABLE = [
    ("speedup", "speedup, decode only [95 %]", "{:.2f}"),
    ("speedup_end_to_end", "end to end", "{:.2f}"),
    ("tokens_per_second", "tokens/s", "{:.1f}"),
    ("tau", "τ", "{:.2f}"),
    ("alpha", "α", "{:.2f}"),
    ("c", "c", "{:.3f}"),
]
# Columns of results/README.md, each shown in runs that have it: (heading, text of a case).
DETAILS = [
    ("speedup, predicted", lambda case: report.shown(report.predicted(case), "{:.2f}")),
    ("τ, at most [95 %]", lambda case: report.with_interval(case, "tau_bound", "{:.2f}")),
    ("accepted at a position", lambda case: report.shown(case.metric("position_acceptance"), "{:.3f}")),
    ("at most", lambda case: report.shown(case.metric("position_bound"), "{:.3f}")),
    ("speed / best chain [95 %]", lambda case: report.with_interval(case, "speed_over_chain", "{:.2f}")),
    ("unexplained, % of a step", report.unexplained),
    ("without machine drift, %", report.left_by_drift),
]


def runs(root):
    """The committed baselines, sorted by name. Those whose name begins with quickstart come first."""
    base = root / "results/baselines"
    folders = [file.parent for pattern in ("*", "*/*") for file in base.glob(f"{pattern}/summary.json")]
    return [
        Run(folder)
        for folder in sorted(
            folders, key=lambda folder: (not folder.name.startswith("quickstart"), folder.name, folder)
        )
    ]


def summary_text(summary):
    """summary.json in the form that `speclab` writes: one line for each key and one for each case, so that a diff shows a change."""
    lines = []
    for key, value in summary.items():
        text = kept_lines.compact(value)
        if key == "cases" and value:
            text = "[\n" + ",\n".join(map(kept_lines.compact, value)) + "\n]"
        lines.append(f"{kept_lines.compact(key)}:{text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def table(run, explained=False, cases=None):
    """A table in Markdown with one row for each of `cases` (default: all cases of the run)."""
    cases = run.cases if cases is None else cases
    more = [(heading, show) for heading, show in DETAILS if any(map(show, cases))] if explained else []
    headings = [
        "case",
        *(heading for _, heading, _ in TABLE),
        "equal to autoregressive",
        *(heading for heading, _ in more),
    ]
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for case in cases:
        cells = [
            report.with_interval(case, metric, pattern)
            if metric == "speedup"
            else report.shown(case.metric(metric), pattern)
            for metric, _, pattern in TABLE
        ]
        cells = [case.label(without=()), *cells, report.equality(case), *(show(case) for _, show in more)]
        lines.append("| " + " | ".join(cells) + " |")
    note = "\n\n" + report.OTHER_TEXTS_NOTE.replace("*", "\\*", 1) if any(map(report.of_other_texts, cases)) else ""
    return "\n".join(lines).replace(report.OTHER_TEXTS, " \\*") + note


def by_category(run):
    """For each category: the share of its text that is copied, and the speedup of each case. "" if there are fewer than two
    categories, or if a category has no such share."""
    first = run.cases[0]
    copied = {name: part["metrics"].get("copied_4grams") for name, part in (first.categories or {}).items()}
    if len(copied) < 2 or None in copied.values():
        return ""
    lines = [
        "Speedup by category. Copied 4-grams: share of the emitted tokens that end a 4-gram which occurred earlier in the prompt or the text.\n",
        "| case | " + " | ".join(copied) + " |",
        "|---" * (len(copied) + 1) + "|",
        "| copied 4-grams | " + " | ".join(f"{share:.0%}" for share in copied.values()) + " |",
    ]
    for case in run.speculative:
        cells = [report.shown(case.categories[name]["metrics"].get("speedup"), "{:.2f}") for name in copied]
        lines.append(f"| {case.label(without=())} | " + " | ".join(cells) + " |")
    return "\n\n" + "\n".join(lines)


def models_of(run):
    return ", ".join(
        f"{role}: {model['name']} ({model['parameters'] / 1e6:.1f} M parameters)"
        for role, model in run.environment["models"].items()
    )


def device_of(run):
    return "GPU" if run.environment["backend"] == "cuda" else "CPU"


def busy_note(run):
    """A paragraph for a run whose times are doubtful; empty for other runs."""
    return f"**{run.busy}**\n\n" if run.busy else ""


def prompts_of(run):
    first = run.cases[0]
    counts = (first.prompts, "prompt"), (first.seeds, "seed"), (first.repeats, "repeat")
    return ", ".join(f"{count} {word}" + "s" * (count != 1) for count, word in counts)


def finding_of(run):
    """What the run shows, as a paragraph; empty if its folder has no finding.md."""
    file = run.folder / FINDING
    return f"**What it shows.** {file.read_text(encoding='utf-8').strip()}\n\n" if file.exists() else ""


def section(run, root, heading):
    folder = run.folder.relative_to(root).as_posix()
    figures = sorted((run.folder / "figures").glob("*.svg"))
    errors = "".join(
        f"\n- error in {error['case']}, prompt {error['prompt']}: {error['message']}" for error in run.summary["errors"]
    )
    shown = "\n".join(
        f"![{figure.stem.replace('_', ' ')}]({figure.relative_to(root / 'results').as_posix()})" for figure in figures
    )
    return (
        f"{heading} {run.folder.relative_to(root / 'results/baselines').as_posix()}\n\n{run.summary['description']}\n\n{finding_of(run)}{device_of(run)}: {run.machine}; {run.environment['build_type']}, "
        f"commit {run.environment['commit'][:10]}. {models_of(run)}. {prompts_of(run)}.{errors}\n\n{busy_note(run)}{table(run, explained=True)}{by_category(run)}\n\n{shown}\n\nRecord: `{folder}/`.\n"
    )


def results_page(root):
    found = runs(root)
    gpu = "" if any(device_of(run) == "GPU" for run in found) else "\nGPU: not run on a GPU yet.\n"
    body = "\n".join(section(run, root, "##") for run in found) if found else NONE_YET + "\n"
    goal = calibration_goal.section(found)
    return f"{RESULTS_HEAD}{gpu}\n{goal}{body}"


def unexplained_range(found):
    """A sentence on how much of a step the calibrations leave unexplained, over all records whose times are not doubtful. It gives the
    share as calibrated, and the share without what machine drift explains."""
    cases = [case for run in found if not run.busy for case in run.cases if report.unexplained_share(case)]
    if not cases:
        return ""
    as_calibrated = [report.unexplained_share(case)[0] for case in cases]
    without_drift = [case.waterfall[-1]["residual_share"] for case in cases]
    range_of = lambda shares: f"{100 * min(shares):.1f} to {100 * max(shares):.1f} %"
    return (
        f"The calibration leaves {range_of(as_calibrated)} of a step's time unexplained ({range_of(without_drift)} without machine drift), "
        f"over the {len(cases)} cases with a waterfall in all committed records of idle machines."
    )


def front_cases(run):
    """At most FRONT_ROWS cases: the reference, then the fastest case of each family, fastest first. A family is a set
    of cases that differ in gamma alone. If all these cases have a speedup of 1 or more, but another case of the run has
    less, the slowest case takes the last row."""
    measured = [case for case in run.speculative if case.metric("speedup") is not None]
    speedup = lambda case: case.metric("speedup")
    best = sorted((max(family, key=speedup) for family in run.families(measured).values()), key=speedup, reverse=True)
    rows = [*run.baselines[:1], *best][:FRONT_ROWS]
    slowest = min(measured, key=speedup, default=None)
    if slowest is not None and speedup(slowest) < 1 and all(speedup(case) >= 1 for case in rows if case in measured):
        rows = [*rows[: FRONT_ROWS - 1], slowest]
    return rows


def front_parts(root):
    """{part of README.md: text}, from the newest run of the quickstart."""
    found = [run for run in runs(root) if run.folder.name.startswith("quickstart")]
    if not found:
        return dict.fromkeys(PARTS, NONE_YET)
    run = max(found, key=lambda run: run.environment["date"])
    figure = run.folder / "figures" / f"{FRONT_FIGURE}.svg"
    gpu = "" if any(device_of(other) == "GPU" for other in runs(root)) else " Not run on a GPU yet."
    wrapped = lambda text: textwrap.fill(text, FRONT_WIDTH, break_long_words=False, break_on_hyphens=False)
    chosen = front_cases(run)
    head = wrapped(f"{run.machine}; {prompts_of(run)}; {models_of(run)}.{gpu}")
    busy = wrapped(busy_note(run).strip()) + "\n\n" if run.busy else ""
    speeds = [case.metric("speedup") for case in run.speculative if case.metric("speedup") is not None]
    loses = bool(speeds) and min(speeds) < 1 and chosen[-1].metric("speedup") == min(speeds)
    tail = wrapped(
        f"{len(chosen)} of {len(run.cases)} cases: the reference{', ' if loses else ' and '}the fastest cases (no two of them differ in γ alone){', and the slowest case' if loses else ''}; all runs are in [results/README.md](results/README.md). "
        f"{unexplained_range(runs(root))}".strip()
    )
    return {
        "figure": f"![speedup against draft length]({figure.relative_to(root).as_posix()})" if figure.exists() else "",
        "table": f"{head}\n\n{busy}{table(run, cases=chosen)}\n\n{tail}",
    }


def with_front_parts(text, parts):
    for part, (begin, end) in MARKS.items():
        if text.count(begin) != 1 or text.count(end) != 1:
            raise BadRun(f"README.md: expected one '{begin}' and one '{end}'. Put them back.")
        new = f"{begin}\n{parts[part]}\n{end}"
        text = re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: new, text, flags=re.S)
    return text


def pages(root):
    """{path: content} of every generated page."""
    front = root / "README.md"
    beside_published = [run.folder for run in runs(root) if lookahead_page.has_something_to_say(run.summary)]
    return {
        **({root / "results/lookahead.md": lookahead_page.page(beside_published)} if beside_published else {}),
        root / "results/README.md": results_page(root),
        front: with_front_parts(front.read_text(encoding="utf-8"), front_parts(root)),
    }


def write_pages(root):
    for path, content in pages(root).items():
        path.write_text(content, encoding="utf-8")


def adopt_ladder(root, source, name):
    """Adopts each target of a run as a baseline NAME-TARGET. Figures over all targets are stored with the largest target."""
    ladder = Ladder(source)
    for target in ladder.runs:
        adopt(root, source / target, f"{name}-{target}")
    report.draw_figures(ladder, None, ("svg",), known=figures.ladder_figures)
    for file in (source / "figures").glob("*.svg"):
        write_small_figure(file, root / "results/baselines" / f"{name}-{list(ladder.runs)[-1]}" / "figures" / file.name)
    write_pages(root)


def keep_some_of_categories(summary):
    """Drops from the categories the metrics that no page shows. `speclab report` can compute them again from the raw lines."""
    for case in summary["cases"]:
        for category in (case.get("categories") or {}).values():
            category["metrics"] = {name: category["metrics"].get(name) for name in CATEGORY_METRICS}


def with_seven_digits(value):
    """The value with all its numbers rounded to seven significant digits, as probabilities in the raw lines are."""
    if isinstance(value, dict):
        return {name: with_seven_digits(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [with_seven_digits(entry) for entry in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def round_all_but_metrics(summary):
    """Rounds everything in the cases except the values of metrics, which the gates of `speclab compare` look at. The
    intervals of the metrics are rounded too."""
    for case in summary["cases"]:
        for name, value in case.items():
            if name == "metrics":
                case[name] = {
                    key: with_seven_digits(one) if key.endswith("_ci95") else one for key, one in value.items()
                }
            else:
                case[name] = with_seven_digits(value)


def share_texts(summary):
    """Stores once what several cases share. Each equation and assumption of a prediction goes into the list "texts". t(n) with its
    intervals goes into the calibration. Run puts both back into the cases when it reads the file."""
    places, calibration = {}, summary.get("calibration") or {}
    with_times = [case["metrics"] for case in summary["cases"] if case["metrics"].get("t_n_ci95") is not None]
    if with_times and "t_n" in calibration:
        calibration["t_n_ci95"] = with_times[0]["t_n_ci95"]
    for case in summary["cases"]:
        for name in record.SHARED_TIMES & calibration.keys():
            if case["metrics"].get(name) == calibration[name]:
                del case["metrics"][name]
        for prediction in (case.get("predictions") or {}).values():
            for name in record.SHARED_TEXTS & prediction.keys():
                prediction[name] = places.setdefault(prediction[name], len(places))
    summary["texts"] = list(places)


def write_small_figure(source, target):
    """Copies an SVG with four digits per coordinate and without metadata: about half the bytes."""
    words = [
        "--set-precision=4",
        "--enable-id-stripping",
        "--enable-comment-stripping",
        "--shorten-ids",
        "--remove-metadata",
    ]
    try:
        subprocess.run(["scour", "-q", *words, "-i", source, "-o", target], check=True)
    except FileNotFoundError:
        raise BadRun("scour: the program was not found. Run scripts/setup.sh, which installs it.") from None


def adopt(root, source, name, wanted=None, summary=None, finding=None):
    """Adopts a run as a baseline. wanted: names of figures; None for all. summary: a summary to keep instead of the stored one, in the form
    that `speclab report SOURCE --json` prints. finding: text of finding.md."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise BadRun(f"'{name}': expected MACHINE/CONFIG, such as epyc-avx512-2cores/quickstart.")
    if Ladder.is_one(source):
        if summary:
            raise BadRun(f"{source} holds runs of several targets. --summary works for one run only.")
        if finding:
            raise BadRun(f"{source} holds runs of several targets. --finding works for one run only.")
        if wanted is not None:
            raise BadRun(f"{source} holds runs of several targets. --figures works for one run only.")
        return adopt_ladder(root, source, name)
    run = Run(source, summary)
    if not run.summary["complete"] or run.summary["errors"]:
        raise BadRun(f"{source}: the run is not complete or has errors. Finish it with `speclab run --resume`.")
    if run.environment["build_type"] != "Release":
        raise BadRun(f"{source}: a {run.environment['build_type']} build. Only Release builds are kept as baselines.")
    if any(case.metric("matches_reference") is False for case in run.cases):
        raise BadRun(f"{source}: a lossless case does not equal its reference. This is a bug; find it first.")
    drawn, left_out = report.draw_figures(run, wanted, ("svg",))
    missing = set(wanted or ()) - {figure.name for figure, _ in drawn}
    if missing:
        reasons = {figure.name: reason for figure, reason in left_out}
        raise BadRun(
            "\n".join(
                f"figure {name}: {reasons.get(name, 'there is no figure of this name')}." for name in sorted(missing)
            )
        )
    folder = root / "results/baselines" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in KEPT:
        if (run.folder / file).exists():
            text = (
                json.dumps(run.summary, ensure_ascii=False)
                if file == "summary.json"
                else (run.folder / file).read_text(encoding="utf-8")
            )
            (folder / file).parent.mkdir(exist_ok=True)
            text = text.replace(str(source), f"results/runs/{source.name}").replace(
                f"{root}/", ""
            )  # removes private paths
            content = json.loads(text)
            if file == "environment.json":  # a program outside the repository keeps its name, not its folder
                content["command_line"][:1] = [
                    word.rsplit("/", 1)[-1] if word.startswith("/") else word for word in content["command_line"][:1]
                ]
            if file == "summary.json":
                keep_some_of_categories(content)
                round_all_but_metrics(content)
                share_texts(content)
            text = summary_text(content) if file == "summary.json" else kept_lines.compact(content) + "\n"
            (folder / file).write_text(text, encoding="utf-8")
    if finding:
        (folder / FINDING).write_text(finding.strip() + "\n", encoding="utf-8")
    (folder / kept_lines.NAME).write_bytes(kept_lines.pack(run.folder))
    (folder / "figures").mkdir()
    for _, path in drawn:
        write_small_figure(path, folder / "figures" / path.name)
    if not history.holds(root, folder):
        history.append(root, [str(folder)])
    write_pages(root)


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pages")
    commands.add_parser("check")
    adoption = commands.add_parser("adopt")
    adoption.add_argument("run", type=pathlib.Path)
    adoption.add_argument("name", help="folder under results/baselines/: MACHINE/CONFIG, such as epyc7b13/quickstart")
    adoption.add_argument("--figures", help="draw only these figures, separated by commas")
    adoption.add_argument("--summary", help="file with the output of `speclab report RUN --json`; - is standard input")
    adoption.add_argument(
        "--finding", type=pathlib.Path, help="file that says in about three sentences what the run shows"
    )
    expansion = commands.add_parser("expand")
    expansion.add_argument("name", help="folder under results/baselines/")
    expansion.add_argument("folder", type=pathlib.Path, help="a new run folder")
    options = parser.parse_args(arguments)
    try:
        if options.command == "adopt":
            summary = report.read_summary(options.summary) if options.summary else None
            finding = options.finding.read_text(encoding="utf-8") if options.finding else None
            adopt(root, options.run, options.name, options.figures and options.figures.split(","), summary, finding)
        elif options.command == "expand":
            kept_lines.restore(root / "results/baselines" / options.name, options.folder)
        elif options.command == "pages":
            write_pages(root)
        else:
            stale = [
                path
                for path, content in pages(root).items()
                if not path.exists() or path.read_text(encoding="utf-8") != content
            ]
            for path in stale:
                print(
                    f"baseline: {path.relative_to(root)} does not match its records. Run scripts/baseline.py pages.",
                    file=sys.stderr,
                )
            return 1 if stale else 0
    except (BadRun, OSError) as error:
        print(f"baseline: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
