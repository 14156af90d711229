"""Makes frames from the parts of a record. results/SCHEMA.md describes the fields."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from . import kept_lines, metric_units
from .record import Case

CASE_FIELDS = (
    *("strategy", "draft", "gamma", "rule", "coins", "schedule", "verify", "loss_class", "lossy", "target"),
    *("reference", "prompts", "seeds", "repeats", "lines", "errors"),
)
PHASES = ("draft_ns", "target_ns", "accept_ns", "other_ns")
KEY = ("case", "prompt", "seed", "repeat")
LINES = (
    *(*KEY, "category", "order", "context_length", "tokens", "steps", "drafted", "accepted", "rows", "draft_calls"),
    *("wall_ns", "cpu_ns", "prefill_ns", "draft_prefill_ns", *PHASES, "promise", "output_hash", "text"),
)
STEPS = (
    *(*KEY, "turn", "step", "source", "drafted", "accepted", "emitted", "ended_by", "nodes", "rows", "draft_calls"),
    *(*PHASES, "pool"),
)
DRAFTED = (
    *(*KEY, "turn", "step", "node", "parent", "depth", "id", "p", "q", "rank", "tested", "accepted"),
    *("confidence", "entropy", "expected", "distance", "kl"),
)
OFTEN_UNKNOWN = ("p", "q", "rank", "confidence", "entropy", "expected", "distance", "kl")  # of a drafted token
PREDICTIONS = (
    *("case", "name", "kind", "quantity", "value", "value_lo", "value_hi", "change", "measured", "error"),
    *("equation", "assumptions"),
)
WATERFALL = (
    *("case", "step", "speedup", "speedup_lo", "speedup_hi"),
    *("log_ratio", "log_ratio_lo", "log_ratio_hi", "explanation"),
    *("unexplained_share", "unexplained_share_lo", "unexplained_share_hi"),
    *("residual_share", "residual_share_lo", "residual_share_hi"),
)
CALIBRATION = ("model", "rows", "ns", "t")
CALIBRATED_STEPS = (
    *("case", "draft_constant_ns", "draft_slope_ns", "accept_constant_ns", "accept_slope_ns", "other_ns"),
    *("step_ns", "steps"),
)
ROUNDS = ("round", "context_length", "model", "rows", "ns")


def frame(rows: list[dict[str, Any]], columns: Iterable[str] | None = None, metrics: bool = True) -> pd.DataFrame:
    """A frame with the units of its columns in attrs, and with the estimators of the columns that are metrics.

    columns: the columns of the frame; without it, the keys of the rows. metrics: as in metric_units.of_columns.
    """
    table = pd.DataFrame(rows, columns=None if columns is None else list(columns))
    names = [str(column) for column in table.columns]
    table.attrs["units"] = metric_units.of_columns(names, metrics)
    if metrics:
        table.attrs["estimators"] = metric_units.estimators_of_columns(names)
    return table


def with_ends(name: str, span: Any) -> dict[str, Any]:
    """The ends of an interval [lo, hi] as NAME_lo and NAME_hi; nothing without one."""
    return {} if not span else {f"{name}_lo": span[0], f"{name}_hi": span[1]}


def scalar_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics that are one number, each followed by the ends of its interval."""
    out: dict[str, Any] = {}
    for name, value in metrics.items():
        if name.endswith("_ci95") or isinstance(value, list | dict):
            continue
        out[name] = value
        out |= with_ends(name, metrics.get(f"{name}_ci95"))
    return out


def case_row(case: Case) -> dict[str, Any]:
    fields = {name: case.data.get(name) for name in CASE_FIELDS}
    note = {name: case.data[name] for name in ("times_note",) if name in case.data}
    row = {"case": case.id, "label": case.label(without=()), **fields, **case.sampling, **note}
    return row | scalar_metrics(case.metrics)


def category_rows(case: Case) -> list[dict[str, Any]]:
    return [
        {"case": case.id, "category": name, "prompts": part["prompts"], **scalar_metrics(part["metrics"])}
        for name, part in (case.data.get("categories") or {}).items()
    ]


def prompt_rows(case: Case) -> list[dict[str, Any]]:
    alpha = case.data.get("alpha_by_prompt") or {}
    return [
        {"case": case.id, "prompt": name, **part, "alpha": alpha.get(name)}
        for name, part in (case.data.get("by_prompt") or {}).items()
    ]


