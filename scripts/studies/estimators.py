#!/usr/bin/env python3
"""Measures the estimators of alpha and tau on acceptance processes whose truth is known, and writes a page about it.

    PYTHONPATH=build/release/python-package .venv/bin/python scripts/studies/estimators.py measure
    .venv/bin/python scripts/studies/estimators.py page

`measure` simulates runs of 9, 25 and 80 prompts for each process (core/theory/processes), and writes results/estimators.json and
results/estimators.md. It needs the Python package (ctest --test-dir build/release -R python.install puts it there). `page`
writes the page again from the JSON file.

For each process and number of prompts it computes, over many simulated runs:
- bias: mean of the estimate minus the truth. The truth is exact: alpha is expected accepted tokens / expected tests,
  and tau is tokens / expected rounds, for texts of 127 tokens.
- coverage: share of runs whose 95 % interval contains the truth. The intervals come from the bootstrap over prompts;
  for alpha, also Wilson's interval is tested.
- loss of speed: gamma is chosen by the i.i.d. formula from the measured alpha. Its speed under the true process is compared
  with the speed of the best gamma.
"""

import argparse
import concurrent.futures
import functools
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
JSON_FILE = ROOT / "results/estimators.json"
PAGE = ROOT / "results/estimators.md"
FORMAT = "speclab estimators 1"
RECORD = ROOT / "results/baselines/epyc-avx512-2cores/quickstart"
RECORDED_CASE = "speculative_sampling/draft=distilled/gamma=8"

GAMMA = 4  # draft length of the simulated runs
TOKENS = 127  # of each text, without the one from the prefill
PROMPTS = (9, 25, 80)
LONGEST = 16  # largest gamma that may be chosen
LEVEL = 0.95
# Costs of a step: c, and t(n) as {rows: time / time of one row}.
COSTS = {
    "c = 0.05, rows free": (0.05, {1: 1.0}),
    "c = 0.2, rows free": (0.2, {1: 1.0}),
    "c = 0.05, each row 5 %": (0.05, {1: 1.0, 17: 1.8}),
}
DESCRIPTIONS = {
    "i.i.d.": "every tested token is accepted with probability 0.75",
    "decaying": "acceptance 0.9 at the first drafted token, times 0.92 at each further one",
    "switching": "easy rounds (alpha 0.9) and hard rounds (0.45); the next round is of the same kind with probability 0.9",
    "random effect": "each prompt draws its alpha from a beta law with mean 0.75 and correlation 0.1",
    "minimum variance": "each round accepts 2 or 3 tokens, 2.4 on average",
    "recorded": f"bootstrap of the rounds of the quickstart, case `{RECORDED_CASE}`; its drafts have 8 tokens",
}


def theory_module():
    from speclab import theory

    return theory


@functools.lru_cache
def process_of(name):
    """The process with this name. A process cannot be pickled, so each worker makes its own."""
    theory = theory_module()
    if name == "i.i.d.":
        return theory.iid_process(0.75)
    if name == "decaying":
        return theory.decaying_process(0.9, 0.92)
    if name == "switching":
        return theory.switching_process([0.9, 0.45], 0.9)
    if name == "random effect":
        return theory.beta_process(0.75, 0.1)
    if name == "minimum variance":
        return theory.minimum_variance_process(2.4)
    import speclab

    return theory.recorded_process(speclab.load(RECORD).rounds(RECORDED_CASE))


def speeds(process, cost):
    """Speedup at gamma = 0, 1, ... for texts of TOKENS tokens."""
    c, times = COSTS[cost]
    t = theory_module().RowTimes(times)
    most = min(LONGEST, process.most_gamma)
    return [process.of_text(gamma, TOKENS).tau / (gamma * c + t.ratio(gamma + 1)) for gamma in range(most + 1)]


def gamma_by_the_iid_formula(alpha, cost, most):
    c, times = COSTS[cost]
    theory = theory_module()
    return theory.optimal_gamma_at_costs(alpha, c, theory.RowTimes(times), most).gamma


def truth_of(name):
    """What is exactly known about a process."""
    process = process_of(name)
    counts = process.of_text(GAMMA, TOKENS)
    best = {}
    for cost in COSTS:
        table = speeds(process, cost)
        gamma = max(range(len(table)), key=lambda g: (table[g], -g))
        chosen = gamma_by_the_iid_formula(counts.alpha, cost, len(table) - 1)
        best[cost] = {
            "speeds": table,
            "gamma": gamma,
            "speed": table[gamma],
            "iid_gamma": chosen,
            "loss": 1 - table[chosen] / table[gamma],
        }
    return {"description": DESCRIPTIONS[name], "alpha": counts.alpha, "tau": counts.tau, "best": best}


