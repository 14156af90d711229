"""Draws the figures of a run (scripts/figures)."""

import dataclasses

import figures
from figures import style
from figures.record import NotApplicable


def caption_of(figure, run):
    """The caption of a figure, followed by what the figure found in the run and by the note on inflated twins."""
    words = [figure.caption]
    if figure.finding:
        words.append(figure.finding(run))
    if run.twins:
        words.append(f"{run.twins[0].upper()}{run.twins[1:]}.")
    return " ".join(words)


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
            drawn.append((dataclasses.replace(figure, caption=caption_of(figure, run)), paths[0]))
        except NotApplicable as reason:
            left_out.append((figure, str(reason)))
    return drawn, left_out
