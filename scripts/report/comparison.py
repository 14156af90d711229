"""The page that compares two runs, from the output of `speclab compare BASE NEW --json`."""

import shlex

from figures.record import BadRun
from speclab import Error
from speclab.binary import CHANGE_PARTS, call

from . import machine, page, sentences, values

ERRORS = (Error, BadRun)
FIELDS = (
    "base",
    "new",
    "failed",
    "noise",
    "speedup_noise",
    "aa_runs",
    "workload_differences",
    "nothing_compared",
    "cases",
)
PART_NAMES = {
    "reference": "the time per token of the autoregressive reference",
    "acceptance": "tokens per step",
    "draft": "time of drafting in a step",
    "verification": "time of the target's forward in a step",
    "overhead": "all other time of a step: acceptance rule, bookkeeping",
}


def compare(base, new):
    """Runs `speclab compare`. Raises Error if the runs cannot be compared."""
    return call("compare", base, new)


def hundredths(logarithm):
    """100 x a logarithm, with a sign: "+1.3", "0.0"."""
    return "" if logarithm is None else f"{100 * logarithm:+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0")


def texts_cell(case):
    found = case["texts"]
    if not found["compared"]:
        text = ""
    elif not found["changed"]:
        text = "equal"
    else:
        first = found["first"]
        place = f"first: prompt {first['prompt']}, seed {first['seed']}, token {first['token']}"
        text = f"{'CHANGED' if found['promised'] else 'other'} {found['changed']} of {found['compared']} ({place})"
    return text + (f", {case['missing_texts']} missing" if case["missing_texts"] else "")


def change_row(case):
    """[(text, value to sort by)] of the cells: both speedups, the change with its interval, its parts, the ratio of
    paired steps."""
    change, pairs = case["change"], case["paired_steps"]
    if not change:
        return [("", None)] * (len(CHANGE_PARTS) + 4)
    speeds = change["speedup"]
    cells = [(values.shown(speeds[run], "{:.3f}"), speeds[run]) for run in ("base", "new")]
    span = values.span_text(change["ratio_ci95"], "{:.3f}")
    cells.append((values.shown(change["ratio"], "{:.3f}") + span, change["ratio"]))
    for name in CHANGE_PARTS:
        part = change["parts"][name]
        wide = part["ci95"] and f" ±{50 * (part['ci95'][1] - part['ci95'][0]):.1f}"
        cells.append((hundredths(part["log_ratio"]) + (wide or ""), part["log_ratio"]))
    ratio = pairs and pairs["ratio"]
    of_pairs = f"{ratio:.3f} ({pairs['pairs']} of {max(pairs['base_steps'], pairs['new_steps'])})" if ratio else ""
    return [*cells, (of_pairs, ratio)]


def gate_columns(found):
    return list(dict.fromkeys(gate["metric"] for case in found["cases"] for gate in case["gates"]))


def gate_row(case, columns):
    by_metric = {gate["metric"]: gate for gate in case["gates"]}
    row = []
    for name in columns:
        gate = by_metric.get(name)
        if gate is None:
            row.append(("", None, ""))
            continue
        number = lambda value: "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
        same = gate["change"] == "equal"
        text = number(gate["new"]) if same else f"{number(gate['base'])} → {number(gate['new'])} {gate['change']}"
        row.append((text, gate["new"], "" if same else "bad"))
    return row


def rows_of(found, labels):
    gates = gate_columns(found)
    rows = []
    for number, case in enumerate(found["cases"]):
        cells = [(text, sort, "") for text, sort in change_row(case)] if not gates else gate_row(case, gates)
        judged = case["verdict"] + (f" ({case['note']})" if case["note"] else "")
        look = "bad" if case["failures"] else f"verdict {case['verdict'].partition(':')[0]}"
        changed = case["texts"]["changed"] and case["texts"]["promised"]
        cells += [(judged, case["verdict"], look), (texts_cell(case), texts_cell(case), "bad" if changed else "words")]
        label = labels.get(case["id"], case["id"])
        rows.append((number, case, label, cells, f"{label} {case['id']} {judged}".lower()))
    return rows


def headings_of(found):
    """[(heading, explanation)] of the columns after the case."""
    gates = gate_columns(found)
    if gates:
        columns = [(name, "the count of NEW, or BASE → NEW where they differ") for name in gates]
    else:
        columns = [
            ("speedup of BASE", "from typical times of the steps"),
            ("speedup of NEW", "from typical times of the steps"),
            ("NEW / BASE", "ratio of the speedups; without a reference, ratio of the speeds; 95 % interval"),
            *(
                (name, f"{PART_NAMES[name]}: 100 ln of the factor; above 0, this part makes NEW faster")
                for name in CHANGE_PARTS
            ),
            ("paired steps", "time of steps that did the same work in both runs, BASE / NEW, and how many there are"),
        ]
    return [*columns, ("verdict", "faster or slower: beyond the noise"), ("texts", "equal: token for token")]


def data_of(found, labels):
    cases = []
    for case in found["cases"]:
        change = case["change"]
        entry = {"id": case["id"], "label": labels.get(case["id"], case["id"]), "verdict": case["verdict"]}
        if change:
            entry["speedup"] = [change["speedup"]["base"], change["speedup"]["new"]]
            entry["change"] = [change["ratio"], *(change["ratio_ci95"] or [None, None])]
            entry["parts"] = [change["parts"][name]["log_ratio"] for name in CHANGE_PARTS]
        cases.append(entry)
    return values.rounded({"cases": cases, "parts": list(CHANGE_PARTS), "selected": list(range(len(cases)))})


def circumstances(found):
    """Sentences that a reader must know before trusting the numbers."""
    lines = [f"The workloads differ: {difference}." for difference in found["workload_differences"]]
    for name, state in (("BASE", found["base_machine"]), ("NEW", found["new_machine"])):
        if state and state.get("text"):
            lines.append(f"{name}: {state['text'].strip()}")
    for case in found["cases"]:
        again = case["again"]
        if again:
            ratio = values.shown(again["ratio"], ", BASE / NEW {:.3f}")
            lines.append(f"{case['id']} was measured again: {again['verdict']}{ratio}.")
    return lines


def comparison_page(found, base, new):
    """The page as HTML. found: the parsed output of `speclab compare`. base, new: the two runs."""
    missing = [name for name in FIELDS if name not in found] if isinstance(found, dict) else list(FIELDS)
    if missing:
        raise BadRun(f"the comparison has no {', '.join(missing)}. Give what `speclab compare BASE NEW --json` prints.")
    labels = {case.id: case.label(without=()) for run in (base, new) for case in run.cases}
    folders = found["base"], found["new"]
    return page.render(
        "comparison.html",
        title=f"{new.summary['name']}: two runs",
        links=(),
        found=found,
        runs=list(zip(("BASE", "NEW"), folders, (base, new))),
        sentences=sentences.of_comparison(found, labels),
        drawable=any(case["change"] for case in found["cases"]),
        this_page=shlex.join([".venv/bin/python", "scripts/report.py", "--compare", *folders]),
        circumstances=circumstances(found),
        headings=headings_of(found),
        rows=rows_of(found, labels),
        verdicts=list(dict.fromkeys(case["verdict"].partition(":")[0] for case in found["cases"])),
        differences=machine.differences(base.environment, new.environment),
        commands=[
            (name, machine.commands(run, folder)[0]) for name, folder, run in zip(("BASE", "NEW"), folders, (base, new))
        ],
        data=page.script_data(data_of(found, labels)),
    )


def write_comparison(found, base, new, out):
    page.write(comparison_page(found, base, new), out)
