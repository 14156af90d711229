"""What a controller does on held-out texts. A controller predicts whether the target accepts a drafted token, and a
draft ends at a threshold of this prediction. Computes the predictions, their reliability, and the threshold with the
least time per token."""

import numpy as np
from controller_samples import Refused
from scipy.special import expit

THRESHOLDS = [round(0.05 * i, 2) for i in range(1, 20)]


def predict(controller, features):
    """[tokens]: the predicted acceptance, as core/decoding/drafting/schedules/controller.cpp computes it."""
    values = (features - np.array(controller["mean"])) / np.array(controller["scale"])
    last = len(controller["layers"]) - 1
    for i, layer in enumerate(controller["layers"]):
        values = values @ np.array(layer["weights"]).T + np.array(layer["bias"])
        if i < last:
            values = np.maximum(values, 0)
    return expit(values[:, 0])


def reliability(predicted, accepted, bins=10):
    """Brier score, expected calibration error and bins of equal numbers of tokens, as core/theory/reliability.h defines
    them."""
    order = np.argsort(predicted, kind="stable")
    forecast, outcome = np.asarray(predicted, dtype=float)[order], np.asarray(accepted, dtype=float)[order]
    count, begin, found, ece = len(forecast), 0, [], 0.0
    for number in range(1, bins + 1):
        end = count * number // bins
        while 0 < end < count and forecast[end] == forecast[end - 1]:
            end += 1
        if end <= begin:
            continue
        mean, share = forecast[begin:end].mean(), outcome[begin:end].mean()
        found.append({"forecast": float(mean), "share": float(share), "count": end - begin})
        ece += (end - begin) / count * abs(mean - share)
        begin = end
    return {"brier": float(np.mean((forecast - outcome) ** 2)), "ece": float(ece), "bins": found}


def stops(schedule, predicted, threshold):
    """[tokens of a draft]: whether the draft ends after each token, as core/decoding/drafting/schedule.cpp decides it."""
    if schedule == "disco":
        return predicted < threshold
    return 1 - np.cumprod(predicted) > threshold


def drafted_tokens(schedule, predicted, texts, threshold):
    """[texts][positions]: the length of the draft that the schedule makes at each position."""
    out = []
    for text in texts:
        lengths = []
        for begin, end in zip(text.begin[:-1], text.begin[1:]):
            ends = np.flatnonzero(stops(schedule, predicted[begin:end], threshold))
            lengths.append(int(ends[0]) + 1 if len(ends) else int(end - begin))
        out.append(lengths)
    return out


def replay(texts, lengths):
    """(drafted, emitted) of each step: a step emits the matching tokens of its draft and one more, up to the end of the text."""
    steps = []
    for text, drafted in zip(texts, lengths):
        at, count = 0, len(text.matching)
        while at < count:
            emitted = min(min(drafted[at], int(text.matching[at])) + 1, count - at)
            steps.append((drafted[at], emitted))
            at += emitted
    return steps


class StepTimes:
    """The time of a step by the number of its drafted tokens, from the calibration of the trace."""

    def __init__(self, summary, case):
        calibration = summary.get("calibration") or {}
        costs = (calibration.get("cases") or {}).get(case.id)
        if not costs or not calibration.get("t_n_ns"):
            raise Refused(
                f"{case.id}: the trace has no calibration, so no threshold can be chosen. Give one with --threshold."
            )
        known = sorted((int(rows), ns) for rows, ns in calibration["t_n_ns"].items())
        self.rows, self.ns = np.array([rows for rows, _ in known]), np.array([ns for _, ns in known], dtype=float)
        self.draft, self.accept = costs["draft_ns"], costs["accept_ns"]
        self.other = costs["other_ns"]

    def target(self, rows):
        """Time of a forward over this many rows. Beyond the calibrated numbers of rows, it grows with the last
        slope."""
        if rows > self.rows[-1] and len(self.rows) > 1:
            slope = (self.ns[-1] - self.ns[-2]) / (self.rows[-1] - self.rows[-2])
            return self.ns[-1] + slope * (rows - self.rows[-1])
        return float(np.interp(rows, self.rows, self.ns))

    def step(self, drafted):
        linear = lambda costs: costs["constant"] + costs["slope"] * drafted
        return self.target(drafted + 1) + linear(self.draft) + linear(self.accept) + self.other


def choose_threshold(schedule, predicted, texts, times):
    """The threshold with the least time per token over the texts, and a row for each threshold that was tried."""
    rows = []
    for threshold in THRESHOLDS:
        steps = replay(texts, drafted_tokens(schedule, predicted, texts, threshold))
        emitted = sum(tokens for _, tokens in steps)
        ns = sum(times.step(drafted) for drafted, _ in steps)
        rows.append(
            {
                "threshold": threshold,
                "tau": emitted / len(steps),
                "drafted_per_step": sum(drafted for drafted, _ in steps) / len(steps),
                "ms_per_token": 1e-6 * ns / emitted,
            }
        )
    return min(rows, key=lambda row: row["ms_per_token"])["threshold"], rows
