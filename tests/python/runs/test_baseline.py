"""Pages that show committed runs: only numbers of the record, and the committed pages are up to date."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import baseline
import synthetic_run


def draw_nothing(run, wanted, formats):
    """Stands in for report.draw_figures(): makes an empty picture for each figure that was asked for."""
    (run.folder / "figures").mkdir(exist_ok=True)
    drawn = []
    for name in wanted:
        path = run.folder / "figures" / f"{name}.{formats[0]}"
        path.write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
        drawn.append((types.SimpleNamespace(name=name), path))
    return drawn, []


def setUpModule():
    global MADE_UP
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    MADE_UP = pathlib.Path(folder.name) / "run"
    synthetic_run.write(MADE_UP)


class Adopting(unittest.TestCase):
    """A project of its own with a made-up run to adopt."""

    looks_at_lines = (
        False  # raw lines are not compressed for tests that look at pages only, because that takes half a second
    )

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "results").mkdir()
        marked = "".join(f"{begin}\nold\n{end}\n" for begin, end in baseline.MARKS.values())
        (self.root / "README.md").write_text(f"before\n{marked}after\n")
        self.run_folder = self.root / "run"

    def call(self, *arguments):
        err = io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stderr(err))
            if "time_split" in arguments:  # a figure that no test looks at, because drawing takes a second
                stack.enter_context(unittest.mock.patch.object(baseline.report, "draw_figures", draw_nothing))
                stack.enter_context(unittest.mock.patch.object(baseline, "write_small_figure", shutil.copyfile))
                if not self.looks_at_lines:
                    stack.enter_context(unittest.mock.patch.object(baseline.kept_lines, "pack", lambda folder: b""))
            return baseline.main([str(argument) for argument in arguments], self.root), err.getvalue()

    def write_run(self):
        shutil.copytree(MADE_UP, self.run_folder, dirs_exist_ok=True)

    def adopt_changed(self, change, *more):
        self.write_run()
        summary = json.loads((self.run_folder / "summary.json").read_text())
        change(summary)
        (self.run_folder / "summary.json").write_text(json.dumps(summary))
        return self.call("adopt", self.run_folder, "machine/x", *more)


class Pages(Adopting):
    def test_without_a_baseline_the_pages_say_so(self):
        self.assertEqual(self.call("pages")[0], 0)
        for page in ("README.md", "results/README.md"):
            self.assertIn("No baseline run has been committed yet", (self.root / page).read_text())
        self.assertEqual(self.call("check")[0], 0)

    def test_a_ladder_is_a_baseline_for_each_target(self):
        synthetic_run.write_ladder(self.run_folder)
        with unittest.mock.patch.object(baseline.figures, "MODULES", ["speedup"]):  # all of them take a while
            status, err = self.call("adopt", self.run_folder, "machine/ladder")
        self.assertEqual(status, 0, err)
        names = sorted(folder.name for folder in (self.root / "results/baselines/machine").iterdir())
        self.assertEqual(names, ["ladder-135M", "ladder-1B", "ladder-500M"])
        page = (self.root / "results/README.md").read_text()
        self.assertIn("target: 1B inflated from made-up", page)
        self.assertEqual(page.count("ladder-1B/figures/scale_ladder.svg"), 1)
        self.assertEqual(page.count("scale_ladder.svg"), 1)

    def test_the_page_says_what_a_run_shows(self):
        self.write_run()
        finding = self.root / "finding.txt"
        finding.write_text("Longer drafts pay.\n\nThe paper says so too.\n\n")
        adopt = "adopt", self.run_folder, "machine/x", "--figures", "time_split"
        self.assertEqual(self.call(*adopt, "--finding", finding), (0, ""))
        shown = "**What it shows.** Longer drafts pay.\n\nThe paper says so too.\n\nCPU: "
        self.assertIn(shown, (self.root / "results/README.md").read_text())
        self.assertEqual(self.call(*adopt), (0, ""))  # a run that replaces another one
        self.assertNotIn("What it shows", (self.root / "results/README.md").read_text())
        status, err = self.call(*adopt, "--finding", self.root / "absent.txt")
        self.assertEqual(status, 2)
        self.assertIn("absent.txt", err)

    def test_an_adopted_run_is_shown_with_its_machine(self):
        self.write_run()
        environment = json.loads((self.run_folder / "environment.json").read_text())
        environment["command_line"] = [f"{self.root}/build/speclab"]
        (self.run_folder / "environment.json").write_text(json.dumps(environment))
        status, err = self.call("adopt", self.run_folder, "none/quickstart")
        self.assertEqual(status, 0, err)
        kept = self.root / "results/baselines/none/quickstart"
        self.assertFalse((kept / "cases").exists())
        self.assertNotIn(str(self.root), (kept / "environment.json").read_text())
        summary = json.loads((kept / "summary.json").read_text())
        for page in ("README.md", "results/README.md"):
            text = " ".join((self.root / page).read_text().split())
            self.assertIn("no machine (made-up numbers)", text)
            self.assertIn("2000-01-01", text)
            self.assertIn("ot run on a GPU yet", text)
        for case in summary["cases"]:
            self.assertIn(f"{case['metrics']['tokens_per_second']:.1f}", text)
        page = (self.root / "results/README.md").read_text()
        self.assertIn("| equal to autoregressive | unexplained, % of a step | without machine drift, % |", page)
        self.assertIn(" | yes | 2.2 [0.1, 4.6] (n = 3) | -1.2 [-4.3, 1.7] (n = 3) |", page)
        front = (self.root / "README.md").read_text()
        speedups = [case["metrics"]["speedup"] for case in summary["cases"][1:]]
        for text, speedup in ((page, speedups[0]), (front, max(speedups))):
            self.assertIn(f"| {speedup:.2f} [{0.96 * speedup:.2f}, {1.04 * speedup:.2f}] (n = 3)", text)
        self.assertTrue(front.startswith("before\n") and front.endswith("\nafter\n"))
        self.assertNotIn("\nold\n", front)
        self.assertIn("results/baselines/none/quickstart/figures/speedup_gamma.svg", front)
        self.assertIn("| speedup, decode only [95 %] | end to end |", front)
        shares = [100 * case["waterfall"][-1]["unexplained_share"] for case in summary["cases"] if case["waterfall"]]
        words = " ".join(front.split())
        self.assertIn(
            f"The calibration leaves {min(shares):.1f} to {max(shares):.1f} % of a step's time unexplained", words
        )
        self.assertIn(f"over the {len(shares)} cases with a waterfall in all committed records of idle machines", words)
        self.assertEqual(self.call("check")[0], 0)
        (self.root / "results/README.md").write_text("by hand")
        status, err = self.call("check")
        self.assertEqual(status, 1)
        self.assertIn("results/README.md does not match its records", err)

    def test_a_record_without_the_newer_fields_says_what_it_knows(self):
        def change(summary):
            for case in summary["cases"]:
                case["metrics"].pop("texts_equal")
                for entry in case["predictions"].values():
                    entry.pop("kind")
                if case["waterfall"]:
                    last = case["waterfall"][-1]
                    last.pop("unexplained_share"), last.pop("unexplained_share_ci95")

        status, err = self.adopt_changed(change, "--figures", "time_split")
        self.assertEqual(status, 0, err)
        page = (self.root / "results/README.md").read_text()
        case = json.loads((self.root / "results/baselines/machine/x/summary.json").read_text())["cases"][1]
        before, after = case["waterfall"][4]["speedup"], case["waterfall"][-1]["speedup"]
        self.assertIn(f" | yes | {100 * (1 - after / before):.1f} | -1.2 [-4.3, 1.7] (n = 3) |", page)
        self.assertNotIn("not those of its reference", page)

    def test_without_the_term_of_drift_there_is_one_share(self):
        def change(summary):
            for case in summary["cases"]:
                case["waterfall"] = [term for term in case["waterfall"] if term["step"] != "machine_drift"]

        status, err = self.adopt_changed(change, "--figures", "time_split")
        self.assertEqual(status, 0, err)
        page = (self.root / "results/README.md").read_text()
        self.assertIn(" | yes | 2.2 [0.1, 4.6] (n = 3) |\n", page)
        self.assertNotIn("without machine drift, %", page)

    def test_speedups_of_other_texts_are_marked(self):
        status, err = self.adopt_changed(lambda s: None, "--figures", "time_split")
        self.assertEqual(status, 0, err)
        page = (self.root / "results/README.md").read_text()
        summary = json.loads((self.root / "results/baselines/machine/x/summary.json").read_text())
        other = [case for case in summary["cases"] if case["metrics"]["texts_equal"] is False]
        self.assertGreater(len(other), 0)
        self.assertEqual(page.count("(n = 3) \\* |"), len(other))
        self.assertIn("\n\\* The texts of this case differ from those of its reference", page)

    def test_the_range_of_what_stays_unexplained_is_over_all_cases(self):
        def change(summary):
            shares = iter(((-0.05, 0.01), (0.02, 0.06), (0.07, -0.03), (0.01, 0.0)))
            for case in summary["cases"]:
                if case["waterfall"]:
                    last = case["waterfall"][-1]
                    last["unexplained_share"], last["residual_share"] = next(shares, (0.0, 0.0))

        status, err = self.adopt_changed(change, "--figures", "time_split")
        self.assertEqual(status, 0, err)
        found = baseline.runs(self.root)
        self.assertIn(
            "leaves -5.0 to 7.0 % of a step's time unexplained (-3.0 to 6.0 % without machine drift), over",
            baseline.unexplained_range(found),
        )
        self.assertEqual(baseline.unexplained_range([]), "")

    def test_a_busy_run_takes_no_part_in_that_range(self):
        status, err = self.adopt_changed(lambda s: None, "--figures", "time_split")
        self.assertEqual(status, 0, err)
        quiet = baseline.unexplained_range(baseline.runs(self.root))
        self.assertIn("leaves 2.2 to 2.2 % of a step's time", quiet)
        kept = self.root / "results/baselines/machine/x"
        summary = json.loads((kept / "summary.json").read_text())
        summary["machine"] = {"busy": True, "text": "Busy machine: drift."}
        for case in summary["cases"]:
            if case["waterfall"]:
                case["waterfall"][-1]["unexplained_share"] = 0.9
        shutil.copytree(kept, kept.with_name("busy"))
        (kept.with_name("busy") / "summary.json").write_text(json.dumps(summary))
        found = baseline.runs(self.root)
        self.assertEqual(sorted(run.folder.name for run in found), ["busy", "x"])
        self.assertEqual(baseline.unexplained_range(found), quiet)
        self.assertEqual(baseline.unexplained_range([run for run in found if run.busy]), "")

    def test_bounds_chains_and_predictions_have_columns_of_their_own(self):
        def change(summary):
            case = summary["cases"][1]
            case["predictions"]["measured_t_speedup"] = {"value": 1.87, "kind": "prediction"}
            case["metrics"].update(
                tau_bound=2.351,
                tau_bound_ci95=[2.304, 2.398],
                position_acceptance=0.6543,
                position_bound=0.7651,
                speed_over_chain=1.231,
                speed_over_chain_ci95=[1.203, 1.259],
            )

        status, err = self.adopt_changed(change, "--figures", "time_split")
        self.assertEqual(status, 0, err)
        page = (self.root / "results/README.md").read_text()
        self.assertIn(
            "| equal to autoregressive | speedup, predicted | τ, at most [95 %] | accepted at a position | at most "
            "| speed / best chain [95 %] | unexplained, % of a step | without machine drift, % |",
            page,
        )
        rows = [row for row in page.splitlines() if "| yes |" in row]
        unexplained = "2.2 [0.1, 4.6] (n = 3) | -1.2 [-4.3, 1.7] (n = 3) |"
        self.assertIn(
            f"| yes | 1.87 | 2.35 [2.30, 2.40] (n = 3) | 0.654 | 0.765 | 1.23 [1.20, 1.26] (n = 3) | {unexplained}",
            rows[1],
        )
        self.assertIn(f"| yes |  |  |  |  |  | {unexplained}", rows[2], "a case without these metrics")

    def test_a_program_outside_the_repository_keeps_its_name_alone(self):
        for program, kept in (("/private/bin/speclab", "speclab"), ("build/release/speclab", "build/release/speclab")):
            self.write_run()
            environment = json.loads((self.run_folder / "environment.json").read_text())
            environment["command_line"] = [program, "run", "configs/x.json", "--set", "system=/private/bin"]
            (self.run_folder / "environment.json").write_text(json.dumps(environment))
            status, err = self.call("adopt", self.run_folder, "machine/x", "--figures", "time_split")
            self.assertEqual(status, 0, err)
            found = json.loads((self.root / "results/baselines/machine/x/environment.json").read_text())
            self.assertEqual(
                found["command_line"],
                [kept, "run", "configs/x.json", "--set", "system=/private/bin"],
                "only the program",
            )
            self.assertEqual({**found, "command_line": 0}, {**environment, "command_line": 0})

    def front_rows(self, speedups, families=None):
        """Ids of the rows that the first page shows of cases with these speedups; by default each case is a family of its own."""
        self.write_run()
        summary = json.loads((self.run_folder / "summary.json").read_text())
        reference, pattern = summary["cases"][:2]
        summary["cases"] = [reference]
        for number, speedup in enumerate(speedups):
            case = json.loads(json.dumps(pattern))
            kind = families[number] if families else number
            case["id"] = f"speculative_sampling/draft=d{kind}/gamma={number}"
            case["metrics"]["speedup"] = speedup
            summary["cases"].append(case)
        (self.run_folder / "summary.json").write_text(json.dumps(summary))
        run = baseline.Run(self.run_folder)
        return [case.metric("speedup") for case in baseline.front_cases(run) if not case.autoregressive]

    def test_the_first_page_shows_the_best_of_each_kind_and_one_that_loses(self):
        self.assertEqual(self.front_rows([1.2, 1.4, 1.6, 0.8], families="aabb"), [1.6, 1.4, 0.8])
        self.assertEqual(self.front_rows([1.2, 1.3, 1.4, 1.5, 1.6, 0.8, 0.7]), [1.6, 1.5, 1.4, 0.7])
        self.assertEqual(self.front_rows([1.2, 1.3, 0.9, 0.8, 0.7]), [1.3, 1.2, 0.9, 0.8])
        self.assertEqual(self.front_rows([1.2, 1.3]), [1.3, 1.2])

    def test_many_prompts_need_no_number(self):
        def change(summary):
            for case in summary["cases"]:
                case["prompts"] = 10

        status, err = self.adopt_changed(change, "--figures", "time_split")
        self.assertEqual(status, 0, err)
        self.assertNotIn("(n = ", (self.root / "results/README.md").read_text())

    def test_only_the_figures_that_were_asked_for(self):
        status, err = self.adopt_changed(lambda s: None, "--figures", "time_split,speedup_gamma")
        self.assertEqual(status, 0, err)
        kept = self.root / "results/baselines/machine/x/figures"
        self.assertEqual(sorted(file.name for file in kept.iterdir()), ["speedup_gamma.svg", "time_split.svg"])
        status, err = self.call("adopt", self.run_folder, "machine/y", "--figures", "time_spilt")
        self.assertEqual(status, 2)
        self.assertIn("figure time_spilt: there is no figure of this name", err)
        self.assertFalse((self.root / "results/baselines/machine/y").exists())

    def test_a_summary_of_a_newer_version_is_kept(self):
        self.write_run()
        summary = json.loads((self.run_folder / "summary.json").read_text())
        summary["description"] = "computed just now"
        (self.root / "new.json").write_text(json.dumps(summary))
        before = (self.run_folder / "summary.json").read_bytes()
        status, err = self.call(
            "adopt", self.run_folder, "machine/x", "--figures", "time_split", "--summary", self.root / "new.json"
        )
        self.assertEqual(status, 0, err)
        kept = json.loads((self.root / "results/baselines/machine/x/summary.json").read_text())
        self.assertEqual(kept["description"], "computed just now")
        self.assertEqual((self.run_folder / "summary.json").read_bytes(), before)

    def test_speedups_by_category_stand_beside_the_share_that_is_copied(self):
        def change(summary):
            for case in summary["cases"]:
                for share, part in zip((0.125, 0.75, 0.5), case["categories"].values()):
                    part["metrics"].update(copied_4grams=share, speedup=1 + share)

        status, err = self.adopt_changed(change, "--figures", "time_split")
        self.assertEqual(status, 0, err)
        page = (self.root / "results/README.md").read_text()
        self.assertRegex(page, r"\| copied 4-grams \| 12% \| 75% \| 50% \|")
        self.assertIn("| 1.12 | 1.75 | 1.50 |", page)

    def test_a_run_on_a_busy_machine_is_marked_on_every_page(self):
        text = "Busy machine: cpu_share 0.21 of autoregressive. Times and speedups of this run are doubtful."
        status, err = self.adopt_changed(
            lambda s: s.update(machine={"busy": True, "text": text}), "--figures", "time_split"
        )
        self.assertEqual(status, 0, err)
        self.assertIn(f"**{text}**", (self.root / "results/README.md").read_text())
        (self.root / "results/baselines/machine/x").rename(self.root / "results/baselines/machine/quickstart-x")
        self.call("pages")
        self.assertIn(f"**{text}**", " ".join((self.root / "README.md").read_text().split()))

    def test_what_stands_beside_published_numbers_has_a_page(self):
        quote = {
            "source": "a paper",
            "category": None,
            "reason": "so",
            "values": [{"name": "tau", "published": 2, "here": 1.5}],
        }
        (self.run_folder / "verdict").mkdir(parents=True)
        (self.run_folder / "verdict" / "verdict.json").write_text(json.dumps({"folder": f"{self.run_folder}/verdict"}))
        with unittest.mock.patch.object(
            baseline.lookahead_page.Page, "verdict", lambda page, verdict: page.parts.append(str(verdict))
        ):
            status, err = self.adopt_changed(
                lambda s: s["cases"][1].update(published=[quote], draft=None), "--figures", "time_split"
            )
        self.assertEqual(status, 0, err)
        page = (self.root / "results/lookahead.md").read_text()
        self.assertIn("| tau | 2.00 | 1.50 | a paper | so |", page)
        self.assertIn("{'folder': 'results/runs/run/verdict'}", page)

    def test_the_page_of_decoding_without_a_draft_model_has_no_runs_with_one(self):
        summary = {"cases": [{"draft": "distilled", "published": [{}]}, {"draft": None, "published": []}]}
        self.assertFalse(baseline.lookahead_page.has_something_to_say(summary))
        summary["cases"][1]["published"] = [{}]
        self.assertTrue(baseline.lookahead_page.has_something_to_say(summary))

    def test_runs_that_prove_nothing_are_refused(self):
        self.write_run()
        original = json.loads((self.run_folder / "summary.json").read_text())
        for change, message in (
            (lambda s: s.update(complete=False), "not complete"),
            (lambda s: s["cases"][1]["metrics"].update(matches_reference=False), "does not equal its reference"),
        ):
            summary = json.loads(json.dumps(original))
            change(summary)
            (self.run_folder / "summary.json").write_text(json.dumps(summary))
            status, err = self.call("adopt", self.run_folder, "machine/x")
            self.assertEqual(status, 2)
            self.assertIn(message, err)
            self.assertFalse((self.root / "results/baselines/machine/x").exists())


class RawLines(Adopting):
    """lines.jsonl.xz: the lines come back byte for byte; if they are too large, only their totals are kept."""

    def files(self, folder):
        return {path.name: path.read_bytes() for path in folder.rglob("*.jsonl")}

    looks_at_lines = True
    adopted = None

    def adopt_anew(self):
        status, err = self.adopt_changed(lambda s: None, "--figures", "time_split")
        self.assertEqual(status, 0, err)

    def adopt(self):
        """Gives the test a copy of a project that has adopted the run, which is made once."""
        if RawLines.adopted is None:
            self.adopt_anew()
            folder = tempfile.TemporaryDirectory()
            self.addClassCleanup(folder.cleanup)
            RawLines.adopted = shutil.copytree(self.root, pathlib.Path(folder.name) / "project")
        else:
            shutil.copytree(RawLines.adopted, self.root, dirs_exist_ok=True)
        return self.root / "results/baselines/machine/x"

    def test_a_kept_run_is_in_the_history_once(self):
        self.adopt()
        self.adopt_anew()
        lines = (self.root / "results/history.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["config"] for line in lines], ["synthetic"])
        self.assertIn("## synthetic, made up", (self.root / "results/trend.md").read_text())

    def test_a_run_folder_comes_back_byte_for_byte(self):
        kept = self.adopt()
        self.assertEqual(self.call("expand", "machine/x", self.root / "again")[0], 0)
        self.assertGreater(len(self.files(self.run_folder)), 3)
        self.assertEqual(self.files(self.root / "again"), self.files(self.run_folder))
        for name in ("config.json", "environment.json", "summary.json"):
            self.assertEqual((self.root / "again" / name).read_bytes(), (kept / name).read_bytes())
        lines = [baseline.Run(folder).cases[1].lines() for folder in (self.run_folder, self.root / "again")]
        self.assertEqual(*lines)

    def test_the_same_lines_give_the_same_bytes(self):
        kept = self.adopt()
        before = (kept / baseline.kept_lines.NAME).read_bytes()
        for path in self.run_folder.rglob("*.jsonl"):
            os.utime(path, (0, 0))
        self.assertEqual(baseline.kept_lines.pack(self.run_folder), before)

    def test_a_torn_last_line_is_not_kept(self):
        before = self.adopt() / baseline.kept_lines.NAME
        before = before.read_bytes()
        with sorted(self.run_folder.glob("cases/*.jsonl"))[0].open("a") as file:
            file.write('{"case": "torn')
        self.assertEqual(baseline.kept_lines.pack(self.run_folder), before)

    def test_a_large_run_keeps_totals_hashes_and_each_text_once(self):
        self.adopt()
        packed = self.root / "slim.xz"
        packed.write_bytes(baseline.kept_lines.pack(self.run_folder, most_bytes=100))
        form, parts = baseline.kept_lines.read(packed)
        self.assertEqual(form, "slim")
        texts = {}
        for path in self.run_folder.glob("cases/*.jsonl"):
            raw = [json.loads(line) for line in path.read_text().splitlines()]
            kept = [json.loads(line) for line in parts[f"cases/{path.name}"]]
            self.assertEqual(len(raw), len(kept))
            for line, slim in zip(raw, kept):
                for key in (
                    "case",
                    "prompt",
                    "seed",
                    "repeat",
                    "output_hash",
                    "logits_hash",
                    "work",
                    "wall_ns",
                    "prefill_ns",
                ):
                    self.assertEqual(slim[key], line[key], key)
                self.assertEqual(slim["tokens"], len(line["tokens"]))
                self.assertEqual(slim["totals"]["steps"], len(line["steps"]))
                for key in ("drafted", "accepted", "emitted", "rows"):
                    self.assertEqual(slim["totals"][key], sum(step[key] for step in line["steps"]), key)
                for i in range(4):
                    self.assertEqual(slim["totals"]["ns"][i], sum(step["ns"][i] for step in line["steps"]))
                self.assertLess(len(json.dumps(slim)), len(json.dumps(line)))
                if "text" in line:
                    texts[line["output_hash"]] = line["text"]
        kept_texts = [json.loads(line) for line in parts["texts"]]
        self.assertEqual({entry["output_hash"]: entry["text"] for entry in kept_texts}, texts)
        self.assertEqual(len(kept_texts), len(texts))
        for name in ("calibration.jsonl", "teacher.jsonl"):
            if (self.run_folder / name).exists():
                self.assertEqual(parts[name], (self.run_folder / name).read_text().splitlines())

    def test_bounds_of_steps_are_kept_with_the_steps_only(self):
        self.adopt()
        (self.run_folder / "bounds.jsonl").write_text('{"case": "a", "prompt": "1", "seed": 1, "steps": []}\n')
        for form, most_bytes in (("full", 10**9), ("slim", 100)):
            packed = self.root / f"{form}.xz"
            packed.write_bytes(baseline.kept_lines.pack(self.run_folder, most_bytes))
            found, parts = baseline.kept_lines.read(packed)
            self.assertEqual((found, "bounds.jsonl" in parts), (form, form == "full"))

    def test_what_cannot_be_expanded_says_why(self):
        kept = self.adopt()
        (self.root / "full").mkdir()
        (self.root / "full/file").touch()
        status, err = self.call("expand", "machine/x", self.root / "full")
        self.assertEqual(status, 2)
        self.assertIn("not empty", err)
        file = kept / baseline.kept_lines.NAME
        for content, message in (
            (baseline.kept_lines.pack(self.run_folder, most_bytes=100), "a slim record"),
            (file.read_bytes()[:-20], "not a record of lines"),
            (None, "kept without its raw lines"),
        ):
            file.unlink() if content is None else file.write_bytes(content)
            status, err = self.call("expand", "machine/x", self.root / "again")
            self.assertEqual(status, 2)
            self.assertIn(message, err)
            self.assertFalse((self.root / "again").exists())

    def test_a_summary_has_a_case_on_each_line(self):
        text = (self.adopt() / "summary.json").read_text()
        summary = json.loads(text)
        self.assertEqual(text, baseline.summary_text(summary))
        lines = text.splitlines()
        for case in summary["cases"]:
            self.assertEqual([json.loads(line.rstrip(",")) for line in lines if f'"id":"{case["id"]}"' in line], [case])
        self.assertEqual(len(lines), 2 + len(summary) + len(summary["cases"]) + 1)

    def test_predictions_share_their_texts(self):
        kept = self.adopt()
        stored = json.loads((kept / "summary.json").read_text())
        self.assertEqual(len(set(stored["texts"])), len(stored["texts"]))
        original = json.loads((self.run_folder / "summary.json").read_text())
        read = baseline.Run(kept).summary
        self.assertNotIn("texts", read)
        compared = 0
        for before, packed, after in zip(original["cases"], stored["cases"], read["cases"]):
            for name in ("t_n", "t_n_ci95"):
                if before["metrics"].get(name) is not None:
                    self.assertNotIn(name, packed["metrics"])
                    self.assertEqual(after["metrics"][name].keys(), before["metrics"][name].keys())
            for name, prediction in (before["predictions"] or {}).items():
                for text in ("equation", "assumptions"):
                    self.assertIsInstance(packed["predictions"][name][text], int)
                    self.assertEqual(after["predictions"][name][text], prediction[text])
                    compared += 1
        self.assertGreater(compared, 10)
        for bad in (len(stored["texts"]), "no place", -1, True, 0.0):
            case = next(case for case in stored["cases"] if case["predictions"])
            next(iter(case["predictions"].values()))["equation"] = bad
            (kept / "summary.json").write_text(json.dumps(stored))
            with self.assertRaisesRegex(baseline.BadRun, 'the list "texts" lacks'):
                baseline.Run(kept)

    def test_a_name_has_a_machine_and_a_config(self):
        self.write_run()
        status, err = self.call("adopt", self.run_folder, "quickstart")
        self.assertEqual(status, 2)
        self.assertIn("expected MACHINE/CONFIG", err)


class Committed(unittest.TestCase):
    def test_summaries_have_a_case_on_each_line(self):
        files = list((ROOT / "results/baselines").glob("**/summary.json"))
        self.assertGreater(len(files), 10)
        for file in files:
            text = file.read_text(encoding="utf-8")
            self.assertEqual(text, baseline.summary_text(json.loads(text)), file)

    def test_pages_are_up_to_date(self):
        for path, content in baseline.pages(ROOT).items():
            self.assertEqual(path.read_text(encoding="utf-8"), content, "run scripts/baseline.py pages")


if __name__ == "__main__":
    unittest.main()
