"""Writes a page as one HTML file: fills a template, and puts styles, scripts and data into it."""

import functools
import json
import pathlib
import re

import jinja2
import markupsafe

from figures.record import BadRun

from . import cases_table, ledger, machine, plots, sentences, texts, values

HERE = pathlib.Path(__file__).resolve().parent
MOST_BYTES = 9_000_000  # of a page; large figures leave less room for texts
BYTES_OF_A_CASE = 8_000  # more than a case needs, without figures and texts
SITE = HERE.parent / "website"  # its templates extend those of this folder
SCRIPTS = {
    "run.html": ["base", "sort", "cases", "chart", "plots", "tree", "texts"],
    "comparison.html": ["base", "sort", "cases", "chart", "comparison"],
    "leaderboard.html": ["base", "sort", "leaderboard"],
    "trend.html": ["base", "sort", "chart", "trend"],
    "gallery.html": [],
}


@functools.cache
def templates():
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([HERE / "templates", SITE / "templates"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def script_data(value):
    """JSON for a <script> element: no character of it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return markupsafe.Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def static(name):
    file = next(folder / "static" / name for folder in (HERE, SITE) if (folder / "static" / name).exists())
    return markupsafe.Markup(file.read_text(encoding="utf-8"))


def render(template, **content):
    return (
        templates()
        .get_template(template)
        .render(style=static("page.css"), scripts=[static(f"{name}.js") for name in SCRIPTS[template]], **content)
    )


def write(html, out):
    part = out.with_name(f".{out.name}.part")
    part.write_text(html, encoding="utf-8")
    part.rename(out)


def inline_svg(name, path):
    """The SVG element with unique ids, so that one page can hold several."""
    text = path.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)


def config_of(run):
    file = run.folder / "config.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadRun(f"{file}: not JSON ({error}). Restore it from the run's config.") from error


def unequal(run):
    return [case.label(without=()) for case in run.cases if case.metric("matches_reference") is False]


def run_page(run, drawn=(), left_out=(), folder=None, links=()):
    """The page of a run as HTML. drawn, left_out: what draw_figures() returned. folder: the name of the run's folder on the page.
    links: (address, text) of pages that this page leads back to."""
    columns, config = cases_table.columns_of(run), config_of(run)
    pictures = [(figure, markupsafe.Markup(inline_svg(figure.name, svg))) for figure, svg in drawn]
    rest = sum(len(svg) for _, svg in pictures) + BYTES_OF_A_CASE * len(run.cases)
    data, texts_note = texts.data_of(run, config, min(texts.MOST_BYTES, max(0, MOST_BYTES - rest)))
    return render(
        "run.html",
        title=run.summary["name"],
        links=links,
        run=run,
        machine=f"{run.machine}; {run.twins}" if run.twins else run.machine,
        sentences=sentences.of_run(run),
        columns=columns,
        equal_explanation=cases_table.EQUAL,
        intervals_note=cases_table.intervals_note(run),
        rows=cases_table.rows_of(run, columns),
        strategies=cases_table.strategies_of(run),
        verdicts=[name for name in values.VERDICTS if any(values.verdict(case).startswith(name) for case in run.cases)],
        unequal=unequal(run),
        figures=pictures,
        left_out=left_out,
        ledger=ledger.ledger(run),
        published=ledger.published(run),
        waterfalls=ledger.waterfalls(run),
        noise=values.noise(run),
        other_texts=values.OTHER_TEXTS_NOTE if any(map(values.of_other_texts, run.cases)) else "",
        environment=list(machine.flattened(run.environment)),
        commands=sum(machine.commands(run, folder), []),
        config=json.dumps(config, indent=1, ensure_ascii=False),
        data=script_data(plots.data_of(run)),
        texts=script_data(data) if data else None,
        texts_note=texts_note,
    )


def write_report(run, drawn, left_out, out):
    write(run_page(run, drawn, left_out), out)
