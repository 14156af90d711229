"""vLLM's responses with per-request metrics of speculative decoding: one response on each line.

Source of the format: docs.vllm.ai, features/speculative_decoding/acceptance_metrics ("experimental"), for a server with
--per-request-spec-decode-metrics summary or detailed, and features/per_request_metrics for the times (--enable-per-request-metrics).
`metrics.speculative_decoding` has mean_acceptance_length, draft_acceptance_rate, acceptance_histogram (entry j: steps with j accepted
tokens), acceptance_histogram_by_draft_length, num_spec_steps, num_accepted_draft_tokens, num_draft_tokens, num_spec_tokens, and with
"detailed" per_step_accepted and per_step_drafted. None of these fields counts steps without a draft.
"""

from collections.abc import Iterable
from typing import Any

from ..errors import Error
from .reading import count, counts, field, seconds
from .text import Text

NAME = "vLLM responses"
TIMES = "decoding, from the first to the last output token"


def is_one(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("metrics"), dict)
        and "speculative_decoding" in value["metrics"]
    )


def texts_of(value: Any, where: str) -> Iterable[Text]:
    found = value["metrics"]["speculative_decoding"]
    if found is None:
        raise Error("metrics/speculative_decoding is null: speculative decoding was off, or the request had n > 1")
    pairs, ordered = _pairs(found)
    totals = (("num_spec_steps", len(pairs)), ("num_accepted_draft_tokens", sum(accepted for _, accepted in pairs)))
    for name, total in (*totals, ("num_draft_tokens", sum(drafted for drafted, _ in pairs))):
        if count(field(found, name), name) != total:
            raise Error(f"{name} is {found[name]}, but the steps have {total}")
    if any(accepted > drafted for drafted, accepted in pairs):
        raise Error("a step accepted more tokens than were drafted")
    metrics = value["metrics"]
    tokens = (value.get("usage") or {}).get("completion_tokens")
    yield Text(
        case=str(value.get("model", "")),
        name=str(value.get("id", where)),
        where=where,
        tokens=None if tokens is None else count(tokens, "usage/completion_tokens"),
        seconds=None
        if metrics.get("generation_time_ms") is None
        else seconds(metrics["generation_time_ms"], "metrics/generation_time_ms", 1e-3),
        gamma=count(field(found, "num_spec_tokens"), "num_spec_tokens"),
        emitted=[accepted + 1 for _, accepted in pairs],
        drafted=[drafted for drafted, _ in pairs],
        ordered=ordered,
    )


def _pairs(found: Any) -> tuple[list[tuple[int, int]], bool]:
    """(drafted, accepted) of each step, and whether the steps are in order."""
    if "per_step_accepted" in found:
        accepted = counts(found["per_step_accepted"], "per_step_accepted")
        drafted = counts(field(found, "per_step_drafted"), "per_step_drafted")
        if len(accepted) != len(drafted):
            raise Error(f"per_step_accepted has {len(accepted)} steps, per_step_drafted {len(drafted)}")
        return list(zip(drafted, accepted, strict=True)), True
    by_length = found.get("acceptance_histogram_by_draft_length")
    if by_length is None:  # older servers: the draft length of a step is known only if all drafts have the full length
        length, steps = count(field(found, "num_spec_tokens"), "num_spec_tokens"), field(found, "num_spec_steps")
        if field(found, "num_draft_tokens") != length * steps:
            raise Error("draft lengths vary, and acceptance_histogram_by_draft_length is missing. Use level detailed")
        by_length = {str(length): field(found, "acceptance_histogram")}
    pairs = []
    for length, histogram in by_length.items():
        for accepted, steps in enumerate(counts(histogram, f"acceptance_histogram_by_draft_length/{length}")):
            pairs += [(int(length), accepted)] * steps
    return pairs, False