def seed_of(seed, name, prompts, replicate):
    """Different numbers for all runs of the study."""
    place = list(DESCRIPTIONS).index(name) * len(PROMPTS) + PROMPTS.index(prompts)
    return (seed * 1_000 + place) * 1_000_000 + replicate


def tau_of(run):
    """(tau of a run in tokens per round, its bootstrap interval over prompts), as in a record."""
    emitted = [sum(one.emitted for one in prompt) for prompt in run]
    return theory_module().ratio_of_sums(emitted, [len(prompt) for prompt in run])


class Summary:
    """Collects estimates of one number and their intervals."""

    def __init__(self, truth):
        self.truth, self.values, self.held, self.widths, self.held_by_wilson = truth, [], 0, [], 0

    def add(self, value, ci, wilson=None):
        self.values.append(value)
        self.held += ci[0] <= self.truth <= ci[1]
        self.widths.append(ci[1] - ci[0])
        if wilson:
            self.held_by_wilson += wilson[0] <= self.truth <= wilson[1]

    def result(self, wilson=False):
        count = len(self.values)
        mean = math.fsum(self.values) / count
        sd = math.sqrt(math.fsum((value - mean) ** 2 for value in self.values) / max(count - 1, 1))
        out = {
            "bias": mean - self.truth,
            "sd": sd,
            "coverage": self.held / count,
            "width": math.fsum(self.widths) / count,
        }
        if wilson:
            out["wilson_coverage"] = self.held_by_wilson / count
        return out


def cell(name, prompts, truth, replicates, seed):
    """The estimators on `replicates` runs of one process with this number of prompts."""
    theory = theory_module()
    process = process_of(name)
    mle, mean, tau = Summary(truth["alpha"]), Summary(truth["alpha"]), Summary(truth["tau"])
    losses = {cost: [] for cost in COSTS}
    for replicate in range(replicates):
        run = process.simulate(GAMMA, prompts, TOKENS, seed_of(seed, name, prompts, replicate))
        estimate = theory.alpha_mle(run)
        mle.add(estimate.value, estimate.ci, estimate.wilson)
        by_rows = theory.alpha_min(run)
        mean.add(by_rows.value, by_rows.ci)
        tau.add(*tau_of(run))
        for cost, best in truth["best"].items():
            table = best["speeds"]
            chosen = gamma_by_the_iid_formula(estimate.value, cost, len(table) - 1)
            losses[cost].append(1 - table[chosen] / best["speed"])
    return {
        "process": name,
        "prompts": prompts,
        "alpha_mle": mle.result(wilson=True),
        "alpha_min": mean.result(),
        "tau": tau.result(),
        "losses": {
            cost: {"mean": math.fsum(values) / len(values), "p95": sorted(values)[math.ceil(0.95 * len(values)) - 1]}
            for cost, values in losses.items()
        },
    }


def measure(replicates, seed, jobs):
    truths = {name: truth_of(name) for name in DESCRIPTIONS}
    tasks = [(name, prompts) for name in DESCRIPTIONS for prompts in PROMPTS]
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(cell, name, prompts, truths[name], replicates, seed) for name, prompts in tasks]
        cells = []
        for (name, prompts), future in zip(tasks, futures):
            cells.append(future.result())
            print(f"{name}, {prompts} prompts: done", file=sys.stderr, flush=True)
    return {
        "format": FORMAT,
        "gamma": GAMMA,
        "tokens": TOKENS,
        "longest": LONGEST,
        "level": LEVEL,
        "replicates": replicates,
        "seed": seed,
        "processes": truths,
        "cells": cells,
    }


