"""What a run or a comparison says, in three sentences of HTML."""

import statistics

from markupsafe import Markup, escape

from figures.timing.waterfall import NAMES

from . import values


def name_of(case):
    return Markup("<b>{}</b>").format(case.label(without=()))


def count(number, word):
    return f"{number} {word}" + ("" if number == 1 else "s")


def speed(case):
    span = values.interval(case, case.metric("speedup_ci95"), "{:.2f}")
    return f"{case.metric('speedup'):.2f}{span}"


def signed_percent(share, digits=1):
    return f"{100 * share:+.{digits}f} %".replace("-", "−")


def best_sentence(run, measured):
    """The fastest lossless case, its interval over prompts, and whether it is faster than noise explains."""
    lossless = [case for case in measured if not case.lossy] or measured
    best = max(lossless, key=lambda case: case.metric("speedup"))
    judged = values.verdict(best)
    noise = values.noise_of_speedups(run)
    wide = (
        f"even widened by the noise between repeats ({100 * noise:.1f} %), the interval"
        if noise is not None
        else "the interval"
    )
    unknown = "" if noise is not None else "; the record does not tell how much speedups vary between repeats"
    meaning = {
        "faster": f"it is faster, because {wide} lies above 1{unknown}",
        "slower": f"even this case is slower, because {wide.removeprefix('even ')} lies below 1{unknown}",
        "same": f"that is no difference, because {wide} stays within 5 % of 1{unknown}",
        "unclear": f"whether that is a difference is unclear, because {wide.removeprefix('even ')} contains 1",
        "unclear: one prompt": "whether that is a difference is unclear, because one prompt gives no interval",
        "unclear: busy machine": "whether that is a difference is unclear, because the machine was busy",
        "unclear: not equal": "this means nothing, because its texts are not those of its reference",
    }[judged]
    kind = "lossless case" if len(lossless) < len(measured) else "case"
    faster_lossy = [case for case in measured if case.lossy and case.metric("speedup") > best.metric("speedup")]
    beside = Markup("")
    if faster_lossy and not best.lossy:
        top = max(faster_lossy, key=lambda case: case.metric("speedup"))
        beside = Markup(" (the lossy case {} reaches {})").format(name_of(top), f"{top.metric('speedup'):.2f}")
    return Markup("The fastest {} is {} with {} times the speed of its autoregressive reference{}; {}.").format(
        kind, name_of(best), speed(best), beside, meaning
    )


def losing_sentence(measured):
    """Which cases lose against autoregressive decoding."""
    verdicts = [(case, values.verdict(case)) for case in measured]
    slower = [case for case, judged in verdicts if judged == "slower"]
    doubtful = sum(judged.startswith("unclear") for _, judged in verdicts)
    rest = f"; {'it is' if len(measured) == 1 else f'for {doubtful} it is'} unclear" if doubtful else ""
    if slower:
        worst = min(slower, key=lambda case: case.metric("speedup"))
        most = "" if len(slower) == 1 else " most of all"
        said = of_all(len(slower), len(measured))
        verb = "is" if len(slower) == 1 else "are"
        return Markup("{} {} slower than autoregressive decoding,{} {} with {}{}.").format(
            said[0].upper() + said[1:], verb, most, name_of(worst), speed(worst), rest
        )
    lowest = min(measured, key=lambda case: case.metric("speedup"))
    busy = "can be called slower than autoregressive decoding, because the machine was busy"
    verdict = busy if lowest.run.busy else "is slower than autoregressive decoding beyond doubt"
    return Markup("No case {}; the lowest speedup is {} of {}{}.").format(verdict, speed(lowest), name_of(lowest), rest)


def of_all(number, total):
    """ "all 9 cases", "3 of 9 cases", "the one case"."""
    if total == 1:
        return "the one case" if number else "no case"
    return f"all {total} cases" if number == total else f"{number} of {total} cases"


def first_of(*names):
    return lambda case: next((value for value in map(case.predicted, names) if value is not None), None)


# What the third sentence is about: (metric, its prediction, beginning of the sentence). The first entry with a prediction counts.
AGREEMENTS = (
    (
        "speedup",
        values.predicted,
        "Prediction and measurement agree in {} (the predicted speedup lies in the measured interval)",
    ),
    (
        "speedup",
        first_of("measured_costs", "tree_measured_costs"),
        "No speedup is predicted from acceptance alone; from the measured τ and the calibrated costs, prediction and measurement agree in {}",
    ),
    (
        "tau",
        first_of("lookahead_eq7", "lookahead_eq7_extended", "tree_by_rank_and_depth", "leviathan_eq_1", "mixture_eq_1"),
        "Only τ is predicted, and prediction and measurement agree in {} (the predicted τ lies in the measured interval)",
    ),
)


def inside(span, value):
    return bool(span) and None not in span and span[0] <= value <= span[1]


def largest_term(case):
    """The term of the waterfall that changes the speedup most: (name, factor - 1); None without a waterfall."""
    terms = [term for term in (case.waterfall or [])[1:] if term["step"] != "measured" and term.get("log_ratio")]
    if not terms:
        return None
    term = max(terms, key=lambda term: abs(term["log_ratio"]))
    before = case.waterfall[case.waterfall.index(term) - 1]["speedup"]
    return NAMES.get(term["step"], term["step"].replace("_", " ")), term["speedup"] / before - 1


