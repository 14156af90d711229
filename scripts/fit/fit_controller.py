#!/usr/bin/env python3
"""Trains a controller for the schedule disco or specdec_pp from a trace, and writes the file that the schedule reads.

    build/release/speclab run configs/trace.json --set prompts.file=configs/prompts/speclab.jsonl --set prompts.split=fit --out results/runs/fit-trace
    .venv/bin/python scripts/fit/fit_controller.py results/runs/fit-trace --schedule disco --out build/disco.json

TRACE: a trace whose records have the entropy and the largest probabilities of each row (`speclab trace CONFIG --evidence top`). All its
prompts must be of split "fit" (configs/prompts/*.jsonl), because a controller must not be trained on prompts on which it is
measured. Every fourth prompt is held out of the training. On the held-out prompts, the script chooses the threshold and reports
how reliable the predictions are.

Each controller is a network with one hidden layer of ReLU units (scikit-learn, MLPClassifier, L-BFGS). It predicts
whether the target accepts a drafted token if it accepted all tokens before it in the draft. The label y of a token is 1
if it equals the token of the target's text at its place, else 0. Only tokens whose predecessors in the draft equal the
text have a label. Loss: -(w_acc y log p + w_rej (1 - y) log(1 - p)) with the prediction p, and L2 decay.

disco (Mamou et al. 2024, arXiv 2405.04304): the k largest probabilities of the row (--top, default 10), its entropy, and the
place of the token in the draft; w_rej = w_acc = 1. A draft stops after a token with p below the threshold.
specdec_pp (Huang et al. 2024, arXiv 2405.19715): the token's probability, the entropy, the difference of the two largest probabilities, the place,
and the product of the draft's probabilities so far; w_acc = 1 and w_rej = 6, the weight in the README of the paper's code. A draft stops once
1 - (product of p) is above the threshold. With w_rej above w_acc the predictions are below the share that is accepted, so
their calibration error is large by intent.

Without --threshold, the threshold is one of .05, .10, ..., .95: the one with the least time per token when the held-out
texts are replayed with the calibrated times of the trace. `speclab replay TRACE --search --controller FILE` tries more thresholds, and other draft lengths.
"""

import argparse
import json
import pathlib
import sys
import warnings

import numpy as np
from controller_choice import StepTimes, choose_threshold, predict, reliability
from controller_samples import Refused, Samples, open_trace, traced_case
from fit_trust import Refused as RefusedPrompt
from fit_trust import require_fit_prompts, splits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from figures.record import BadRun, NotApplicable

SCHEDULES = ("disco", "specdec_pp")
REJECTION_WEIGHT = {"disco": 1.0, "specdec_pp": 6.0}
HELD_OUT = 4  # every fourth prompt
ITERATIONS = 2000


def feature_names(schedule, top):
    if schedule == "disco":
        return [*(f"top_{rank}" for rank in range(1, top + 1)), "entropy", "position"]
    return ["confidence", "entropy", "margin", "position", "product"]


def divide(prompts):
    """(prompts to train on, prompts that are held out), in the order of the run."""
    held_out = prompts[HELD_OUT - 1 :: HELD_OUT]
    if not held_out:
        raise Refused(f"{len(prompts)} prompts; at least {HELD_OUT} are needed, because every fourth one is held out.")
    return [prompt for prompt in prompts if prompt not in set(held_out)], held_out


