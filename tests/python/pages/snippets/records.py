"""How commands run that read records of runs: on small runs with the names of those on the page."""

import json
import re
import shutil

from tiny_model import ROOT

from .laboratory import SMALL
from .runs import small_run, write_controllers


def on_small_run(test, laboratory, text):
    """Runs the command unchanged, after making a small run for each run that it names. RUN stands for any run. A run with a date has two
    cases, because the figures of a report take seconds; those of all cases are drawn from the runs without a date."""
    text = re.sub(r"\bRUN\b", "results/runs/any", text)
    for run in re.findall(r"results/runs/[\w-]+", text):
        dated = re.fullmatch(r"results/runs/(\w+)-\d{8}-\d{6}", run)
        if dated:
            laboratory.need_run(run, dated[1], " --filter '^autoregressive$|gamma=4$'")
        else:
            laboratory.need_run(run, "gamma_sweep")
    test.succeeds(laboratory.run_once(text), text)


def on_small_trace(test, laboratory, text):
    """Makes a trace with short drafts, and for --check a run of the same prompts. The tiny model is no target for a verdict."""
    laboratory.need_run(re.search(r"results/runs/[\w-]+", text)[0], "trace")
    write_controllers(laboratory)
    for option in ("check", "costs"):
        other = re.search(rf"--{option} (results/runs/[\w-]+)", text)
        if other:
            text = text.replace(other[1], "results/runs/checked")
            laboratory.need_run("results/runs/checked", "quickstart")
    test.succeeds(laboratory.run(text), text)


def on_small_ranks(test, laboratory, text):
    """Makes a trace of trees and a small tree file."""
    run = re.search(r"results/runs/[\w-]+", text)[0]
    if not (laboratory.folder / run / "summary.json").exists():
        cases = '[{"strategy": "tree_speculation", "draft": "distilled", "widths": [8], "children": "best"}]'
        make = f"speclab trace configs/quickstart.json --set 'cases={cases}' --out {run} -q{SMALL}"
        test.succeeds(laboratory.run(make), make)
    tree = {"format": "speclab tree 1", "parents": [0, 0, 1], "ranks": [1, 2, 1]}
    (laboratory.folder / "tree.json").write_text(json.dumps(tree))
    test.succeeds(laboratory.run(text), text)


def on_small_grid(test, laboratory, text):
    """Runs the command unchanged on a small run of lookahead_wng. Exit code 1 is a verdict about the tiny model."""
    for run in re.findall(r"results/runs/[\w-]+", text):
        laboratory.need_run(run, "lookahead_wng", " --filter 'autoregressive|W=[124]/N=[35]$' --set max_tokens=24")
    result = laboratory.run(text)
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)


def simulated_beside_a_run(test, laboratory, text):
    """Exit code 1 is a verdict about times of the tiny model."""
    for run in re.findall(r"results/runs/[\w-]+", text):
        laboratory.need_run(run, "gamma_sweep")
    result = laboratory.run(text)
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)


def merged_shards(test, laboratory, text):
    """Merges small shards. Those that no other snippet has measured are measured first."""
    *shards, merged = re.findall(r"results/runs/[\w-]+", text)
    for number, folder in enumerate(shards, 1):
        laboratory.need_run(folder, "gamma_sweep", f" --shard {number}/{len(shards)}")
    shutil.rmtree(laboratory.folder / merged, ignore_errors=True)
    test.succeeds(laboratory.run(text), text)


def comparison(test, laboratory, text):
    """Checks that the named baselines exist (NAME stands for any), then runs the command on copies of a small run. Exit code 1 is
    a verdict. An A/A run is a run of its own, which is refused if the machine was busy."""
    for baseline in re.findall(r"results/baselines/(?!NAME\b|MACHINE\b)[\w/-]+", text):
        test.assertTrue((ROOT / baseline / "summary.json").exists(), baseline)
    laboratory.need_run("results/runs/compared", "gamma_sweep")
    words = text.split()
    for place in (2, 3):
        words[place] = f"results/runs/compared-{place}"
        target = laboratory.folder / words[place]
        if not target.exists():
            shutil.copytree(laboratory.folder / "results/runs/compared", target)
    for place in [at + 1 for at, word in enumerate(words) if word == "--aa"]:
        words[place] = "results/runs/compared-again"
        laboratory.need_run(words[place], "gamma_sweep", own=True)
    result = laboratory.run_once(" ".join(words))
    if "--aa" in words and "got a run on a busy machine" in result.stderr:
        return
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)


BEST_FIXED = " --set repeats=2 --filter '^autoregressive$|^speculative_sampling/'"


def budget_pages(test, laboratory, text):
    """Runs the command on two small runs of budget_best_fixed, each with one strategy."""
    other = BEST_FIXED + " --set prompts.file=configs/prompts/speclab.jsonl --set prompts.split=fit"
    laboratory.need_run("results/runs/chosen_on", "budget_best_fixed", other)
    if "configs/" in text:
        return small_run(test, laboratory, text)
    if "measured_on" in text:
        laboratory.need_run("results/runs/measured_on", "budget_best_fixed", BEST_FIXED)
    test.succeeds(laboratory.run(".venv/bin/python " + text), text)


def best_fixed_settings(test, laboratory, text):
    """Runs the sweep for one strategy, as a run beside the one of budget_pages()."""
    short = text.replace("results/runs/chosen_on", "results/runs/sweep") + SMALL + BEST_FIXED
    test.succeeds(laboratory.run(short), short)
