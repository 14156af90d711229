#!/usr/bin/env python3
"""Measures how often 95 % intervals of ratios contain the true ratio, for several kinds of interval, and writes a page about it.

    .venv/bin/python scripts/studies/coverage.py measure
    .venv/bin/python scripts/studies/coverage.py page

`measure` simulates runs of 9, 25 and 80 prompts whose true ratios are known, and writes results/coverage.json and
results/coverage.md. It takes a few minutes on one core. `page` writes the page again from the JSON file.

Four ratios stand for the kinds of number that get an interval over prompts in a run:
- speedup: sum of the times of the base / sum of the times of the case, median over repeats.
- time per token: sum of the times of the case / sum of the tokens, median over repeats.
- tau: sum of the tokens / sum of the steps.
- alpha: sum of the accepted tokens / sum of the acceptance tests.

Kinds of interval (n prompts; the logarithm of a ratio is called log ratio):
- percentile: percentile bootstrap over prompts (Efron 1979).
- BCa: bias-corrected and accelerated bootstrap over prompts (Efron 1987).
- jackknife t: log ratio -+ t * s. s is the jackknife's standard error of the log ratio (delete one prompt; Tukey 1958), t the
  quantile of Student's law with n - 1 degrees of freedom.
- jackknife t, odds: the same with log(ratio / (1 - ratio)); only for alpha, which is a share.
- bootstrap t: studentized bootstrap over prompts of the log ratio (Efron 1982). The standard error of a resample comes from the
  delta method.
- Wilson: Wilson's interval of a proportion (Wilson 1927), which assumes independent tests; only for alpha.
"""

import argparse
import json
import math
import pathlib
import sys
import time

import numpy as np
import scipy.signal
import scipy.stats
from estimators import percent, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
JSON_FILE, PAGE = ROOT / "results/coverage.json", ROOT / "results/coverage.md"
FORMAT = "speclab coverage 1"

PROMPTS = (9, 25, 80)
LEVEL = 0.95
RESAMPLES = 2000  # as in a run
CHUNK = 500  # runs that are simulated at once
REPEATS = 3  # of the times; the median formulas below need three
LENGTH_SD, SPEEDUP_SD, LINE_SD = 0.5, 0.3, 0.01  # of log length, log speedup and log time of a line
LOGIT_SD = 0.5  # of log(alpha / (1 - alpha)) between prompts
SLOWNESS_SD, SLOWNESS_CORRELATION = 0.1, 0.98  # of log slowness; between neighbouring lines
GAMMA, TOKENS = 8, 127  # draft length; tokens of each text without the one from the prefill

# Kinds of prompt of each process: (share, mean log length, mean log speedup, mean logit of alpha).
ONE_KIND = [(1.0, 0.0, math.log(1.8), 0.8)]
KINDS = {
    "i.i.d.": ONE_KIND,
    "categories": [
        (1 / 6, 0.3, math.log(1.8) - 0.4, 0.0),
        (1 / 6, -0.3, math.log(1.8) - 0.2, 0.4),
        (1 / 6, 0.2, math.log(1.8) - 0.1, 0.6),
        (1 / 6, -0.2, math.log(1.8) + 0.1, 1.0),
        (1 / 6, 0.4, math.log(1.8) + 0.2, 1.2),
        (1 / 6, -0.4, math.log(1.8) + 0.4, 1.6),
    ],
    "rare": [(0.85, 0.0, 0.0, 0.0), (0.15, 0.0, math.log(4), 4.0)],
    "machine": ONE_KIND,
}
DESCRIPTIONS = {
    "i.i.d.": "prompts of one kind: lognormal lengths and speedups, logit-normal alphas",
    "categories": "each prompt draws one of six categories, which differ in length, speedup and alpha",
    "rare": "15 % of the prompts are sped up 4 times (alpha about .98), the others not at all (alpha about .5)",
    "machine": "as i.i.d., but each line is slowed down by a factor that changes slowly from line to line (autoregressive of order 1)",
}
PLAIN = ("i.i.d.", "categories")  # the processes for which the coverage should be LEVEL
QUANTITIES = ("speedup", "time per token", "tau", "alpha")
OF_COUNTS = ("tau", "alpha")  # not measured with the process "machine", which changes times only
LOG_KINDS = ("percentile", "BCa", "jackknife t", "bootstrap t")


