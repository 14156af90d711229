"""Traces of SpecDecode-Bench's simulator (Liu et al. 2026, arXiv 2601.11580): how many tokens of each drafter would be accepted at every position.

Source of the format: github.com/SpecDecode-Bench/simulator, request.py and simulator.py. A line has id, prompt_token_ids,
generated_token_ids and for each drafter an entry acc_NAME (or `acc`) with the list acc_len: entry i is the number of tokens that a step
would emit, with the bonus token, after i + 1 generated tokens. The list ends where the text ends, so the last step may be cut.
"""

from collections.abc import Iterable
from typing import Any

from ..errors import Error
from .reading import count, counts, field
from .text import Text

NAME = "SpecDecode-Bench trace"
TIMES = "none: a trace has no times"


def is_one(value: Any) -> bool:
    return isinstance(value, dict) and "generated_token_ids" in value and bool(_drafters(value))


def _drafters(value: Any) -> list[str]:
    return [key for key in value if key == "acc" or key.startswith("acc_")]


def texts_of(value: Any, where: str, gamma: int | None = None) -> Iterable[Text]:
    """A text for each drafter, decoded in steps that draft gamma tokens.

    Without gamma, each step emits as many tokens as the trace has for its position.
    """
    tokens = field(value, "generated_token_ids")
    if not isinstance(tokens, list):
        raise Error("generated_token_ids is not a list")
    for drafter in _drafters(value):
        found = value[drafter]
        lengths = counts(field(found, "acc_len") if isinstance(found, dict) else found, f"{drafter}/acc_len")
        if 0 in lengths:
            raise Error(f"{drafter}/acc_len has a 0, but a step emits at least one token")
        if len(lengths) > len(tokens):
            raise Error(f"{drafter}/acc_len has {len(lengths)} positions, the text {len(tokens)} tokens")
        emitted, at = [], 0
        while at < len(lengths):
            step = lengths[at] if gamma is None else min(lengths[at], gamma + 1)
            emitted.append(min(step, len(lengths) - at))
            at += emitted[-1]
        yield Text(
            case=drafter.removeprefix("acc_"),
            name=str(field(value, "id")),
            where=where,
            tokens=count(len(lengths), "tokens"),
            emitted=emitted,
            unclear=frozenset({len(emitted) - 1}),
        )
