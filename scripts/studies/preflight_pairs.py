#!/usr/bin/env python3
"""Tests the verdicts of `speclab preflight` on 20 pairs of target and draft, each against a real run on other prompts.

    .venv/bin/python scripts/studies/preflight_pairs.py measure
    .venv/bin/python scripts/studies/preflight_pairs.py page

`measure` runs a preflight of each pair, then a real run of plain decoding and of the setting that the preflight recommends. It writes
results/preflight_pairs.json and results/preflight_pairs.md. The records go to --folder. A pair that is finished there is not
measured again, and a pair that was interrupted goes on where it stopped, so the same command resumes the study. A failed pair
counts as finished; delete its folder to measure it again. `page` writes the page again from the JSON file.

The pairs are layer skips, n-grams, the distilled drafts of the repository, and inflated twins as targets and as drafts.
(An inflated twin is a model embedded in a larger shape; it computes the same function at the cost of the larger model.)
The preflight uses the prompts of configs/preflight.json, the real run those of configs/prompts/measure.jsonl. So no
verdict is tested on the prompts from which it was made.

How a pair is judged (95 % intervals of the speedup):
- exchanged: the measured interval holds 1, so there is no truth to compare with. The next reserve pair takes its place.
- wrong: the verdict says "worth it" and the measured interval lies below 1, or "not worth it" and it lies above 1.
- unclear: the preflight says so itself, because its predicted interval holds 1.
- failed: a run of the pair failed, or texts differ from plain decoding.
- right: everything else.
The study passes if 20 pairs are judged, none is wrong or failed, and at most 4 are unclear. Exit code 0: passed; 1: not passed;
2: user error; 130: interrupted.

Uses the binary SPECLAB_BINARY, by default build/release/speclab. Needs the target model (scripts/get_model.sh).
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/pages"), str(ROOT / "python")]

from paired import table, text_of

from speclab.record import BadRun, Run

FORMAT = "speclab preflight pairs 1"
JSON_FILE, PAGE = ROOT / "results/preflight_pairs.json", ROOT / "results/preflight_pairs.md"
WANTED, MOST_UNCLEAR = 20, 4
INTERRUPTED = 130

TARGET = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
WIDE, NARROW = "models/draft/smollm2-135m-instruct", "models/draft/smollm2-135m-instruct-128"
NGRAM_TEXTS = ("docs/measuring.md", "docs/commands.md", "configs/README.md", "strategies/README.md")
NGRAM_FILE = "texts.ngrams"  # in the folder of the study
PROMPTS = {"file": "configs/prompts/measure.jsonl", "per_category": 3}  # of the real run
TOKENS, REPEATS = 96, 2
MINUTES = 5  # most minutes that a preflight may take

# Targets of up to 500 million parameters: the model itself and its inflated twins.
TWINS = {
    "135M": None,
    "270M": {"ffn": 4096},
    "400M": {"hidden": 768, "heads": 12, "ffn": 4608},
    "500M": {"hidden": 896, "heads": 15, "ffn": 4864},
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """A target and a draft. `draft`: "model", "layers" or "ngrams", with its value; `inflate`: the shape of a draft model's twin."""

    target: str
    draft: tuple
    inflate: tuple = ()

    @property
    def name(self):
        kind, value = self.draft
        named = {WIDE: "distilled-256", NARROW: "distilled-128", TARGET: "135M"}
        words = {
            "model": named.get(value, value),
            "layers": f"keep{value}",
            "ngrams": f"ngrams-{value[0]}-{value[1]}" if kind == "ngrams" else "",
        }[kind]
        return "_".join([self.target, words, *(f"{size}{value}" for size, value in self.inflate)])

    def words(self, folder):
        """The arguments of `speclab preflight`."""
        kind, value = self.draft
        words = [TARGET]
        if kind == "model":
            words.append(value)
        elif kind == "layers":
            words += ["--keep-layers", str(value)]
        else:
            source, order = value
            words += ["--ngrams", str(folder / NGRAM_FILE) if source == "file" else "text", "--order", str(order)]
        if TWINS[self.target]:
            words += ["--inflate", shape_text(TWINS[self.target].items())]
        if self.inflate:
            words += ["--inflate-draft", shape_text(self.inflate)]
        return words

    def config(self, setting):
        """The config of the real run with the case that the preflight recommends."""
        twin = TWINS[self.target]
        kind, value = self.draft
        config = {
            "name": "preflight_pairs",
            "description": f"The setting that a preflight of {self.name} recommends, beside plain decoding.",
            "target": {"model": TARGET, "inflate": twin} if twin else TARGET,
            "prompts": PROMPTS,
            "seed": 1,
            "repeats": REPEATS,
            "teacher_forced": False,
            "options": {"temperature": 0, "max_tokens": TOKENS, "budget": "fixed"},
            "calibration": False,
            "cases": [{"strategy": "autoregressive"}, setting],
        }
        if kind == "model":
            config["drafts"] = {"draft": {"model": value} | ({"inflate": dict(self.inflate)} if self.inflate else {})}
        elif kind == "layers":
            config["drafts"] = {"draft": {"layers": {"keep": value}}}
        return config