# ---- What is true ----


def expected_counts(alpha):
    """(expected steps, expected tests) of a text at each of these alphas. A step drafts GAMMA tokens, but never more than the
    text still needs before its last token."""
    steps, tests = [np.zeros_like(alpha)], [np.zeros_like(alpha)]
    for left in range(1, TOKENS + 1):
        gamma = min(GAMMA, left - 1)
        chance = [alpha**k * (1 - alpha) for k in range(gamma)] + [alpha**gamma]  # of k accepted tokens
        steps.append(1 + sum(p * steps[left - k - 1] for k, p in enumerate(chance)))
        tests.append(sum(p * (min(k + 1, gamma) + tests[left - k - 1]) for k, p in enumerate(chance)))
    return steps[TOKENS], tests[TOKENS]


def truth_of(quantity, process):
    """The true ratio: expected sum / expected sum."""
    if quantity in OF_COUNTS:
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        weights = weights / weights.sum()
        steps = tests = accepted = 0.0
        for share, _, _, logit in KINDS[process]:
            alpha = 1 / (1 + np.exp(-(logit + LOGIT_SD * nodes)))
            of_steps, of_tests = expected_counts(alpha)
            steps += share * weights @ of_steps
            tests += share * weights @ of_tests
            accepted += share * weights @ (alpha * of_tests)
        return float(TOKENS / steps if quantity == "tau" else accepted / tests)
    length = sum(share * math.exp(mean + LENGTH_SD**2 / 2) for share, mean, _, _ in KINDS[process])
    of_case = sum(
        share * math.exp(mean - gain + (LENGTH_SD**2 + SPEEDUP_SD**2) / 2) for share, mean, gain, _ in KINDS[process]
    )
    if quantity == "speedup":
        return length / of_case
    machine_sd = SLOWNESS_SD if process == "machine" else 0
    return of_case / length * math.exp((LINE_SD**2 + machine_sd**2) / 2)


# ---- Simulated runs ----


def slowness(random, runs, prompts):
    """Log slowness of the lines of two cases, 2 x [repeats, runs, prompts]. As in a run, a repeat goes through the prompts in
    random order, and both lines of a prompt follow one another, in random order."""
    lines = random.normal(size=(runs, REPEATS * prompts * 2)) * math.sqrt(1 - SLOWNESS_CORRELATION**2)
    lines[:, 0] = random.normal(size=runs)
    lines = SLOWNESS_SD * scipy.signal.lfilter([1], [1, -SLOWNESS_CORRELATION], lines, axis=1)
    order = random.permuted(np.tile(np.arange(prompts), (REPEATS, runs, 1)), axis=2)  # place of each prompt
    places = np.arange(REPEATS)[:, None, None] * prompts + order
    second = random.integers(0, 2, size=places.shape)
    rows = np.arange(runs)[None, :, None]
    return lines[rows, 2 * places + second], lines[rows, 2 * places + 1 - second]


def kinds_of(random, process, runs, prompts):
    """Means of log length, log speedup and logit of alpha of each prompt, 3 x [runs, prompts]."""
    table = np.array(KINDS[process])
    drawn = random.choice(len(table), p=table[:, 0], size=(runs, prompts))
    return [table[drawn, column] for column in (1, 2, 3)]


def simulate_times(random, process, runs, prompts):
    """(seconds of the base, seconds of the case, tokens), each [repeats, runs, prompts]."""
    length, gain, _ = kinds_of(random, process, runs, prompts)
    length = length + random.normal(scale=LENGTH_SD, size=length.shape)
    gain = gain + random.normal(scale=SPEEDUP_SD, size=gain.shape)
    shape = (REPEATS, runs, prompts)
    noise = [random.normal(scale=LINE_SD, size=shape) for _ in range(2)]
    if process == "machine":
        noise = [a + b for a, b in zip(noise, slowness(random, runs, prompts))]
    return np.exp(length + noise[0]), np.exp(length - gain + noise[1]), np.broadcast_to(np.exp(length), shape)


