"""Cases of one run, compared prompt by prompt: times, intervals over prompts and tables. Pages of measured runs share it.

A speed is the decode time per emitted token of autoregressive decoding / the decode time per emitted token of the case.
Intervals are 95 % (bootstrap over prompts, paired) and are widened by the noise of speedups between repeats. The
interval of one prompt is not known.
"""

import collections
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from figures.record import BadRun, Run

RESAMPLES = 2000
ALL = "all"


class Times:
    """Decode time and emitted tokens of one case by prompt: {prompt: (ns, tokens)}."""

    def __init__(self, case):
        sums = collections.defaultdict(lambda: [0, 0])
        self.category = {}
        for line in case.lines():
            ns_and_tokens = sums[line["prompt"]]
            ns_and_tokens[0] += sum(turn["decode_ns"] for turn in line["turns"])
            ns_and_tokens[1] += sum(step["emitted"] for step in line["steps"])
            self.category[line["prompt"]] = line["category"]
        self.by_prompt = dict(sums)

    def per_token(self, prompts):
        """Time of a token over these prompts, in ns. A prompt may occur several times, as in a resample."""
        ns = sum(self.by_prompt[prompt][0] for prompt in prompts)
        return ns / sum(self.by_prompt[prompt][1] for prompt in prompts)


class PairedRun:
    """A run with an autoregressive case; every other case has all prompts of this case. `times`: {case id: Times}; `plain`: the
    Times of the autoregressive case."""

    def __init__(self, folder, advice):
        """advice: what to do if the run has no autoregressive case."""
        self.run = Run(folder)
        self.times = {case.id: Times(case) for case in self.run.cases}
        if not self.run.baselines:
            raise BadRun(f"{folder}: no autoregressive case. {advice}")
        self.plain = self.times[self.run.baselines[0].id]
        for case, times in self.times.items():
            missing = self.plain.by_prompt.keys() - times.by_prompt.keys()
            if missing:
                raise BadRun(
                    f"{folder}: {case} has no finished line of prompt {min(missing)}. Finish the run with --resume, or "
                    "leave the case out with --filter."
                )

    @property
    def noise(self):
        """The relative difference of the same speedup between repeats (ratio_noise in results/SCHEMA.md); 0 without repeats."""
        return self.run.summary.get("ratio_noise") or 0

    def prompts(self, category=ALL):
        of = self.plain.category
        return sorted(prompt for prompt in self.plain.by_prompt if category in (ALL, of[prompt]))

    def categories(self):
        return [*dict.fromkeys(self.plain.category.values()), ALL]

    def head(self):
        """Target and machine."""
        return f"{self.run.environment['models']['target']['name']} on {self.run.machine}"

    def busy(self):
        """Lines that say why the times are doubtful; none for a quiet machine."""
        return [f"**{self.run.busy}**", ""] if self.run.busy else []


def ratio(fast, slow):
    """The speed of `fast` / the speed of `slow` as a function of prompts, for interval(). Both have a method
    per_token(prompts)."""
    return lambda prompts: slow.per_token(prompts) / fast.per_token(prompts)


def interval(prompts, statistic, noise):
    """The interval of statistic(prompts), widened by the noise; None for one prompt."""
    if len(prompts) < 2:
        return None
    rng = random.Random(1)
    values = sorted(statistic(rng.choices(prompts, k=len(prompts))) for _ in range(RESAMPLES))
    cut = RESAMPLES // 40
    return values[cut] / (1 + noise), values[-1 - cut] * (1 + noise)


def text_of(value, bounds):
    return f"{value:.2f}" + ("" if bounds is None else f" [{bounds[0]:.2f}, {bounds[1]:.2f}]")


def table(header, rows):
    """The lines of a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]


def counted(verdicts):
    """A line that counts each verdict."""
    count = collections.Counter(verdicts)
    return "; ".join(f"{name}: {count[name]}" for name in sorted(count)) + "."
