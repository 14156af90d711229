"""Writes the page docs/anchors.md."""

import collections
from typing import Any

from . import FLAGGED, VERDICTS, check
from .reading import tables

HEAD = """# Published numbers

This page is written by `python -m speclab.anchors`; a test compares it with what the [Python package](python.md#published-numbers) computes. Each
published row goes through the closed form that applies to it. The verdicts on the {rows} rows of the {tables} tables are: {counts}.

- consistent: the closed form allows or predicts the number. differs: the prediction is off by more than the tolerance of the table, but the number is possible.
- above a bound: better than the closed form allows. impossible c: only a draft that takes less than no time would give the speedup. contradiction: numbers of
  one source exclude each other. These three are flagged.
- not enough given: the source lacks an input of every closed form. The number is then compared with a bound, or with nothing.

Eq. 1 and Theorem 3.8 are from Leviathan et al. 2023 (arXiv 2211.17192). Before each title stands the pack of the table (P1 to P14, second_hand or llama_cpp_3649). A pack is
a group of tables; `anchors.load("P5")` reads one pack. In the column "given", `before` and `after` are times without and with speculation, `rate_before` and `rate_after` are the speeds.

A bound holds under the assumption of its formula. The bound of Eq. 1 assumes independent acceptance; a text whose acceptance varies from step to step can give a
few more tokens per step than this bound. Other bounds (tokens per step, bytes over bandwidth) need no such assumption. A source with * was not read itself: its numbers come from a survey or an article.
"""


def _number(value: object) -> str:
    if not isinstance(value, int | float) or value != value:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    lines = [columns, ("---",) * len(columns), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines]


def page() -> str:
    """The text of docs/anchors.md."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in check().reset_index().to_dict("records"):
        found[str(one["table"]), str(one["row"])] = {str(name): value for name, value in one.items()}
    counts = collections.Counter(one["verdict"] for one in found.values())
    summary = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
    flagged: list[tuple[Any, ...]] = [
        (*key, _number(one["predicted"]), _number(one["published"]), one["verdict"], one["reason"])
        for key, one in found.items()
        if one["verdict"] in FLAGGED
    ]
    lines = [HEAD.format(rows=len(found), tables=len(tables()), counts=summary), "## Flagged rows", ""]
    lines += _table(("table", "row", "predicted", "published", "verdict", "reason"), flagged)
    for table in tables():
        about = f"{table.pack}. {table.title}. Source: {table.source}{'*' if table.second_hand else ''}."
        lines += ["", f"## {table.name.replace('_', ' ')}", "", about, ""]
        explained = not table.pack.startswith("P")
        columns = ("row", "given", "quantity", "predicted", "published", "verdict")
        rows: list[tuple[Any, ...]] = []
        for row in table.rows:
            one = found[table.name, row.label]
            numbers = (_number(one["predicted"]), _number(one["published"]))
            cells = (row.label, one["given"], one["quantity"], *numbers, one["verdict"])
            rows.append((*cells, one["reason"]) if explained else cells)
        lines += _table((*columns, "reason") if explained else columns, rows)
    return "\n".join(lines) + "\n"
