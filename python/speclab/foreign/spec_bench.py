"""Spec-Bench's answer files (Xia et al. 2024): one question on each line.

Source of the format: github.com/hemingkx/Spec-Bench, evaluation/eval.py, which writes question_id, category, answer_id, model_id, choices
and tstamp. A choice has index; turns, decoding_steps, new_tokens and wall_time, each with a value for each turn; and accept_lengths,
with a value for each step of all turns: the tokens that the step added to the text. evaluation/speed.py reads the first choice only.
"""

from collections.abc import Iterable
from typing import Any

from ..errors import Error
from .reading import count, counts, field, seconds
from .text import Text

NAME = "Spec-Bench answer file"
TIMES = "all turns, with prefill"


def is_one(value: Any) -> bool:
    return isinstance(value, dict) and "choices" in value and ("question_id" in value or "answer_id" in value)


def texts_of(value: Any, where: str) -> Iterable[Text]:
    """One text for each choice. accept_lengths does not say whether the end of a turn cut its last step, so the last step of each turn is unclear."""
    name, case = str(field(value, "question_id")), str(field(value, "model_id"))
    choices = field(value, "choices")
    if not isinstance(choices, list) or not choices:
        raise Error("choices is empty")
    for place, choice in enumerate(choices):
        path = f"choices/{place}"
        new_tokens = counts(field(value, "choices", place, "new_tokens"), f"{path}/new_tokens")
        times = field(value, "choices", place, "wall_time")
        if not isinstance(times, list) or len(times) != len(new_tokens):
            raise Error(f"{path}/wall_time does not have one value for each of the {len(new_tokens)} turns")
        lengths = counts(field(value, "choices", place, "accept_lengths"), f"{path}/accept_lengths")
        steps = choice.get("decoding_steps")
        ends = list(_ends(steps, len(lengths))) if isinstance(steps, list) else [len(lengths) - 1]
        yield Text(
            case=case,
            name=name if len(choices) == 1 else f"{name}/{count(choice.get('index', place), f'{path}/index')}",
            where=where,
            category=str(value.get("category", "")),
            tokens=sum(new_tokens),
            seconds=sum(seconds(one, f"{path}/wall_time") for one in times),
            emitted=lengths,
            unclear=frozenset(ends),
        )


def _ends(steps: list[Any], total: int) -> Iterable[int]:
    """The index of the last step of each turn; of the last turn only, if decoding_steps does not add up to the number of steps."""
    if all(isinstance(one, int) and one >= 0 for one in steps) and sum(steps) == total:
        done = 0
        for one in steps:
            done += one
            yield max(done - 1, 0)
    else:
        yield total - 1
