"""vLLM's Prometheus counters of speculative decoding: the page /metrics of a server, read once, or before and after the requests.

Source of the names: github.com/vllm-project/vllm, vllm/v1/spec_decode/metrics.py: counters vllm:spec_decode_num_drafts,
..._num_draft_tokens, ..._num_accepted_tokens and ..._num_accepted_tokens_per_pos{position}, to which the client library adds "_total".
The counters are sums since the server started, so give two pages: the one before and the one after the measurement.
"""

import re

from ..errors import Error
from .reading import count, seconds
from .text import Counts, Text

NAME = "vLLM's Prometheus counters"
TIMES = "sum of the decoding times of the requests"
PREFIX = "vllm:spec_decode_num_"
SECONDS, TOKENS, STARTED = (
    "vllm:request_decode_time_seconds_sum",
    "vllm:generation_tokens_total",
    "process_start_time_seconds",
)
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def is_one(text: str) -> bool:
    return re.search(rf"^{PREFIX}drafts(_total)?[{{ ]", text, re.M) is not None


def page_of(text: str) -> Page:
    """{(name, labels): value} of the samples that are of use here."""
    found: Page = {}
    for line in text.splitlines():
        match = SAMPLE.match(line.strip())
        if match is None or not (match[1].startswith(PREFIX) or match[1] in (SECONDS, TOKENS, STARTED)):
            continue
        try:
            found[match[1], frozenset(LABEL.findall(match[2] or ""))] = float(match[3])
        except ValueError:
            raise Error(f"{match[1]} is {match[3]!r}, expected a number") from None
    return found


def texts_of(pages: list[Page], where: str) -> list[Text]:
    """A text for each set of labels (model and engine): the sums over its requests."""
    last = pages[-1]
    if len(pages) > 2:
        raise Error(f"{len(pages)} pages of counters, expected one, or two: before and after the requests")
    before = pages[0] if len(pages) == 2 else {}
    for key, value in last.items():
        if key[0] == STARTED and before.get(key, value) != value:
            raise Error("the server was started again between the two pages, so their counters cannot be subtracted")
        if value < before.get(key, 0):
            raise Error(
                f"{key[0]} falls from {before[key]:g} to {value:g}. Give the earlier page first; a server that was started again begins at 0"
            )

    def since(name: str, labels: frozenset[tuple[str, str]]) -> float | None:
        for known in (name, name.removesuffix("_total")):
            if (known, labels) in last:
                return last[known, labels] - before.get((known, labels), 0)
        return None

    texts = []
    for name, labels in sorted(last, key=lambda key: (key[0], sorted(key[1]))):
        if name not in (f"{PREFIX}drafts_total", f"{PREFIX}drafts"):
            continue
        numbers = {
            part: since(f"{PREFIX}{part}_total", labels) for part in ("drafts", "draft_tokens", "accepted_tokens")
        }
        missing = [f"{PREFIX}{part}_total" for part, value in numbers.items() if value is None]
        if missing:
            raise Error(f"no {missing[0]}")
        drafts, drafted, accepted = (count(value, f"{PREFIX}{part}_total") for part, value in numbers.items())
        accepted_at = []
        while (
            at := since(f"{PREFIX}accepted_tokens_per_pos_total", labels | {("position", str(len(accepted_at)))})
        ) is not None:
            accepted_at.append(count(at, f"{PREFIX}accepted_tokens_per_pos_total"))
        if sum(accepted_at) != accepted:
            raise Error(f"{PREFIX}accepted_tokens_total is {accepted}, but its positions have {sum(accepted_at)}")
        time, tokens = since(SECONDS, labels), since(TOKENS, labels)
        shown = dict(labels)
        texts.append(
            Text(
                case=shown.get("model_name", ""),
                name=f"engine {shown['engine']}" if "engine" in shown else "all requests",
                where=where,
                tokens=None if tokens is None else count(tokens, TOKENS),
                seconds=None if time is None else seconds(time, SECONDS),
                gamma=len(accepted_at),
                counts=_counts(drafts, drafted, accepted_at),
            )
        )
    return texts


def _counts(drafts: int, drafted: int, accepted_at: list[int]) -> Counts:
    """The counters have only the sum of the draft lengths. Each draft shorter than gamma lowers this sum by at least one,
    which bounds the number of shorter drafts."""
    gamma = len(accepted_at)
    levels = [drafts, *accepted_at]
    if any(one < two for one, two in zip(levels, levels[1:])):
        raise Error(f"accepted tokens by position grow along the draft: {accepted_at} of {drafts} drafts")
    short = drafts * gamma - drafted
    if short < 0 or sum(accepted_at) > drafted:
        raise Error(
            f"{sum(accepted_at)} of {drafted} drafted tokens were accepted, in {drafts} drafts of at most {gamma}"
        )
    not_whole = drafts - levels[-1]
    return Counts(drafts, drafted, sum(accepted_at), max(0, not_whole - short), not_whole)
