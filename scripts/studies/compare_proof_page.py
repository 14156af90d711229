"""Judges the comparisons of scripts/studies/compare_proof.py: whether each planted fault was found and attributed to the part
of a step that it slows, how many comparisons of equal runs raised an alarm, and how much less a ratio of paired steps varies than
an unpaired one. Writes the page about it.

A comparison is the output of `speclab compare --json` (results/SCHEMA.md, "Comparison"). If the command refused the runs, it is
{"error": message}.
"""

PARTS = (
    "acceptance",
    "draft",
    "verification",
    "overhead",
)  # the parts of a change of speedup, without that of the baseline
PART_OF = {"draft": "draft", "verification": "verification", "bookkeeping": "overhead", "acceptance": "acceptance"}
WITHIN = 0.01  # how close two runs of one program, at least an hour apart, shall be
LARGEST_VARIANCE = 0.25  # of a paired ratio, as a share of the variance of the unpaired ratio
BUSY = "unclear: busy machine"


def has_reference(case):
    """True if the comparison gives a change of the case's speedup. The autoregressive case has no speedup."""
    return case["change"] is not None and case["change"]["speedup"]["base"] is not None


def judged_plant(fault, comparison):
    """What a comparison says of a run with this fault.

    found: every case with a draft is slower. attributed: found, and in each of these cases the part of the fault loses most.
    wrong: ids of other cases that the comparison calls slower; the autoregressive case has no fault.
    """
    if "error" in comparison:
        return {"fault": fault, "found": False, "attributed": False, "wrong": [], "cases": [], **comparison}
    cases, wrong = [], []
    for case in comparison["cases"]:
        if not has_reference(case):
            if "slower" in case["failures"]:
                wrong.append(case["id"])
            elif case["change"] is None:
                cases.append({"id": case["id"], "verdict": case["verdict"], "part": None})
            continue
        parts = {part: case["change"]["parts"][part]["log_ratio"] for part in PARTS}
        cases.append(
            {"id": case["id"], "verdict": case["verdict"], "part": min(parts, key=parts.get), "parts": parts}
            | {"ci95": case["change"]["parts"][PART_OF[fault]]["ci95"]}
            | {name: case[name] for name in ("ratio", "ratio_ci95", "again")}
            | {"speedup_ratio": case["change"]["ratio"], "speedup_ratio_ci95": case["change"]["ratio_ci95"]}
        )
    found = bool(cases) and all(case["verdict"] == "slower" for case in cases)
    attributed = found and all(case["part"] == PART_OF[fault] for case in cases)
    floors = {name: comparison[name] for name in ("noise", "speedup_noise")}
    return {"fault": fault, "found": found, "attributed": attributed, "wrong": wrong, "cases": cases, **floors}


def judged_pair(comparison):
    """What a comparison says of two runs of the same program.

    alarms: a text "id: failures" for each case with a failure. judged: the comparison gave a verdict on the times of
    every case, so a slow case would have raised an alarm. variances: by case, the variances of the logarithms of the paired and
    of the unpaired ratio of times, where both are known.
    """
    if "error" in comparison:
        return {"judged": False, "alarms": [], "verdicts": {}, **comparison}
    cases = comparison["cases"]
    alarms = [f"{case['id']}: {', '.join(case['failures'])}" for case in cases if case["failures"]]
    judged = bool(cases) and all(case["change"] is not None and case["verdict"] != BUSY for case in cases)
    return {
        "judged": judged,
        "alarms": alarms,
        "verdicts": {case["id"]: case["verdict"] for case in cases},
        "ratios": {case["id"]: case["ratio"] for case in cases},
        "speedup_ratios": {case["id"]: case["change"]["ratio"] for case in cases if has_reference(case)},
        "variances": {case["id"]: found for case in cases if (found := variances_of(case)) is not None},
        "noise": comparison["noise"],
        "speedup_noise": comparison["speedup_noise"],
    }


def variances_of(case):
    """The variances of a case of a comparison, or None if one of them is not known."""
    steps = case.get("paired_steps") or {}
    found = {name: steps.get(f"variance_{name}") for name in ("paired", "unpaired")}
    return None if None in found.values() else found


def mean_variances(pairs):
    """By case, the means of the two variances over the comparisons of equal runs: [(case, has a draft, variances)].

    variances is None if no comparison knows them. within: the paired one is at most a quarter of the unpaired one.
    """
    found = []
    for case in dict.fromkeys(case for pair in pairs for case in pair["verdicts"]):
        known = [pair["variances"][case] for pair in pairs if case in pair.get("variances", {})]
        drafts = any(case in pair.get("speedup_ratios", {}) for pair in pairs)
        means = {name: sum(one[name] for one in known) / len(known) for name in known[0]} if known else None
        if means:
            means["within"] = means["paired"] <= LARGEST_VARIANCE * means["unpaired"]
        found.append((case, drafts, means))
    return found


