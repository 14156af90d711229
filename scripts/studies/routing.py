#!/usr/bin/env python3
"""Routing per query, replayed from a run: each prompt goes to the draft alone or to the target alone.

    build/release/speclab run configs/routing.json --out RUN
    scripts/studies/routing.py RUN [--look N] [--thresholds N] [--json FILE]

Routing is a lossy way to save time. Speculative decoding keeps the target's text. This study compares the two by the
time of a token and the quality of the text.

RUN needs these cases, of one draft model (configs/routing.json has them):
- autoregressive decoding: the target alone;
- the draft alone: speculative_sampling with the rule "threshold", theta 0, which accepts every drafted token, and a gamma as
  long as the text, so that the target adds no token inside it; and the schedule "confidence" with confidence_threshold 0,
  which never stops but makes the record hold the draft's confidence in each token;
- optionally other cases, such as speculative decoding and lossy rules, which are shown beside the routers.
A config has one target for all cases, so the draft cannot be the target of a case. Even the text of the draft alone
therefore begins with a token from the target's prefill.

Time: decoding time per emitted token. The draft alone takes the phases `draft` and `other` of its steps; the target does not
run in a real router, so the phases `target` and `accept` do not count. Prefills do not count either.
Quality: -log p of the text under the target at temperature 1, in nats per token (target_nll; lower is better). The run
computes it for lossy cases and their references ("teacher_forced": true).

The router knows the mean log-confidence of the draft in its first N tokens (--look, default 16; 0: all). It lets the draft go
on if the mean reaches a threshold. Otherwise the target begins anew, and the time of the draft's first N tokens is lost. The
thresholds are quantiles of this mean over the prompts, so the shares of the draft are spread evenly. Two more routers bound
it: one that knows the loss of quality per token of each prompt in hindsight, and one that tosses a coin. They lose no time.

Intervals are 95 % over prompts; the intervals of speedups are widened by the noise between repeats. Nothing is decoded here.
Uses the standard library only.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "pages"))

from paired import BadRun, PairedRun, interval, ratio, table, text_of

from figures.record import NotApplicable

DRAFT, OTHER = 0, 3  # phases of step["ns"]
LEAST_CONFIDENCE = 1e-6  # of a token whose recorded confidence is rounded to 0


@dataclasses.dataclass
class Text:
    """What the record knows of the texts of one prompt by one model: decoding time, tokens, and -log p under the target."""

    ns: float
    tokens: int
    nll: float
    nll_tokens: int
    confidence: float = math.nan  # of the draft: mean logarithm of its confidence in the first tokens
    look_ns: float = 0  # of the draft: time of these tokens


def nll_of(run):
    """{case id: {prompt: (sum of -log p, tokens)}} from teacher.jsonl."""
    file = run.folder / "teacher.jsonl"
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise BadRun(f'{file}: {error.strerror}. Run the config with "teacher_forced": true.') from error
    found = {}
    for line in lines:
        if line["kind"] != "nll":
            continue
        sums = found.setdefault(line["case"], {}).setdefault(line["prompt"], [0, 0])
        sums[0] += line["sum"]
        sums[1] += line["tokens"]
    return found


def is_draft_alone(case):
    options = case.options
    return case.rule == "threshold" and options.get("theta") == 0 and not options.get("threshold_top_k")


class Routing:
    """The cases of a run that a router chooses from, prompt by prompt."""

    def __init__(self, folder, look):
        self.measured = PairedRun(folder, "Run configs/routing.json.")
        run = self.measured.run
        self.nll = nll_of(run)
        alone = [case for case in run.speculative if is_draft_alone(case)]
        if len(alone) != 1:
            raise BadRun(
                f'{folder}: {len(alone)} cases with the rule "threshold" and theta 0 (without threshold_top_k), expected 1: the draft alone. '
                "Run configs/routing.json."
            )
        self.case = alone[0]
        self.prompts = self.measured.prompts()
        plain = run.baselines[0]
        self.target = {
            prompt: Text(*self.measured.plain.by_prompt[prompt], *self.quality(plain, prompt))
            for prompt in self.prompts
        }
        lines = {prompt: [] for prompt in self.prompts}
        for line in self.case.lines():
            lines[line["prompt"]].append(line)
        self.draft = {prompt: self.read_draft(prompt, lines[prompt], look) for prompt in self.prompts}

    def quality(self, case, prompt):
        """Sum of -log p and number of tokens of the case's texts of a prompt."""
        if prompt not in self.nll.get(case.id, {}):
            raise BadRun(
                f'{self.measured.run.folder}: teacher.jsonl has no "nll" of {case.id}, prompt {prompt}. It exists for '
                "lossy cases and their references; resume the run if it was interrupted."
            )
        return self.nll[case.id][prompt]

    def read_draft(self, prompt, lines, look):
        ns = look_ns = tokens = 0
        logs, where = [], f"{self.measured.run.folder}: {self.case.id}, prompt {prompt}"
        for line in lines:
            seen, text_ns, text_look_ns = 0, 0, None
            for step in line["steps"]:
                if step["accepted"] < min(step["drafted"], step["emitted"]):
                    raise BadRun(f"{where}: a drafted token was rejected, so this is not the text of the draft alone.")
                step_ns = step["ns"][DRAFT] + step["ns"][OTHER]
                tokens += step["emitted"]
                for place, token in enumerate(step["tokens"]):
                    if token.get("confidence", -1) < 0:
                        raise BadRun(
                            f'{where}: no confidence of a drafted token. Use the schedule "confidence" with '
                            "confidence_threshold 0."
                        )
                    if look == 0 or seen < look:
                        seen += 1
                        logs.append(math.log(max(token["confidence"], LEAST_CONFIDENCE)))
                        if seen == look:
                            text_look_ns = text_ns + step_ns * (place + 1) / step["drafted"]
                text_ns += step_ns
            ns += text_ns
            look_ns += text_ns if text_look_ns is None else text_look_ns
        if not logs:
            raise BadRun(f"{where}: the draft drafted nothing.")
        return Text(ns, tokens, *self.quality(self.case, prompt), sum(logs) / len(logs), look_ns)

    def loss(self, prompt):
        """Loss of quality of a prompt in nats per token if the draft writes it."""
        draft, target = self.draft[prompt], self.target[prompt]
        return draft.nll / draft.nll_tokens - target.nll / target.nll_tokens


