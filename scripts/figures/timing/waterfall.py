"""Waterfall from the predicted to the measured speedup, term by term."""

import math

from figures import Figure, style
from figures.record import NotApplicable

NAMES = {
    "leviathan_3_8": "Leviathan Thm. 3.8",
    "free_rows": "rows that cost nothing",
    "law": "law of lookahead",
    "window_rows": "rows of the window",
    "drafted_rows": "drafted rows",
    "rows_without_logits": "rows without logits",
    "iid": "i.i.d. assumption",
    "draft_cost": "draft cost",
    "verification_width": "verification width",
    "sampling_and_bookkeeping": "sampling, bookkeeping",
    "machine_drift": "machine drift",
    "residual": "residual",
    "measured": "measured",
}


def best_case(run):
    usable = [case for case in run.speculative if case.waterfall and case.metric("speedup") is not None]
    if not usable:
        raise NotApplicable("no case has a waterfall")
    return max(usable, key=lambda case: (not case.lossy, case.draft is not None, case.metric("speedup")))


def draw(run):
    case = best_case(run)
    figure, axes = style.figure(2.5)
    previous = None
    for row, term in enumerate(case.waterfall):
        value = term["speedup"]
        if term["step"] in ("leviathan_3_8", "free_rows", "measured") or previous is None:
            axes.barh(row, value, color="#777777", height=0.65)
            axes.text(value, row, f" {value:.3f}", va="center", fontsize=style.SMALL_PT)
        else:
            gain = value >= previous
            axes.barh(
                row,
                value - previous,
                left=previous,
                height=0.65,
                color="#0072B2" if gain else "#E69F00",
                hatch="" if gain else "////",
                edgecolor="#333333",
                linewidth=0.3,
            )
            axes.text(
                max(value, previous),
                row,
                f" {100 * math.expm1(term['log_ratio']):+.1f} %",
                va="center",
                fontsize=style.SMALL_PT,
            )
        previous = value
    axes.set_yticks(range(len(case.waterfall)), [NAMES.get(term["step"], term["step"]) for term in case.waterfall])
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlim(0, 1.25 * max(term["speedup"] for term in case.waterfall))
    axes.set_xlabel("speedup")
    axes.set_title(case.label(without=()), fontsize=style.SMALL_PT)
    axes.grid(axis="y", visible=False)
    return figure


FIGURES = [
    Figure(
        "waterfall",
        "From prediction to measurement",
        "Each term multiplies the speedup. Costs come from a calibration between the texts, not from the case itself. "
        "Hatched: a term that lowers the speedup.",
        draw,
    )
]