def judged_second(comparison, hours):
    """How far two runs of the same program differ. The second one was made `hours` hours after the first one."""
    pair = judged_pair(comparison)
    within = lambda ratios: bool(ratios) and all(value and abs(value - 1) <= WITHIN for value in ratios.values())
    return {
        **pair,
        "hours": hours,
        "speedups_within": within(pair.get("speedup_ratios")),
        "times_within": within(pair.get("ratios")),
    }


def summary_of(proof):
    """The verdict. passed: False as soon as something failed; otherwise None while a part is missing.

    drafting: cases with a draft in the comparisons of equal runs. paired: those whose paired ratio has at most a quarter of the
    variance of the unpaired one.
    """
    planted, pairs, second = proof["planted"], proof["pairs"], proof["second"]
    drafting = [variances for _, drafts, variances in mean_variances(pairs) if drafts]
    found = {
        "found": sum(one["found"] for one in planted),
        "attributed": sum(one["attributed"] for one in planted),
        "wrong": sum(len(one["wrong"]) for one in planted),
        "faults": len(planted),
        "pairs": len(pairs),
        "judged": sum(pair["judged"] for pair in pairs),
        "alarms": sum(bool(pair["alarms"]) for pair in pairs),
        "drafting": len(drafting),
        "paired": sum(variances is not None and variances["within"] for variances in drafting),
    }
    failed = (
        found["attributed"] < found["faults"]
        or found["wrong"] > 0
        or found["alarms"] > 0
        or found["judged"] < found["pairs"]
        or found["paired"] < found["drafting"]
        or (second is not None and not (second["judged"] and second["speedups_within"]))
    )
    whole = found["faults"] == len(PART_OF) and found["pairs"] == proof["planned_pairs"] and second is not None
    return {**found, "passed": False if failed else True if whole else None}


def percent(ratio):
    """A ratio as a change."""
    return "not known" if ratio is None else f"{100 * (ratio - 1):+.2f} %"


def hundredths(log_ratio):
    return f"{100 * log_ratio:+.2f}"


def range_of(ratios):
    """The lowest and the highest of some ratios, as changes."""
    known = [value for value in ratios if value]
    return f"{percent(min(known))} to {percent(max(known))}" if known else "not known"


def planted_rows(planted):
    for one in planted:
        share = one.get("planted")
        what = "" if share is None else f"{100 * share:.2f} %"
        if one["fault"] == "acceptance" and one.get("alpha"):
            before, after = one["alpha"]
            what = f"alpha {before:.3f} to {after:.3f}"
        if "error" in one:
            yield f"| {one['fault']} | {what} |  | no | no | {one['error']} |  |"
        for case in one["cases"]:
            slower = "yes" if case["verdict"] == "slower" else f"no ({case['verdict']})"
            parts = case.get("parts")
            own = "" if parts is None else hundredths(parts[PART_OF[one["fault"]]])
            if case.get("ci95"):
                own += f" [{hundredths(case['ci95'][0])}, {hundredths(case['ci95'][1])}]"
            right = "yes" if case["part"] == PART_OF[one["fault"]] else f"no ({case['part'] or 'no times'})"
            yield (
                f"| {one['fault']} | {what} | {case['id']} | {slower} | {right} | {own} | "
                f"{percent(case.get('ratio'))} |"
            )


def variance_rows(pairs):
    for case, drafts, variances in mean_variances(pairs):
        if variances is None:
            yield f"| {case} | not known | not known |  | {'no' if drafts else ''} |"
            continue
        share = f"{variances['paired'] / variances['unpaired']:.3f}" if variances["unpaired"] else ""
        within = ("yes" if variances["within"] else "no") if drafts else ""
        yield f"| {case} | {variances['paired']:.3g} | {variances['unpaired']:.3g} | {share} | {within} |"


def verdict_text(summary, proof):
    """The sentences that a reader needs first."""
    text = (
        f"{summary['found']} of {summary['faults']} planted faults were found, and {summary['attributed']} were attributed to "
        f"their part. {summary['alarms']} of {summary['pairs']} comparisons of equal runs raised an alarm."
    )
    if summary["wrong"]:
        text += f" {summary['wrong']} cases without a fault were called slower in comparisons with a fault."
    unjudged = summary["pairs"] - summary["judged"]
    if unjudged:
        text += f" {unjudged} comparisons of equal runs gave no verdict on the times of at least one case, so they do not show that this case raises no alarm."
    if summary["drafting"]:
        text += (
            f" In {summary['paired']} of {summary['drafting']} cases with a draft, the variance of the paired ratio is at most a "
            "quarter of that of the unpaired one."
        )
    second = proof["second"]
    if second is None:
        return text + " Two runs at least an hour apart have not been compared yet (`--second`)."
    if "error" in second:
        return text + " The comparison of two runs at least an hour apart was refused."
    speedups, times = ("within" if second[name] else "not within" for name in ("speedups_within", "times_within"))
    text += f" Two runs {second['hours']:.1f} hours apart agree {speedups} 1 % in their speedups"
    return text + f" and {times} 1 % in their times per token."


