#!/usr/bin/env python3
"""Compares "budget": "auto" with the best fixed setting of each strategy, by category of prompts.

    scripts/pages/budget_page.py CHOSEN_ON MEASURED_ON [--out FILE]
    scripts/pages/budget_page.py CHOSEN_ON --filter
    scripts/pages/budget_page.py RUN

CHOSEN_ON, MEASURED_ON: runs of one config (configs/budget_best_fixed.json) on different prompts. For each strategy and
category, the fixed setting that is fastest in CHOSEN_ON is chosen. In MEASURED_ON this setting is compared with auto. So the
fixed setting is not chosen on the prompts on which it is measured. The category "all" has one setting for all prompts.

--filter prints a regular expression for `speclab run --filter`. It matches autoregressive decoding, the cases with auto
and the chosen settings, so that MEASURED_ON does not have to repeat the whole sweep.

With one RUN (configs/budget.json), the page compares every case that has "budget": "auto" with autoregressive decoding,
and says whether the case reaches at least GOAL times the speed of autoregressive decoding. The exit code is 1 if a case
is slower than that by more than noise.

A case with the option "budget": "auto" is compared with the cases of the same strategy and the same draft models that have
"budget": "fixed". A speed is the decode time per emitted token of autoregressive decoding / the decode time per emitted
token of the case. Intervals are 95 % (bootstrap over prompts, paired) and are widened by the noise of speedups between
repeats of MEASURED_ON, as for `speclab lookahead`. The interval of a category with one prompt is not known. Uses the standard library only.
"""

import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from paired import ALL, BadRun, PairedRun, counted, interval, ratio, table, text_of

from figures.record import NotApplicable

GOAL = 0.95  # least ratio: speed of auto / speed of the best fixed setting, or of autoregressive decoding


class Sweep(PairedRun):
    """The cases of a run: autoregressive decoding, and for each group (strategy, draft models) auto and the fixed ones."""

    def __init__(self, folder):
        super().__init__(folder, "Run configs/budget_best_fixed.json.")
        self.groups = {}
        for case in self.run.speculative:
            budget = case.options.get("budget")
            if budget not in ("auto", "fixed"):
                continue
            group = self.groups.setdefault((case.strategy, case.draft), {"auto": [], "fixed": []})
            group[budget].append(case.id)

    def compared(self):
        """The groups that have a case with auto, by (strategy, draft). Raises BadRun for two cases with auto in a
        group."""
        for (strategy, draft), group in self.groups.items():
            if len(group["auto"]) > 1:
                raise BadRun(
                    f'{self.run.folder}: {len(group["auto"])} cases of {strategy} with budget "auto" and the draft '
                    f"{draft}. Keep one of them."
                )
        return {key: group for key, group in self.groups.items() if group["auto"]}

    def automatic(self):
        """The cases with auto."""
        return [case for case in self.run.speculative if case.options.get("budget") == "auto"]

    def fastest(self, key, category):
        prompts = self.prompts(category)
        fixed = self.groups[key]["fixed"]
        if not fixed:
            raise BadRun(f'{self.run.folder}: no case of {key[0]} with budget "fixed".')
        return min(fixed, key=lambda case: self.times[case].per_token(prompts))


def verdict(bounds):
    """Whether a ratio is at least GOAL."""
    if bounds is None:
        return "unclear: one prompt"
    return "yes" if bounds[0] >= GOAL else "NO" if bounds[1] < GOAL else "unclear"


def require_comparable(chosen, measured):
    """Refuses runs that share a prompt, and runs with different models or on different machines."""
    texts = lambda sweep: {turn for prompt in sweep.run._read("config.json")["prompts"] for turn in prompt["turns"]}
    shared = texts(chosen) & texts(measured)
    if shared:
        raise BadRun(
            f"{measured.run.folder}: it has a prompt on which settings were chosen: {min(shared)[:60]!r}. "
            "Measure on other prompts, such as those of the other split."
        )
    model = lambda name: lambda run: run.environment["models"][name].get("sha256")
    machine = lambda run: (run.environment["cpu"]["model"], run.environment["threads"], run.environment["numerics"])
    shared_models = sorted(chosen.run.environment["models"].keys() & measured.run.environment["models"].keys())
    for name, of in [*((name, model(name)) for name in shared_models), ("machine", machine)]:
        if of(chosen.run) != of(measured.run):
            raise BadRun(
                f"{measured.run.folder}: its {name} differs from that of {chosen.run.folder}. Make both runs with the "
                "same models on the same machine."
            )


