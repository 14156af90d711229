"""Figures of simulated devices, from what `speclab simulate --json` prints: sweeps and timelines.

Every axis that shows numbers from a device file says "simulated". These figures belong to the page of devices
(scripts/pages/devices_page.py), not to a run.
"""

import matplotlib.ticker

from figures import style

AXES = {
    "ridge": "simulated peak / bandwidth, operations per byte",
    "rows": "simulated free rows (rows for the time of one row)",
    "batch": "simulated batch, sequences",
}
MOST_CASES = len(style.COLOURS)
STREAMS = {"serial": "serial", "pearl": "PEARL", "amusd": "AMUSD", "dsi": "DSI"}
KEPT, WASTED = "#0072B2", "#E69F00"


def priced(sweep):
    """At most MOST_CASES cases of a sweep whose times could be simulated, the fastest first. Compares their speedups at the
    end of the axis where the machine has the most idle arithmetic."""
    found = [case for case in sweep["cases"] if case["speedup"]]
    end = 0 if sweep["sweep"] == "batch" else -1
    return sorted(found, key=lambda case: case["speedup"][end], reverse=True)[:MOST_CASES]


def sweep_figure(sweep, label=lambda case: case):
    """Speedup of each case of priced() along the axis of a sweep. The thick line is 1. A filled marker is the point of the
    axis where the case breaks even. `label` shortens a case id."""
    figure, axes = style.figure(2.7)
    axes.axhline(1, color="#444444", linewidth=1.4)
    for index, case in enumerate(priced(sweep)):
        look = style.curve_style(index)
        axes.plot(
            sweep["points"],
            case["speedup"],
            color=look["color"],
            linestyle=look["linestyle"],
            label=label(case["case"]),
        )
        if case["break_even"] is not None:
            axes.plot(case["break_even"], 1, color=look["color"], marker=look["marker"], markersize=5)
    where = "" if sweep["device"] is None else f"\n{sweep['device']}"
    axes.set(xscale="log", xlabel=AXES[sweep["sweep"]] + where, ylabel="simulated speedup", ylim=(0, None))
    axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(base=4))
    axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    style.legend_below(figure, *axes.get_legend_handles_labels(), columns=1)
    return figure


def timeline_figure(rows, device):
    """What draft and target do in the first steps. Each panel shows one timeline: one draft, and one way to order the
    forwards of draft and target. `rows`: entries of "timelines"; entries without segments are left out."""
    rows = [row for row in rows if row["segments"]]
    figure, panels = style.figure(0.6 + 0.62 * len(rows), rows=len(rows), sharex=True, squeeze=False)
    for axes, row in zip(panels[:, 0], rows):
        streams = max(segment["device"] for segment in row["segments"]) + 1
        for segment in row["segments"]:
            width = (segment["end_us"] - segment["start_us"]) / 1e3
            place = streams - 1 - segment["device"]
            axes.barh(
                place,
                width,
                left=segment["start_us"] / 1e3,
                height=0.7,
                color=WASTED if segment["wasted"] else KEPT,
                hatch="////" if segment["wasted"] else "",
                edgecolor="white",
                linewidth=0.3,
            )
        names = ["draft", *(f"target {i}" if streams > 2 else "target" for i in range(1, streams))]
        axes.set_yticks(range(streams), names[::-1])
        axes.set_ylim(-0.6, streams - 0.4)
        axes.grid(False)
        axes.set_title(f"{STREAMS[row['timeline']]}: simulated speedup {row['speedup']:.2f}", loc="left")
    panels[-1, 0].set_xlabel(f"simulated time, ms\n{device}")
    handles = [
        panels[0, 0].barh([0], [0], color=KEPT),
        panels[0, 0].barh([0], [0], color=WASTED, hatch="////", edgecolor="white"),
    ]
    style.legend_below(figure, handles, ["tokens are kept", "tokens are dropped"])
    return figure
