"""Runs every command and code snippet of the pages, and the example of every command's --help, from the text itself.

They run in a folder with tiny random models that have the names of the real ones, so that the commands are those of the page.
RULES says how each snippet is run: unchanged, with more options that make it short, or not at all, and then what is checked
instead. A snippet without a rule fails.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from tiny_model import ROOT, exit_status, write_tiny_model

BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", ROOT / "build/release/speclab"))
BENCH = pathlib.Path(os.environ.get("SPECLAB_BENCH", ROOT / "build/release/speclab_bench"))
PAGES = (
    *("README.md", "configs/README.md", "configs/devices/README.md", "strategies/README.md", "CONTRIBUTING.md"),
    *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md")),
)
TARGET = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
SMALL = (
    " --set prompts.limit=2 --set max_tokens=8 --set repeats=1 --set warmup=0"
    """ --set 'calibration={"rounds": 2, "rows": 4}' --threads 1 --backend cpu"""
)
PROGRAM = r"(?:(?:build/release/)?speclab(?:_bench)? |scripts/[\w/]+\.(?:sh|py)|\.venv/bin/python |ctest |cmake )"


class Snippet:
    def __init__(self, page, line, kind, text):
        self.page, self.line, self.kind, self.text = page, line, kind, text

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text}"


def snippets_of_page(page):
    """Whole fenced blocks, lines of indented blocks, and spans in backticks that begin with a program."""
    found, fence, block, begin = [], None, [], 0
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    indented = False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if fence is None:
                fence, block, begin = line[3:].strip(), [], number + 1
            else:
                found.append(Snippet(page, begin, fence, "\n".join(block) + "\n"))
                fence = None
        elif fence is not None:
            block.append(line)
        elif line.startswith("    ") and (indented or not lines[number - 2].strip()):
            indented = True
            found.append(Snippet(page, number, "command", re.sub(r"\s+# .*", "", line.strip())))
        else:
            indented = False
            for span in re.findall(r"`([^`]+)`", line):
                if re.match(PROGRAM, span):
                    found.append(Snippet(page, number, "span", span))
    return found


def help_examples():
    overview = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"^  (\w+) ", overview, re.M):
        text = subprocess.run([BINARY, name, "--help"], capture_output=True, text=True, check=True).stdout
        yield Snippet(f"speclab {name} --help", 0, "command", text.split("\nExample:\n")[1].strip())


class Laboratory:
    """The folder in which commands run."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        write_tiny_model(self.folder / TARGET, layers=30)
        for draft in sorted((ROOT / "models/draft").iterdir()):
            write_tiny_model(self.folder / "models/draft" / draft.name, layers=1, seed=2)
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "build/release/speclab").symlink_to(BINARY)
        (self.folder / "results/runs").mkdir(parents=True)
        for name in ("configs", "scripts", ".venv", "results/baselines"):
            (self.folder / name).symlink_to(ROOT / name)
        text = "The sky is blue because blue light is scattered more than red light. " * 8
        (self.folder / "notes.txt").write_text(text, encoding="utf-8")
        (self.folder / "answers.jsonl").write_text(json.dumps({"text": text}) + "\n", encoding="utf-8")

    def run(self, command):
        if command.startswith("speclab "):
            command = "build/release/" + command
        environment = {**os.environ, "MPLBACKEND": "Agg", "SPECLAB_BACKEND": "cpu"}
        return subprocess.run(
            ["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, env=environment, timeout=300
        )

    def need_run(self, run, config, more=""):
        """Makes a small run with the name of a run on a page."""
        if (self.folder / run / "summary.json").exists():
            return
        result = self.run(f"speclab run configs/{config}.json --out {run} -q{SMALL}{more}")
        assert result.returncode == 0, result.stderr


def as_it_stands(test, laboratory, text):
    """TARGET and DIR stand for any model, COMMAND for any command."""
    text = re.sub(r"\b(TARGET|DIR)\b", TARGET, text).replace("COMMAND", "run")
    test.succeeds(laboratory.run(text), text)


def with_options(options):
    """Runs the command with more options that make it short."""

    def check(test, laboratory, text):
        test.succeeds(laboratory.run(text + options), text + options)

    return check


def small_run(test, laboratory, text):
    test.succeeds(laboratory.run(text + SMALL), text + SMALL)


def on_small_run(test, laboratory, text):
    """Runs the command unchanged, after making a small run for each run that it names. RUN stands for any run."""
    text = re.sub(r"\bRUN\b", "results/runs/any", text)
    for run in re.findall(r"results/runs/[\w-]+", text):
        dated = re.fullmatch(r"results/runs/(\w+)-\d{8}-\d{6}", run)
        laboratory.need_run(run, dated[1] if dated else "gamma_sweep")
    test.succeeds(laboratory.run(text), text)


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


def small_run_of_toys(test, laboratory, text):
    """Without a calibration, whose times mean nothing on a toy. The datastore comes from the commands before it on the page. One
    strategy needs two threads."""
    short = text + " --set prompts.limit=2 --set seeds=1 --set max_tokens=8 --threads 2 --backend cpu"
    test.succeeds(laboratory.run(short), short)


def small_run_on_two_threads(test, laboratory, text):
    """For cases that draft while the target verifies."""
    short = text + SMALL.replace("--threads 1", "--threads 2")
    test.assertIn("--threads 2", short)
    test.succeeds(laboratory.run(short), short)


def small_run_of_all_prompts(test, laboratory, text):
    """For a config that quotes numbers by category."""
    short = text + SMALL.replace(" --set prompts.limit=2", "")
    test.succeeds(laboratory.run(short), short)


def own_pair(test, laboratory, text):
    """TARGET and DRAFT stand for models of the reader."""
    small_run(test, laboratory, text.replace("TARGET", TARGET).replace("DRAFT", "models/draft/smollm2-135m-instruct"))


def on_small_grid(test, laboratory, text):
    """Runs the command unchanged on a small run of lookahead_wng. Exit code 1 is a verdict about the tiny model."""
    for run in re.findall(r"results/runs/[\w-]+", text):
        laboratory.need_run(run, "lookahead_wng", " --filter 'autoregressive|W=[124]/N=[35]$' --set max_tokens=24")
    result = laboratory.run(text)
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)


