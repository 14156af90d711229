"""The trace of a run as a frame: `speclab.trace`."""

import array
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .record import BadRun, NotApplicable
from .run import Run, load

VERSION = 1  # of "row_details" in config.json
TEXTS = ("case", "prompt", "category")
WHOLE = ("seed", "turn", "position", "node", "parent", "depth", "id", "rank", "text_id")
NUMBERS = ("p", "q", "confidence", "draft_entropy", "target_entropy")
TRUTHS = ("tested", "accepted", "matches")
COLUMNS = (
    *("case", "prompt", "category", "seed", "turn", "position", "node", "parent", "depth", "id", "q", "p", "rank"),
    *("tested", "accepted", "matches", "confidence", "draft_entropy", "target_entropy", "text_id"),
)
UNKNOWN = -1  # what the record writes for a number that is not known


def trace(run: Run | str | os.PathLike[str], cases: Sequence[str] | None = None) -> pd.DataFrame:
    """What drafters propose at every position of a text: one row for each drafted token of a trace (`speclab trace`), from repeat 0.

    case, prompt, category, seed, turn: the text. position: the place of the pending token in the text of the turn, from 0.
    node, parent, depth: the place of the token in the draft; node 0 is the pending token. id: the drafted token.
    q: its probability in the draft's row that it was drawn from. p: its probability in the target's row. rank: its
    place among all tokens by p, from 0 for the most probable one.
    A token after a wrong token has p, q and rank too. They come from the rows after the drafted tokens before it.
    tested, accepted: what the rule decided. matches: whether this token and all tokens before it on its path are the tokens of the text.
    confidence, draft_entropy: what the drafter recorded for it. text_id: the token of the text at this place.
    target_entropy: the entropy in nats of the target's row that this token of the text came from, at temperature 1.

    A number that is not known is NaN or NA. case, prompt and category are categorical. The units are in attrs["units"].
    `trace(run).to_parquet(file)` writes Parquet and needs the package pyarrow.
    cases: ids of the cases; None for all traces of the run. Raises NotApplicable for a run without a trace, and for a record
    without steps.
    """
    of = run if isinstance(run, Run) else load(run)
    version = of.config.get("row_details", 0)
    if version > VERSION:
        raise BadRun(
            f"{of.folder}: row_details of version {version}, this package reads {VERSION}. Use the package of the version that wrote it."
        )
    traced = [
        case["id"] for case in of.config["cases"] if case["options"].get("emit_at_most") == 1 and case["reference"]
    ]
    if not traced:
        raise NotApplicable(f"{of.folder}: no trace. Record one with `speclab trace CONFIG`.")
    for name in cases or ():
        if name not in traced:
            raise BadRun(f"{of.folder}: no trace {name!r}. The traces are {', '.join(traced)}.")
    if of.kept != "full":
        raise NotApplicable(f"{of.folder}: this record was kept without its steps.")
    columns = _Columns()
    for case in traced if cases is None else cases:
        for line in of.finished_lines(case):
            if line["repeat"] == 0:
                columns.add_line(line)
    return columns.frame()


def _turns(line: dict[str, Any]) -> Iterable[tuple[int, list[int], list[float], list[dict[str, Any]]]]:
    """(number, tokens, entropies, steps) of each turn; the entropies are NaN if the record has none."""
    tokens, steps = line["tokens"], line["steps"]
    entropies = line.get("target_entropy") or [float("nan")] * len(tokens)
    token = step = 0
    for number, turn in enumerate(line["turns"]):
        last, end = token + turn["tokens"], step + turn["steps"]
        yield number, tokens[token:last], entropies[token:last], steps[step:end]
        token, step = last, end


class _Columns:
    """Columns to which each line adds its rows. A number takes eight bytes, so a trace of a million positions fits into memory."""

    def __init__(self) -> None:
        self.texts: dict[str, dict[str, int]] = {name: {} for name in TEXTS}  # the code of each text
        self.whole = {name: array.array("Q" if name == "seed" else "q") for name in (*TEXTS, *WHOLE, *TRUTHS)}
        self.numbers = {name: array.array("d") for name in NUMBERS}

    def add_line(self, line: dict[str, Any]) -> None:
        codes = {name: self.texts[name].setdefault(line[name], len(self.texts[name])) for name in TEXTS}
        for turn, tokens, entropies, steps in _turns(line):
            for position, step in enumerate(steps):
                key = {**codes, "seed": line["seed"], "turn": turn, "position": position}
                self._add_step(key, step, tokens, entropies)

    def _add_step(self, key: dict[str, int], step: dict[str, Any], tokens: list[int], entropies: list[float]) -> None:
        depths, matching = [0], [True]  # by node, the pending token first
        for node, token in enumerate(step["tokens"], 1):
            parent = token.get("parent", node - 1)
            depths.append(depths[parent] + 1)
            place = key["position"] + depths[node]
            inside = place < len(tokens)
            matching.append(matching[parent] and inside and token["id"] == tokens[place])
            row = {**key, "node": node, "parent": parent, "depth": depths[node], "id": token["id"]}
            row |= {"rank": token.get("rank", UNKNOWN), "text_id": tokens[place] if inside else UNKNOWN}
            row |= {"tested": token["tested"], "accepted": token["accepted"], "matches": matching[node]}
            for name, column in self.whole.items():
                column.append(int(row[name]))
            known = {"p": token["p"], "q": token["q"], "confidence": token.get("confidence", UNKNOWN)}
            known["draft_entropy"] = token.get("entropy", UNKNOWN)
            for name, value in known.items():
                self.numbers[name].append(float("nan") if value == UNKNOWN else value)
            self.numbers["target_entropy"].append(entropies[place] if inside else float("nan"))

    def frame(self) -> pd.DataFrame:
        out: dict[str, Any] = {}
        for name in COLUMNS:
            if name in TEXTS:
                out[name] = pd.Categorical.from_codes(
                    np.array(self.whole[name]), categories=pd.Index(list(self.texts[name]))
                )
            elif name in NUMBERS:
                out[name] = np.array(self.numbers[name], dtype="float64")
            elif name in TRUTHS:
                out[name] = np.array(self.whole[name], dtype="bool")
            else:
                values = np.array(self.whole[name])
                may_lack = name in ("rank", "text_id")
                out[name] = pd.arrays.IntegerArray(values, values == UNKNOWN) if may_lack else values
        table = pd.DataFrame(out, columns=list(COLUMNS))
        table.attrs["units"] = {"draft_entropy": "nats", "target_entropy": "nats"}
        return table