def agreement_sentence(measured):
    """Whether predictions and measurements agree, and the main reason for a difference."""
    for metric, prediction, beginning in AGREEMENTS:
        both = {
            case: prediction(case)
            for case in measured
            if prediction(case) is not None and case.metric(metric) is not None
        }
        if both:
            break
    else:
        return Markup("The run holds no prediction of a speedup, so there is nothing to compare the measurements with.")
    errors = {case: value / case.metric(metric) - 1 for case, value in both.items()}
    agreeing = sum(inside(case.metric(f"{metric}_ci95"), value) for case, value in both.items())
    worst = max(both, key=lambda case: abs(errors[case]))
    sentence = Markup("{}: the median error is {}, the largest {} for {}").format(
        beginning.format(of_all(agreeing, len(both))),
        f"{100 * statistics.median(map(abs, errors.values())):.1f} %",
        signed_percent(errors[worst]),
        name_of(worst),
    )
    term = largest_term(worst) if metric == "speedup" else None
    if term:
        sentence += Markup(", where the largest step from the ideal formula to the measurement is “{}” ({})").format(
            term[0], signed_percent(term[1])
        )
    return sentence + "."


def of_run(run):
    """Three sentences: the best case, what loses, whether predictions and measurements agree."""
    timed = [case for case in run.speculative if "times_note" not in case.data]
    measured = [case for case in timed if case.metric("speedup") is not None]
    if not measured:
        tokens = [case.metric("tokens_per_second") for case in run.baselines if case.metric("tokens_per_second")]
        speed_of = f" It decodes {max(tokens):.1f} tokens per second." if tokens else ""
        return [escape(f"No case of this run has a measured speedup.{speed_of}")]
    return [best_sentence(run, measured), losing_sentence(measured), agreement_sentence(measured)]


def percent_more(ratio):
    """How much more time per token NEW takes. ratio: time of BASE / time of NEW."""
    return f"{100 * (1 / ratio - 1):.1f} % more time"


def of_comparison(found, labels):
    """Three sentences: the verdicts, the largest change and its main part, the texts and the noise."""
    cases = found["cases"]
    heads = [case["verdict"].partition(":")[0] for case in cases]
    counts = {head: heads.count(head) for head in dict.fromkeys(heads)}
    failing = sum(bool(case["failures"]) for case in cases)
    said = ", ".join(f"{number} {head}" for head, number in counts.items())
    first = (
        f"NEW {'fails' if found['failed'] else 'passes'} the comparison with BASE: of {count(len(cases), 'case')} {said}"
        + (f"; {count(failing, 'case')} with a failure." if failing else ".")
    )
    if found["nothing_compared"]:
        first = f"Nothing was compared: {found['nothing_compared']}."
    return [escape(first), change_sentence(cases, labels), texts_sentence(found)]


def change_sentence(cases, labels):
    changed = [case for case in cases if case["change"] and case["ratio"]]
    if not changed:
        gates = [gate for case in cases for gate in case["gates"]]
        if not gates:
            return Markup("No times were compared.")
        different = [gate for gate in gates if gate["change"] != "equal"]
        return Markup("{} of {} differ; times were not judged.").format(
            len(different), count(len(gates), "compared count")
        )
    slower = [case for case in changed if case["verdict"] == "slower"]
    if slower:
        case, what = min(slower, key=lambda case: case["ratio"]), "loses most"
    else:
        case, what = max(changed, key=lambda case: abs(case["change"]["ratio"] - 1)), "changes most, but is not slower"
    parts = case["change"]["parts"]
    pick = min if slower else (lambda names, key: max(names, key=lambda name: abs(key(name))))
    part = pick(parts, key=lambda name: parts[name]["log_ratio"])
    speeds = case["change"]["speedup"]
    from_to = f" (speedup {speeds['base']:.2f} → {speeds['new']:.2f})" if speeds["base"] and speeds["new"] else ""
    more = percent_more(case["ratio"]) if case["ratio"] < 1 else f"{100 * (1 - 1 / case['ratio']):.1f} % less time"
    return Markup("{} {}: it takes {} per token{}, and the largest part of the change is {} ({}).").format(
        Markup("<b>{}</b>").format(labels.get(case["id"], case["id"])),
        what,
        more,
        from_to,
        part,
        signed_percent(parts[part]["log_ratio"]),
    )


def texts_sentence(found):
    compared = sum(case["texts"]["compared"] for case in found["cases"])
    changed = sum(case["texts"]["changed"] for case in found["cases"])
    promised = sum(case["texts"]["changed"] for case in found["cases"] if case["texts"]["promised"])
    texts = (
        "No texts were compared"
        if not compared
        else f"All {compared} compared texts are equal token for token"
        if not changed
        else f"{changed} of {compared} compared texts differ ({promised} of them were promised to be equal)"
    )
    if found["noise"] is None:
        noise = "the noise of the times is not known"
    else:
        source = "A/A runs" if found["aa_runs"] else "the repeats"
        noise = f"the noise floor, from {source}, is {100 * found['noise']:.1f} % for times"
        if found["speedup_noise"] is not None:
            noise += f" and {100 * found['speedup_noise']:.1f} % for speedups"
    return escape(f"{texts}, and {noise}.")