def page_of_lookahead(test, laboratory, text):
    """Its --help: the page wants whole runs of two configs on the real model (tests/python/runs/test_lookahead_page.py)."""
    script = text.split()[0]
    test.succeeds(laboratory.run(f".venv/bin/python {script} --help"), text)


def few_answers(test, laboratory, text):
    """Leaves out fewer prompts than the page, because the small run has only two."""
    short = text.replace("0[1-3]", "01")
    test.assertNotEqual(short, text)
    test.succeeds(laboratory.run(short), short)


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
        laboratory.need_run(words[place], "gamma_sweep")
    result = laboratory.run(" ".join(words))
    if "--aa" in words and "got a run on a busy machine" in result.stderr:
        return
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)


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


def optimized_tree(test, laboratory, text):
    """Runs the command on a small run, made first where the command takes one. Exit code 1: no tree is worth its time."""
    make = f"speclab optimize tree configs/quickstart.json --draft distilled --out tree.json{SMALL} -q"
    if not (laboratory.folder / "tree.json.run/summary.json").exists():
        result = laboratory.run(make)
        test.assertIn(result.returncode, (0, 1), result.stderr)
    if "configs/" not in text:
        result = laboratory.run(text)
        test.assertIn(result.returncode, (0, 1), result.stderr)


def optimized_config(test, laboratory, text):
    """Runs the command on the two prompts of one category. Exit code 1: no setting is faster with the tiny model."""
    short = (
        " --set 'prompts.categories=[\"code\"]' --set max_tokens=8 --longest 2 --nodes 4 --depth 2 --lookahead-rows 8"
    )
    result = laboratory.run(text + short + " --repeats 1 --threads 1 -q")
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)


def grid_of_trees(test, laboratory, text):
    """Runs the command on few prompts. Exit code 1: no tree is worth its time with the tiny model."""
    result = laboratory.run(text + SMALL + " -q")
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertNotIn("error:", result.stderr)


