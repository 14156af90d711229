"""How good are replays? Plots RUN/replay_check.json, the output of `speclab replay TRACE --check RUN --json`."""

import json

from figures import Figure, style
from figures.record import BadRun, NotApplicable

FILE = "replay_check.json"
BOUNDS = {"speedup": 0.03, "prompt": 0.06}  # of the median errors
KINDS = {"exact": ("o", "#0072B2"), "expectation": ("s", "#E69F00"), "fitted": ("^", "#006B4F")}


def read(run):
    """The rows of the comparison whose cases the run has."""
    file = run.folder / FILE
    if not file.exists():
        raise NotApplicable(f"no {FILE}, which `speclab replay TRACE --check RUN --json` prints")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadRun(f"{file}: not JSON ({error}). Give what `speclab replay --check RUN --json` prints.") from error
    if not isinstance(content, dict) or not isinstance(content.get("cases"), list):
        raise BadRun(f'{file}: no list "cases". Give what `speclab replay --check RUN --json` prints.')
    known = {case.id for case in run.speculative}
    rows = [row for row in content["cases"] if row["case"] in known]
    if not any(row["error"] is not None for row in rows):
        raise NotApplicable(f"{FILE} has no speedup of a case of this run")
    return rows


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def speedups(rows):
    """(measured, replayed, kind, unseen) of each case; unseen: the replay had no calibrated costs of this case."""
    return [
        (row["speedup"], row["replayed_speedup"], row["certainty"], not row["calibrated"])
        for row in rows
        if row["error"] is not None
    ]


def prompts(rows):
    """(measured ms, replayed ms, kind, unseen) of each prompt of each case; unseen: the prompt is held out."""
    return [
        (one["ms"], one["replayed_ms"], row["certainty"], one["held_out"]) for row in rows for one in row["prompts"]
    ]


def errors_text(points, bound, unseen_name):
    """The median errors of all points and of the unseen ones."""
    errors = [abs(replayed / measured - 1) for measured, replayed, _, _ in points]
    unseen = [error for error, point in zip(errors, points) if point[3]]
    text = f"median error {100 * median(errors):.1f} % of {len(errors)} (goal: {100 * bound:g} %)"
    if unseen:
        text += f"\n{unseen_name}: {100 * median(unseen):.1f} % of {len(unseen)}"
    return text


def scatter(axes, points, bound):
    """Replayed against measured values, with the line of equal values and a band as wide as the bound on each side."""
    values = [value for point in points for value in point[:2]]
    low, high = min(values) / 1.06, max(values) * 1.06
    axes.fill_between(
        [low, high], [low * (1 - bound), high * (1 - bound)], [low * (1 + bound), high * (1 + bound)], color="#dddddd"
    )
    axes.plot([low, high], [low, high], color="#444444", linewidth=0.8)
    for kind, (marker, colour) in KINDS.items():
        for unseen in (False, True):
            own = [point for point in points if point[2] == kind and point[3] == unseen]
            if not own:
                continue
            axes.plot(
                [point[0] for point in own],
                [point[1] for point in own],
                linestyle="none",
                marker=marker,
                markersize=3.5,
                markeredgewidth=0.8,
                color=colour,
                markerfacecolor="white" if unseen else colour,
            )
    axes.set(xlim=(low, high), ylim=(low, high))


def legend(figure, axes, points):
    """Adds a legend of the markers that are in the picture."""
    shown = [kind for kind in KINDS if any(point[2] == kind for point in points)]
    handles = [
        axes.plot([], [], linestyle="none", marker=KINDS[kind][0], markersize=3.5, color=KINDS[kind][1])[0]
        for kind in shown
    ]
    labels = [f"tau {kind}" for kind in shown]
    if any(point[3] for point in points):
        handles += axes.plot(
            [], [], linestyle="none", marker="o", markersize=3.5, color="black", markerfacecolor="white"
        )
        labels.append("hollow: not calibrated, held out")
    style.legend_below(figure, handles, labels, columns=2)


def draw(run):
    rows = read(run)
    cases, times = speedups(rows), prompts(rows)
    figure, panels = style.figure(4.6 if times else 2.6, rows=2 if times else 1, squeeze=False)
    top = panels[0, 0]
    scatter(top, cases, BOUNDS["speedup"])
    top.set(xlabel="measured speedup", ylabel="replayed speedup")
    top.set_title(
        "cases: " + errors_text(cases, BOUNDS["speedup"], "not calibrated"), loc="left", fontsize=style.SMALL_PT
    )
    if times:
        bottom = panels[1, 0]
        scatter(bottom, times, BOUNDS["prompt"])
        bottom.set(xlabel="measured time of a prompt, ms", ylabel="replayed, ms", xscale="log", yscale="log")
        style.log_axis(bottom.xaxis)
        style.log_axis(bottom.yaxis)
        bottom.set_title(
            "prompts: " + errors_text(times, BOUNDS["prompt"], "held out"), loc="left", fontsize=style.SMALL_PT
        )
    legend(figure, top, cases + times)
    return figure


FIGURES = [
    Figure(
        "replay_check",
        "Replayed against measured",
        "What the replay of a trace predicts, against what a run measured. Top: the speedup of each case. Bottom: the "
        "decoding time of each prompt of each case whose replay is exact. The line is equality; the band is as wide "
        "as the goal for the median error on each side. Markers say whether tau of the replay is exact, an "
        "expectation over sampled texts, or fitted. Hollow markers: a case whose own costs were not calibrated, or a "
        "prompt that no calibration has seen. The figure needs a comparison in the run's folder "
        f"({FILE}).",
        draw,
    )
]