def shape_text(shape):
    return ",".join(f"{size}={value}" for size, value in shape)


PAIRS = (
    Pair("135M", ("model", WIDE)),
    Pair("135M", ("model", NARROW)),
    Pair("135M", ("layers", 2)),
    Pair("135M", ("layers", 10)),
    Pair("135M", ("layers", 20)),
    Pair("135M", ("layers", 25)),
    Pair("135M", ("ngrams", ("text", 2))),
    Pair("135M", ("ngrams", ("text", 3))),
    Pair("135M", ("ngrams", ("file", 3))),
    Pair("135M", ("model", WIDE), (("ffn", 6144),)),
    Pair("135M", ("model", WIDE), (("ffn", 49152),)),
    Pair("135M", ("model", TARGET)),
    Pair("270M", ("model", WIDE)),
    Pair("270M", ("model", TARGET)),
    Pair("270M", ("layers", 20)),
    Pair("400M", ("model", NARROW)),
    Pair("400M", ("layers", 15)),
    Pair("500M", ("model", WIDE)),
    Pair("500M", ("model", TARGET)),
    Pair("500M", ("ngrams", ("text", 3))),
)
RESERVE = (
    Pair("270M", ("model", NARROW)),
    Pair("400M", ("model", WIDE)),
    Pair("500M", ("layers", 5)),
    Pair("135M", ("layers", 15)),
    Pair("400M", ("model", TARGET)),
    Pair("500M", ("model", NARROW)),
    Pair("135M", ("model", NARROW), (("ffn", 65536),)),
    Pair("270M", ("layers", 5)),
    Pair("400M", ("ngrams", ("text", 2))),
    Pair("500M", ("model", WIDE), (("ffn", 49152),)),
)


class Interrupted(Exception):
    """Raised when a run was stopped by a signal. Its finished lines are kept."""


class FailedPair(Exception):
    """Raised when a run of a pair failed. The message says how."""


def side(interval):
    """Where an interval of a speedup lies: "above" 1, "below" 1, or "holds 1"."""
    low, high = interval
    return "above" if low > 1 else "below" if high < 1 else "holds 1"


SAYS = {"above": "worth it", "below": "not worth it", "holds 1": "unclear"}


def judgement(result):
    """What the study says about the result of a pair; see the head of this file."""
    if result.get("problem"):
        return "failed"
    measured = side(result["measured_ci95"])
    if measured == "holds 1":
        return "exchanged"
    if result["verdict"] == "unclear":
        return "unclear"
    return "right" if result["verdict"] == SAYS[measured] else "wrong"


def judged_pairs(pairs, reserve, result_of):
    """Measures the pairs in order, and reserve pairs in the place of those that are exchanged. Returns two lists of results, the
    judged ones and the exchanged ones. A place stays empty if no reserve pair is left."""
    judged, exchanged, left = [], [], list(reserve)
    for pair in pairs:
        result = result_of(pair)
        while judgement(result) == "exchanged":
            exchanged.append(result)
            if not left:
                break
            result = result_of(left.pop(0))
        else:
            judged.append(result)
    return judged, exchanged


