#!/usr/bin/env python3
"""Compares every schedule, and every selection among drafters, with the best constant draft length and with hindsight.

    scripts/pages/schedules_page.py RUN [--chosen-on OTHER] [--replay FILE]... [--out FILE]

RUN: a run of configs/schedules.json, or of any config with constant lengths and schedules of one draft. For each
strategy and draft the page has a table: the constant lengths, then the cases with a schedule and those with "budget":
"auto", which also chooses the length. Each is compared with the fastest constant length, paired by prompt, with an
interval over prompts that is widened by the noise of speedups between repeats. The verdict says "faster" or "slower"
only if the interval does not hold 1. Cases of the strategy `selection`, which chooses among several drafters
(configs/selection.json), have a table of their own. They are compared with the fastest case of a single drafter that
drafts a fixed amount ("budget": "fixed" and, if it has a schedule, a constant length).

The fastest fixed case is chosen on the prompts of RUN itself, which favours it a little. With --chosen-on OTHER, a
run of the same cases on other prompts, it is chosen on the prompts of OTHER.

--replay FILE: what `speclab replay TRACE --json` printed for a trace of the same draft and prompts; may be repeated.
The page then shows the speedups that only hindsight allows, and for each case the replayed speedup of its setting and
its regret: the time that a token takes longer than with the best length of each step. These numbers are computed from
the trace and not measured.

Some schedules stop drafts by a forecast of acceptance: the draft's probability of its token, or the prediction of a controller.
For them the page also shows how reliable the forecast is: ECE, Brier score, and the share accepted in bins of equal numbers of tokens.

Uses the standard library only.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from paired import BadRun, PairedRun, counted, interval, ratio, table, text_of

from figures.record import NotApplicable

# The option that holds the threshold of a schedule, and what `speclab replay` writes before its value.
THRESHOLDS = {
    "confidence": ("confidence_threshold", ""),
    "product": ("product_threshold", ""),
    "entropy": ("entropy_threshold", ""),
    "roc_confidence": ("confidence_threshold", "from "),
    "adaptive_confidence": ("first_threshold", "from "),
    "adaptive_entropy": ("first_threshold", "from "),
}
# Options of schedules that a replay leaves at these defaults (core/decoding/drafting/schedule.h).
DEFAULTS = {
    "roc_confidence": {"least_samples": 6},
    "adaptive_confidence": {"threshold_step": 0.01, "wanted_acceptance": 0.9},
    "adaptive_entropy": {"threshold_step": 0.01, "wanted_acceptance": 0.9, "entropy_factor": 0.2},
    "bandit": {"exploration": 2},
    "goodput": {"goodput_memory": 0.9},
}
# Schedule -> its forecast of acceptance. The names of the metrics of a forecast begin with this word.
FORECASTS = {
    **dict.fromkeys(("confidence", "product", "roc_confidence", "adaptive_confidence"), "confidence"),
    **dict.fromkeys(("disco", "specdec_pp"), "predicted"),
}
FORECAST_NAMES = {"confidence": "the draft's probability", "predicted": "the controller's prediction"}
HEURISTICS = ("heuristic", "heuristic_transient")  # a replay limits their gamma_max to the drafts of the trace
SELECTION = "selection"  # the strategy that chooses among drafters
STEP = "step"  # the oracle that knows the best length of each step
ORACLES = {
    STEP: "the best length of each step",
    "length": "the best constant length",
    "length_by_prompt": "the best constant length of each prompt",
    "drafter_by_step": "the best drafter and length of each step",
    "drafter": "the best drafter with its best constant length",
}


def is_constant(case):
    return case.options.get("schedule") == "constant" and case.options.get("budget", "fixed") == "fixed"


class Schedules(PairedRun):
    """The cases of a run that have a schedule, by (strategy, draft), and those that select among drafters."""

    def __init__(self, folder):
        super().__init__(folder, "Run configs/schedules.json.")
        self.groups = {}
        self.selections = [case for case in self.run.speculative if case.strategy == SELECTION]
        for case in self.run.speculative:
            if "schedule" in case.options and case.draft is not None:
                self.groups.setdefault((case.strategy, case.draft), []).append(case)
        if not self.groups and not self.selections:
            raise BadRun(f"{folder}: no case with a draft and the option schedule. Run configs/schedules.json.")

    def constants(self, key):
        return [case for case in self.groups.get(key, []) if is_constant(case)]

    def others(self, key):
        return [case for case in self.groups[key] if not is_constant(case)]

    def fastest_constant(self, key):
        constants = self.constants(key)
        if not constants:
            raise BadRun(
                f'{self.run.folder}: no case of {key[0]} with draft {key[1]}, schedule "constant" and budget "fixed". '
                "Add constant lengths to the config."
            )
        return min(constants, key=lambda case: self.times[case.id].per_token(self.prompts()))

    def fastest_alone(self):
        """The fastest case that has one drafter and drafts a fixed amount."""
        alone = [
            case
            for case in self.run.speculative
            if case.strategy != SELECTION
            and case.options.get("budget") == "fixed"
            and case.options.get("schedule", "constant") == "constant"
        ]
        if not alone:
            raise BadRun(f"{self.run.folder}: no single drafter with a fixed amount. Run configs/selection.json.")
        return min(alone, key=lambda case: self.times[case.id].per_token(self.prompts()))


def case_named(run, name, chosen_on):
    for case in run.run.cases:
        if case.id == name:
            return case
    raise BadRun(f"{run.run.folder}: no case {name}, which was chosen in {chosen_on.run.folder}.")


def verdict(bounds):
    """Whether a case is faster than the best fixed case."""
    if bounds is None:
        return "unclear: one prompt"
    return "faster" if bounds[0] > 1 else "slower" if bounds[1] < 1 else "no difference"


def read_replays(files):
    """The traces in these outputs of `speclab replay --json`. Raises BadRun for other files."""
    traces = []
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadRun(f"{file}: {error}. Give what `speclab replay TRACE --json` printed.") from error
        if not isinstance(content, dict) or not isinstance(content.get("traces"), list):
            raise BadRun(f'{file}: no list "traces". Give what `speclab replay TRACE --json` printed.')
        traces += content["traces"]
    return traces


def traces_of(traces, key):
    """The traces of this strategy and draft."""
    strategy, draft = key
    return [trace for trace in traces if {strategy, f"draft={draft}"} <= set(trace["case"].split("/"))]


def threshold_of(options):
    """The text by which `speclab replay` names the threshold of these options."""
    if FORECASTS.get(options.get("schedule")) == "predicted":
        own = options["controller_threshold"]
        return ("" if own < 0 else f"{own:g} ") + f"of {options['controller']}"
    name, before = THRESHOLDS.get(options.get("schedule"), (None, ""))
    return "" if name is None else f"{before}{options[name]:g}"


def replayed_setting(traces, case):
    """The replayed setting of a case; None if no replay has it."""
    schedule = case.options["schedule"]
    if case.options.get("budget", "fixed") != "fixed" or schedule in HEURISTICS:
        return None
    if any(case.options[name] != usual for name, usual in DEFAULTS.get(schedule, {}).items()):
        return None
    wanted = (case.gamma, schedule, threshold_of(case.options))
    for trace in traces:
        for setting in trace["settings"]:
            if (setting["gamma"], setting["schedule"], setting["threshold"]) == wanted:
                return setting
    return None


def rows_of(measured, cases, best, traces):
    """The rows of a table of cases beside the best one with a fixed amount, and the verdicts on the others."""
    prompts = measured.prompts()
    rows, verdicts = [], []
    for case in cases:
        times = measured.times[case.id]
        speed, against = ratio(times, measured.plain), ratio(times, measured.times[best.id])
        bounds = None if case is best else interval(prompts, against, measured.noise)
        said = "" if case is best or is_constant(case) else verdict(bounds)
        if said:
            verdicts.append(said)
        row = [
            case.label(without=()),
            text_of(speed(prompts), interval(prompts, speed, measured.noise)),
            "best" if case is best else text_of(against(prompts), bounds),
            said,
        ]
        if traces:
            setting = replayed_setting(traces, case)
            regret = ((setting or {}).get("regret") or {}).get(STEP)
            row.append(f"{setting['speedup']:.2f}" if setting and setting["speedup"] is not None else "")
            row.append("" if regret is None else f"{regret:.3f}")
        rows.append(row)
    return rows, verdicts


def calibration_lines(cases):
    """A table: how far the forecasts by which schedules stop drafts agree with the acceptance; empty without forecasts."""
    rows = []
    for case in cases:
        forecast = FORECASTS.get(case.options.get("schedule"))
        if forecast is None or case.metric(f"{forecast}_ece") is None:
            continue
        bins = zip(case.metric(f"{forecast}_bins"), case.metric(f"accepted_by_{forecast}"))
        rows.append(
            [
                case.label(without=()),
                FORECAST_NAMES[forecast],
                f"{case.metric(f'{forecast}_ece'):.3f}",
                f"{case.metric(f'{forecast}_brier'):.3f}",
                ", ".join(f"{mean:.2f} → {share:.2f}" for mean, share in bins),
            ]
        )
    if not rows:
        return []
    return ["", *table(["case", "forecast of acceptance", "ECE", "Brier", "forecast → share accepted"], rows)]


def oracle_lines(traces):
    """The speedups that hindsight allows, from the first trace that has costs."""
    for trace in traces:
        if trace.get("oracles"):
            rows = [
                [ORACLES.get(name, name), f"{oracle['speedup']:.2f}", f"{oracle['ms_per_token']:.3f}"]
                for name, oracle in trace["oracles"].items()
            ]
            return ["", *table(["known in hindsight", "replayed speedup", "replayed ms/token"], rows)]
    return ["", "The trace has no calibrated costs, so it gives no times."] if traces else []


def page(measured, chosen=None, traces=()):
    """chosen: the run in which the best fixed cases are chosen; None: they are chosen in `measured`."""
    noise = measured.noise
    where = f"{len(chosen.plain.by_prompt)} other prompts" if chosen else "the same prompts, which favours it"
    lines = [
        "# Schedules and selection beside the best fixed length",
        "",
        f"{measured.head()}, {len(measured.plain.by_prompt)} prompts. Speedup: over autoregressive decoding. The best "
        f"fixed case was chosen on {where}. Intervals are 95 % over prompts, paired"
        + (f", widened by {100 * noise:.1f} %, the noise of speedups between repeats." if noise else "; no repeats."),
        "",
        *measured.busy(),
    ]
    if traces:
        lines += ["Replayed numbers are computed from a trace. Regret: ms that a token takes longer than with "]
        lines[-1] += f"{ORACLES[STEP]}."
        lines += [""]
    found = []
    for key in measured.groups:
        if not measured.others(key):
            continue
        if chosen:
            best = case_named(measured, chosen.fastest_constant(key).id, chosen)
        else:
            best = measured.fastest_constant(key)
        own = traces_of(traces, key)
        if traces and not own:
            raise BadRun(f"--replay: no trace of {key[0]} with draft {key[1]}. Replay a trace of this draft.")
        header = ["case", "speedup", "over the best constant length", "verdict"]
        header += ["replayed speedup", "replayed regret"] if own else []
        rows, verdicts = rows_of(measured, [*measured.constants(key), *measured.others(key)], best, own)
        found += verdicts
        lines += [f"## {key[0]}, draft {key[1]}", "", *table(header, rows), *oracle_lines(own)]
        lines += [*calibration_lines(measured.others(key)), ""]
    if measured.selections:
        best = case_named(measured, chosen.fastest_alone().id, chosen) if chosen else measured.fastest_alone()
        rows, verdicts = rows_of(measured, [best, *measured.selections], best, [])
        found += verdicts
        header = ["case", "speedup", "over the best drafter alone", "verdict"]
        lines += ["## Selection among drafters", "", *table(header, rows), *oracle_lines(traces), ""]
    if not found:
        raise BadRun(f"{measured.run.folder}: no case with a schedule. Run configs/schedules.json.")
    return "\n".join([*lines, f"Beside the best fixed case: {counted(found)}", ""])


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run", type=pathlib.Path, metavar="RUN")
    parser.add_argument(
        "--chosen-on", type=pathlib.Path, metavar="OTHER", help="choose the best fixed case in this run"
    )
    parser.add_argument(
        "--replay", type=pathlib.Path, action="append", default=[], metavar="FILE", help="output of replay --json"
    )
    parser.add_argument("--out", type=pathlib.Path, help="write the page here instead of to the terminal")
    options = parser.parse_args(arguments)
    try:
        chosen = Schedules(options.chosen_on) if options.chosen_on else None
        text = page(Schedules(options.run), chosen, read_replays(options.replay))
        if options.out:
            options.out.write_text(text, encoding="utf-8")
        else:
            print(text, end="")
    except (BadRun, NotApplicable, OSError, KeyError) as error:
        print(f"schedules_page: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
