"""What a trace says about drafted tokens: the features of each token, and whether the text confirms it.

A trace drafts at every position of the target's texts (`speclab trace`, configs/trace.json). A drafted token has a
label if all tokens before it in its draft equal the text, and the text reaches its position. The label is 1 if the
token equals the token of the text there, because then the target accepts it; otherwise it is 0. This holds only if the
text does not depend on the drafts. Above temperature 0 with independent coins it does depend on them, so such a trace
is refused. Tokens after a wrong one have no label, because no rule tests them.
"""

import dataclasses
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from figures.record import Run

NUMBERS = ("confidence", "entropy", "product", "position")


class Refused(Exception):
    pass


@dataclasses.dataclass
class Text:
    """A text with the drafts at its positions. Draft i begins after token i; its tokens are the rows begin[i] to
    begin[i + 1] - 1 of Samples."""

    prompt: str
    begin: np.ndarray  # [positions + 1]
    matching: np.ndarray  # [positions]: tokens before the first that differs from the text


class Samples:
    """All drafted tokens of a traced case, one row each, in the order of the texts."""

    def __init__(self, case):
        self.case = case
        self.texts = []
        self._rows = {name: [] for name in (*NUMBERS, "labelled", "accepted")}
        self._top = []
        for line in case.lines():
            if line["repeat"] == 0:
                self._add_line(line)
        if not self._top:
            raise Refused(f"{case.id}: no drafted token. Trace a case with a draft model.")
        columns = {name: np.array(values) for name, values in self._rows.items()}
        self.numbers = {name: columns[name].astype(float) for name in NUMBERS}
        self.labelled, self.accepted = columns["labelled"].astype(bool), columns["accepted"].astype(bool)
        self.top = np.array(self._top, dtype=float)  # [tokens, width]

    def _add_line(self, line):
        if line.get("promise") == "nothing":
            raise Refused(
                f"{self.case.id}: the text depends on the drafts, so it does not say what the target accepts. Record the trace "
                "at temperature 0 or with --set coins=gumbel."
            )
        token = step = 0
        for turn in line["turns"]:
            last, end = token + turn["tokens"], step + turn["steps"]
            self._add_text(line["prompt"], line["tokens"][token:last], line["steps"][step:end])
            token, step = last, end

    def _add_text(self, prompt, ids, steps):
        begin, matching = [len(self._top)], []
        for position, step in enumerate(steps):
            tokens, rows = step["tokens"], step.get("top", [])
            if len(rows) != len(tokens) or any("entropy" not in token for token in tokens):
                raise Refused(
                    f"{self.case.id}: the trace lacks entropies or the largest probabilities. Record it with: "
                    "speclab trace CONFIG --evidence top"
                )
            right, product = 0, 1.0
            for depth, (token, top) in enumerate(zip(tokens, rows), 1):
                place = position + depth
                labelled = right == depth - 1 and place < len(ids)
                accepted = labelled and token["id"] == ids[place]
                right += accepted
                product *= token["confidence"]
                values = (token["confidence"], token["entropy"], product, depth, labelled, accepted)
                for name, value in zip(self._rows, values):
                    self._rows[name].append(value)
                self._top.append(top)
            begin.append(len(self._top))
            matching.append(right)
        self.texts.append(Text(prompt, np.array(begin), np.array(matching, dtype=int)))

    def features(self, names):
        """[tokens, features]. `names`: the features, named as in a controller's file."""
        return np.stack([self._feature(name) for name in names], axis=1)

    def _feature(self, name):
        if name in self.numbers:
            return self.numbers[name]
        if name == "margin":
            return self._rank(1) - self._rank(2)
        return self._rank(int(name.removeprefix("top_")))

    def _rank(self, rank):
        if rank > self.top.shape[1]:
            raise Refused(
                f"{self.case.id}: the trace has the {self.top.shape[1]} largest probabilities of a row, not {rank}. "
                "Ask for fewer with --top."
            )
        return self.top[:, rank - 1]

    def of_prompts(self, prompts):
        """The texts of these prompts, and a mask of the rows of Samples that belong to them."""
        texts = [text for text in self.texts if text.prompt in prompts]
        rows = np.zeros(len(self.top), dtype=bool)
        for text in texts:
            rows[text.begin[0] : text.begin[-1]] = True
        return texts, rows


def traced_case(run, wanted=None):
    """The only traced case whose record has the largest probabilities and, if `wanted` is given, this id."""
    found = [
        case
        for case in run.speculative
        if case.options.get("emit_at_most") == 1
        and case.options.get("top_probabilities", 0) > 0
        and (wanted is None or case.id == wanted)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Refused(
            "no traced case with the largest probabilities. Record it with: speclab trace CONFIG --evidence top"
        )
    raise Refused(f"several traced cases: {', '.join(case.id for case in found)}. Choose one with --case.")


def open_trace(folder):
    """(run, config) of a trace."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text(encoding="utf-8"))
    return Run(folder), config