def rows(chosen, measured):
    """One row for each group of `chosen` that has auto, and each category that both runs have."""
    require_comparable(chosen, measured)
    noise = measured.noise
    categories = [category for category in measured.categories() if category in chosen.categories()]
    out = []
    for key in chosen.compared():
        if key not in measured.compared():
            raise BadRun(
                f'{measured.run.folder}: no case of {key[0]} with budget "auto". Use the filter that --filter prints.'
            )
        auto = measured.times[measured.groups[key]["auto"][0]]
        for category in categories:
            setting = chosen.fastest(key, category)
            if setting not in measured.times:
                raise BadRun(
                    f"{measured.run.folder}: no case {setting}, which was chosen in {chosen.run.folder}. "
                    "Run it with the filter that --filter prints."
                )
            fixed = measured.times[setting]
            prompts = measured.prompts(category)
            found = {
                "strategy": key[0],
                "draft": key[1],
                "category": category,
                "prompts": len(prompts),
                "setting": setting,
                "auto": ratio(auto, measured.plain)(prompts),
                "auto_interval": interval(prompts, ratio(auto, measured.plain), noise),
                "fixed": ratio(fixed, measured.plain)(prompts),
                "ratio": ratio(auto, fixed)(prompts),
                "ratio_interval": interval(prompts, ratio(auto, fixed), noise),
            }
            found["verdict"] = verdict(found["ratio_interval"])
            out.append(found)
    return out


def setting_text(row):
    """The part of a case id that says what is fixed."""
    parts = [part for part in row["setting"].split("/")[1:] if not re.match(r"(drafts?|budget|datastore)=", part)]
    return "/".join(part for part in parts if "=" in part) or "defaults"


def page(chosen, measured):
    found = rows(chosen, measured)
    noise = measured.run.summary.get("ratio_noise")
    lines = [
        '# Budget "auto" beside the best fixed setting',
        "",
        f"{measured.head()}. Settings chosen on "
        f"{len(chosen.plain.by_prompt)} prompts, measured on {len(measured.plain.by_prompt)} others. Plain: "
        "autoregressive decoding. A / B: speed of A / speed of B. "
        + (f"Intervals are widened by {100 * noise:.1f} %, the noise of speedups between repeats." if noise else "")
        + ("" if noise else "There are no repeats, so the intervals leave out the noise of the machine."),
        "",
        *measured.busy(),
    ]
    header = ["strategy", "draft", "category", "prompts", "auto / plain", "best fixed setting", "fixed / plain"]
    header += ["auto / fixed", f"auto / fixed at least {GOAL}"]
    cells = [
        [
            row["strategy"],
            row["draft"] or "",
            row["category"],
            row["prompts"],
            text_of(row["auto"], row["auto_interval"]),
            setting_text(row),
            f"{row['fixed']:.2f}",
            text_of(row["ratio"], row["ratio_interval"]),
            row["verdict"],
        ]
        for row in found
    ]
    return "\n".join([*lines, *table(header, cells), "", counted(row["verdict"] for row in found), ""])


def defaults_page(sweep):
    """The page that sets every case with auto beside autoregressive decoding, and the number of cases that are slower."""
    categories = [category for category in sweep.categories() if category != ALL]
    lines = [
        '# Defaults with budget "auto" beside autoregressive decoding',
        "",
        f"{sweep.head()}, {len(sweep.plain.by_prompt)} prompts. "
        "A number is the speed of the case / the speed of autoregressive decoding, with a 95 % interval over prompts"
        + (f", widened by {100 * sweep.noise:.1f} %, the noise of speedups between repeats." if sweep.noise else "."),
        "",
        *sweep.busy(),
    ]
    header = ["case", "all prompts", f"at least {GOAL}", *categories]
    body, verdicts = [], []
    for case in sweep.automatic():
        speed = ratio(sweep.times[case.id], sweep.plain)
        bounds = interval(sweep.prompts(), speed, sweep.noise)
        verdicts.append(verdict(bounds))
        cells = [case.label(without=()), text_of(speed(sweep.prompts()), bounds), verdicts[-1]]
        body.append(cells + [f"{speed(sweep.prompts(category)):.2f}" for category in categories])
    return "\n".join([*lines, *table(header, body), "", counted(verdicts), ""]), verdicts.count("NO")


def case_filter(chosen):
    cases = {chosen.run.baselines[0].id}
    for key, group in chosen.compared().items():
        cases.add(group["auto"][0])
        cases.update(chosen.fastest(key, category) for category in chosen.categories())
    return "^(" + "|".join(re.sub(r"([^\w/=,:-])", r"\\\1", case) for case in sorted(cases)) + ")$"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("chosen_on", type=pathlib.Path, metavar="CHOSEN_ON")
    parser.add_argument("measured_on", type=pathlib.Path, nargs="?", metavar="MEASURED_ON")
    parser.add_argument("--filter", action="store_true", help="print the filter for the run MEASURED_ON")
    parser.add_argument("--out", type=pathlib.Path, help="write the page here instead of to the terminal")
    options = parser.parse_args(arguments)
    if options.filter and options.measured_on is not None:
        parser.error("--filter takes one run")
    slower = 0
    try:
        chosen = Sweep(options.chosen_on)
        if options.filter:
            text = case_filter(chosen) + "\n"
        elif options.measured_on is None:
            text, slower = defaults_page(chosen)
        else:
            text = page(chosen, Sweep(options.measured_on))
        if options.out:
            options.out.write_text(text, encoding="utf-8")
        else:
            print(text, end="")
    except (BadRun, NotApplicable, OSError, KeyError) as error:
        print(f"budget_page: {error}", file=sys.stderr)
        return 2
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
