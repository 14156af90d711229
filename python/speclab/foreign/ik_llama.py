"""JSONL of llama-spec-bench of ik_llama.cpp: a line for each attempt (a task and a repeat), and a summary.

Source of the format: github.com/ikawrakow/ik_llama.cpp, examples/spec-bench (README.md and the functions that write JSON). A compact
attempt has task, run, ok, stop, generated, decode_s and stages; a detailed one has task_id, task_name, task_category, repeat_index,
variant, timing, tokens, speculative and quality. A stage has its type and drafted_by_position, accepted_by_position. Logs may surround the
lines. What the program calls acceptance length is 1 + accepted / drafts.
"""

from collections.abc import Iterable
from typing import Any

from ..errors import Error
from .reading import count, counts, field, seconds
from .text import Text, counts_of_chain

NAME = "llama-spec-bench JSONL"
TIMES = "decoding, without the prompt"


def is_one(value: Any) -> bool:
    return isinstance(value, dict) and value.get("row_type") in ("attempt", "summary")


def texts_of(value: Any, where: str) -> Iterable[Text]:
    """One text for an attempt. A summary repeats the attempts, so it gives no text.

    Raises Error for an attempt that failed or that has several kinds of drafts.
    """
    if value["row_type"] == "summary":
        return
    detailed = "task_id" in value
    ok = field(value, "quality", "ok") if detailed else field(value, "ok")
    if ok is not True:
        why = value["quality"].get("error") if detailed else value.get("error")
        raise Error(f"the attempt failed: {why or 'no reason is given'}")
    stages = field(value, "speculative", "stages") if detailed else field(value, "stages")
    if not isinstance(stages, list):
        raise Error(f"stages is {stages!r}, expected a list")
    if len(stages) > 1:
        kinds = ", ".join(str(one.get("type")) for one in stages)
        raise Error(f"{len(stages)} kinds of drafts ({kinds}): their acceptances cannot be told apart by step")
    name = field(value, "task_name") if detailed else field(value, "task")
    again = count(field(value, "repeat_index"), "repeat_index") + 1 if detailed else count(field(value, "run"), "run")
    tokens = field(value, "tokens", "generated") if detailed else field(value, "generated")
    time = field(value, "timing", "decode_s") if detailed else field(value, "decode_s")
    stage = stages[0] if stages else {}
    drafted_at = counts(stage.get("drafted_by_position", []), "drafted_by_position")
    accepted_at = counts(stage.get("accepted_by_position", []), "accepted_by_position")
    while accepted_at and len(accepted_at) > len(drafted_at) and accepted_at[-1] == 0:
        accepted_at.pop()
    drafts = count(stage.get("num_drafts", stage.get("drafts", 0)), "drafts")
    yield Text(
        case=str(stage.get("type", "baseline")),
        name=f"{name}/{again}",
        where=where,
        category=str(value.get("task_category", name)),
        tokens=count(tokens, "generated"),
        seconds=seconds(time, "decode_s"),
        gamma=len(drafted_at) or None,
        counts=counts_of_chain(where, drafts, drafted_at, accepted_at) if stages else None,
    )
