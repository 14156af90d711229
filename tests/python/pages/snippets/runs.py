"""How commands run that decode: with more options, which make them short."""

import json
import re
import shutil

from .laboratory import SMALL, TARGET


def as_it_stands(test, laboratory, text):
    """Runs the command unchanged. TARGET and DIR stand for any model, COMMAND for any command."""
    text = re.sub(r"\b(TARGET|DIR)\b", TARGET, text).replace("COMMAND", "run")
    test.succeeds(laboratory.run(text), text)


def with_options(options):
    """Runs the command with more options that make it short."""

    def check(test, laboratory, text):
        test.succeeds(laboratory.run(text + options), text + options)

    return check


def small_run(test, laboratory, text):
    test.succeeds(laboratory.run(text + SMALL), text + SMALL)


def small_run_of_toys(test, laboratory, text):
    """Makes a small run without a calibration, because times on a toy are not those of a model. Earlier commands of the page make the
    datastore. One strategy needs two threads."""
    short = text + " --set prompts.limit=2 --set seeds=1 --set max_tokens=8 --threads 2 --backend cpu"
    test.succeeds(laboratory.run(short), short)


def small_run_on_two_threads(test, laboratory, text):
    """Makes a small run on two threads, for cases that draft while the target verifies."""
    short = text + SMALL.replace("--threads 1", "--threads 2")
    test.assertIn("--threads 2", short)
    test.succeeds(laboratory.run(short), short)


def small_run_of_all_prompts(test, laboratory, text):
    """Makes a small run with all prompts, for a config that quotes numbers by category."""
    short = text + SMALL.replace(" --set prompts.limit=2", "")
    test.succeeds(laboratory.run(short), short)


def own_pair(test, laboratory, text):
    """TARGET and DRAFT stand for models of the reader."""
    small_run(test, laboratory, text.replace("TARGET", TARGET).replace("DRAFT", "models/draft/smollm2-135m-instruct"))


def few_answers(test, laboratory, text):
    """Leaves out fewer prompts than the command of the page, because the small run has only two."""
    short = text.replace("0[1-3]", "01")
    test.assertNotEqual(short, text)
    test.succeeds(laboratory.run(short), short)


def trace_of_any(test, laboratory, text):
    """CONFIG stands for a config."""
    command = text.replace("CONFIG", "configs/quickstart.json") + " --dry-run"
    test.succeeds(laboratory.run(command), command)


def small_preflight(test, laboratory, text):
    """A short preflight; the tiny model is no target for a verdict."""
    result = laboratory.run(text + " --tokens 8 --gamma 2 --threads 1 --out results/runs/preflight")
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)
    shutil.rmtree(laboratory.folder / "results/runs/preflight")


def smaller_twin(test, laboratory, text):
    """Runs the command with an inflated model of 128 x 192 instead of 2048 x 8192, and four tokens."""
    short = text.replace("hidden=2048,ffn=8192", "hidden=128,ffn=192") + " --set max_tokens=4"
    test.assertNotEqual(short, text)
    test.succeeds(laboratory.run(short), short)


def dry_run_of_any(test, laboratory, text):
    """NAME stands for a config; makes a dry run of two configs."""
    for name in ("quickstart", "draft_capability"):
        command = text.replace("NAME", name) + " --dry-run"
        test.succeeds(laboratory.run(command), command)


def go_on(test, laboratory, text):
    """CONFIG and DIR stand for the config and folder of a small run."""
    laboratory.need_run("results/runs/go-on", "gamma_sweep")
    command = text.replace("DIR", "results/runs/go-on").replace("CONFIG", "configs/gamma_sweep.json" + SMALL)
    test.succeeds(laboratory.run(command), command)


def run_of_one_context(test, laboratory, text):
    """Runs the loop for one context, on few prompts."""
    short = text.replace("512 1k 2k 4k 7k", "512").replace("; done", SMALL + " --filter 'gamma=2'; done")
    test.succeeds(laboratory.run(short), short)


def describe_any(test, laboratory, text):
    """NAME stands for a strategy."""
    test.succeeds(laboratory.run(text.replace("NAME", "prompt_lookup")), text)


def audit_any(test, laboratory, text):
    """NAME stands for an acceptance rule."""
    test.succeeds(laboratory.run(text.replace("NAME", "rejection")), text)


def write_controllers(laboratory):
    """Small controllers for any draft in place of trained ones."""
    for schedule in ("disco", "specdec_pp"):
        network = {
            "features": ["confidence"],
            "mean": [0.5],
            "scale": [0.2],
            "layers": [{"weights": [[1]], "bias": [0]}],
        }
        file = {"format": "speclab controller", "version": 1, "schedule": schedule, "draft": None, "threshold": 0.5}
        (laboratory.folder / f"build/{schedule}.json").write_text(json.dumps(file | network))


def with_controllers_and_small_run(test, laboratory, text):
    """Runs the command on few prompts, with small controllers."""
    write_controllers(laboratory)
    small_run(test, laboratory, text)