def simulate_counts(random, process, runs, prompts):
    """(steps, tests, accepted tokens) of texts of TOKENS tokens, each [runs, prompts]."""
    logit = kinds_of(random, process, runs, prompts)[2]
    logit = logit + random.normal(scale=LOGIT_SD, size=logit.shape)
    log_alpha = -np.log1p(np.exp(-logit)).ravel()
    left = np.full(log_alpha.size, TOKENS)
    steps, tests, accepted = (np.zeros(log_alpha.size) for _ in range(3))
    going = np.arange(log_alpha.size)
    while going.size:
        gamma = np.minimum(GAMMA, left[going] - 1)
        run_length = np.log(1 - random.random(going.size)) / log_alpha[going]  # its floor has a geometric law
        kept = np.minimum(run_length.astype(np.int64), gamma)
        steps[going] += 1
        tests[going] += np.minimum(kept + 1, gamma)
        accepted[going] += kept
        left[going] -= kept + 1
        going = going[left[going] > 0]
    return [one.reshape(runs, prompts) for one in (steps, tests, accepted)]


def simulate(random, quantity, process, runs, prompts):
    """(numerators, denominators) of the ratio, [repeats, runs, prompts]; counts have one repeat."""
    if quantity in OF_COUNTS:
        steps, tests, accepted = simulate_counts(random, process, runs, prompts)
        pair = (np.full_like(steps, TOKENS), steps) if quantity == "tau" else (accepted, tests)
        return [one[None] for one in pair]
    base, case, tokens = simulate_times(random, process, runs, prompts)
    return (base, case) if quantity == "speedup" else (case, tokens)


# ---- Intervals ----


def median_of(values):
    """Median over the first axis, of one or three entries."""
    if len(values) == 1:
        return values[0]
    a, b, c = values
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def quantile_of_sorted(values, probability):
    """Quantile of each row by linear interpolation (Hyndman and Fan 1996, type 7); one probability for each row, or one for all."""
    place = np.broadcast_to(probability, values.shape[:1]) * (values.shape[1] - 1)
    below = np.minimum(place.astype(np.int64), values.shape[1] - 2)
    rows = np.arange(values.shape[0])
    return values[rows, below] + (place - below) * (values[rows, below + 1] - values[rows, below])


def draws_of(prompts, seed):
    """[resamples, prompts]: how often each resample draws each prompt. As in a run, all data get the same draws."""
    random = np.random.default_rng([seed, prompts])
    return random.multinomial(prompts, np.full(prompts, 1 / prompts), size=RESAMPLES).astype(float)


def standard_error(above, below, draws):
    """Standard error of the log ratio of each repeat and resample, [repeats, runs, resamples], by the delta method: the log ratio
    is a mean over prompts of a / mean(a) - b / mean(b), in first order."""
    count = draws.shape[1]
    sum_a, sum_b = above @ draws.T, below @ draws.T
    squares = (above**2 @ draws.T) / sum_a**2 + (below**2 @ draws.T) / sum_b**2
    squares -= 2 * ((above * below) @ draws.T) / (sum_a * sum_b)
    return np.sqrt(np.maximum(squares, 0) * count / (count - 1))


def error_of_median(ratios, errors):
    """The standard error that belongs to the repeat whose ratio is the median."""
    middle = median_of(ratios)
    found = errors[0]
    for ratio, error in zip(ratios[1:], errors[1:]):
        found = np.where(ratio == middle, error, found)
    return found


def jackknife_t(center, parts):
    """Interval around `center` [runs] from the values without one prompt, [runs, prompts]."""
    count = parts.shape[1]
    error = np.sqrt((count - 1) * parts.var(axis=1))
    half = scipy.stats.t.ppf((1 + LEVEL) / 2, count - 1) * error
    return center - half, center + half


def bca(center, parts, resampled):
    """The BCa interval (Efron 1987, Eq. 3.8 and 6.6) from sorted resampled values, [runs, resamples]."""
    below = (resampled < center[:, None]).mean(axis=1)
    bias = scipy.stats.norm.ppf(np.clip(below, 0.5 / RESAMPLES, 1 - 0.5 / RESAMPLES))
    skew = parts.mean(axis=1, keepdims=True) - parts
    acceleration = (skew**3).sum(axis=1) / (6 * (skew**2).sum(axis=1) ** 1.5)
    ends = []
    for probability in ((1 - LEVEL) / 2, (1 + LEVEL) / 2):
        z = bias + scipy.stats.norm.ppf(probability)
        ends.append(quantile_of_sorted(resampled, scipy.stats.norm.cdf(bias + z / (1 - acceleration * z))))
    return tuple(ends)