def page(proof):
    """The page in Markdown."""
    summary = summary_of(proof)
    result = {True: "passed", False: "failed", None: "not complete"}[summary["passed"]]
    planted = sorted(proof["planted"], key=lambda one: list(PART_OF).index(one["fault"]))
    lines = [
        "# Proof of `speclab compare`",
        "",
        "Written by `scripts/studies/compare_proof.py`; do not edit.",
        "",
        f"**{result}.** {verdict_text(summary, proof)}",
        "",
        f"{proof['machine']}, commit {proof['commit'][:10]}, config `{proof['config']}`. In the first two sections, the two runs of a "
        "comparison were made one after the other. The noise floor comes from an A/A run (`--aa`), the last run without a fault before these two, and "
        "suspects are measured again (`--rerun`).",
        "",
        "## Planted faults",
        "",
        f"A delay costs {100 * proof['share']:g} % of a step; it is a busy loop. For a loss of {proof['alpha_loss']:g} of alpha, drafted "
        f"tokens are replaced at random with probability {proof['rate']:.4f}. The autoregressive case has no fault.",
        "",
    ]
    if planted:
        lines += [
            "| fault | as planted | case | called slower | the fault's part loses most | the fault's part [95 %] | speed |",
            "|---|---|---|---|---|---|---|",
            *planted_rows(planted),
            "",
            "The number of a part is 100 times the logarithm of the factor by which this part changes the speedup. Speed: tokens per second with the fault, compared with "
            "those without it.",
        ]
    else:
        lines.append("Not measured yet.")
    lines += ["", "## Equal runs", ""]
    pairs = proof["pairs"]
    if pairs:
        ratios = [value for pair in pairs for value in pair.get("ratios", {}).values()]
        speedups = [value for pair in pairs for value in pair.get("speedup_ratios", {}).values()]
        verdicts = [verdict for pair in pairs for verdict in pair["verdicts"].values()]
        count = ", ".join(f"{verdict}: {verdicts.count(verdict)}" for verdict in sorted(set(verdicts)))
        lines += [
            f"{len(pairs)} comparisons of two runs without a fault. Changes of the speed: {range_of(ratios)}. Changes of "
            f"the speedup: {range_of(speedups)}. Verdicts on cases: {count or 'none'}.",
        ]
        lines += [f"- Alarm in comparison {number}: {alarm}" for number, alarm in alarms_of(pairs)]
        lines += [f"- Comparison {place}: {pair['error']}" for place, pair in enumerate(pairs, 1) if "error" in pair]
        lines += [
            "",
            "Steps that did the same work in both runs are compared in pairs. The variances are those of the logarithm of the ratio of "
            "times per token, by a bootstrap over prompts, and here means over these comparisons. Paired: a drawn prompt brings the "
            "steps of both runs. Unpaired: each run draws prompts of its own. With a draft, the paired variance must be at most a "
            "quarter of the unpaired one. Without a draft, all prompts take nearly the same time per token, so pairing gains little.",
            "",
            "| case | paired variance | unpaired variance | paired / unpaired | at most 1/4 |",
            "|---|---|---|---|---|",
            *variance_rows(pairs),
        ]
    else:
        lines.append("Not measured yet.")
    lines += ["", "## An hour apart", ""]
    second = proof["second"]
    if second is None:
        lines.append("Not measured yet.")
    elif "error" in second:
        lines.append(second["error"])
    else:
        lines += [
            f"Two runs without a fault, {second['hours']:.1f} hours apart, without an A/A run.",
            "",
            "| case | speed | speedup | verdict |",
            "|---|---|---|---|",
        ]
        for case, ratio in second["ratios"].items():
            speedup = second["speedup_ratios"].get(case)
            cell = "" if speedup is None else percent(speedup)
            lines.append(f"| {case} | {percent(ratio)} | {cell} | {second['verdicts'][case]} |")
    return "\n".join([*lines, ""])


def alarms_of(pairs):
    return [(number, alarm) for number, pair in enumerate(pairs, 1) for alarm in pair["alarms"]]
