#!/usr/bin/env python3
"""Compares drafting without a draft model with other programs: tokens per target call and time on the same prompts.

    scripts/compare/compare_drafting.py [--llama-cpp DIR] [--python PYTHON] [--tokens 128] [--repeats 3] [--out FILE.json]

From llama.cpp, the script runs the examples lookup and lookahead (W 15, N 5, G 15 are fixed there) and greedy decoding
(lookup with an empty draft), all with bf16 weights. DIR is a checkout of llama.cpp with a build in DIR/build. With --python,
the script also runs the prompt lookup and the greedy decoding of transformers; PYTHON is an interpreter with torch,
transformers, gguf and accelerate. From SpecLab, the script runs the strategies that do the same, and strategies
that the project recommends. In each repeat every program decodes every prompt once, in a seeded random order. The
forward over the prompt does not count: neither its call, nor its time, nor the tokens that it emits. It emits one
token. With the prompt lookup of transformers it may emit several tokens, because there it also verifies a draft. End
tokens are suppressed, so that all texts have the same length. A speedup is relative to the program's own greedy
decoding. Texts are compared with SpecLab's greedy text.
"""

import argparse
import datetime
import json
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import compare_llama_cpp as engine
from compare_llama_cpp import ROOT
from publish import Page, Problem, leave, publish

DRIVER = ROOT / "scripts/compare/transformers_lookup.py"
EXAMPLES = ("llama-lookup", "llama-lookahead")
HOW_TO_BUILD = "cmake --build DIR/build --target " + " ".join(EXAMPLES) + " llama-quantize -j"
GREEDY = "speclab autoregressive"
# Name -> strategy and options. The budget is "fixed", so that each drafts as much as its counterpart.
# Each of the first four has a counterpart in another program; the others have none.
OURS = {
    GREEDY: ("autoregressive", {}),
    "speclab prompt_lookup, 16": ("prompt_lookup", {"length": 16, "budget": "fixed"}),
    "speclab prompt_lookup, 10": ("prompt_lookup", {"length": 10, "budget": "fixed"}),
    "speclab lookahead W15 N5 G15": ("lookahead", {"W": 15, "N": 5, "G": 15, "budget": "fixed"}),
    "speclab suffix_decoding": ("suffix_decoding", {"length": 5, "min_score": 0.4, "budget": "fixed"}),
    "speclab composition of copies": ("composition", {"sources": '["text"]', "budget": "fixed"}),
}
LLAMA = "llama.cpp greedy", "llama.cpp lookup, 16", "llama.cpp lookahead W15 N5 G15"
TRANSFORMERS = "transformers greedy", "transformers prompt lookup, 10"
GREEDY_OF = {"speclab": GREEDY, "llama.cpp": LLAMA[0], "transformers": TRANSFORMERS[0]}
ANSWERS = {
    LLAMA[1]: "speclab prompt_lookup, 16",
    LLAMA[2]: "speclab lookahead W15 N5 G15",
    TRANSFORMERS[1]: "speclab prompt_lookup, 10",
}


def said(output):
    """An output of llama.cpp without colours, and without the lines in which lookup prints candidates."""
    return re.sub(r"\033\[[0-9;]*m| - draft candidate: token=\d+\n", "", output)


def read_example(log, answer, lookahead):
    """Reads the numbers that an example program of llama.cpp prints. `answer` is its standard output after the prompt."""

    def found(pattern, kind=float):
        match = re.search(pattern, log)
        if not match:
            raise Problem(f"no line {pattern!r} in the output of llama.cpp:\n{log[-1500:]}")
        return kind(match.group(1))

    encoded, decoded = found(r"encoded\s+(\d+) tokens", int), found(r"decoded\s+(\d+) tokens", int)
    seconds, accepted = found(r"decoded\s+\d+ tokens in\s+([\d.]+) seconds"), found(r"n_accept\s*=\s*(\d+)", int)
    # Each pass of the example's loop emits one token and the accepted ones. In lookup, the first pass emits the token from
    # prefill, and the last pass needs no forward. lookahead emits the token from prefill before it begins to count.
    calls = decoded - accepted - (0 if lookahead else 1)
    return {
        "context": encoded,
        "tokens": decoded - (0 if lookahead else 1),
        "calls": calls,
        "ms": seconds * 1e3,
        "prefill_ms": found(r"encoded\s+\d+ tokens in\s+([\d.]+) seconds") * 1e3,
        "text": said(answer),
    }