class Router:
    """A choice for each prompt: the share of its queries that the draft answers, and whether the draft was asked first."""

    def __init__(self, routing, share, asks):
        self.routing, self.share, self.asks = routing, share, asks

    def texts(self, prompt):
        """[(weight, ns, tokens, nll, nll tokens)] of a prompt."""
        draft, target = self.routing.draft[prompt], self.routing.target[prompt]
        share = self.share[prompt]
        asked = draft.look_ns if self.asks else 0
        return [
            (share, draft.ns, draft.tokens, draft.nll, draft.nll_tokens),
            (1 - share, target.ns + asked, target.tokens, target.nll, target.nll_tokens),
        ]

    def per_token(self, prompts):
        texts = [text for prompt in prompts for text in self.texts(prompt)]
        return sum(weight * ns for weight, ns, *_ in texts) / sum(weight * tokens for weight, _, tokens, *_ in texts)

    def nll(self, prompts):
        texts = [text for prompt in prompts for text in self.texts(prompt)]
        sums = [(weight * nll, weight * tokens) for weight, _, _, nll, tokens in texts]
        return sum(nll for nll, _ in sums) / sum(tokens for _, tokens in sums)

    def share_of_draft(self):
        return sum(self.share.values()) / len(self.share)


class CaseOfRun:
    """A case of the run in the place of a router."""

    def __init__(self, routing, case):
        self.times, self.nll_by_prompt = routing.measured.times[case.id], routing.nll.get(case.id)
        if case.data.get("lossy"):
            for prompt in routing.prompts:
                routing.quality(case, prompt)  # raises BadRun if the record lacks it
        else:  # its text is the target's
            self.nll_by_prompt = routing.nll[routing.measured.run.baselines[0].id]

    def per_token(self, prompts):
        return self.times.per_token(prompts)

    def nll(self, prompts):
        return sum(self.nll_by_prompt[prompt][0] for prompt in prompts) / sum(
            self.nll_by_prompt[prompt][1] for prompt in prompts
        )


def thresholds_of(routing, count):
    """At most `count` thresholds at which the draft gets evenly spaced shares of the prompts, between all prompts and none."""
    values = sorted(draft.confidence for draft in routing.draft.values())
    places = sorted({round(i * len(values) / (count + 1)) for i in range(1, count + 1)} - {0, len(values)})
    return [values[place] for place in places]