def conclusion(judged):
    """Whether the study passes, how often each judgement occurs, and why it does not pass."""
    kinds = [judgement(result) for result in judged]
    counts = {kind: kinds.count(kind) for kind in ("right", "wrong", "unclear", "failed")}
    reasons = []
    if len(judged) < WANTED:
        reasons.append(f"{len(judged)} pairs were judged, {WANTED} are needed")
    if counts["wrong"]:
        reasons.append(f"{counts['wrong']} verdicts are wrong")
    if counts["failed"]:
        reasons.append(f"{counts['failed']} pairs failed")
    if counts["unclear"] > MOST_UNCLEAR:
        reasons.append(f"{counts['unclear']} verdicts are unclear, at most {MOST_UNCLEAR} may be")
    return {"passed": not reasons, "counts": counts, "reasons": reasons}


def predicted_of(verdict, where):
    """The part of preflight.json that the study keeps. Raises BadRun if a field is missing, or if the
    verdict does not follow from its interval."""
    try:
        setting = verdict["strategies"][verdict["recommended"]]
        kept = {
            "verdict": verdict["verdict"],
            "predicted": setting["speedup"],
            "predicted_ci95": verdict["interval"],
            "what": setting["what"],
            "gamma": setting["gamma"],
            "nodes": None if setting["tree"] is None else len(setting["tree"]["parents"]),
            "alpha": verdict["alpha"],
            "c": verdict["c"],
            "best_strategy": verdict["strategies"][0]["what"],
            "setting": verdict["setting"],
        }
    except (KeyError, TypeError, IndexError) as error:
        raise BadRun(f"{where}: no {error}. Delete the folder of this pair and measure it again.") from error
    if kept["verdict"] != SAYS[side(kept["predicted_ci95"])]:
        raise BadRun(f"{where}: the verdict {kept['verdict']!r} does not follow from {kept['predicted_ci95']}.")
    return kept


def measured_of(folder):
    """What the real run in the folder measured. Raises FailedPair if that run has no speedup."""
    run = Run(folder)
    cases = run.speculative
    if len(cases) != 1 or cases[0].metric("speedup") is None or cases[0].metric("speedup_ci95") is None:
        raise FailedPair("the real run has no speedup: lines failed, or texts differ from plain decoding")
    case = cases[0]
    return {
        "case": case.id,
        "measured": case.metric("speedup"),
        "measured_ci95": case.metric("speedup_ci95"),
        "tau": case.metric("tau"),
        "machine": run.machine,
        "busy": run.busy,
    }


def read_json(file):
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRun(f"{file}: {error}. Delete the file and measure again.") from error


