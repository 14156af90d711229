"""Timeline of calls: what the draft and the target do while the same prompt is decoded."""

from figures import Figure, style
from figures.record import NotApplicable

TOKENS = 24  # number of tokens that are shown


def pick(run):
    """[(case, line)] of a long draft, a short draft and autoregressive decoding, on one prompt that all of them decoded."""
    sweeps = [members for members in run.gamma_sweeps().values() if members[0].draft is not None]
    if not sweeps or not run.baselines:
        raise NotApplicable("needs autoregressive decoding and a draft model at two or more draft lengths")
    members = max(sweeps, key=lambda cases: max(case.metric("speedup") for case in cases))
    nearest = lambda wanted: min(members, key=lambda case: abs(case.gamma - wanted))
    cases = list(dict.fromkeys([nearest(7), nearest(3)], None)) + [run.reference_of(members[0]) or run.baselines[0]]
    lines = [{line["prompt"]: line for line in case.lines() if line["repeat"] == 0} for case in cases]
    shared = [
        prompt
        for prompt in lines[0]
        if all(prompt in own and sum(s["emitted"] for s in own[prompt]["steps"]) >= TOKENS for own in lines)
    ]
    if not shared:
        raise NotApplicable(f"no prompt with {TOKENS} tokens in every case")
    # Takes the shared prompt on which the long draft has its median speed, neither the best nor the worst.
    speed = lambda prompt: lines[0][prompt]["wall_ns"] / max(1, sum(s["emitted"] for s in lines[0][prompt]["steps"]))
    prompt = sorted(shared, key=speed)[len(shared) // 2]
    return [(case, own[prompt]) for case, own in zip(cases, lines)]


def stretch(line):
    """The steps until TOKENS tokens are emitted."""
    steps, emitted = [], 0
    for step in line["steps"]:
        if emitted >= TOKENS:
            break
        steps.append(step)
        emitted += step["emitted"]
    return steps


def draw(run):
    chosen = pick(run)
    figure, axes = style.figure(0.85 + 0.5 * len(chosen))
    end = max(sum(sum(step["ns"]) for step in stretch(line)) for _, line in chosen) / 1e6
    for row, (case, line) in enumerate(chosen):
        now, emitted = 0.0, 0
        for step in stretch(line):
            draft, target, accept, other = (ns / 1e6 for ns in step["ns"])
            if draft > 0 and step["drafted"]:
                calls = max(1, step.get("draft_calls") or 1)
                axes.barh(row - 0.2, draft, left=now, height=0.34, color="#E69F00", linewidth=0)
                if draft / calls > 0.004 * end:  # the white lines between the calls would hide thinner calls
                    axes.vlines(
                        [now + call * draft / calls for call in range(1, calls)],
                        row - 0.37,
                        row - 0.03,
                        color="white",
                        linewidth=0.25,
                    )
            axes.barh(
                row + 0.2, target, left=now + draft, height=0.34, color="#0072B2", edgecolor="white", linewidth=0.25
            )
            if target > 0.022 * end:  # narrower bars have no room for the number
                axes.text(
                    now + draft + target / 2,
                    row + 0.2,
                    str(step["emitted"]),
                    ha="center",
                    va="center",
                    color="white",
                    fontsize=style.SMALL_PT,
                )
            now += draft + target + accept + other
            emitted += step["emitted"]
        axes.text(now, row, f" {emitted} tokens\n {now:.0f} ms", va="center", fontsize=style.SMALL_PT)
    axes.set_yticks(
        range(len(chosen)),
        [f"$\\gamma$ = {case.gamma}" if not case.autoregressive else "auto-\nregressive" for case, _ in chosen],
    )
    axes.invert_yaxis()
    axes.set_xlim(0, end * 1.22)
    axes.set_xlabel("ms of decoding")
    axes.grid(axis="y", visible=False)
    boxes = [axes.barh(0, 0, color=colour) for colour in ("#0072B2", "#E69F00")]
    style.legend_below(figure, boxes, ["target call (number: tokens emitted)", "draft call"])
    return figure


FIGURES = [
    Figure(
        "timeline",
        "Timeline of calls",
        "The same prompt decoded with a long draft, with a short draft and without a draft, until the first step that "
        "reaches 24 tokens. Gaps between the calls are acceptance and bookkeeping.",
        draw,
    )
]
