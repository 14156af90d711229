#!/usr/bin/env python3
"""Fits the `trust` of the strategy composition: factors that turn the frequency of a copied token into the probability
that it is right, one factor for each number of matching tokens before it.

    build/release/speclab run configs/fit_texts.json --out results/runs/fit_texts
    .venv/bin/python scripts/fit/fit_trust.py results/runs/fit_texts --out results/fits/composition_trust.json

RUN: a run with greedy autoregressive texts. All its prompts must be of split "fit" (configs/prompts/*.jsonl). A run with
any other prompt is refused, because a constant must not be fitted to prompts on which it is measured.

At each emitted token, the script looks up the longest ending of the text (prompt and output) that also occurs earlier.
The copied token is the token that followed these occurrences most often; s is the share of occurrences with this token.
trust(m) is the factor that makes trust x s right on average: tokens copied right / sum of s, over all places with a
match of m tokens. The constants are an isotonic fit (a longer match is never trusted less than a shorter one), rounded
to hundredths. The spread comes from a bootstrap over prompts.
"""

import argparse
import collections
import json
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPTH = 64  # longest match, as in the strategy; longer matches count as this long
RESAMPLES = 1000


class Refused(Exception):
    pass


def splits(folder=ROOT / "configs/prompts"):
    """{text of a turn: its splits} for every prompt of the project."""
    found = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            prompt = json.loads(line)
            for turn in prompt["turns"]:
                found.setdefault(turn, set()).add(prompt["split"])
    return found


def greedy_case(config):
    for case in config["cases"]:
        if case["strategy"] == "autoregressive" and case["options"]["temperature"] == 0:
            return case["id"]
    raise Refused("the run has no greedy autoregressive case. Use configs/fit_texts.json.")


def require_fit_prompts(config, known):
    for prompt in config["prompts"]:
        split = prompt.get("split")
        if split != "fit":
            raise Refused(
                f'prompt {prompt["id"]} is of split "{split}"; only prompts of split "fit" may be used. '
                "Run it with --set prompts.split=fit."
            )
        for turn in prompt["turns"]:
            if known.get(turn) != {"fit"}:
                raise Refused(
                    f'prompt {prompt["id"]} is of split "fit" in this run, but not, or not only, in configs/prompts: {turn[:60]!r}'
                )


def texts(folder, case):
    """(prompt id, ids of prompt and output, length of the prompt) of each turn."""
    file = folder / "cases" / (case.replace("/", "__") + ".jsonl")
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["repeat"] != 0:
            continue
        if "error" in record:
            raise Refused(f"prompt {record['prompt']} failed in this run: {record['error']}")
        at = 0
        for turn in record["turns"]:
            context = turn["context"]
            yield record["prompt"], context + record["tokens"][at : at + turn["tokens"]], len(context)
            at += turn["tokens"]


def copies(ids, begin):
    """(tokens that match, share of the most frequent continuation, was it right) at each emitted token with a match."""
    ids = np.asarray(ids)
    common = np.zeros(len(ids), dtype=int)  # [j]: length of the common ending of the texts up to j and up to `end`
    for end in range(len(ids) - 1):
        same = ids[: end + 1] == ids[end]
        common[1 : end + 1] = np.where(same[1:], common[:end] + 1, 0)
        common[0] = same[0]
        before = np.minimum(common[:end], DEPTH)
        if end + 1 < begin or end == 0 or before.max() == 0:
            continue
        matched = int(before.max())
        counts = collections.Counter()
        best = None
        for position in np.flatnonzero(before == matched):
            token = int(ids[position + 1])
            counts[token] += 1
            # Of tokens with equal counts, takes the one that reached the count first.
            if best is None or counts[token] > counts[best]:
                best = token
        yield matched, counts[best] / counts.total(), best == ids[end + 1]


def table(found, lengths):
    """[prompts, lengths, 3]: tokens copied right, sum of the shares, places."""
    prompts = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompt for prompt, _, _ in found))}
    out = np.zeros((len(prompts), lengths, 3))
    for prompt, ids, begin in found:
        for matched, share, right in copies(ids, begin):
            out[prompts[prompt], min(matched, lengths) - 1] += (right, share, 1)
    return out


def isotonic(values, weights):
    """The non-decreasing sequence that is nearest to the values (pool adjacent violators)."""
    blocks = []
    for value, weight in zip(values, weights):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (a, v, n), (b, w, m) = blocks[-2:]
            total = v + w
            blocks[-2:] = [[(a * v + b * w) / total if total else max(a, b), total, n + m]]
    return np.repeat([b[0] for b in blocks], [b[2] for b in blocks])


def trust(counted):
    right, shares = counted[..., 0].sum(0), counted[..., 1].sum(0)
    raw = np.divide(right, shares, out=np.zeros_like(right), where=shares > 0)
    return raw, np.clip(isotonic(raw, shares), 0, 1)


def fit(folder, lengths):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    require_fit_prompts(config, splits())
    found = list(texts(folder, greedy_case(config)))
    missing = {prompt["id"] for prompt in config["prompts"]} - {prompt for prompt, _, _ in found}
    if missing:
        raise Refused(f"the run has no text of {len(missing)} prompts. Finish it with: speclab run ... --resume.")
    counted = table(found, lengths)
    raw, smooth = trust(counted)
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, len(counted), (RESAMPLES, len(counted)))
    spread = np.quantile([trust(counted[each])[1] for each in drawn], (0.025, 0.975), axis=0)
    return {
        "made_by": "scripts/fit/fit_trust.py",
        "target": environment["models"]["target"]["name"],
        "split": "fit",
        "prompts": [prompt["id"] for prompt in config["prompts"]],
        "places": [int(n) for n in counted[..., 2].sum(0)],
        "raw": [round(float(v), 4) for v in raw],
        "trust": [round(float(v), 2) for v in smooth],
        "ci95": [[round(float(lo), 4), round(float(hi), 4)] for lo, hi in spread.T],
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument(
        "--lengths", type=int, default=16, help="number of constants to fit; the last one holds for longer matches too"
    )
    parser.add_argument("--out", type=pathlib.Path, help="also write the fit here, as JSON")
    options = parser.parse_args(arguments)
    try:
        result = fit(options.run, options.lengths)
    except (OSError, KeyError, ValueError, Refused) as error:
        print(f"fit_trust: {options.run}: {error}", file=sys.stderr)
        return 2
    places = sum(result["places"])
    print(f"{len(result['prompts'])} prompts of split fit, {places} places with a match; {result['target']}")
    print("matching tokens  places  copied right / expected  trust  95 % (bootstrap over prompts)")
    for i, value in enumerate(result["trust"]):
        lo, hi = result["ci95"][i]
        more = "+" if i + 1 == len(result["trust"]) else " "
        print(f"{i + 1:14}{more} {result['places'][i]:7} {result['raw'][i]:24.3f} {value:6.2f}  [{lo:.2f}, {hi:.2f}]")
    print("trust = {" + ", ".join(f"{value:.2f}".lstrip("0") for value in result["trust"]) + "}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