def routers(routing, count):
    """[(name, threshold or None, Router)]: the draft alone, by confidence, by hindsight, by a coin, the target alone."""
    everyone = lambda share: {prompt: share for prompt in routing.prompts}
    found = [("draft alone", None, Router(routing, everyone(1), False))]
    by_loss = sorted(routing.prompts, key=routing.loss)
    for threshold in thresholds_of(routing, count):
        share = {prompt: float(routing.draft[prompt].confidence >= threshold) for prompt in routing.prompts}
        found.append(("by confidence", threshold, Router(routing, share, True)))
        drafted = round(sum(share.values()))
        best = {prompt: float(place < drafted) for place, prompt in enumerate(by_loss)}
        found.append(("in hindsight", None, Router(routing, best, False)))
        found.append(("by a coin", None, Router(routing, everyone(drafted / len(share)), False)))
    found.append(("target alone", None, Router(routing, everyone(0), False)))
    return found


def result(routing, name, what, share, threshold=None):
    """One line of the study. what: a Router or a CaseOfRun."""
    prompts, noise = routing.prompts, routing.measured.noise
    plain = routing.measured.plain
    base = Router(routing, {prompt: 0.0 for prompt in prompts}, False)
    worse = lambda drawn: what.nll(drawn) - base.nll(drawn)
    return {
        "name": name,
        "threshold": threshold,
        "share": share,
        "ms_per_token": 1e-6 * what.per_token(prompts),
        "speedup": ratio(what, plain)(prompts),
        "speedup_ci95": interval(prompts, ratio(what, plain), noise),
        "target_nll": what.nll(prompts),
        "loss": worse(prompts),
        "loss_ci95": interval(prompts, worse, 0),
    }


def study(routing, count):
    found = [
        result(routing, name, router, router.share_of_draft(), threshold)
        for name, threshold, router in routers(routing, count)
    ]
    for case in routing.measured.run.speculative:
        if case is not routing.case:
            found.append(result(routing, case.label(without=()), CaseOfRun(routing, case), None))
    return found


def page(routing, found, look):
    when = f"its first {look} tokens" if look else "all its tokens"
    lines = [
        "# Routing per query beside speculative decoding",
        "",
        f"{routing.measured.head()}, {len(routing.prompts)} prompts; draft: {routing.case.draft}. Replayed: no router ran. "
        f"The router by confidence looks at {when}; a threshold is a mean log-confidence. Speedup: over the target alone. "
        "Loss: target_nll of the choice minus target_nll of the target's own text, in nats per token.",
        "",
        *routing.measured.busy(),
    ]
    signed = lambda value, bounds: f"{value:+.3f}" + (f" [{bounds[0]:+.3f}, {bounds[1]:+.3f}]" if bounds else "")
    rows = [
        [
            row["name"],
            "" if row["threshold"] is None else f"{row['threshold']:.3f}",
            "" if row["share"] is None else f"{100 * row['share']:.0f} %",
            f"{row['ms_per_token']:.3f}",
            text_of(row["speedup"], row["speedup_ci95"]),
            f"{row['target_nll']:.3f}",
            signed(row["loss"], row["loss_ci95"]),
        ]
        for row in found
    ]
    header = ["choice", "threshold", "share of the draft", "ms/token", "speedup", "target_nll", "loss"]
    lossless = [row for row in found if row["share"] is None and abs(row["loss"]) < 1e-12]
    lines += table(header, rows)
    if lossless:
        best = max(lossless, key=lambda row: row["speedup"])
        faster = [row for row in found if row["name"] == "by confidence" and row["speedup"] > best["speedup"]]
        least = min((row["loss"] for row in faster), default=None)
        lines += ["", f"The fastest case that keeps the target's text is {best['name']}, with {best['speedup']:.2f}."]
        lines[-1] += (
            " No router by confidence is faster."
            if least is None
            else f" Routers by confidence that are faster lose at least {least:+.3f} nats per token."
        )
    return "\n".join([*lines, ""])


def count(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("expected a number from 0 on")
    return value


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run", type=pathlib.Path, metavar="RUN")
    parser.add_argument("--look", type=count, default=16, help="tokens whose confidence the router knows; 0: all")
    parser.add_argument("--thresholds", type=count, default=7, help="number of thresholds")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write the numbers to this file")
    options = parser.parse_args(arguments)
    try:
        routing = Routing(options.run, options.look)
        found = study(routing, options.thresholds)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(page(routing, found, options.look), end="")
    except (BadRun, NotApplicable, OSError, KeyError) as error:
        print(f"routing: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