def train(features, accepted, rejection_weight, hidden, decay, seed):
    """The mean, scale and layers of a network, and whether the training converged."""
    if accepted.all() or not accepted.any():
        raise Refused("all tokens are accepted, or none is; there is nothing to tell apart. Trace more prompts.")
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale < 1e-9] = 1
    network = MLPClassifier(
        hidden_layer_sizes=(hidden,),
        activation="relu",
        solver="lbfgs",
        alpha=decay,
        max_iter=ITERATIONS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # report() tells the user instead
        network.fit((features - mean) / scale, accepted, sample_weight=np.where(accepted, 1.0, rejection_weight))
    short = lambda values: [float(f"{value:.7g}") for value in values]
    layers = [
        {"weights": [short(row) for row in weights.T], "bias": short(bias)}
        for weights, bias in zip(network.coefs_, network.intercepts_)
    ]
    return {"mean": short(mean), "scale": short(scale), "layers": layers}, network.n_iter_ < ITERATIONS


def identity(run, case):
    """The draft that the controller belongs to. A target that drafts for itself is its own draft."""
    model = run.environment["models"]["target" if case.draft is None else case.draft]
    return {"name": model["name"], "sha256": model["sha256"]}


def fit(options):
    run, config = open_trace(options.trace)
    require_fit_prompts(config, splits())
    case = traced_case(run, options.case)
    samples = Samples(case)
    prompts = [prompt["id"] for prompt in config["prompts"]]
    missing = set(prompts) - {text.prompt for text in samples.texts}
    if missing:
        raise Refused(f"the trace has no text of {len(missing)} prompts. Finish it with: speclab trace --resume.")
    training, held_out = divide(prompts)
    names = feature_names(options.schedule, options.top)
    features = samples.features(names)
    own = samples.of_prompts(set(training))[1] & samples.labelled
    texts, others = samples.of_prompts(set(held_out))
    others &= samples.labelled
    weight = REJECTION_WEIGHT[options.schedule] if options.rejection_weight is None else options.rejection_weight
    network, converged = train(
        features[own], samples.accepted[own], weight, options.hidden, options.decay, options.seed
    )
    controller = {
        "format": "speclab controller",
        "version": 1,
        "made_by": "scripts/fit/fit_controller.py",
        "schedule": options.schedule,
        "draft": identity(run, case),
        "features": names,
        **network,
    }
    if not others.any():
        raise Refused("no labelled token in the held-out prompts. Trace more prompts.")
    predicted = predict(controller, features)
    if options.threshold is None:
        times = StepTimes(run.summary, case)
        controller["threshold"], controller["tried"] = choose_threshold(options.schedule, predicted, texts, times)
    else:
        controller["threshold"] = options.threshold
    controller["training"] = {
        "case": case.id,
        "target": run.environment["models"]["target"]["name"],
        "prompts": training,
        "tokens": int(own.sum()),
        "accepted": float(samples.accepted[own].mean()),
        "loss": "weighted binary cross-entropy",
        "weight_of_rejections": weight,
        "hidden": options.hidden,
        "decay": options.decay,
        "seed": options.seed,
        "converged": bool(converged),
    }
    outcome = samples.accepted[others]
    controller["held_out"] = {
        "prompts": held_out,
        "tokens": int(others.sum()),
        "accepted": float(outcome.mean()),
        "calibration": reliability(predicted[others], outcome),
        "confidence_calibration": reliability(samples.numbers["confidence"][others], outcome),
    }
    return controller


def report(controller):
    """The lines of a report about a controller."""
    training, held_out = controller["training"], controller["held_out"]
    own, confidence = held_out["calibration"], held_out["confidence_calibration"]
    yield f"{controller['schedule']} for {controller['draft']['name']}, on {training['target']}"
    yield f"trained on {training['tokens']} tokens of {len(training['prompts'])} prompts, {training['accepted']:.3f} accepted"
    if not training["converged"]:
        yield f"the training did not converge in {ITERATIONS} iterations; more decay may help"
    yield f"held out: {held_out['tokens']} tokens of {len(held_out['prompts'])} prompts, {held_out['accepted']:.3f} accepted"
    yield "forecast of acceptance, held out    ECE   Brier"
    for name, found in (("controller", own), ("the draft's probability", confidence)):
        yield f"  {name:32} {found['ece']:6.3f} {found['brier']:7.3f}"
    yield "predicted  accepted  tokens"
    for entry in own["bins"]:
        yield f"{entry['forecast']:9.3f} {entry['share']:9.3f} {entry['count']:7}"
    for row in controller.get("tried", []):
        mark = "  chosen" if row["threshold"] == controller["threshold"] else ""
        yield (
            f"threshold {row['threshold']:.2f}: tau {row['tau']:.3f}, drafted {row['drafted_per_step']:.2f}, "
            f"{row['ms_per_token']:.3f} ms a token{mark}"
        )


def parse(arguments):
    whole = lambda text: int(text) if 1 <= int(text) <= 64 else parser.error(f"{text}: expected 1 to 64")
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("trace", type=pathlib.Path, metavar="TRACE")
    parser.add_argument("--schedule", choices=SCHEDULES, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the controller's file")
    parser.add_argument("--case", help="id of the traced case; needed if the trace has several that fit")
    parser.add_argument(
        "--top", type=whole, default=10, help="disco: how many of the largest probabilities; at most 16"
    )
    parser.add_argument("--hidden", type=whole, default=16, help="hidden units; at most 64")
    parser.add_argument("--decay", type=float, default=1.0, help="strength of the L2 decay")
    parser.add_argument("--rejection-weight", type=float, help="w_rej; default 1 for disco, 6 for specdec_pp")
    parser.add_argument("--threshold", type=float, help="use this threshold instead of choosing one")
    parser.add_argument("--seed", type=int, default=1, help="seed of the initial weights")
    options = parser.parse_args(arguments)
    if options.top > 16:
        parser.error(f"--top {options.top}: expected at most 16")
    if options.rejection_weight is not None and not options.rejection_weight > 0:
        parser.error(f"--rejection-weight {options.rejection_weight}: expected a number above 0")
    if options.threshold is not None and not 0 <= options.threshold <= 1:
        parser.error(f"--threshold {options.threshold}: expected 0 to 1")
    return options


def main(arguments=None):
    options = parse(arguments)
    try:
        controller = fit(options)
    except (OSError, KeyError, ValueError, Refused, RefusedPrompt, BadRun, NotApplicable) as error:
        print(f"fit_controller: {options.trace}: {error}", file=sys.stderr)
        return 2
    print("\n".join(report(controller)))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(controller, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