def percent(value, digits=1):
    return f"{100 * value:.{digits}f} %"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def page_of(study):
    """The page as a text, from the JSON file alone."""
    replicates, cells = study["replicates"], study["cells"]
    error = math.sqrt(study["level"] * (1 - study["level"]) / replicates)
    truth = study["processes"]
    worst = min(cells, key=lambda one: one["alpha_mle"]["wilson_coverage"])
    worst_tau = min(cells, key=lambda one: one["tau"]["coverage"])
    costs = list(next(iter(truth.values()))["best"])
    most_lost = max(
        ((name, cost) for name in truth for cost in costs), key=lambda at: truth[at[0]]["best"][at[1]]["loss"]
    )
    lost = truth[most_lost[0]]["best"][most_lost[1]]
    return (
        "\n\n".join(
            [
                "# Estimators on processes with known truth",
                "Written by `scripts/studies/estimators.py page` from [estimators.json](estimators.json); do not edit. All runs here are simulated.",
                f"Each number comes from {replicates} simulated runs. A run has {', '.join(map(str, PROMPTS))} prompts with texts of "
                f"{study['tokens']} tokens, drafts of {study['gamma']} tokens, and acceptance that follows a process whose expectations are "
                f"known exactly (`core/theory/processes`). A coverage has a standard error of about {percent(error)}.",
                f"- Wilson's interval of alpha assumes independent tests. Its smallest coverage is {percent(worst['alpha_mle']['wilson_coverage'])} "
                f"({worst['process']}, {worst['prompts']} prompts).\n"
                f"- The bootstrap over prompts needs no such assumption, but is too narrow with few prompts. Its smallest coverage of tau is "
                f"{percent(worst_tau['tau']['coverage'])} ({worst_tau['process']}, {worst_tau['prompts']} prompts).\n"
                f"- If gamma is chosen by the i.i.d. formula and alpha is known exactly, the largest loss of speed is {percent(lost['loss'])} "
                f"({most_lost[0]}, {most_lost[1]}: gamma {lost['iid_gamma']} instead of {lost['gamma']}).",
                "## Processes",
                table(
                    ["process", "acceptance", "alpha", "tau"],
                    [
                        [name, one["description"], f"{one['alpha']:.4f}", f"{one['tau']:.4f}"]
                        for name, one in truth.items()
                    ],
                ),
                f"alpha and tau are exact for texts of {study['tokens']} tokens and drafts of {study['gamma']} tokens.",
                "## Bias and coverage",
                f"Bias is the mean estimate minus the truth; sd is the standard deviation of the estimate between runs. Coverage is the share "
                f"of runs whose {percent(study['level'], 0)} interval holds the truth. `alpha` is accepted / tests, `alpha_min` the mean expected acceptance at tested positions.",
                table(
                    [
                        "process",
                        "prompts",
                        "bias of alpha",
                        "sd",
                        "coverage, bootstrap",
                        "coverage, Wilson",
                        "bias of alpha_min",
                        "sd",
                        "coverage",
                        "bias of tau",
                        "sd",
                        "coverage",
                    ],
                    [
                        [
                            one["process"],
                            str(one["prompts"]),
                            f"{one['alpha_mle']['bias']:+.4f}",
                            f"{one['alpha_mle']['sd']:.4f}",
                            percent(one["alpha_mle"]["coverage"]),
                            percent(one["alpha_mle"]["wilson_coverage"]),
                            f"{one['alpha_min']['bias']:+.4f}",
                            f"{one['alpha_min']['sd']:.4f}",
                            percent(one["alpha_min"]["coverage"]),
                            f"{one['tau']['bias']:+.4f}",
                            f"{one['tau']['sd']:.4f}",
                            percent(one["tau"]["coverage"]),
                        ]
                        for one in cells
                    ],
                ),
                "## Loss of speed by the i.i.d. choice of gamma",
                f"gamma (0 to {study['longest']}, or to the length of the recorded drafts) is chosen by the i.i.d. formula with the measured alpha. The "
                f"loss is 1 - the speed of this gamma / the speed of the best gamma, both under the true process. c is the time of a draft forward / of "
                f"a target forward.",
                table(
                    [
                        "process",
                        "costs",
                        "best gamma",
                        "speedup",
                        "i.i.d. gamma",
                        "loss",
                        *(f"mean loss, {n} prompts" for n in PROMPTS),
                    ],
                    [
                        [
                            name,
                            cost,
                            str(one["best"][cost]["gamma"]),
                            f"{one['best'][cost]['speed']:.3f}",
                            str(one["best"][cost]["iid_gamma"]),
                            percent(one["best"][cost]["loss"]),
                            *(percent(at["losses"][cost]["mean"]) for at in cells if at["process"] == name),
                        ]
                        for name, one in truth.items()
                        for cost in costs
                    ],
                ),
                "`i.i.d. gamma` and `loss` are for the exact alpha. The last columns are for the alpha that each run measured.",
            ]
        )
        + "\n"
    )


def read_study(file):
    study = json.loads(file.read_text(encoding="utf-8"))
    if study.get("format") != FORMAT:
        raise SystemExit(f"{file}: got format {study.get('format')!r}, expected {FORMAT!r}. Run `measure` again.")
    return study


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("measure", "page"))
    parser.add_argument(
        "--replicates", type=int, default=1000, help="simulated runs for each process and number of prompts"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes that work at the same time")
    parser.add_argument("--json", type=pathlib.Path, default=JSON_FILE, help="file of the numbers")
    parser.add_argument("--page", type=pathlib.Path, default=PAGE, help="file of the page")
    words = parser.parse_args(arguments)
    if words.action == "measure":
        study = measure(words.replicates, words.seed, words.jobs)
        words.json.write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    words.page.write_text(page_of(read_study(words.json)), encoding="utf-8")


if __name__ == "__main__":
    main()