def wilson(successes, trials):
    z = scipy.stats.norm.ppf((1 + LEVEL) / 2)
    rate, spread = successes / trials, z * z / trials
    center = (rate + spread / 2) / (1 + spread)
    half = np.sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    return center - half, center + half


@np.errstate(divide="ignore", invalid="ignore")  # a resample of one prompt only has no standard error
def intervals(quantity, above, below, draws):
    """{kind: (lower ends, upper ends)} of the ratio, each [runs]. above, below: [repeats, runs, prompts]."""
    by_repeat = np.log(above.sum(axis=2) / below.sum(axis=2))
    center = median_of(by_repeat)
    parts = median_of(np.log((above.sum(axis=2, keepdims=True) - above) / (below.sum(axis=2, keepdims=True) - below)))
    resampled_by_repeat = np.log((above @ draws.T) / (below @ draws.T))
    resampled = median_of(resampled_by_repeat)
    errors = error_of_median(resampled_by_repeat, standard_error(above, below, draws))
    studentized = np.sort((resampled - center[:, None]) / errors, axis=1)
    error = error_of_median(by_repeat, standard_error(above, below, np.ones((1, draws.shape[1])))[..., 0])
    resampled.sort(axis=1)
    low, high = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    logs = {
        "percentile": (quantile_of_sorted(resampled, low), quantile_of_sorted(resampled, high)),
        "BCa": bca(center, parts, resampled),
        "jackknife t": jackknife_t(center, parts),
        "bootstrap t": (
            center - error * quantile_of_sorted(studentized, high),
            center - error * quantile_of_sorted(studentized, low),
        ),
    }
    out = {kind: (np.exp(lo), np.exp(hi)) for kind, (lo, hi) in logs.items()}
    if quantity == "alpha":
        odds = lambda log_share: log_share - np.log1p(-np.exp(log_share))
        lo, hi = jackknife_t(odds(center), odds(parts))
        out["jackknife t, odds"] = (1 / (1 + np.exp(-lo)), 1 / (1 + np.exp(-hi)))
        out["Wilson"] = wilson(above[0].sum(axis=1), below[0].sum(axis=1))
    return out


# ---- The study ----


def places():
    """(quantity, process, prompts) of all cells."""
    return [
        (quantity, process, prompts)
        for quantity in QUANTITIES
        for process in KINDS
        if not (quantity in OF_COUNTS and process == "machine")
        for prompts in PROMPTS
    ]


def cell(quantity, process, prompts, replicates, seed):
    """Coverage and mean width of each kind of interval, over `replicates` simulated runs. Widths are in units of the truth."""
    truth = truth_of(quantity, process)
    draws = draws_of(prompts, seed)
    held, width = {}, {}
    for first in range(0, replicates, CHUNK):
        random = np.random.default_rng([seed, places().index((quantity, process, prompts)), first])
        runs = min(CHUNK, replicates - first)
        found = intervals(quantity, *simulate(random, quantity, process, runs, prompts), draws)
        for kind, (lo, hi) in found.items():
            held[kind] = held.get(kind, 0) + int(((lo <= truth) & (truth <= hi)).sum())
            width[kind] = width.get(kind, 0.0) + float((hi - lo).sum()) / truth
    return {
        "quantity": quantity,
        "process": process,
        "prompts": prompts,
        "truth": truth,
        "coverage": {kind: count / replicates for kind, count in held.items()},
        "width": {kind: round(total / replicates, 6) for kind, total in width.items()},
    }


def measure(replicates, seed):
    cells = []
    for quantity, process, prompts in places():
        begin = time.monotonic()
        cells.append(cell(quantity, process, prompts, replicates, seed))
        print(
            f"{quantity}, {process}, {prompts} prompts: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True
        )
    return {
        "format": FORMAT,
        "replicates": replicates,
        "seed": seed,
        "resamples": RESAMPLES,
        "level": LEVEL,
        "repeats": REPEATS,
        "cells": cells,
    }


