"""The table of the cases of a run: text of each cell, and the value that it is sorted by."""

import dataclasses

from . import values

RULE, PREDICTED, VERDICT, PROMPTS = "rule", "predicted", "verdict", "prompts"  # these columns are no metrics
# (metric, heading, format, explanation)
COLUMNS = [
    ("speedup", "speedup", "{:.2f}", "decode time per emitted token of the autoregressive reference / of the case"),
    (
        VERDICT,
        "verdict",
        "",
        "the speedup compared with 1. Its interval decides; it is widened by the noise between repeats, if there are repeats",
    ),
    (PREDICTED, "predicted", "{:.2f}", "speedup predicted from the acceptance and the calibrated times of forwards"),
    (
        "speed_over_chain",
        "over chain",
        "{:.2f}",
        "trees: speed / speed of the fastest chain from the same draft in this run",
    ),
    ("tokens_per_second", "tokens/s", "{:.1f}", "decoding only, median over repeats"),
    ("tau", "τ", "{:.2f}", "tokens emitted per step, the bonus or correction token included"),
    (RULE, "rule", "", "the acceptance rule that τ and both α belong to"),
    ("alpha", "α", "{:.3f}", "accepted / (accepted + rejections) by this rule; untested tokens do not count"),
    ("alpha_min", "α by Σmin", "{:.3f}", "mean expected acceptance by this rule at tested positions; agrees with α"),
    ("draft_utilization", "utilization", "{:.3f}", "accepted / drafted tokens: a naive estimate of α, too low"),
    ("c", "c", "{:.3f}", "time of a draft forward / of a target forward over one row, from the calibration"),
    ("c_hat", "ĉ", "{:.3f}", "operations of the draft / of the target, per token"),
    ("ops_factor", "operations", "{:.2f}", "operations per emitted token, case / autoregressive reference"),
    (PROMPTS, "prompts", "{}", "number of prompts behind the intervals; with fewer than ten they are too narrow"),
    ("distance", "distance", "{:.3f}", "lossy rules: mean total variation from the target's law"),
    (
        "kl",
        "KL",
        "{:.3f}",
        "lossy rules: mean KL divergence from the target's law in nats, at the positions where it is finite",
    ),
    ("kl_infinite", "KL infinite", "{}", "lossy rules: positions where that divergence is infinite, not counted in KL"),
]
INTERVAL_OVER_ROUNDS = {"c"}  # metrics whose interval is not over prompts; the table shows them without it
EQUAL = "ids and logits rows equal those of autoregressive decoding; 'same law' if sampling gives another text with the same law"


@dataclasses.dataclass(frozen=True)
class Cell:
    text: str
    sort: float | str | None = None  # None: sorted after all others
    look: str = ""  # class of the cell


@dataclasses.dataclass(frozen=True)
class Row:
    case: object
    label: str
    cells: list
    words: str  # what the filter looks at


def value_of(case, name):
    if name == RULE:
        known = bool(case.data["rule"]) and case.data["reference"] is not None
        return case.data["rule"].replace("_", " ") if known else None
    if name == PREDICTED:
        return values.predicted(case)
    if name == PROMPTS:
        return case.prompts
    return values.verdict(case) or None if name == VERDICT else case.metric(name)


def cell(case, name, pattern):
    value = value_of(case, name)
    if value is None:
        return Cell("")
    if name in (RULE, VERDICT):
        return Cell(value, value, f"verdict {value.partition(':')[0]}" if name == VERDICT else "words")
    span = None if name in INTERVAL_OVER_ROUNDS else case.metric(f"{name}_ci95")
    text = values.shown(value, pattern) + values.span_text(span, pattern)
    return Cell(text + (values.OTHER_TEXTS if name == "speedup" and values.of_other_texts(case) else ""), value)


def columns_of(run):
    """The columns for which the run has values. The number of prompts is a column only if it differs between cases;
    otherwise intervals_note() names it."""
    several = len({case.prompts for case in run.cases}) > 1
    return [
        column
        for column in COLUMNS
        if any(value_of(case, column[0]) is not None for case in run.cases) and (several or column[0] != PROMPTS)
    ]


def intervals_note(run):
    counts = {case.prompts for case in run.cases}
    note = "In brackets: 95 % intervals, bootstrap over prompts."
    if len(counts) == 1:
        (prompts,) = counts
        few = ", which makes them too narrow" if prompts < values.FEW_PROMPTS else ""
        note += f" They come from {prompts} prompt{'s' * (prompts != 1)}{few} (n = {prompts})."
    return note


def rows_of(run, columns):
    rows = []
    for case in run.cases:
        equal = values.equality(case)
        cells = [cell(case, name, pattern) for name, _, pattern, _ in columns]
        look = {"NO": "bad", "lossy": "lossy"}.get(equal, "")
        label = case.label(without=())
        words = " ".join([label, case.id, *(one.text for one in cells if isinstance(one.sort, str)), equal])
        rows.append(Row(case, label, [*cells, Cell(equal, equal, look)], words.lower()))
    return rows


def strategies_of(run):
    """The names of the strategies in the order of the run, for the filter."""
    return list(dict.fromkeys(case.data["strategy"] for case in run.cases))