def position_rows(case: Case) -> list[dict[str, Any]]:
    """A row for each place of a list metric. Place n of the histogram counts the steps with n accepted tokens. Place i of the other
    metrics belongs to drafted token i, from 1."""
    rows: dict[int, dict[str, Any]] = {}
    for name, first in (("acceptance_at", 1), ("joint_at", 1), ("path_gain_at", 1), ("accepted_histogram", 0)):
        values = case.metric(name) or []
        spans = case.metric(f"{name}_ci95") or [None] * len(values)
        for place, (value, span) in enumerate(zip(values, spans), first):
            row = rows.setdefault(place, {"case": case.id, "position": place})
            row |= {name: value, **with_ends(name, span)}
    return [rows[place] for place in sorted(rows)]


def source_rows(case: Case) -> list[dict[str, Any]]:
    share, hits = case.metric("source_share") or {}, case.metric("hit_rate") or {}
    return [
        {"case": case.id, "source": name, "source_share": share.get(name), "hit_rate": hits.get(name)}
        for name in sorted({*share, *hits})
    ]


def prediction_rows(case: Case) -> list[dict[str, Any]]:
    return [
        {"case": case.id, "name": name, **entry, **with_ends("value", entry.get("value_ci95"))}
        for name, entry in (case.predictions or {}).items()
    ]


def waterfall_rows(case: Case) -> list[dict[str, Any]]:
    rows = []
    for term in case.waterfall or []:
        row = {"case": case.id, **term}
        for name in ("speedup", "log_ratio", "unexplained_share", "residual_share"):
            row |= with_ends(name, term.get(f"{name}_ci95"))
        rows.append(row)
    return rows


def calibration_rows(calibration: dict[str, Any] | None) -> list[dict[str, Any]]:
    if calibration is None:
        return []
    times = {"target": calibration["t_n_ns"]}
    times |= {name: draft["n_ns"] for name, draft in (calibration.get("drafts") or {}).items()}
    return [
        {"model": model, "rows": int(rows), "ns": ns, "t": ns / of_model["1"]}
        for model, of_model in times.items()
        for rows, ns in sorted(of_model.items(), key=lambda item: int(item[0]))
    ]


def calibrated_step_rows(calibration: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [
        {
            "case": name,
            **{
                f"{part}_{term}_ns": costs[f"{part}_ns"][term]
                for part in ("draft", "accept")
                for term in ("constant", "slope")
            },
            "other_ns": costs["other_ns"],
            "step_ns": costs["step_ns"],
            "steps": costs["steps"],
        }
        for name, costs in ((calibration or {}).get("cases") or {}).items()
        if costs is not None
    ]


def round_rows(one: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one line of calibration.jsonl."""
    times = {"target": one["t_n_ns"], **one["drafts"]}
    return [
        {"round": one["round"], "context_length": one["context_length"], "model": model, "rows": int(rows), "ns": ns}
        for model, of_model in times.items()
        for rows, ns in sorted(of_model.items(), key=lambda item: int(item[0]))
    ]


def key_of(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in KEY}


def line_row(line: dict[str, Any]) -> dict[str, Any]:
    """`tokens` leaves out the first token of each turn, which comes from prefill. The metric `tokens` leaves it out too."""
    sums = line["totals"] if "totals" in line else kept_lines.totals(line["steps"])
    phases = {f"{name}_ns": ns for name, ns in line["phase_ns"].items()}
    counts = {name: sums[name] for name in ("steps", "drafted", "accepted", "rows", "draft_calls")}
    return {**line, **phases, **counts, "tokens": sums["emitted"]}


def steps_of(line: dict[str, Any]) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
    """(key of the step, step) for the steps of a line. Steps count from 0 in each turn."""
    steps = iter(line["steps"])
    for turn, part in enumerate(line["turns"]):
        for number in range(part["steps"]):
            yield {**key_of(line), "turn": turn, "step": number}, next(steps)


def step_row(key: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    return {**step, **dict(zip(PHASES, step["ns"], strict=True)), **key}


def drafted_rows(key: dict[str, Any], step: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a step's drafted tokens. The record writes an unknown number as -1; here it is None. It writes an infinite `kl` as null;
    here it is math.inf."""
    rows: list[dict[str, Any]] = []
    for node, token in enumerate(step.get("tokens", []), 1):
        parent = token.get("parent", node - 1)
        depth = 1 if parent == 0 else rows[parent - 1]["depth"] + 1
        numbers = {name: token.get(name, -1) for name in OFTEN_UNKNOWN}
        if numbers["kl"] is None:
            numbers["kl"] = math.inf
        known = {name: None if value == -1 else value for name, value in numbers.items()}
        rows.append({**token, **known, **key, "node": node, "parent": parent, "depth": depth})
    return rows