def cells_of_a_grid(test, laboratory, text):
    """Runs the command after those before it on the page. Exit code 1 of `check` is a verdict about the tiny model."""
    if not (laboratory.folder / "grid.json").exists():
        make = "speclab optimize tree configs/acceptance_rules.json --draft distilled --set prompts.split=fit --set options.temperature=0 --out chosen.json --grid grid.json"
        grid_of_trees(test, laboratory, make)
    if " pick " not in text and not (laboratory.folder / "build/cells/config.json").exists():
        pick = ".venv/bin/python scripts/tree_grid.py pick grid.json configs/sequoia_table.json --out build/cells"
        test.succeeds(laboratory.run(pick), pick)
    if " check " in text and not (laboratory.folder / "results/runs/cells/config.json").exists():
        cells_of_a_grid(test, laboratory, "speclab run build/cells/config.json --out results/runs/cells")
    result = laboratory.run(text + (SMALL if " run " in text else ""))
    test.assertIn(result.returncode, (0, 1) if " check " in text else (0,), result.stderr)


def case_with_a_tree(test, laboratory, text):
    """Runs the command with a small tree file in place of one that `speclab optimize` wrote."""
    tree = {"parents": [0, 0, 1], "ranks": [1, 2, 1]}
    (laboratory.folder / "tree.json").write_text(json.dumps({"format": "speclab tree 1", **tree}))
    ranges = [{"from": 0, "to": 0.5, "parents": [], "ranks": []}, {"from": 0.5, "to": 1, **tree}]
    (laboratory.folder / "trees.json").write_text(json.dumps({"format": "speclab tree 2", "trees": ranges}))
    test.succeeds(laboratory.run(text + SMALL), text)


def trees_by_confidence(test, laboratory, text):
    """Runs the command on few prompts. Exit code 1: no tree is worth its time with the tiny model."""
    result = laboratory.run(text + SMALL + " -q")
    test.assertIn(result.returncode, (0, 1), result.stderr)
    test.assertIn("rees by confidence", result.stdout)


def write_skip_file(laboratory, name):
    skip = {"format": "speclab skip 1", "layers": list(range(30)), "skip": [3, 7]}
    (laboratory.folder / name).write_text(json.dumps(skip))


def with_skip_file(test, laboratory, text):
    """Runs the command with a small skip file in place of one that `speclab optimize` wrote."""
    write_skip_file(laboratory, "skip.json")
    test.succeeds(laboratory.run(text + " --set max_tokens=4"), text)


def with_skip_file_and_small_run(test, laboratory, text):
    """Runs the command on few prompts, with a small skip file."""
    write_skip_file(laboratory, "build/skip.json")
    test.succeeds(laboratory.run(text + SMALL + " --filter 'skip_file|gamma=2'"), text)


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


def mention(test, laboratory, text):
    """Checks that a command without arguments exists."""
    test.succeeds(laboratory.run(" ".join(text.split()[:2]) + " --help"), text)


def script(test, laboratory, text):
    """Not run, because it builds, installs, downloads, needs other programs or takes minutes. Checks that it exists and its syntax."""
    name = re.search(r"scripts/[\w/]+\.(?:sh|py)", text)[0]
    test.assertTrue((ROOT / name).exists(), text)
    checker = (
        ["bash", "-n"]
        if name.endswith(".sh")
        else [sys.executable, "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"]
    )
    test.assertEqual(exit_status(*checker, ROOT / name), 0, text)


