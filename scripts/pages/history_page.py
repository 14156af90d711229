"""The page of trends, results/trend.md: one line for each case of each workload, with its changes. scripts/history.py writes it.

Counts (tau, alpha, rows, calls, operations) are the same bit for bit in every run of one commit, workload and numerics class. So each
difference between two records of one numerics class is a change, and the page lists it.
Ratios of times (speedup, c, t(n)) carry noise. Their change points are found by PELT (Killick, Fearnhead and Eckley 2012) in the package
ruptures, on the logarithms divided by their noise, among the records of one machine.
"""

import math
import statistics

import numpy as np

FALSE_ALARM = 0.01  # of the series without a change, at most this share may show a change point
LEAST_NOISE = 0.01  # two runs on one machine are never trusted to agree better than this
CALIBRATED_NOISE = 0.03  # assumed for c and t(n), whose intervals the record does not hold
OUTLIER = 3 * math.sqrt(2)  # in units of noise; for the difference of two values
PER_LEVEL = math.log(1.03)  # a level of the small bars
BARS = "▁▂▃▄▅▆▇█"
MIDDLE = 3  # level of the first record
COUNTS = {
    "tau": "tau",
    "alpha": "alpha",
    "rows": "rows/token",
    "calls": "target calls/token",
    "drafts": "draft calls/token",
    "flops": "operations/token",
}
HEADINGS = (
    *("case", "speedup", "trend", "tau", "alpha", "c", "t(n) (n)", "rows/token", "target calls/token"),
    *("draft calls/token", "10⁹ operations/token", "changes"),
)
HEAD = """# Trends

Written by `scripts/history.py page` from [history.jsonl](history.jsonl); do not edit. A run is added with `scripts/history.py append RUN`. [SCHEMA.md](SCHEMA.md#historyjsonl) describes the file, the [glossary](../docs/glossary.md) the terms.

- A section is a config and a workload: target, prompts, seeds and length of the texts. Its records are numbered by date. A letter stands for a machine (device, cache, threads, numerics class).
- **speedup**: the speedup in the last record that has the case, with its 95 % interval. **trend**: for each machine, its letter and the speedups of its records, one bar each. Its first speedup is ▄; a bar one level higher or lower is 3 % faster or slower. A dot: the record has no speedup of the case.
- **t(n)**: time of the target's forward over the n rows that a step of the case has on average, divided by the time of a forward over one row; n is in brackets. t(n) is interpolated between the calibrated row counts of the last record.
- **calls**, **operations**: forwards of the target and of the draft, and 10⁹ operations, per token.
- **changes**: "n (commit): ..." is a change at record n. Either a count differs from the count in the last earlier record with the same numerics class, or a ratio of times has a change point among the records of one machine. *last*: the last record
  of a machine differs from the level before it by more than noise explains. Records of a busy machine take no part in the ratios of times.
"""


def noise_of(line, values):
    """The standard deviation of log(value) from run to run: CALIBRATED_NOISE for a value without an interval. Otherwise
    it comes from the repeats of the run if the run has some, else from the interval."""
    if values[1] is None:
        return CALIBRATED_NOISE
    if line.get("ratio_noise"):
        return max(LEAST_NOISE, math.log1p(line["ratio_noise"]) / 1.96 / math.sqrt(2))
    return max(LEAST_NOISE, math.log(values[2] / values[1]) / (2 * 1.96))


def standardised(values, noises):
    """log(values) in units of their noise. With six values or more, the noise is estimated from the differences
    between neighbours if this estimate is larger."""
    logs = np.log(values)
    noise = float(np.median(noises))
    if len(logs) >= 6:
        noise = max(
            noise,
            1.4826 * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2),
        )
    return logs / noise


def without_outliers(signal):
    """Smooths a signal of unit noise: replaces each value that lies further above all its neighbours, or further below
    all of them, than noise explains.

    The mean of the neighbours takes its place, because a single value is no level. The last value of a series may be
    the first of a new level; last_is_off() reports it.
    """
    out = list(signal)
    for place, value in enumerate(signal):
        beside = [signal[other] for other in (place - 1, place + 1) if 0 <= other < len(signal)]
        if all(value - other > OUTLIER for other in beside) or all(other - value > OUTLIER for other in beside):
            out[place] = float(np.mean(beside))
    return out