# ---- The page ----


def span(values):
    return f"{percent(min(values))} to {percent(max(values))}"


def summary_row(kind, cells):
    """The coverages of one kind of interval over the ratios that all kinds share."""
    of = lambda chosen: [one["coverage"][kind] for one in cells if chosen(one)]
    return [
        kind,
        span(of(lambda one: one["process"] in PLAIN and one["prompts"] == PROMPTS[0])),
        span(of(lambda one: one["process"] in PLAIN and one["prompts"] > PROMPTS[0])),
        *(span(of(lambda one: one["process"] == name)) for name in KINDS if name not in PLAIN),
    ]


def page_of(study):
    """The page as a text, from the JSON file alone."""
    cells, level = study["cells"], percent(study["level"], 0)
    error = math.sqrt(study["level"] * (1 - study["level"]) / study["replicates"])
    sections = [
        "# Coverage of intervals",
        "Written by `scripts/studies/coverage.py page` from [coverage.json](coverage.json); do not edit. All runs here are simulated.",
        f"A {level} interval should contain the true value in {level} of all runs. This share is called its coverage. Each coverage here comes "
        f"from {study['replicates']} simulated runs and has a standard error of about {percent(error, 2)}. Bootstraps take {study['resamples']} resamples "
        f"of the prompts; times have {study['repeats']} repeats. `scripts/studies/coverage.py` defines the kinds of interval and the four ratios.",
        "## Processes",
        table(["process", "how the runs are made"], [[name, DESCRIPTIONS[name]] for name in KINDS]),
        "## Summary",
        "Lowest and highest coverage over the four ratios, for the kinds of interval that apply to all of them.",
        table(
            [
                "interval",
                f"{' and '.join(PLAIN)}, {PROMPTS[0]} prompts",
                f"{' and '.join(PLAIN)}, {' and '.join(map(str, PROMPTS[1:]))} prompts",
                *(f"{name}, all sizes" for name in KINDS if name not in PLAIN),
            ],
            [summary_row(kind, cells) for kind in LOG_KINDS],
        ),
        "- `rare`: an interval cannot show what the sample lacks. With 9 prompts, the sample has none of the rare prompts in "
        f"{percent(KINDS['rare'][0][0] ** PROMPTS[0], 0)} of the runs.\n"
        "- `machine`: a speedup compares lines that follow one another, so slow changes of the machine cancel. In a time per token they "
        "do not cancel, and the intervals assume that prompts are independent. So the lowest coverages are those of times per token.",
    ]
    for quantity in QUANTITIES:
        part = [one for one in cells if one["quantity"] == quantity]
        kinds = list(part[0]["coverage"])
        sections += [
            f"## {quantity[0].upper()}{quantity[1:]}",
            f"Coverage, and in brackets the mean width of the interval / the true {quantity}.",
            table(
                ["process", "prompts", "truth", *kinds],
                [
                    [
                        one["process"],
                        str(one["prompts"]),
                        f"{one['truth']:.4f}",
                        *(f"{percent(one['coverage'][kind])} ({one['width'][kind]:.3f})" for kind in kinds),
                    ]
                    for one in part
                ],
            ),
        ]
    return "\n\n".join(sections) + "\n"


def read_study(file):
    study = json.loads(file.read_text(encoding="utf-8"))
    if study.get("format") != FORMAT:
        raise SystemExit(f"{file}: got format {study.get('format')!r}, expected {FORMAT!r}. Run `measure` again.")
    return study


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("measure", "page"))
    parser.add_argument(
        "--replicates", type=int, default=20000, help="simulated runs for each ratio, process and number of prompts"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, default=JSON_FILE, help="file of the numbers")
    parser.add_argument("--page", type=pathlib.Path, default=PAGE, help="file of the page")
    words = parser.parse_args(arguments)
    if words.action == "measure":
        study = measure(words.replicates, words.seed)
        words.json.write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    words.page.write_text(page_of(read_study(words.json)), encoding="utf-8")


if __name__ == "__main__":
    main()