class Llama:
    def __init__(self, folder, model, threads):
        missing = [name for name in EXAMPLES if not (folder / "build/bin" / name).exists()]
        if missing:
            raise Problem(
                f"{', '.join(missing)} missing in {folder}/build/bin. Build them:\n    {HOW_TO_BUILD.replace('DIR', str(folder))}"
            )
        self.checkout = engine.LlamaCpp(folder)
        self.file = self.checkout.quantized(model, "bf16")
        self.threads = threads

    def command(self, name, tokens, context, file):
        command = [
            self.checkout.build / "bin" / ("llama-lookahead" if name == LLAMA[2] else "llama-lookup"),
            # The program stops after counting more than n tokens; lookahead does not count the first token.
            *(
                "-m",
                self.file,
                "-t",
                self.threads,
                "-c",
                # lookahead needs contiguous cells of the KV cache for its window in every step. The cells of earlier
                # steps are freed in part, so they leave holes.
                context + tokens + (4096 if name == LLAMA[2] else 512),
                "-n",
                tokens - (2 if name == LLAMA[2] else 1),
            ),
            *("--temp", 0, "--no-escape", "--ignore-eos", "-f", file),
        ]
        if name != LLAMA[2]:
            command += ["--draft-max", 16 if name == LLAMA[1] else 0]
        return [str(word) for word in command]

    def decode(self, name, prompt, tokens):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(prompt["text"] + "\n")  # the program drops one newline at the end
            file.flush()
            command = self.command(name, tokens, len(prompt["ids"]), file.name)
            result = subprocess.run(
                command,
                check=False,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=3600,
                stdin=subprocess.DEVNULL,
            )
        if result.returncode != 0:
            raise Problem(f"{shlex.join(command)} failed with code {result.returncode}:\n{result.stderr[-1500:]}")
        answer = said(result.stdout)
        at = answer.find(prompt["text"])
        log = result.stdout + result.stderr
        got = read_example(log, answer[at + len(prompt["text"]) :] if at >= 0 else "", name == LLAMA[2])
        if got["context"] != len(prompt["ids"]):
            raise Problem(
                f"{name} reads prompt {prompt['id']} as {got['context']} tokens, SpecLab as {len(prompt['ids'])}"
            )
        return got