def change_points(signal):
    """The places at which the mean of a signal of unit noise changes: the index of the first value of each new level.

    PELT with squared error and levels of at least two values. The penalty is the quantile of chi-squared at which all places together give
    FALSE_ALARM. Fewer than four values cannot have two levels, so they have no change point.
    """
    if len(signal) < 4:
        return []
    import ruptures  # here, because these two take a second
    import scipy.stats

    penalty = float(scipy.stats.chi2.isf(FALSE_ALARM / len(signal), 1))
    levels = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(np.array(without_outliers(signal)).reshape(-1, 1))
    return levels.predict(pen=penalty)[:-1]


def last_is_off(signal, since):
    """True if the last value lies further from the mean of the values since the last change than noise explains."""
    before = signal[since:-1]
    if len(before) == 0:
        return False
    deviation = abs(signal[-1] - float(np.mean(before))) / math.sqrt(1 + 1 / len(before))
    return deviation > statistics.NormalDist().inv_cdf(1 - FALSE_ALARM / 2)


def machine_of(line):
    """The name of a machine. Hosts of clouds hide the model of their processor, but not the size of its cache."""
    machine = line["machine"]
    cache = f" with {machine['cache_mib']} MiB of cache" if machine["cache_mib"] else ""
    return f"{machine['device']}{cache}, {machine['threads']} threads, {machine['numerics']}"


def percent(new, old):
    return f"{100 * (new / old - 1):+.1f} %" if old else f"{old:g} → {new:g}"


def count_changes(lines, numbers, case):
    """[(number of the record, text)] of the counts that differ from those of the previous record of the same numerics class."""
    found = []
    before = {}
    for number, line in zip(numbers, lines, strict=True):
        own = line["cases"].get(case)
        if own is None:
            continue
        numerics = line["machine"]["numerics"]
        old = before.get(numerics)
        if old is not None:
            words = []
            for name, shown in COUNTS.items():
                one, two = old.get(name), own.get(name)
                if one is None or two is None or one == two:
                    continue
                words.append(
                    f"{shown} {one:.4g} → {two:.4g}" if name in ("tau", "alpha") else f"{shown} {percent(two, one)}"
                )
            if words:
                found.append((number, ", ".join(words)))
        before[numerics] = own
    return found


def time_changes(lines, numbers, pick, shown):
    """[(number of the record, text)] of a ratio of times. pick(line): [value, low, high]."""
    found = []
    for machine in dict.fromkeys(map(machine_of, lines)):
        own = [
            (number, values, noise_of(line, values))
            for number, line in zip(numbers, lines, strict=True)
            for values in [pick(line)]
            if machine_of(line) == machine and not line["busy"] and values[0]
        ]
        if len(own) < 2:
            continue
        values = [values[0] for _, values, _ in own]
        signal = standardised(values, [noise for *_, noise in own])
        places = [0, *change_points(signal), len(own)]
        mean = lambda part: math.exp(float(np.mean(np.log(part))))
        for begin, place, end in zip(places, places[1:-1], places[2:]):
            found.append((own[place][0], f"{shown} {percent(mean(values[place:end]), mean(values[begin:place]))}"))
        if last_is_off(signal, places[-2]):
            change = percent(values[-1], mean(values[places[-2] : -1]))
            found.append((own[-1][0], f"*last*: {shown} {change}"))
    return found


def speedup_of(of_case):
    """[value, low, high] of a case; values that do not exist are None."""
    return [of_case.get(name) for name in ("speedup", "speedup_lo", "speedup_hi")]


def changes(lines, numbers, case):
    """The changes of a case, by record."""
    of_case = lambda line: line["cases"].get(case) or {}
    found = count_changes(lines, numbers, case)
    found += time_changes(lines, numbers, lambda line: speedup_of(of_case(line)), "speedup")
    found += time_changes(lines, numbers, lambda line: [of_case(line).get("c"), None, None], "c")
    return sorted(found, key=lambda change: change[0])


def table_changes(lines, numbers):
    """The changes of t(n), which all cases of a record share."""
    found = []
    for rows in ("4", "16"):
        found += time_changes(lines, numbers, lambda line: [line["t"].get(rows), None, None], f"t({rows})")
    return sorted(found, key=lambda change: change[0])


