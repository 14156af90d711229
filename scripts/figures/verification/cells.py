"""Trees that scripts/tree_grid.py picked from a grid of predictions: the measured speedup beside the predicted one. A
cell of the grid is one combination of size and depth, with the best tree of this size and depth and its prediction."""

import hashlib
import json
import pathlib
import statistics

from figures import Figure, style
from figures.record import BadRun, NotApplicable

WITHIN = 0.05  # a prediction is right if it is this close to the measurement
ROLES = ("best", "worst", "random")
# Predictions of a tree file. step_speedup: from all costs of a step. speedup: F / (t(n) + d c) with F tokens per step,
# n rows, d levels. t(n): time of a target forward over n rows / time of a target forward over one row. c: time of a
# draft forward / time of a target forward over one row.
FORMS = ("step_speedup", "speedup")


def prediction_file(run, name):
    """The tree file of a case; {} if it is gone, or if it holds no role (then nobody picked it from a grid)."""
    for folder in (pathlib.Path.cwd(), pathlib.Path(__file__).resolve().parents[3], run.folder.parent):
        for file in (folder / name, folder / pathlib.Path(name).name):
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(content, dict) and content.get("role") in ROLES:
                return content
    return {}


def widened(interval, noise):
    """The 95 % interval of a ratio of times, widened by the noise of such ratios. None without an interval or without repeats."""
    if not interval or None in interval or noise is None:
        return None
    return interval[0] / (1 + noise), interval[1] * (1 + noise)


def is_within(predicted, measured, interval):
    """Whether a prediction is within WITHIN of the measurement: "yes", "no", or "unclear" if only other values in
    the interval of the measurement are that close to it."""
    if abs(predicted / measured - 1) <= WITHIN:
        return "yes"
    if interval and predicted / interval[1] - 1 <= WITHIN and predicted / interval[0] - 1 >= -WITHIN:
        return "unclear"
    return "no"


def against_chain(case, noise):
    """Compares a tree with the best chain of its run. Returns "faster", "below" (the tree is slower), "not below" (the
    interval contains 1), or what is missing."""
    if case.metric("speed_over_chain") is None:
        return "no chain"
    interval = widened(case.metric("speed_over_chain_ci95"), noise)
    if interval is None:
        return "no repeats or one prompt"
    return "faster" if interval[0] > 1 else "below" if interval[1] < 1 else "not below"


def cells(run):
    """One dict for each cell of the grid that the run measures, the best cell first. `form` names the prediction that
    is judged: the one from all costs of a step if they are known, otherwise the other one of FORMS."""
    noise, found = run.summary.get("ratio_noise"), []
    for case in run.speculative:
        name = (case.options or {}).get("tree")
        file = prediction_file(run, name) if isinstance(name, str) and name else {}
        measured = case.metric("speedup")
        if not file or measured is None:
            continue
        predicted = file["predicted"]
        form = next(form for form in FORMS if predicted.get(form) is not None)
        interval = widened(case.metric("speedup_ci95"), noise)
        found.append(
            {
                "case": case.id,
                "role": file["role"],
                "nodes": file["nodes"],
                "depth": file["depth"],
                "predicted": {key: predicted.get(key) for key in ("tau", *FORMS)},
                "form": form,
                "tau": case.metric("tau"),
                "speedup": measured,
                "speedup_ci95": case.metric("speedup_ci95"),
                "error": {form: predicted[form] / measured - 1 for form in FORMS if predicted.get(form) is not None},
                "tau_error": predicted["tau"] / case.metric("tau") - 1,
                "within": is_within(predicted[form], measured, interval),
                "best_chain": case.data.get("best_chain"),
                "over_chain": case.metric("speed_over_chain"),
                "over_chain_ci95": case.metric("speed_over_chain_ci95"),
                "chain_verdict": against_chain(case, noise),
                "file": file,
            }
        )
    return sorted(found, key=lambda cell: (ROLES.index(cell["role"]), -cell["predicted"][cell["form"]]))