class Transformers:
    """One transformers process for the whole run, because importing torch takes longer than decoding a text."""

    def __init__(self, python, model, threads, dtype):
        command = [str(word) for word in (python, DRIVER, model, threads, dtype)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.answer()["ready"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise Problem(f"transformers ended with code {self.process.wait()}; its message is above")
        return json.loads(line)

    def decode(self, name, prompt, tokens):
        asked = {"ids": prompt["ids"], "tokens": tokens, "lookup": 10 if name == TRANSFORMERS[1] else 0}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        got = self.answer()
        return {
            "tokens": len(got["ids"]) - got["prefill_tokens"],
            "calls": got["calls"],
            "ms": got["decode_ns"] * 1e-6,
            "prefill_ms": got["prefill_ns"] * 1e-6,
            "ids": got["ids"],
        }

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def speclab(args, name, prompt, tokens):
    strategy, options = OURS[name]
    settings = {"max_tokens": tokens, "min_length": tokens, **options}
    command = [
        args.speclab,
        "generate",
        "--model",
        args.model,
        "--threads",
        args.threads,
        "--strategy",
        strategy,
        "--json",
    ]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    record = json.loads(engine.call([*command, "--prompt", prompt["question"]], timeout=3600))
    if record.get("error"):
        raise Problem(f"{name}, prompt {prompt['id']}: {record['error']}")
    steps = record["steps"]
    return {
        "tokens": sum(step["emitted"] for step in steps),
        "calls": len(steps),
        "ms": record["wall_ns"] * 1e-6,
        "prefill_ms": record["prefill_ns"] * 1e-6,
        "ids": record["tokens"],
        "text": record["text"],
        "context": record["prompt_tokens"],
        "prompt_text": record["prompt_text"],
    }


def read_prompts(file, per_category):
    """The first turn of the first `per_category` prompts of each category (0: of all), as {"id", "category",
    "question"}."""
    prompts, seen = [], {}
    for line in file.read_text().splitlines():
        entry = json.loads(line)
        category = entry.get("category", "")
        seen[category] = seen.get(category, 0) + 1
        if per_category == 0 or seen[category] <= per_category:
            prompts.append(
                {
                    "id": str(entry.get("id", entry.get("question_id"))),
                    "category": category,
                    "question": entry["turns"][0],
                }
            )
    return prompts


def summarise(runs, prompts):
    """Program -> tokens per call over all prompts, ms per token (median over repeats), speedups over its own greedy
    decoding and over SpecLab's, number of texts equal to SpecLab's greedy ones."""
    summary = {}
    for name, of_prompt in runs.items():
        tokens = sum(of_prompt[prompt["id"]][0]["tokens"] for prompt in prompts)
        calls = sum(of_prompt[prompt["id"]][0]["calls"] for prompt in prompts)
        repeats = len(next(iter(of_prompt.values())))
        ms = [sum(of_prompt[prompt["id"]][i]["ms"] for prompt in prompts) for i in range(repeats)]
        by_prompt = {}
        for prompt in prompts:
            got = of_prompt[prompt["id"]]
            by_prompt[prompt["id"]] = {
                "tau": got[0]["tokens"] / got[0]["calls"] if got[0]["calls"] else None,
                "ms_per_token": statistics.median(entry["ms"] for entry in got) / got[0]["tokens"]
                if got[0]["tokens"]
                else None,
                "same_text": got[0]["same_text"],
            }
        summary[name] = {
            "tau": tokens / calls,
            "ms_per_token": statistics.median(ms) / tokens,
            "same_text": sum(entry["same_text"] is True for entry in by_prompt.values()),
            "by_prompt": by_prompt,
        }
    for name, entry in summary.items():
        base = GREEDY_OF[name.split()[0]]
        entry["speedup"] = summary[base]["ms_per_token"] / entry["ms_per_token"]
        entry["beside_speclab_greedy"] = summary[GREEDY]["ms_per_token"] / entry["ms_per_token"]
    return summary


def table(summary, prompts):
    rows = [
        [
            "program",
            "tokens per call",
            "ms per token",
            "speedup over own greedy",
            "over SpecLab's greedy",
            "texts equal to SpecLab's greedy",
        ]
    ]
    for name, entry in summary.items():
        rows.append(
            [
                name,
                f"{entry['tau']:.3f}",
                f"{entry['ms_per_token']:.2f}",
                f"{entry['speedup']:.2f}",
                f"{entry['beside_speclab_greedy']:.2f}",
                f"{entry['same_text']} of {len(prompts)}",
            ]
        )
    return aligned(rows)


def prompt_table(summary, prompts):
    rows = [
        ["tokens per call", *(prompt["id"] for prompt in prompts)],
        ["", *(prompt["category"] for prompt in prompts)],
    ]
    for name, entry in summary.items():
        taus = [entry["by_prompt"][prompt["id"]]["tau"] for prompt in prompts]
        rows.append([name, *("-" if tau is None else f"{tau:.2f}" for tau in taus)])
    return aligned(rows)


def aligned(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    )


def verdicts(summary):
    """One line for each pair in ANSWERS of which both sides were measured: SpecLab's tokens per call and speed as
    multiples of the other program's."""
    lines = []
    for theirs, ours in ANSWERS.items():
        if theirs not in summary:
            continue
        a, b = summary[ours], summary[theirs]
        more, faster = a["tau"] / b["tau"], b["ms_per_token"] / a["ms_per_token"]
        lines.append(f"{ours}: {more:.2f} times the tokens per call and {faster:.2f} times the speed of {theirs}.")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--llama-cpp",
        type=pathlib.Path,
        metavar="DIR",
        help="checkout with a build in build/; default: without llama.cpp",
    )
    parser.add_argument(
        "--python",
        type=pathlib.Path,
        help="interpreter with torch, transformers, gguf and accelerate; default: without transformers",
    )
    parser.add_argument(
        "--dtype",
        default="bfloat16",
        choices=["bfloat16", "float32"],
        help="weights of transformers, default %(default)s",
    )
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--speclab", type=pathlib.Path, default=ROOT / "build/release/speclab")
    parser.add_argument(
        "--prompts",
        type=pathlib.Path,
        default=ROOT / "configs/prompts/speclab.jsonl",
        help="file of prompts; only first turns are used",
    )
    parser.add_argument(
        "--per-category", type=int, default=1, help="first n prompts of each category, 0: all; default %(default)s"
    )
    parser.add_argument("--tokens", type=int, default=128, help="tokens of a text, including the one from prefill")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", type=pathlib.Path, help="file for the counts and times of every text, the commands and the machine"
    )
    args = parser.parse_args()
    if min(args.tokens - 1, args.repeats, args.threads) < 1:
        parser.error("needs at least two tokens, one repeat and one thread")
    return args


