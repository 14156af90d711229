"""One look for all figures: as wide as a column of a paper, and readable in grey.

Curves differ in marker and dash, not only in colour."""

import logging

import matplotlib

matplotlib.use("Agg")
logging.getLogger("fontTools").setLevel(logging.ERROR)  # fontTools warns about the time stamps of fonts
import matplotlib.pyplot as plt

COLUMN_IN = 3.35
ROOM_FOR_LEGEND_IN = 0.5  # part of the height that a figure asks for; a taller legend makes the figure taller
FONT_PT = 8
SMALL_PT = 7

# Colours that colour-blind readers can tell apart, after Okabe and Ito, but some darker. Neighbours also differ in lightness.
COLOURS = ["#0072B2", "#E69F00", "#006B4F", "#CC79A7", "#56B4E9", "#8C3B00", "#666666", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (6, 2, 1, 2))]
HATCHES = ["", "////", "\\\\\\\\", ""]

RC = {
    "font.size": FONT_PT,
    "axes.titlesize": FONT_PT,
    "axes.labelsize": FONT_PT,
    "legend.fontsize": SMALL_PT,
    "xtick.labelsize": SMALL_PT,
    "ytick.labelsize": SMALL_PT,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "hatch.linewidth": 0.5,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "svg.hashsalt": "speclab",
}


def figure(height=2.3, rows=1, **arguments):
    """A figure of column width; returns (figure, axes)."""
    return plt.subplots(rows, 1, figsize=(COLUMN_IN, height), **arguments)


def curve_style(index):
    k = index % len(COLOURS)
    return {"color": COLOURS[k], "marker": MARKERS[k], "linestyle": DASHES[k]}


def error_bars(axes, x, cases, metric, **style):
    """Points with their 95 % intervals; `style` says whether a line joins the points."""
    y = [case.metric(metric) for case in cases]
    spans = [case.interval(metric) for case in cases]
    low = [max(0, value - lo) for value, (lo, _) in zip(y, spans)]
    high = [max(0, hi - value) for value, (_, hi) in zip(y, spans)]
    return axes.errorbar(x, y, yerr=[low, high], capsize=2, elinewidth=0.8, **style)


def integer_axis(axis, values):
    axis.set_ticks(sorted(set(values)))
    axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%d"))
    axis.set_minor_locator(matplotlib.ticker.NullLocator())


def log_axis(axis):
    """Puts ticks at 1, 2, 5, 10, ... of a logarithmic axis. Ticks between these have no labels, because the labels would overlap."""
    axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def legend_below(figure_, handles, labels, columns=2):
    """A legend under the axes, where it never covers data. It has one column if several columns do not fit or
    if a label has more than 30 characters. A tall legend makes the figure taller."""
    longest = max((len(label) for label in labels), default=0)
    columns = 1 if longest > 30 else columns

    def place(ncols):
        return figure_.legend(
            handles, labels, loc="outside lower center", ncols=ncols, columnspacing=1.0, handletextpad=0.5
        )

    def extent(legend):  # inches
        box = legend.get_window_extent(figure_.canvas.get_renderer())
        return box.width / figure_.dpi, box.height / figure_.dpi

    legend = place(columns)
    if columns > 1 and extent(legend)[0] > COLUMN_IN:
        legend.remove()
        legend = place(1)
    figure_.set_figheight(figure_.get_figheight() + max(0, extent(legend)[1] - ROOM_FOR_LEGEND_IN))


def render(draw, run, stem, formats=("svg", "pdf")):
    """Draws a figure of a run and writes STEM.svg and STEM.pdf, each complete or not at all; returns the paths."""
    with matplotlib.rc_context(RC):
        figure_ = draw(run)
        try:
            if run.twins:  # a note in the picture, because a picture may be shown without its caption
                note = figure_.suptitle(run.twins.replace("; ", "\n"), fontsize=SMALL_PT)
                figure_.set_figheight(figure_.get_figheight() + 0.13 * (1 + note.get_text().count("\n")))
            return save(figure_, stem, formats)
        finally:
            plt.close(figure_)


def save(figure_, stem, formats):
    paths = []
    for extension in formats:
        path = stem.parent / f"{stem.name}.{extension}"
        part = stem.parent / f".{stem.name}.part.{extension}"
        metadata = {"Date": None} if extension == "svg" else {"CreationDate": None} if extension == "pdf" else None
        figure_.savefig(part, metadata=metadata, dpi=200)
        part.rename(path)
        paths.append(path)
    return paths