def write_json(file, content):
    """Replaces the file in one go, so that a killed study leaves no half-written file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_name(file.name + ".part")
    half.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    half.replace(file)


class Study:
    """Measures pairs in a folder. `options`: words for every command that runs models, such as --threads."""

    def __init__(self, folder, options=()):
        self.folder, self.options = pathlib.Path(folder), list(options)
        self.binary = os.environ.get("SPECLAB_BINARY", str(ROOT / "build/release/speclab"))

    def call(self, *words):
        """Runs a command. Returns its exit code; its progress goes to stderr."""
        try:
            done = subprocess.run([self.binary, *map(str, words)], stdout=subprocess.DEVNULL, cwd=ROOT)
        except OSError as error:
            raise BadRun(f"{self.binary}: {error.strerror}. Build SpecLab, or set SPECLAB_BINARY.") from error
        if done.returncode == INTERRUPTED or done.returncode < 0:
            raise Interrupted
        return done.returncode

    def make_ngrams(self):
        file = self.folder / NGRAM_FILE
        if file.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        half = file.with_name(file.name + ".part")
        if self.call("ngram", "build", "--model", TARGET, "--out", half, "--order", 3, *NGRAM_TEXTS) != 0:
            raise FailedPair("speclab ngram build failed")
        half.replace(file)

    def preflight(self, pair, folder):
        """The verdict of the pair. If it runs the preflight, also writes time.json: the seconds, or null after an interruption."""
        out, file = folder / "preflight", folder / "preflight/preflight.json"
        if not file.exists():
            begun = (out / "trace/config.json").exists()
            if pair.draft[0] == "ngrams" and pair.draft[1][0] == "file":
                self.make_ngrams()
            start = time.monotonic()
            words = [*pair.words(self.folder), "--no-check", "--out", out, *(["--resume"] if begun else [])]
            code = self.call("preflight", *words, *self.options)
            if code != 0:
                raise FailedPair(f"speclab preflight ended with exit code {code}")
            write_json(folder / "time.json", {"seconds": None if begun else time.monotonic() - start})
        return predicted_of(read_json(file), file)

    def real_run(self, pair, folder, setting):
        out, config = folder / "run", folder / "run.json"
        write_json(config, pair.config(setting))
        resume = (out / "config.json").exists()
        words = ["--resume", out] if resume else [config, "--out", out]
        code = self.call("run", *words, *([] if resume else self.options))
        if code != 0:
            raise FailedPair(f"speclab run ended with exit code {code}")
        return measured_of(out)

    def result_of(self, pair):
        """The result of a pair, from its folder if it is finished there."""
        folder, key = self.folder / pair.name, {"words": pair.words(self.folder), "options": self.options}
        key = json.loads(json.dumps(key))
        file = folder / "result.json"
        if file.exists():
            kept = read_json(file)
            if kept.get("key") != key:
                raise BadRun(f"{file}: the result of another study. Use another --folder, or delete this one.")
            return kept["result"]
        folder.mkdir(parents=True, exist_ok=True)
        result = {"pair": pair.name}
        try:
            print(f"{pair.name}: preflight", file=sys.stderr, flush=True)
            result |= self.preflight(pair, folder)
            seconds = folder / "time.json"
            result["seconds"] = read_json(seconds)["seconds"] if seconds.exists() else None
            print(f"{pair.name}: {result['verdict']}; real run", file=sys.stderr, flush=True)
            result |= self.real_run(pair, folder, result["setting"])
        except FailedPair as error:
            result["problem"] = str(error)
        print(f"{pair.name}: {judgement(result)}", file=sys.stderr, flush=True)
        write_json(file, {"key": key, "result": result})
        return result

    def measure(self, pairs=PAIRS, reserve=RESERVE):
        done = []

        def result_of(pair):
            print(f"pair {len(done) + 1} (at least {len(pairs)})", file=sys.stderr, flush=True)
            done.append(pair)
            return self.result_of(pair)

        judged, exchanged = judged_pairs(pairs, reserve, result_of)
        return {
            "format": FORMAT,
            "wanted": WANTED,
            "most_unclear": MOST_UNCLEAR,
            "tokens": TOKENS,
            "repeats": REPEATS,
            "judged": judged,
            "exchanged": exchanged,
            "conclusion": conclusion(judged),
        }


def drafted(result):
    """The recommended setting in words."""
    if result.get("what") is None:
        return ""
    if result["nodes"] is not None:
        return f"{result['what']}, {result['nodes']} tokens"
    return f"{result['what']}, γ {result['gamma']}"


def row_of(result):
    known = result.get("measured") is not None
    seconds = result.get("seconds")
    return [
        result["pair"],
        result.get("verdict", ""),
        text_of(result["predicted"], result["predicted_ci95"]) if "predicted" in result else "",
        text_of(result["measured"], result["measured_ci95"]) if known else "",
        judgement(result) + (f": {result['problem']}" if result.get("problem") else ""),
        drafted(result),
        result.get("best_strategy", ""),
        f"{result['alpha']:.2f}" if result.get("alpha") is not None else "",
        f"{result['c']:.3f}" if result.get("c") is not None else "",
        f"{result['tau']:.2f}" if result.get("tau") is not None else "",
        "" if seconds is None else f"{seconds:.0f}",
    ]


def page_of(study):
    """The page as a text, from the JSON file alone."""
    judged, exchanged, end = study["judged"], study["exchanged"], study["conclusion"]
    counts = end["counts"]
    verdict = "**passed**" if end["passed"] else "**not passed**: " + "; ".join(end["reasons"])
    header = ["pair", "verdict of the preflight", "predicted speedup", "measured speedup", "judgement"]
    header += ["setting that it recommends for the draft", "best strategy that it names"]
    header += ["α", "c", "τ, measured", "preflight, s"]
    machines = sorted({result["machine"] for result in judged + exchanged if result.get("machine")})
    busy = sorted({result["pair"] for result in judged + exchanged if result.get("busy")})
    times = [result["seconds"] for result in judged + exchanged if result.get("seconds") is not None]
    lines = [
        "# Verdicts of preflight on pairs of target and draft",
        "",
        "Written by `scripts/studies/preflight_pairs.py page` from [preflight_pairs.json](preflight_pairs.json); do not edit.",
        "",
        f"The test is {verdict}. {len(judged)} of {study['wanted']} pairs are judged: {counts['right']} right, "
        f"{counts['wrong']} wrong, {counts['unclear']} unclear (at most {study['most_unclear']} may be), {counts['failed']} failed. "
        f"{len(exchanged)} pairs were exchanged, because their measured interval holds 1.",
        "",
        "A verdict is wrong if it says that a draft is worth it, or is not, and the measured 95 % interval of the speedup lies on the "
        "other side of 1. It is unclear if the predicted interval holds 1. The predicted interval is widened by 3 % for the error of "
        "the replay. The preflight and the real run have different prompts. The real run decodes the setting that the preflight "
        f"recommends for the draft, {study['tokens']} tokens of each prompt, {study['repeats']} times.",
        "",
    ]
    if machines:
        lines += [f"Machine: {'; '.join(machines)}.", ""]
    if busy:
        lines += [f"**Other processes used the machine during the real runs of {', '.join(busy)}.**", ""]
    if times:
        lines += [
            f"The slowest preflight took {max(times):.0f} s; {MINUTES} minutes are allowed for a target of up to 500 million "
            "parameters. Only preflights that were not interrupted are timed; all ran with `--no-check`.",
            "",
        ]
    lines += table(header, map(row_of, judged))
    if exchanged:
        lines += ["", "## Exchanged pairs", "", *table(header, map(row_of, exchanged))]
    return "\n".join([*lines, ""])


def read_study(file):
    study = read_json(file)
    if study.get("format") != FORMAT:
        raise BadRun(f"{file}: got format {study.get('format')!r}, expected {FORMAT!r}. Run `measure` again.")
    return study


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("measure", "page"))
    parser.add_argument(
        "--folder", type=pathlib.Path, default=ROOT / "results/runs/preflight_pairs", help="folder of the records"
    )
    parser.add_argument("--threads", type=int, help="as for speclab run")
    parser.add_argument("--backend", help="as for speclab run")
    parser.add_argument("--json", type=pathlib.Path, default=JSON_FILE, help="file of the numbers")
    parser.add_argument("--page", type=pathlib.Path, default=PAGE, help="file of the page")
    words = parser.parse_args(arguments)
    options = [
        word
        for name in ("threads", "backend")
        if getattr(words, name) is not None
        for word in (f"--{name}", str(getattr(words, name)))
    ]
    try:
        if words.action == "measure":
            write_json(words.json, Study(words.folder.resolve(), options).measure())
        study = read_study(words.json)
        words.page.write_text(page_of(study), encoding="utf-8")
    except BadRun as error:
        print(f"preflight_pairs: {error}", file=sys.stderr)
        return 2
    except (Interrupted, KeyboardInterrupt):
        print("preflight_pairs: interrupted. Repeat the command to go on.", file=sys.stderr)
        return INTERRUPTED
    end = study["conclusion"]
    print("passed" if end["passed"] else "not passed: " + "; ".join(end["reasons"]))
    return 0 if end["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
