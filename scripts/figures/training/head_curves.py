"""Training curves of heads: alpha and loss on held-out text against the steps of the training, from the card of the heads."""

import json

from figures import Figure, style
from figures.record import BadRun, NotApplicable

MOST_HEADS = len(style.COLOURS)  # curves of the upper axes
OF_POINT = {"step", "alpha", "loss"}


class Head:
    """A folder of trained heads. curve: the points of its training, as scripts/train/head_training/loop.py writes them into the card."""

    twins = ""  # a folder of heads has no inflated twin to mention in its pictures

    def __init__(self, folder):
        """Raises BadRun if the card is no JSON, or if a point of its curve lacks a member."""
        self.folder = folder
        path = folder / "head.json"
        try:
            card = json.loads(path.read_bytes())
            self.curve = card.get("training", {}).get("curve", [])
        except (ValueError, AttributeError) as error:
            raise BadRun(f"{path}: no card of heads ({error})") from error
        for number, point in enumerate(self.curve):
            if missing := OF_POINT - set(point):
                raise BadRun(
                    f"{path}: training.curve/{number} has no {min(missing)}; train again with scripts/train/heads.py"
                )

    @staticmethod
    def is_one(folder):
        return (folder / "head.json").is_file()


def draw(head):
    if len(head.curve) < 2:
        raise NotApplicable("the card has no curve of a training (training.curve)")
    steps = [point["step"] for point in head.curve]
    count = len(head.curve[0]["alpha"])
    shown = sorted({round(i * (count - 1) / max(1, min(count, MOST_HEADS) - 1)) for i in range(min(count, MOST_HEADS))})
    figure, (accepted, loss) = style.figure(3.6, rows=2, sharex=True)
    handles, labels = [], []
    for index, number in enumerate(shown):
        handles += accepted.plot(steps, [point["alpha"][number] for point in head.curve], **style.curve_style(index))
        labels.append(f"drafted token {number + 1}")
    loss.plot(steps, [point["loss"] for point in head.curve], color="black", marker=".")
    accepted.set(ylabel="acceptance rate $\\alpha$", ylim=(0, 1))
    loss.set(ylabel="loss", xlabel="step of the training")
    style.legend_below(figure, handles, labels)
    return figure


FIGURES = [
    Figure(
        "head_training",
        "Acceptance and loss during the training of heads",
        "Text that was held out from the training. alpha: mean of sum min(p, q) over all tokens of the target, for each "
        "drafted token if all tokens before it are right. Loss: the objective over all heads as in the training, without the losses that "
        "some kinds of heads add to it.",
        draw,
    )
]
