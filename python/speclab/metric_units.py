"""Units and estimators of metrics, and units of the columns of frames."""

import functools
import pathlib
import re

from .errors import Error

# Units of columns that are no metrics. Columns without a unit are left out: names, counts, probabilities.
COLUMNS = {
    "tokens": "tokens",
    "steps": "steps",
    "context_length": "tokens",
    "wall_ns": "ns",
    "cpu_ns": "ns",
    "prefill_ns": "ns",
    "draft_prefill_ns": "ns",
    "draft_ns": "ns",
    "target_ns": "ns",
    "accept_ns": "ns",
    "other_ns": "ns",
    "step_ns": "ns",
    "draft_constant_ns": "ns",
    "draft_slope_ns": "ns/token",
    "accept_constant_ns": "ns",
    "accept_slope_ns": "ns/token",
    "ns": "ns",
    "t": "ratio",
    "drafted": "tokens",
    "accepted": "tokens",
    "emitted": "tokens",
    "rows": "rows",
    "log_ratio": "log(ratio)",
    "ratio": "ratio",
}


def _schema() -> str:
    here = pathlib.Path(__file__).resolve().parent
    for file in (here / "SCHEMA.md", here.parents[1] / "results/SCHEMA.md"):  # installed, or in the source tree
        if file.exists():
            return file.read_text(encoding="utf-8")
    raise Error(f"{here / 'SCHEMA.md'}: not found. Install the package again.")


def _section(text: str, heading: str) -> str:
    """The text below a heading of the third level."""
    return text.split(f"\n### {heading}\n", 1)[1].split("\n### ", 1)[0]


def units_of_table(text: str) -> dict[str, str]:
    """{metric: unit} of the table of metrics in results/SCHEMA.md.

    A row may describe several metrics: `| flops, weight_bytes | 1/token, B/token | ...`. It then has one unit for all, or one for each.
    "array: UNIT" and "map: UNIT" are units of the elements. A metric without a unit has "".
    """
    section = _section(text, "metrics")
    found: dict[str, str] = {}
    for names, cell in re.findall(r"^\| ([a-z_0-9, ]+) \| ([^|]*)\|", section, re.M):
        metrics = names.split(", ")
        cell = re.sub(r"^(array|map|bool/null)(: )?", "", cell.strip())
        if metrics == ["name"]:
            continue
        each = cell.split(", ")
        found |= dict(zip(metrics, each if len(each) == len(metrics) else [cell] * len(metrics), strict=True))
    return found


def estimators_of_table(text: str) -> dict[str, str]:
    """{metric: estimator} of the table of estimators in results/SCHEMA.md: `| estimator | what it computes | METRIC, METRIC, ... |`."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([a-z_0-9, ]+) \|$", _section(text, "estimators"), re.M)
    return {metric: name for name, metrics in rows if name != "estimator" for metric in metrics.split(", ")}


@functools.cache
def _metric_units() -> dict[str, str]:
    return units_of_table(_schema())


@functools.cache
def _metric_estimators() -> dict[str, str]:
    return estimators_of_table(_schema())


def units() -> dict[str, str]:
    """{metric: unit} of every metric of a run: "ms", "tokens/step", "ratio"; "" for a number without a unit.

    Source: results/SCHEMA.md. The frames have the units of their columns in `frame.attrs["units"]`.
    """
    return dict(_metric_units())


def estimators() -> dict[str, str]:
    """{metric: estimator} of every metric of a run: "count", "censored maximum likelihood", "ratio of sums, median over repeats".

    Source: results/SCHEMA.md, which says what each estimator computes. Frames of metrics have the estimators of their columns in
    `frame.attrs["estimators"]`.
    """
    return dict(_metric_estimators())


def estimators_of_columns(columns: list[str]) -> dict[str, str]:
    """The estimators of those columns that are metrics."""
    known = _metric_estimators()
    return {column: known[column] for column in columns if column in known}


def of_columns(columns: list[str], metrics: bool) -> dict[str, str]:
    """The units of those columns that have one. The ends of an interval, X_lo and X_hi, have the unit of X.

    metrics: whether columns may be metrics. If not, a column such as draft_calls counts the calls of one line or step and has no unit.
    """
    known = {**COLUMNS, **_metric_units()} if metrics else COLUMNS
    found = {column: known.get(column, known.get(re.sub(r"_(lo|hi)$", "", column), "")) for column in columns}
    return {column: unit for column, unit in found.items() if unit}