def forward_of(line, of_case):
    """(n, t(n)) for the mean number of rows n that a step of a case feeds to the target, interpolated between the calibrated row
    counts of the record. None without a calibration, and for an n outside of it."""
    rows, tau = of_case.get("rows"), of_case.get("tau")
    if not rows or not tau or not line["t"]:
        return None
    n = max(1.0, rows * tau)  # rows per token x tokens per step
    known = [(1.0, 1.0), *sorted((float(count), time) for count, time in line["t"].items())]
    for (low, before), (high, after) in zip(known, known[1:]):
        if n <= high:
            return n, before + (after - before) * (n - low) / (high - low)
    return None


def marked(found, lines):
    """The changes as a text, each with the number and the commit of its record."""
    return "; ".join(f"{place} ({lines[place - 1]['commit'][:7]}): {text}" for place, text in found)


def bars(values):
    """A bar for each value; a dot for a value that does not exist."""
    first = next((value for value in values if value), None)
    level = lambda value: min(len(BARS) - 1, max(0, MIDDLE + round(math.log(value / first) / PER_LEVEL)))
    return "".join(BARS[level(value)] if value else "·" for value in values)


def interval(value, low, high):
    if value is None:
        return ""
    return f"{value:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else "")


def number(value, form=".3f"):
    return "" if value is None else f"{value:{form}}"


def section(lines):
    """The section of one config and workload. lines: its records, oldest first."""
    numbers = list(range(1, len(lines) + 1))
    machines = list(dict.fromkeys(map(machine_of, lines)))
    letter = {machine: chr(ord("A") + place % 26) for place, machine in enumerate(machines)}
    first = lines[-1]
    out = [f"## {first['config']}, {first['target']}", ""]
    out += [f"{first['prompts']} prompts, workload {first['workload']}.", ""]
    out += [
        "| record | commit | date | machine | t(2) | t(4) | t(8) | t(16) | t(32) | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for place, line in zip(numbers, lines, strict=True):
        times = " | ".join(number(line["t"].get(rows), ".2f") for rows in ("2", "4", "8", "16", "32"))
        notes = [note for note, there in (("uncommitted changes", line["dirty"]), ("busy", line["busy"])) if there]
        shown = f"{letter[machine_of(line)]}: {machine_of(line)}"
        out.append(
            f"| {place} | {line['commit'][:10]} | {line['date'][:10]} | {shown} | {times} | {', '.join(notes)} |"
        )
    if len(lines) == 1:
        return "\n".join(out) + f"\n\n{len(first['cases'])} cases, measured once: no trend yet.\n"
    out += ["", f"Changes of t(n): {marked(table_changes(lines, numbers), lines) or 'none found'}.", ""]
    out += ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
    for case in dict.fromkeys(case for line in reversed(lines) for case in line["cases"]):
        last = next(line for line in reversed(lines) if case in line["cases"])
        own, forward = last["cases"][case], forward_of(last, last["cases"][case])
        speedups = [(line["cases"].get(case) or {}).get("speedup") for line in lines]
        trend = " ".join(
            letter[machine] + bars([value for value, line in zip(speedups, lines) if machine_of(line) == machine])
            for machine in machines
        )
        cells = [case, interval(*speedup_of(own)), trend if any(speedups) else "", number(own.get("tau"))]
        cells += [number(own.get("alpha")), number(own.get("c"))]
        cells += ["" if forward is None else f"{forward[1]:.2f} ({forward[0]:.1f})", number(own.get("rows"))]
        cells += [number(own.get(name)) for name in ("calls", "drafts")]
        cells += [number(own["flops"] / 1e9, ".2f") if own.get("flops") else ""]
        cells += [marked(changes(lines, numbers, case), lines)]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def page(lines):
    """The page; lines of the history, oldest first."""
    groups = {}
    for line in lines:
        groups.setdefault((line["config"], line["workload"]), []).append(line)
    if not groups:
        return HEAD + "\nNo run is in the history yet.\n"
    return HEAD + "\n" + "\n".join(section(groups[key]) for key in sorted(groups))
