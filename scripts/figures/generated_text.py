"""A generated text: one line per target call, each token marked by its origin."""

from figures import Figure, style
from figures.record import NotApplicable

LINES = 24
FONT_PT = style.SMALL_PT
ADVANCE_IN = 0.602 * FONT_PT / 72  # width of a character of DejaVu Sans Mono
LOOKS = {  # fill, frame, name; grey levels differ too
    "accepted": ("#CDE7D8", "#006B4F", "accepted from the draft"),
    "rejection": ("#F4B183", "#8C3B00", "target's correction"),
    "bonus": ("#FFFFFF", "#0072B2", "target's bonus"),
    "plain": ("#FFFFFF", "#999999", "nothing was drafted"),
}


def pick(run):
    sampled = [
        case
        for case in run.speculative
        if case.metric("speedup") is not None and case.metric("tau") is not None and not case.lossy
    ]
    with_draft = [case for case in sampled if case.draft is not None] or sampled
    if not with_draft:
        raise NotApplicable("no lossless speculative case has a speedup")
    case = max(with_draft, key=lambda case: case.metric("speedup"))
    lines = [line for line in case.lines() if line.get("pieces") and line["steps"]]
    if not lines:
        raise NotApplicable("no line has the text of its tokens")
    tau = lambda line: sum(step["emitted"] for step in line["steps"]) / len(line["steps"])
    return case, sorted(lines, key=tau)[len(lines) // 2]


def marked_calls(line):
    """[[(text, look)]]: the emitted tokens of each target call of the first turn."""
    first = line["turns"][0]["steps"] if line.get("turns") else len(line["steps"])
    calls, at = [], 1  # piece 0 comes from prefill
    for step in line["steps"][:first]:
        looks = ["accepted"] * step["accepted"]
        last = "plain" if not step["drafted"] else "rejection" if step["ended_by"] == "rejection" else "bonus"
        looks += [last] * (step["emitted"] - step["accepted"])
        calls.append(list(zip(line["pieces"][at : at + step["emitted"]], looks)))
        at += step["emitted"]
    return calls


def visible(text):
    """The text on one line. Spaces are shown as dots, because some tokens differ in their spaces alone."""
    return text.replace("\n", "↵").replace("\t", "→").replace(" ", "·") or "∅"


def draw(run):
    case, line = pick(run)
    calls = marked_calls(line)[:LINES]
    line_in, top, bottom, left = 0.15, 0.04, 0.36, 0.2
    height = top + bottom + line_in * len(calls)
    figure, axes = style.figure(height, layout="none")
    axes.set_position(
        [left / style.COLUMN_IN, bottom / height, 1 - (left + 0.03) / style.COLUMN_IN, 1 - (top + bottom) / height]
    )
    width_in = style.COLUMN_IN - left - 0.03
    for row, call in enumerate(calls):
        axes.text(-0.05, row, str(row + 1), ha="right", va="center", fontsize=FONT_PT, color="#777777")
        x = 0.0
        for piece, look in call:
            text = visible(piece)
            width = (len(text) + 0.4) * ADVANCE_IN
            if x + width > width_in:
                axes.text(x, row, "…", va="center", fontsize=FONT_PT)
                break
            fill, frame, _ = LOOKS[look]
            axes.barh(
                row,
                width,
                left=x,
                height=0.84,
                color=fill,
                edgecolor=frame,
                linewidth=0.8 if look != "accepted" else 0.3,
            )
            axes.text(
                x + 0.2 * ADVANCE_IN,
                row,
                text.replace("$", r"\$"),
                ha="left",
                va="center_baseline",
                family="DejaVu Sans Mono",
                fontsize=FONT_PT,
            )
            x += width + 0.02
    axes.set(xlim=(0, width_in), ylim=(len(calls) - 0.4, -0.6))
    axes.axis("off")
    boxes = [axes.barh(-9, 0, color=fill, edgecolor=frame, linewidth=0.8) for fill, frame, _ in LOOKS.values()]
    used = {look for call in calls for _, look in call}
    shown = [(box, name) for box, (look, (_, _, name)) in zip(boxes, LOOKS.items()) if look in used]
    figure.legend(*zip(*shown), loc="lower center", ncols=2, columnspacing=1, handletextpad=0.5, borderaxespad=0.1)
    return figure


FIGURES = [
    Figure(
        "generated_text",
        "A text, one line per target call",
        "The beginning of a text by the fastest lossless case with a draft model, or without one if no such case has a "
        "draft model. Of all texts of the case, this one has the median number of tokens per step. Each line is one "
        "call of the target.",
        draw,
    )
]
