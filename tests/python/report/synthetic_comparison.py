"""A made-up comparison of two made-up runs, in the form of `speclab compare BASE NEW --json` (results/SCHEMA.md). Its numbers are invented.

NEW drafts 6 % slower in the case SLOWER, and everything else is the same within noise.
"""

import math

PARTS = ("reference", "acceptance", "draft", "verification", "overhead")
SLOWER = "speculative_sampling/draft=distilled/gamma=4"
LOSSES = {"reference": 0.0, "acceptance": 0.0, "draft": -0.06, "verification": -0.002, "overhead": 0.001}


def around(value, width):
    return [value - width, value + width]


def case_of(case, noise):
    slower = case["id"] == SLOWER
    parts = dict(LOSSES) if slower else {**dict.fromkeys(PARTS, 0.0), "verification": noise}
    if case["reference"] is None:
        parts = {**dict.fromkeys(PARTS, 0.0), "verification": noise}
    change = sum(parts.values())
    base = case["metrics"].get("speedup") if case["reference"] else None
    steps = case["metrics"]["steps"]
    return {
        "id": case["id"],
        "verdict": "slower" if slower else "same",
        "note": "",
        "ratio": math.exp(change),
        "ratio_ci95": around(math.exp(change), 0.004),
        "prompts": case["prompts"],
        "change": {
            "speedup": {"base": base, "new": base and base * math.exp(change)},
            "tau": {"base": case["metrics"]["tau"], "new": case["metrics"]["tau"]},
            "ratio": math.exp(change),
            "ratio_ci95": around(math.exp(change), 0.004),
            "parts": {name: {"log_ratio": value, "ci95": around(value, 0.003)} for name, value in parts.items()},
        },
        "paired_steps": {
            "pairs": steps - 1,
            "base_steps": steps,
            "new_steps": steps,
            "ratio": math.exp(change),
            "ratio_ci95": around(math.exp(change), 0.002),
            "variance_paired": 1e-6,
            "variance_unpaired": 4e-5,
        },
        "suspect": slower,
        "again": {"verdict": "slower", "ratio": 0.945, "ratio_ci95": [0.94, 0.95]} if slower else None,
        "texts": {"compared": 3, "changed": 0, "promised": True},
        "missing_texts": 0,
        "gates": [],
        "failures": ["slower"] if slower else [],
    }


def comparison(summary, base="BASE", new="NEW"):
    """summary: the summary of the run that both runs of the comparison are made of."""
    return {
        "base": base,
        "new": new,
        "base_machine": {"busy": False, "drift": 0.01, "reasons": [], "text": ""},
        "new_machine": {"busy": False, "drift": 0.01, "reasons": [], "text": ""},
        "noise": 0.01,
        "speedup_noise": 0.012,
        "aa_runs": 1,
        "workload_differences": [],
        "nothing_compared": None,
        "failed": True,
        "cases": [case_of(case, 0.002 * (-1) ** place) for place, case in enumerate(summary["cases"])],
    }


def gated(summary):
    """The same with --gate rows: counts are compared and times are not. One count is worse."""
    found = comparison(summary)
    for case in found["cases"]:
        worse = case["id"] == SLOWER
        gate = {"gate": "rows", "metric": "target_rows", "base": 300, "new": 312 if worse else 300}
        case.update(change=None, paired_steps=None, ratio=None, ratio_ci95=None, again=None)
        case.update(gates=[{**gate, "change": "worse" if worse else "equal"}], failures=["gate"] if worse else [])
        case["verdict"] = "differs" if worse else "equal"
    return {**found, "noise": None, "speedup_noise": None, "aa_runs": 0}
