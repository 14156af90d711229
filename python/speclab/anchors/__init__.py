"""Published numbers of speculative decoding as data, each row checked by the closed forms of `speclab.theory`.

- `load("P5")` gives the numbers of a pack (or of one table) as a frame with units.
- `check()` gives one row for each published row: the value that the closed form predicts, the published value, a verdict and its reason.
- `python -m speclab.anchors` prints the page docs/anchors.md.

tables/*.json holds the numbers: one file for each table, with its source. A new table is a new file; a new closed form is a function in one
of the modules and an entry in FORMS. The closed forms come from the C++ library. The Python modules only turn
published numbers into inputs of these forms, and compare the results with published numbers.
"""

from collections.abc import Callable, Iterable

import pandas as pd

from ..errors import Error
from . import chains, claims, engines, times, trees
from .judgement import FLAGGED, VERDICTS, Judgement
from .reading import PACKS, Row, Table, tables

__all__ = ["FLAGGED", "FORMS", "PACKS", "VERDICTS", "Judgement", "Row", "Table", "check", "judge", "load", "tables"]

FORMS: dict[str, Callable[[Row], Judgement]] = {
    form.__name__: form
    for form in (
        *(chains.chain, chains.alpha_alone, chains.best_length, chains.chen_ratio, chains.blocks, chains.speedup_alone),
        *(
            chains.utilization,
            trees.rank_rates,
            trees.widened_tree,
            trees.chain_in_tree,
            trees.lookahead_law,
            trees.at_most,
        ),
        *(times.quotient, times.step_cost, times.step_times, times.traffic, times.time_per_token),
        *(claims.weights_floor, claims.batching, claims.kv_cache, claims.long_context),
        *(engines.implied_alpha, engines.utilization_tokens, engines.measured_rates, engines.counted_tokens),
    )
}


def load(name: str) -> pd.DataFrame:
    """The published numbers of a pack ("P5") or of one table ("specinfer_table2"), one row for each published row.

    Index: table, row. The columns are the columns of the tables. attrs: units (of the columns), sources and titles (by table), second_hand (names
    of tables whose numbers were not read in the source itself).
    """
    chosen = [table for table in tables() if name in (table.pack, table.name)]
    if not chosen:
        names = ", ".join(table.name for table in tables())
        raise Error(f"anchors: no pack or table {name}. Packs: {', '.join(PACKS)}. Tables: {names}.")
    columns = list(dict.fromkeys(column for table in chosen for column in table.columns))
    rows = [
        {"table": table.name, "row": row.label, **{column: row.get(column) for column in table.columns}}
        for table in chosen
        for row in table.rows
    ]
    frame = pd.DataFrame(rows, columns=["table", "row", *columns]).set_index(["table", "row"])
    frame.attrs["units"] = {column: unit for table in chosen for column, unit in table.units.items()}
    frame.attrs["sources"] = {table.name: table.source for table in chosen}
    frame.attrs["titles"] = {table.name: table.title for table in chosen}
    frame.attrs["second_hand"] = [table.name for table in chosen if table.second_hand]
    return frame


def judge(form: str, row: Row) -> Judgement:
    """The verdict on one row. form: a name in FORMS."""
    if form not in FORMS:
        raise Error(f"anchors: no form {form}. Forms: {', '.join(FORMS)}.")
    return FORMS[form](row)


def check(chosen: Iterable[Table] | None = None) -> pd.DataFrame:
    """One row for each published row of the tables `chosen`; None: of all tables.

    Index: table, row. Columns: pack, second_hand, given (the published inputs), formula, quantity, predicted, published, difference
    (published - predicted), alpha and c (values that the row implies), verdict, rounding (True if the rounding of the printed digits explains a
    flagged verdict), reason. Verdicts are in VERDICTS; those in FLAGGED say that the number cannot be right as it stands.
    """
    rows = []
    for table in tables() if chosen is None else chosen:
        for row in table.rows:
            found = judge(table.form, row)
            known = found.predicted is not None and found.published is not None
            rows.append(
                {
                    "table": table.name,
                    "row": row.label,
                    "pack": table.pack,
                    "second_hand": table.second_hand,
                    "given": _given(table, row),
                    "formula": found.formula,
                    "quantity": found.quantity,
                    "predicted": found.predicted,
                    "published": found.published,
                    "difference": (found.published or 0) - (found.predicted or 0) if known else None,
                    "alpha": found.alpha,
                    "c": found.c,
                    "verdict": found.verdict,
                    "rounding": found.rounding,
                    "reason": found.reason,
                }
            )
    return pd.DataFrame(rows).set_index(["table", "row"])


def _given(table: Table, row: Row) -> str:
    """The numbers of the row, "alpha = 0.75, gamma = 7"."""
    numbers = {column: row.get(column) for column in table.columns}
    return ", ".join(f"{name} = {value}" for name, value in numbers.items() if isinstance(value, int | float | list))