def require_fair(run, found):
    """Raises BadRun if the predictions were made for other models, another machine or other sampling, or from prompts of this run."""
    try:
        config = json.loads((run.folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRun(f"{run.folder / 'config.json'}: {error}. Give the folder that `speclab run` wrote.") from error
    hashes = {hash_of_turns(prompt.get("turns", ())) for prompt in config["prompts"]}
    for cell in found:
        file, entry = cell["file"], next(one for one in config["cases"] if one["id"] == cell["case"])
        for what, there, here in (
            ("device", file["device"], run.environment.get("device")),
            ("numerics", file["numerics"], run.environment.get("numerics")),
            ("target", *(part.get("sha256") for part in (file["target"], run.environment["models"]["target"]))),
            *((key, value, {**entry["options"], **entry}.get(key)) for key, value in file["draws"].items()),
        ):
            if there != here:
                raise BadRun(
                    f"{cell['case']}: {what} {here!r}, but the prediction is for {there!r}. Pick from another grid."
                )
        used = [prompt["id"] for prompt in file["prompts"] if prompt["sha256"] in hashes]
        if used:
            raise BadRun(
                f"{cell['case']}: its acceptance was measured on prompts of this run ({', '.join(used[:5])}). Measure on other prompts."
            )


def hash_of_turns(turns):
    return hashlib.sha256("\x1e".join(turns).encode("utf-8")).hexdigest()


def error_summary(found, form):
    """(largest |error|, median |error|) of a form; None if there are no cells or a cell lacks the form."""
    errors = [abs(cell["error"][form]) for cell in found if form in cell["error"]]
    return (max(errors), statistics.median(errors)) if len(errors) == len(found) and errors else None


def draw(run):
    found = cells(run)
    if not found:
        raise NotApplicable("no case drafts a tree that scripts/tree_grid.py picked")
    figure, axes = style.figure(3.0)
    values = [cell["speedup"] for cell in found] + [
        cell["predicted"][form] for cell in found for form in FORMS if cell["predicted"][form] is not None
    ]
    low, high = 0.95 * min(values), 1.05 * max(values)
    ends = [low, high]
    axes.fill_between(
        ends, [v / (1 + WITHIN) for v in ends], [v / (1 - WITHIN) for v in ends], color="#dddddd", linewidth=0
    )
    axes.plot(ends, ends, color="#888888", linewidth=0.8)
    handles, labels = [], []
    for index, role in enumerate(ROLES):
        part = [cell for cell in found if cell["role"] == role]
        if not part:
            continue
        x, y = [cell["predicted"][cell["form"]] for cell in part], [cell["speedup"] for cell in part]
        spans = [cell["speedup_ci95"] or [cell["speedup"]] * 2 for cell in part]
        error = [[max(0, v - span[0]) for v, span in zip(y, spans)], [max(0, span[1] - v) for v, span in zip(y, spans)]]
        look = {**style.curve_style(index), "linestyle": "none"}
        handles.append(axes.errorbar(x, y, yerr=error, capsize=2, elinewidth=0.8, **look))
        labels.append(f"{role} cell" + ("s" if len(part) > 1 else "") + " of the grid")
        if part[0]["form"] != "speedup":
            axes.plot(
                [cell["predicted"]["speedup"] for cell in part],
                y,
                color=look["color"],
                marker=look["marker"],
                linestyle="none",
                markerfacecolor="none",
                markeredgewidth=0.7,
            )
    if any(cell["form"] != "speedup" for cell in found):
        handles.append(axes.plot([], [], "o", color="#444444", markerfacecolor="none", markeredgewidth=0.7)[0])
        labels.append("predicted by F / (t(n) + d c)")
    axes.set(xlabel="predicted speedup", ylabel="measured speedup", xlim=ends, ylim=ends)
    style.legend_below(figure, handles, labels, columns=2)
    return figure


FIGURES = [
    Figure(
        "tree_cells",
        "Predicted and measured speedup of trees",
        "Trees of the best, the worst and random cells of a grid of sizes and depths. Acceptance and costs come from another run on other "
        "prompts. Filled: the prediction from all costs of a step, if they are known. Hollow: F / (t(n) + d c) "
        "with F tokens per step, n rows, d levels and the draft cost c. Grey: within "
        f"{100 * WITHIN:.0f} % of the measurement. Bars: 95 % intervals over prompts.",
        draw,
    )
]