def measure(args, programs, prompts):
    """Returns two things: program -> prompt -> one result per repeat; and a list of the cores that other processes used
    during each decoding by SpecLab or llama.cpp."""
    runs, others = {name: {prompt["id"]: [] for prompt in prompts} for name in programs}, []
    order = random.Random(args.seed)
    for repeat in range(args.repeats):
        jobs = [(name, prompt) for name in programs for prompt in prompts]
        order.shuffle(jobs)
        for i, (name, prompt) in enumerate(jobs):
            print(
                f"\rrepeat {repeat + 1}/{args.repeats}, {i + 1}/{len(jobs)}: {name:<32}",
                end="",
                file=sys.stderr,
                flush=True,
            )
            before, begin = engine.cpu_reading(), time.monotonic()
            got = programs[name](name, prompt, args.tokens)
            # The CPU time of the transformers process is known only after its end.
            if not name.startswith("transformers"):
                others.append(engine.others_use(before, engine.cpu_reading(), time.monotonic() - begin))
            got["same_text"] = same_text(got, prompt)
            runs[name][prompt["id"]].append(
                {key: value for key, value in got.items() if key not in ("ids", "text", "context", "prompt_text")}
            )
    print(file=sys.stderr)
    return runs, others


def same_text(got, prompt):
    """Compares ids if the program prints them, up to the end of the shorter list. Otherwise the program's text must begin with
    SpecLab's greedy text."""
    if "ids" in got:
        length = min(len(got["ids"]), len(prompt["greedy"]["ids"]))
        return got["ids"][:length] == prompt["greedy"]["ids"][:length]
    ours, theirs = prompt["greedy"]["text"].strip(), got["text"].strip()
    return theirs[: len(ours)] == ours


def main():
    args = arguments()
    if not args.speclab.exists() or not args.model.exists():
        raise Problem(
            f"{args.speclab} or {args.model} is missing: scripts/setup.sh, scripts/get_model.sh and a release build make them."
        )
    began = datetime.datetime.now(datetime.UTC)
    programs = {name: lambda *job: speclab(args, *job) for name in OURS}
    llama = transformers = None
    if args.llama_cpp:
        llama = Llama(args.llama_cpp.resolve(), args.model, args.threads)
        programs |= {name: llama.decode for name in LLAMA}
    if args.python:
        transformers = Transformers(args.python, args.model, args.threads, args.dtype)
        programs |= {name: transformers.decode for name in TRANSFORMERS}
    prompts = read_prompts(args.prompts, args.per_category)
    for prompt in prompts:  # the ids for every program, and the text to compare with
        prompt["greedy"] = speclab(args, GREEDY, prompt, args.tokens)
        prompt["ids"], prompt["text"] = prompt["greedy"]["context"], prompt["greedy"]["prompt_text"]
    runs, others = measure(args, programs, prompts)
    if transformers:
        transformers.close()
    summary = summarise(runs, prompts)
    page = Page("Drafting without a draft model, beside llama.cpp and transformers")
    machine = engine.machine()
    page.say(
        f"{machine['cpu']}, {args.threads} threads; {args.model.name}; {engine.call([args.speclab, '--version']).strip()}\n"
        + (
            f"llama.cpp {llama.checkout.state['commit'][:9]} of {llama.checkout.state['date']}, bf16 weights\n"
            if llama
            else ""
        )
        + (f"{transformers.version}\n" if transformers else "")
        + f"{began:%Y-%m-%d %H:%M} UTC; {len(prompts)} prompts, {args.tokens} tokens each, greedy; interleaved repeats: {args.repeats}\n"
        "call: a forward of the target after the prompt; the tokens that the prompt's forward emits are not counted;\n"
        "16 or 10 in a name: most tokens that a step drafts"
    )
    page.say(table(summary, prompts))
    page.say(prompt_table(summary, prompts))
    page.say(verdicts(summary))
    advice = "the times are not reliable, because other programs took a part of the processor; run the comparison again on a quiet machine. Tokens per call do not depend on other processes."
    quiet = page.say_how_quiet(others, "decodings", advice)
    if args.out:
        homes = {args.llama_cpp: "LLAMA_CPP", args.python: "PYTHON", ROOT: "."}
        record = {
            "what": "SpecLab's drafting without a model beside llama.cpp's and transformers', scripts/compare/compare_drafting.py",
            "date": began.isoformat(timespec="seconds"),
            **quiet,
            "machine": machine,
            "programs": {name: OURS[name] for name in OURS}
            | ({name: llama.command(name, args.tokens, 0, "PROMPT") for name in LLAMA} if llama else {}),
            "llama_cpp": llama and llama.checkout.state,
            "transformers": transformers and transformers.version,
            "prompts": [
                {key: prompt[key] for key in ("id", "category")} | {"context": len(prompt["ids"])} for prompt in prompts
            ],
            "summary": summary,
            "runs": runs,
        }
        publish(args.out, page, record, homes)


if __name__ == "__main__":
    leave(main, "compare_drafting")