def adapter(test, laboratory, text):
    """Not run, because it needs a project that the reader fetches. Checks that the adapter and its function exist."""
    module, function = re.search(r"(audit\.adapters\.\w+):(\w+)", text).groups()
    code = (ROOT / "scripts" / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8")
    test.assertRegex(code, rf"(?m)^(def )?{function}\b", text)


def presets(test, laboratory, text):
    """Not run, because it builds or runs all tests. Checks that its presets exist."""
    known = {one["name"] for one in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    for name in re.findall(r"--preset (\w+)", text):
        test.assertIn(name, known, text)
    for name in re.findall(r"-D(\w+)=", text):
        test.assertIn(name, (ROOT / "CMakeLists.txt").read_text(), text)


def benchmark(test, laboratory, text):
    """Runs the command with the tiny model and lists the benchmarks instead of timing them."""
    words = text.replace("MODEL", TARGET).replace("--backend cuda", "--backend cpu").split()[1:]
    if "--model" not in words:
        words += ["--model", TARGET]
    result = laboratory.run(" ".join([str(BENCH), *words, "--benchmark_list_tests"]))
    test.assertEqual(result.returncode, 0, result.stderr)
    test.assertTrue(result.stdout.strip(), text)


def history_of_runs(test, laboratory, text):
    """Its --help: the command changes committed files. tests/python/runs/test_history.py runs it in a folder of its own."""
    test.succeeds(laboratory.run(".venv/bin/python scripts/history.py --help"), text)


def package_install(test, laboratory, text):
    """Not run, because tests/python/package/test_install.py does. Checks that there is a package."""
    test.assertTrue((ROOT / "pyproject.toml").exists(), text)


def own_test(test, laboratory, text):
    """Not run, because a test runs the same code (tests/python/package/test_tutorial.py). Checks that its files exist."""
    for name in re.findall(r"(?:tests|python)/[\w/]+\.\w+", text):
        test.assertTrue((ROOT / name).exists(), text)


COMMANDS = [
    (r"speclab run configs/NAME\.json$", dry_run_of_any),
    (r"speclab run \S+ --dry-run", as_it_stands),
    (r"speclab run (CONFIG )?--resume (--out )?DIR$", go_on),
    (r"speclab run --resume results/runs/", on_small_run),
    (r"speclab run configs/own_pair\.json .*TARGET", own_pair),
    (r"speclab run configs/lookahead_ablation\.json$", small_run_of_all_prompts),
    (r"speclab run configs/.*trees?\.json", case_with_a_tree),
    (r"speclab run configs/layer_skip_search\.json$", with_skip_file_and_small_run),
    (r"speclab run configs/schedules\.json", with_controllers_and_small_run),
    (r"speclab run configs/budget_best_fixed\.json .*budget_page\.py", budget_pages),
    (r"speclab run configs/budget_best_fixed\.json ", best_fixed_settings),
    (r"speclab run configs/toys\.json", small_run_of_toys),
    (r"speclab run configs/overlap\.json", small_run_on_two_threads),
    (r"speclab run configs/", small_run),
    (r"speclab optimize tree .* --grid ", grid_of_trees),
    (r"speclab optimize tree .* --by-confidence ", trees_by_confidence),
    (r"(\.venv/bin/python )?scripts/tree_grid\.py (pick|check) |speclab run build/cells/", cells_of_a_grid),
    (r"speclab optimize tree ", optimized_tree),
    (r"speclab optimize config ", optimized_config),
    (
        r"speclab optimize layers ",
        with_options(" --limit 2 --tokens 8 --gamma 2 --evaluations 3 --threads 1 --backend cpu"),
    ),
    (r"speclab generate .* skip_file=", with_skip_file),
    (r"for context in ", run_of_one_context),
    (r"speclab generate --model \S+ --inflate", smaller_twin),
    (r"speclab generate --model", with_options(" --set max_tokens=4")),
    (r"speclab audit NAME$", audit_any),
    (r"speclab (theory|list|model|audit|toy) \S|speclab COMMAND --help$", as_it_stands),
    (r"speclab lookahead results/runs/", on_small_grid),
    (r"scripts/pages/lookahead_page\.py", page_of_lookahead),
    (r"scripts/pages/budget_page\.py", budget_pages),
    (r"(SPECLAB_AUDIT_FILE=\S+ )?PYTHON scripts/audit\.py", adapter),
    (r"speclab simulate results/runs/.* --limit", simulated_beside_a_run),
    (r"speclab simulate results/runs/.* --wng", on_small_grid),
    (r"speclab replay results/runs/.* --tree", on_small_ranks),
    (r"speclab replay results/runs/.* --fitted", on_small_grid),
    (r"speclab replay results/runs/.* --mix", own_test),  # TraceCli in tests/experiments/cli/trace_cli_test.cpp
    (r"speclab replay results/runs/", on_small_trace),
    (r"speclab trace CONFIG$", trace_of_any),
    (r"speclab trace configs/", small_run),
    (r"speclab preflight ", small_preflight),
    (r"speclab (explain|report|simulate) (results/runs/|RUN\b)", on_small_run),
    (r"speclab compare ", comparison),
    (r"speclab merge results/runs/", merged_shards),
    (r"speclab (datastore|ngram) build --", as_it_stands),
    (r"grep -v .* > build/answers\.jsonl$", as_it_stands),
    (r"grep -v .* > build/few_answers\.jsonl$", few_answers),
    (r"speclab numerics --model \S+$", with_options(" --limit 1 --tokens 2 --threads 1")),
    (r"speclab numerics --model \S+ --limit", with_options(" --class f32-kv16")),
    (r"speclab bench --model", with_options(" --threads 1")),
    (r"speclab describe NAME$", describe_any),
    (r"speclab describe \w+$", as_it_stands),
    (r"speclab (\w+|datastore build|ngram build|optimize layers|optimize tree|optimize config)$", mention),
    (r"speclab_bench ", benchmark),
    (r"(cmake|ctest) ", presets),
    (r"(\.venv/bin/python )?scripts/history\.py", history_of_runs),
    (r"(\.venv/bin/python )?scripts/", script),
    (r"pip install \.$", package_install),
    (r"PYTHONPATH=\S+ \.venv/bin/python tests/", own_test),
    (r"PYTHONPATH=\S+ \.venv/bin/python scripts/", script),
]


class Snippets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.laboratory = Laboratory(folder.name)

    def succeeds(self, result, text):
        self.assertEqual(result.returncode, 0, f"{text}\n{result.stderr}{result.stdout[-500:]}")

    def check(self, snippets):
        for snippet in snippets:
            with self.subTest(str(snippet)):
                if snippet.kind in ("command", "span"):
                    plain = snippet.text.removeprefix("build/release/")
                    rules = [how for pattern, how in COMMANDS if re.match(pattern, plain)]
                    self.assertTrue(rules, f"{snippet} has no rule: add one to COMMANDS")
                    rules[0](self, self.laboratory, snippet.text)
                elif snippet.kind == "json":
                    (self.laboratory.folder / "snippet.json").write_text(snippet.text, encoding="utf-8")
                    self.succeeds(self.laboratory.run("speclab run snippet.json --dry-run"), snippet.text)
                elif snippet.kind == "python":
                    compile(
                        snippet.text, str(snippet), "exec"
                    )  # test_audit.py and tests/python/package/test_tutorial.py run it
                elif snippet.kind == "cpp":
                    self.compiles(snippet)
                else:
                    self.assertIn(snippet.kind, ("mermaid", "text"), f"{snippet} has no rule")  # a picture

    def compiles(self, snippet):
        """Compiles the snippet as a strategy, with the warnings of the project. The conformance tests check the rest."""
        file = self.laboratory.folder / "again.cpp"
        if file.exists() and file.read_text(encoding="utf-8") == snippet.text:
            return  # the same snippet on another page
        file.write_text(snippet.text, encoding="utf-8")
        flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT}"]
        result = subprocess.run([os.environ.get("CXX", "c++"), *flags, file], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, f"{snippet.page}:{snippet.line}\n{result.stderr}")

    def test_pages(self):
        found = {page: snippets_of_page(page) for page in PAGES}
        for page in ("README.md", "configs/README.md", "strategies/README.md", "CONTRIBUTING.md", "docs/commands.md"):
            self.assertTrue(found[page], page)
        once = {snippet.text: snippet for snippets in found.values() for snippet in snippets}  # pages share some
        self.check(once.values())

    def test_every_metric_is_in_the_description_of_the_record(self):
        listed = subprocess.run(
            [BINARY, "list", "metrics", "--json"], capture_output=True, text=True, check=True
        ).stdout
        section = (ROOT / "results/SCHEMA.md").read_text(encoding="utf-8").split("### metrics\n")[1].split("\n### ")[0]
        described = {name for row in re.findall(r"^\| ([\w, ]+) \|", section, re.M) for name in row.split(", ")}
        names = {metric["name"] for metric in json.loads(listed)}
        self.assertGreater(len(names), 40)
        self.assertEqual(names - described, set(), "add them to results/SCHEMA.md")
        self.assertEqual(described - names - {"name"}, set(), "metrics that there are not")

    def test_examples_of_help(self):
        examples = list(help_examples())
        self.assertGreater(len(examples), 10)
        self.check(examples)

    def test_a_new_kind_of_snippet_needs_a_rule(self):
        for text in ("speclab frobnicate results", "curl something"):
            self.assertFalse([pattern for pattern, _ in COMMANDS if re.match(pattern, text)], text)


if __name__ == "__main__":
    unittest.main()
