"""The ledger of predictions: each formula once, with the predicted and the measured value of every case. Also the
waterfalls, which lead from the predicted to the measured speedup term by term, and the published numbers."""

import dataclasses

from figures.timing.waterfall import NAMES

from . import formula, values

# The sources of those formulas for which results/SCHEMA.md names a paper.
SOURCES = {
    "leviathan_eq_1": "Leviathan et al. 2023, Eq. 1",
    "leviathan_limit": "Leviathan et al. 2023, the limit of Eq. 1",
    "leviathan_3_8": "Leviathan et al. 2023, Theorem 3.8",
    "leviathan_3_9": "Leviathan et al. 2023, Corollary 3.9",
    "leviathan_3_11_ops": "Leviathan et al. 2023, Theorem 3.11",
    "lookahead_eq7": "Fu et al. 2024, Eq. 7",
    "lookahead_eq7_extended": "Fu et al. 2024, Eq. 7, extended to W other than G",
    "tree_by_rank": "Chen et al. 2024 (Sequoia)",
}


@dataclasses.dataclass
class Formula:
    """One equation under one set of assumptions."""

    name: str
    kind: str
    quantity: str
    equation: str  # MathML
    assumptions: str
    source: str
    rows: list  # (number of the case, label, predicted, measured, error in per cent or "", value that errors are sorted by)


KINDS = ("prediction", "identity", "bound", "optimum", "")


def order_of(formula):
    """First the predicted speedups that the table of cases shows, then other predictions, then identities, bounds and
    optima."""
    in_table = formula.name in values.PREDICTIONS
    return (
        not in_table,
        KINDS.index(formula.kind) if formula.kind in KINDS else len(KINDS),
        formula.quantity != "speedup",
    )


def ledger(run):
    """The formulas of the cases, sorted by order_of()."""
    found = {}
    for number, case in enumerate(run.cases):
        for name, entry in (case.predictions or {}).items() if not case.autoregressive else ():
            if entry.get("value") is None:
                continue
            kind, quantity, equation, assumptions = (
                entry.get(field, "") for field in ("kind", "quantity", "equation", "assumptions")
            )
            key = (name, kind, equation, assumptions)
            if key not in found:
                source = SOURCES.get(name, "")
                found[key] = Formula(name, kind, quantity, formula.mathml(equation), assumptions, source, [])
            error = entry.get("error")
            found[key].rows.append(
                (
                    number,
                    case.label(without=()),
                    values.shown(entry["value"]) + values.span_text(entry.get("value_ci95"), "{:.3g}"),
                    values.shown(entry.get("measured")),
                    "" if error is None else f"{100 * error:+.1f} %",
                    "" if error is None else f"{100 * error:.4g}",
                )
            )
    return sorted(found.values(), key=order_of)


def published(run):
    """The published numbers that the config quotes: [(label, source, reason for a difference, [(name, published, here)])]."""
    return [
        (
            case.label(without=()) + (f" on {row['category']}" if row.get("category") else ""),
            row["source"],
            row.get("reason", ""),
            [
                (value["name"], values.shown(value["published"], "{:.4g}"), values.shown(value["here"], "{:.4g}"))
                for value in row["values"]
            ],
        )
        for case in run.cases
        for row in case.data.get("published") or []
    ]


def term_name(step):
    return NAMES.get(step, step.replace("_", " "))


def waterfalls(run):
    """A table for each sequence of terms, because chains have other terms than windows and trees: [(headings, rows)]."""
    tables = {}
    for number, case in enumerate(run.cases):
        if case.autoregressive or not case.waterfall:
            continue
        terms = tuple(term["step"] for term in case.waterfall)
        tables.setdefault(terms, []).append(
            (number, case.label(without=()), case.waterfall, values.unexplained(case), values.left_by_drift(case))
        )
    return [([term_name(step) for step in terms], rows) for terms, rows in tables.items()]
