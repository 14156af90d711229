"""Acceptance in the order of the prompts: does a draft that learns while it drafts get better, and what does a new topic cost?"""

from figures import Figure, style
from figures.record import NotApplicable

LEARNS = "online_speculation"
MOST_CASES = 6


def by_prompt(case):
    """{prompt: (category, tested tokens, accepted tokens)} of repeat 0, in the order in which the prompts were decoded."""
    found = {}
    for line in sorted(case.lines(), key=lambda line: line["order"]):
        if line["repeat"] != 0:
            continue
        tested = [token for step in line["steps"] for token in step["tokens"] if token["tested"]]
        _, count, accepted = found.get(line["prompt"], ("", 0, 0))
        found[line["prompt"]] = (
            line["category"],
            count + len(tested),
            accepted + sum(token["accepted"] for token in tested),
        )
    return found


def comparable(run):
    """The cases to draw: those with the draft, draft length, rule and sampling of the first learning case. Cases that do not learn come first."""
    learning = [case for case in run.speculative if case.strategy == LEARNS]
    if not learning:
        raise NotApplicable(f"no case learns while it drafts ({LEARNS})")
    same = lambda case: (case.draft, case.gamma, case.rule, case.schedule, case.sampling, case.coins)
    still = [case for case in run.speculative if case.strategy == "speculative_sampling" and not case.lossy]
    alike = [case for case in still + learning if same(case) == same(learning[0])]
    return alike[:MOST_CASES]


def draw(run):
    curves = [(case, by_prompt(case)) for case in comparable(run)]
    order = list(next(found for case, found in curves if case.strategy == LEARNS))
    if len(order) < 2:
        raise NotApplicable("fewer than two prompts")
    topics = {prompt: category for _, found in curves for prompt, (category, _, _) in found.items()}
    figure, axes = style.figure(2.5)
    handles, labels = [], []
    for index, (case, found) in enumerate(curves):
        points = [
            (place, found[prompt][2] / found[prompt][1])
            for place, prompt in enumerate(order, 1)
            if prompt in found and found[prompt][1] > 0
        ]
        if not points:
            continue
        handles += axes.plot(*zip(*points), **style.curve_style(index))
        labels.append(case.label(without=()))
    if not handles:
        raise NotApplicable("no drafted token was tested")
    for place in range(1, len(order)):
        if topics[order[place - 1]] != topics[order[place]]:
            axes.axvline(place + 0.5, color="#444444", linewidth=0.7, linestyle=":")
    handles.append(axes.plot([], [], ":", color="#444444", linewidth=0.7)[0])
    labels.append("the topic changes")
    axes.set(xlabel="prompt, in the order of the run", ylabel="accepted given tested", ylim=(0, 1.03))
    style.integer_axis(axes.xaxis, range(1, len(order) + 1, max(1, len(order) // 8)))
    style.legend_below(figure, handles, labels, columns=1)
    return figure


FIGURES = [
    Figure(
        "acceptance_by_prompt",
        "Acceptance in the order of the prompts",
        "Share of tested tokens that were accepted, by prompt, for a draft that learns from its rejected tokens and for "
        "the same draft without learning. A case with keep carries what it learned from prompt to prompt; the other "
        "cases begin each prompt anew. Dotted lines: the next prompt has another category.",
        draw,
    )
]
