"""The report of a made-up run (synthetic_run.py): its numbers, sentences and marks, and how bad input is refused. test_report_browser.py
looks at the page in a browser."""

import contextlib
import io
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "tests/python/runs")]

import report
import synthetic_run
from report import cases_table, page, sentences, texts, values

import figures
from figures import record


def setUpModule():
    global RUN
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    RUN = pathlib.Path(folder.name) / "run"
    synthetic_run.write(RUN)


class Scratch(unittest.TestCase):
    """A copy of the run that a test may damage."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "run"
        shutil.copytree(RUN, self.folder)

    def edit(self, name, change):
        content = json.loads((self.folder / name).read_text())
        change(content)
        (self.folder / name).write_text(json.dumps(content))

    def main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = report.main([str(self.folder), *map(str, arguments)])
        return status, out.getvalue(), err.getvalue()

    def assertIn(self, member, container, msg=None):
        """The assertion of unittest with a shorter message, because a page is too long for one."""
        if isinstance(container, str) and member not in container:
            self.fail(f"{member!r} is not in {container[:2000]!r} ... {msg or ''}")
        super().assertIn(member, container, msg)

    def assertNotIn(self, member, container, msg=None):
        if isinstance(container, str) and member in container:
            at = container.index(member)
            self.fail(f"{member!r} is in {container[max(0, at - 300) : at + 300]!r} {msg or ''}")
        super().assertNotIn(member, container, msg)

    def html(self, *arguments):
        """The page without figures."""
        status, _, err = self.main("--no-figures", *arguments)
        self.assertEqual(status, 0, err)
        return (self.folder / "report.html").read_text()


class Report(Scratch):
    def test_one_self_contained_file(self):
        status, out, err = self.main()
        self.assertEqual(status, 0, err)
        html = (self.folder / "report.html").read_text()
        self.assertNotRegex(html, r'(src|href)="(?!#)')
        self.assertNotRegex(html, r"url\((?!#)|@import|fetch\(|XMLHttpRequest|import\(")
        self.assertIn(">rule</button></th>", html, "alpha belongs to a rule")
        self.assertIn('data-sort="rejection" class="words">rejection</td>', html)
        self.assertEqual(html.count("<svg"), len(list((self.folder / "figures").glob("*.svg"))))
        for case in record.Run(self.folder).cases:
            self.assertIn(f'title="{case.id}"', html)
        ids = re.findall(r'\bid="([^"]+)"', html)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertIn("15 figures", out)
        self.assertIn("no temperature", err)

    def test_lossy_and_unequal_cases_are_marked(self):
        self.edit("summary.json", lambda summary: summary["cases"][1]["metrics"].update(matches_reference=False))
        self.main("--no-figures")
        html = (self.folder / "report.html").read_text()
        self.assertIn('class="bad">NO', html)
        self.assertEqual(html.count('class="lossy">lossy'), sum(case.lossy for case in record.Run(self.folder).cases))

    def test_published_numbers_stand_beside_those_of_the_run(self):
        self.main("--no-figures")
        self.assertNotIn("Published numbers", (self.folder / "report.html").read_text())
        values = [
            {"name": "speedup", "published": 2.129, "here": 1.5},
            {"name": "chen_ratio", "published": 2.463, "here": None},
        ]
        row = {"source": "a <report>", "category": "maths", "reason": "another <model>", "values": values}
        self.edit("summary.json", lambda summary: summary["cases"][1].update(published=[row]))
        self.main("--no-figures")
        html = (self.folder / "report.html").read_text()
        self.assertIn(" on maths: a &lt;report&gt;", html)
        self.assertIn("another &lt;model&gt;", html)
        self.assertIn("<td>speedup</td><td>2.129</td><td>1.5</td>", html)
        self.assertIn("<td>chen_ratio</td><td>2.463</td><td></td>", html)

    def test_waterfalls_of_other_terms_have_a_table_of_their_own(self):
        terms = [
            {"step": step, "speedup": 1.5, "log_ratio": 0.0, "explanation": ""}
            for step in ("free_rows", "law", "window_rows", "residual", "measured")
        ]
        terms[-1].update(residual_share=0.01, residual_share_ci95=None)
        self.edit("summary.json", lambda summary: summary["cases"][2].update(waterfall=terms))
        self.main("--no-figures")
        html = (self.folder / "report.html").read_text()
        self.assertEqual(html.count('<th scope="col">rows of the window</th>'), 1)
        self.assertEqual(html.count("unexplained, % of a step</th>"), 2)
        self.assertEqual(html.count("without machine drift, %</th>"), 1, "the second table has no such term")

    def test_what_is_unexplained_stands_first_without_the_forwards_timed_again(self):
        self.main("--no-figures")
        html = (self.folder / "report.html").read_text()
        self.assertIn('machine drift</th><th scope="col">residual</th><th scope="col">measured</th>', html)
        self.assertIn("<td>2.2 [0.1, 4.6] (n = 3)</td><td>-1.2 [-4.3, 1.7] (n = 3)</td>", html)

    def test_only_predictions_have_errors(self):
        section = re.search(r'<section id="ledger">.*?</section>', self.html(), re.S)[0]
        formulas = re.findall(r'<table class="(\w+)">.*?<tbody>(.*?)</tbody>', section, re.S)
        kinds = {}
        for kind, rows in formulas:
            cells = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr.*?</tr>", rows)]
            kinds.setdefault(kind, []).extend(cells)
        self.assertEqual(set(kinds), {"prediction", "identity", "bound", "optimum"})
        for kind, rows in kinds.items():
            self.assertTrue(all((row[2] != "") == (kind == "prediction") for row in rows), kind)
        self.assertEqual(
            {row[0] for row in kinds["optimum"]}, {"5 [4, 7]"}, "over calibration rounds, not over prompts"
        )

    def test_the_ledger_holds_every_prediction_once(self):
        section = re.search(r'<section id="ledger">.*?</section>', self.html(), re.S)[0]
        run = record.Run(self.folder)
        for number, case in enumerate(run.cases):
            found = re.findall(rf'<tr data-case="{number}">.*?<td>([^<]*)</td>', section)
            expected = [entry["value"] for entry in (case.predictions or {}).values()]
            self.assertEqual(
                sorted(text.split()[0] for text in found), sorted(f"{value:.3g}" for value in expected), case.id
            )

    def test_a_noise_floor_of_next_to_nothing_is_not_one(self):
        self.main("--no-figures")
        self.assertIn("Differences of time below 1.0 % are noise.", (self.folder / "report.html").read_text())
        for prompts, repeats, floor in ((3, 2, 12.979), (2, 2, 0.01), (9, 1, None)):

            def change(summary):
                summary["noise_floor"] = floor
                for case in summary["cases"]:
                    case.update(prompts=prompts, repeats=repeats)

            self.edit("summary.json", change)
            self.main("--no-figures")
            html = (self.folder / "report.html").read_text()
            self.assertNotIn("are noise.", html)
            self.assertRegex(html, rf"Too few .*repeats to say .* \(prompts: {prompts}, repeats: {repeats}\)")

    def test_errors_and_incomplete_runs_are_shown(self):
        def damage(summary):
            summary["complete"] = False
            summary["errors"] = [{"case": "a/b", "prompt": "7", "message": "logits <NaN>"}]

        self.edit("summary.json", damage)
        self.main("--no-figures")
        html = (self.folder / "report.html").read_text()
        self.assertIn("not complete", html)
        self.assertIn("logits &lt;NaN&gt;", html)

    def test_a_busy_machine_is_marked(self):
        self.main("--no-figures")
        self.assertNotIn("Busy machine", (self.folder / "report.html").read_text())
        text = "Busy machine: cpu_share 0.21 of <a>. Times and speedups of this run are doubtful."
        self.edit("summary.json", lambda summary: summary.update(machine={"busy": True, "text": text}))
        self.main("--no-figures")
        self.assertIn(
            'class="bad">Busy machine: cpu_share 0.21 of &lt;a&gt;.', (self.folder / "report.html").read_text()
        )

    def test_times_of_another_program_are_marked(self):
        self.edit("summary.json", lambda summary: summary["cases"][1].update(times_note="drafted <elsewhere>"))
        self.assertIn("drafted &lt;elsewhere&gt;.</p>", self.html())

    def test_bad_runs_are_refused_with_advice(self):
        self.edit("summary.json", lambda summary: summary.update(schema_version=99))
        status, _, err = self.main()
        self.assertEqual(status, 2)
        self.assertIn("schema_version 99, expected 1", err)
        (self.folder / "summary.json").write_text('{"cases": [')
        self.assertIn("--resume", self.main()[2])
        (self.folder / "summary.json").unlink()
        status, _, err = self.main()
        self.assertEqual(status, 2)
        self.assertIn("No such file", err)

    def contents(self):
        return {path.relative_to(self.folder): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def test_a_report_elsewhere_leaves_the_run_alone(self):
        before, out = self.contents(), self.folder.parent / "page.html"
        status, _, err = self.main("--only", "time_split", "--out", out)
        self.assertEqual(status, 0, err)
        self.assertEqual(self.contents(), before)
        self.assertTrue(out.exists())
        drawn = sorted(path.name for path in (self.folder.parent / "page-figures").iterdir())
        self.assertEqual(drawn, ["time_split.pdf", "time_split.svg"])

    def test_a_record_without_lines_is_reported_from_its_summary(self):
        shutil.rmtree(self.folder / "cases")
        before, out = self.contents(), self.folder.parent / "page.html"
        status, _, err = self.main("--only", "time_split")
        self.assertEqual(status, 2)
        self.assertIn("Name a file with --out", err)
        with unittest.mock.patch.object(
            figures, "MODULES", ["timing.time_split", "confidence"]
        ):  # one from the summary, one from the lines
            status, _, err = self.main("--out", out)
        self.assertEqual(status, 0, err)
        self.assertIn("has no raw lines", err)
        self.assertIn("the raw lines of this record were not kept", err)
        self.assertEqual(self.contents(), before)
        speedup = next(case.metric("speedup") for case in record.Run(self.folder).speculative)
        self.assertIn(f"{speedup:.2f}", out.read_text())

    def test_a_summary_that_was_computed_anew_stands_in_for_the_stored_one(self):
        summary = json.loads((self.folder / "summary.json").read_text())
        summary["description"] = "computed just now"
        new = self.folder.parent / "new.json"
        new.write_text(json.dumps(summary))
        out = self.folder.parent / "page.html"
        before = self.contents()
        status, _, err = self.main("--no-figures", "--out", out, "--summary", new)
        self.assertEqual(status, 0, err)
        self.assertIn("computed just now", out.read_text())
        self.assertEqual(self.contents(), before)
        new.write_text("{")
        status, _, err = self.main("--no-figures", "--out", out, "--summary", new)
        self.assertEqual(status, 2)
        self.assertIn("speclab report RUN --json", err)

    def test_unwritable_output_is_refused(self):
        status, _, err = self.main("--no-figures", "--out", self.folder / "absent" / "report.html")
        self.assertEqual(status, 2)
        self.assertIn("Choose another place", err)


def case_of(run, name):
    return next(case for case in run.cases if case.label(without=()) == name)


class Sentences(Scratch):
    """The numbers of three cases are set, so that the sentences can be written down."""

    def said(self, change=None):
        def set_numbers(summary):
            summary["ratio_noise"] = 0.02
            speedups = {"gamma=1": (1.5, [1.4, 1.6]), "gamma=2": (0.7, [0.6, 0.8]), "gamma=3": (1.01, [0.9, 1.2])}
            summary["cases"] = [
                case
                for case in summary["cases"]
                if case["reference"] is None or case["id"].endswith(tuple(speedups)) and "distilled" in case["id"]
            ]
            for case in summary["cases"][1:]:
                value, span = speedups[case["id"].rsplit("/", 1)[1]]
                case["metrics"].update(speedup=value, speedup_ci95=span)
                case["predictions"] = {
                    "measured_t_speedup": {"value": 1.55, "equation": "", "assumptions": "", "quantity": "speedup"}
                }
            if change:
                change(summary)

        self.edit("summary.json", set_numbers)
        return [re.sub(r"<.*?>", "", str(one)) for one in sentences.of_run(record.Run(self.folder))]

    def test_three_sentences(self):
        best, loses, agrees = self.said()
        self.assertEqual(
            best,
            "The fastest case is distilled γ 1 with 1.50 [1.40, 1.60] (n = 3) times the speed of its autoregressive reference; "
            "it is faster, because even widened by the noise between repeats (2.0 %), the interval lies above 1.",
        )
        self.assertEqual(
            loses,
            "1 of 3 cases is slower than autoregressive decoding, distilled γ 2 with 0.70 [0.60, 0.80] (n = 3); for 1 it is unclear.",
        )
        self.assertIn("agree in 1 of 3 cases", agrees)
        self.assertIn("the largest +121.4 % for distilled γ 2", agrees)
        self.assertIn("the median error is 53.5 %", agrees)

    def test_noise_makes_a_verdict_unclear(self):
        def noisier(summary):
            summary["ratio_noise"] = 0.45

        self.assertIn("whether that is a difference is unclear", self.said(noisier)[0])

    def test_a_busy_machine_allows_no_verdict(self):
        best, loses, _ = self.said(lambda summary: summary.update(machine={"text": "Busy machine: x."}))
        self.assertIn("because the machine was busy", best)
        self.assertIn("No case can be called slower", loses)

    def test_one_prompt_gives_no_verdict(self):
        best, *_ = self.said(lambda summary: [case["metrics"].update(speedup_ci95=None) for case in summary["cases"]])
        self.assertIn("one prompt gives no interval", best)

    def test_the_best_case_is_lossless(self):
        def lossy(summary):
            summary["cases"][1]["lossy"] = True

        best, *_ = self.said(lossy)
        self.assertIn("The fastest lossless case is distilled γ 3 with 1.01", best)
        self.assertIn("(the lossy case distilled γ 1 reaches 1.50)", best)

    def test_a_run_without_a_speedup(self):
        (only,) = self.said(lambda summary: summary.update(cases=summary["cases"][:1]))
        self.assertIn("No case of this run has a measured speedup.", only)

    def test_measured_costs_stand_in_for_a_prediction(self):
        def costs(summary):
            for case in summary["cases"][1:]:
                case["predictions"] = {"measured_costs": {**case["predictions"]["measured_t_speedup"], "value": 1.0}}

        agrees = self.said(costs)[2]
        self.assertIn(
            "from the measured τ and the calibrated costs, prediction and measurement agree in 1 of 3 cases", agrees
        )
        self.assertIn("the largest +42.9 % for distilled γ 2", agrees)

    def test_a_prediction_of_tau_is_better_than_none(self):
        def tau(summary):
            for place, case in enumerate(summary["cases"][1:]):
                case["metrics"].update(tau=2.0, tau_ci95=[1.9, 2.1])
                case["predictions"] = {"lookahead_eq7": {"value": 2.05 + place, "equation": "", "assumptions": ""}}

        agrees = self.said(tau)[2]
        self.assertIn("Only τ is predicted, and prediction and measurement agree in 1 of 3 cases", agrees)
        self.assertIn("the median error is 52.5 %, the largest +102.5 % for distilled γ 3.", agrees)

    def test_numbers_of_cases(self):
        found = [sentences.of_all(*numbers) for numbers in ((0, 1), (1, 1), (0, 3), (2, 3), (3, 3))]
        self.assertEqual(found, ["no case", "the one case", "0 of 3 cases", "2 of 3 cases", "all 3 cases"])

    def test_names_are_escaped(self):
        self.said()
        run = record.Run(self.folder)
        with unittest.mock.patch.object(record.Case, "label", lambda *_, **__: "<i>"):
            self.assertIn("<b>&lt;i&gt;</b>", str(sentences.of_run(run)[0]))


class CasesTable(Scratch):
    def test_only_intervals_over_prompts_are_in_brackets(self):
        case = record.Run(self.folder).speculative[0]
        case.metrics.update(c=0.125, c_ci95=[0.12, 0.13], tau=2.0, tau_ci95=[1.9, 2.1])
        self.assertEqual(cases_table.cell(case, "c", "{:.3f}").text, "0.125", "its interval is over calibration rounds")
        self.assertEqual(cases_table.cell(case, "tau", "{:.2f}").text, "2.00 [1.90, 2.10]")


class Verdicts(Scratch):
    def verdict(self, span, noise):
        run = record.Run(self.folder)
        run.summary["ratio_noise"] = noise
        case = run.speculative[0]
        case.metrics["speedup_ci95"] = span
        return values.verdict(case)

    def test_intervals_are_widened_by_the_noise(self):
        for span, noise, expected in (
            ([1.01, 1.2], None, "faster"),
            ([1.01, 1.2], 0.02, "unclear"),
            ([1.03, 1.2], 0.02, "faster"),
            ([0.5, 0.99], None, "slower"),
            ([0.5, 0.99], 0.02, "unclear"),
            ([0.98, 1.02], 0.01, "same"),
            ([0.98, 1.02], 0.04, "unclear"),
            (None, 0.01, "unclear: one prompt"),
        ):
            self.assertEqual(self.verdict(span, noise), expected, (span, noise))


class Texts(Scratch):
    def data(self, **arguments):
        config = json.loads((self.folder / "config.json").read_text())
        return texts.data_of(record.Run(self.folder), config, **arguments)

    def test_steps_are_those_of_the_lines(self):
        data, note = self.data()
        self.assertEqual(note, "")
        run = record.Run(self.folder)
        for text in data["texts"]:
            case = run.cases[text["case"]]
            line = next(line for line in case.lines() if (line["prompt"], line["repeat"]) == (text["prompt"], 0))
            self.assertEqual([data["words"][place] for place in text["words"]], line["pieces"])
            self.assertEqual([step[1] for step in text["steps"]], [step["accepted"] for step in line["steps"]])
            for shown, step in zip(text["steps"], line["steps"]):
                states = [(1 if token["accepted"] else 2) if token["tested"] else 0 for token in step["tokens"]]
                self.assertEqual([token[1] for token in shown[6]], states)
        self.assertEqual(len(data["texts"]), sum(case.prompts for case in run.cases), "repeat 0 of every prompt")

    def test_a_full_page_holds_some_texts_of_every_case(self):
        whole, _ = self.data()
        size = len(json.dumps(whole["texts"]))
        data, note = self.data(most_bytes=size // 2)
        self.assertLess(len(json.dumps(data["texts"])), 0.6 * size)
        self.assertEqual({text["case"] for text in data["texts"]}, set(range(len(record.Run(self.folder).cases))))
        self.assertIn(f"{len(data['texts'])} of {len(whole['texts'])} texts", note)

    def test_a_damaged_case_leaves_the_others_usable(self):
        case = record.Run(self.folder).speculative[0]
        file = self.folder / case.file
        file.write_text(file.read_text().replace('"tokens":[', '"tokens":[1,', 1))
        data, note = self.data()
        self.assertIn("output_hash is not the hash of tokens", note)
        self.assertNotIn(1, {text["case"] for text in data["texts"]})
        self.assertGreater(len(data["texts"]), 3)
        self.assertIn("output_hash", self.html())

    def test_a_record_without_lines_has_none(self):
        shutil.rmtree(self.folder / "cases")
        self.assertEqual(self.data()[0], None)

    def test_one_case_alone_does_not_fill_the_page(self):
        lines = record.Run(self.folder).cases[1].lines()
        whole, left = texts.texts_of_case(lines, 1, texts.Words(), 10**9)
        self.assertEqual((len(whole), left), (3, 0), "repeat 0 of three prompts")
        some, left = texts.texts_of_case(lines, 1, texts.Words(), whole[0][1] + 1)
        self.assertEqual((len(some), left), (2, 1))

    def test_drafted_words_are_known_from_lines_that_come_later(self):
        """Case 1 drafts a token whose word only a later line has."""
        run = record.Run(self.folder)
        first, last = run.cases[1], run.cases[-1]
        drafted = first.lines()[0]["steps"][0]["tokens"][0]["id"]
        file = self.folder / last.file
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        lines[0]["tokens"][3], lines[0]["pieces"][3] = drafted, " known"
        lines[0]["output_hash"] = record.hash_of(lines[0]["tokens"])
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        data, _ = self.data()
        text = next(text for text in data["texts"] if text["case"] == 1)
        self.assertEqual(data["words"][text["steps"][0][6][0][0]], " known")

    def test_the_summary_need_not_be_in_the_folder(self):
        """`speclab report RUN --out` passes the summary of an unfinished run in a file of its own."""
        shutil.move(self.folder / "summary.json", self.folder.parent / "summary.json")
        html = self.html("--summary", self.folder.parent / "summary.json")
        self.assertIn('id="texts-data"', html)

    def test_a_page_with_large_figures_stays_small(self):
        figure = self.folder / "large.svg"
        figure.write_text(f"<svg>{'<g/>' * 2_200_000}</svg>")
        run = record.Run(self.folder)
        html = page.run_page(run, drawn=[(figures.all_figures()[0], figure)])
        self.assertLess(len(html.encode()), 10e6)
        self.assertIn("would make it too large", html)


class Content(Scratch):
    def test_data_cannot_end_its_script(self):
        self.edit("config.json", lambda config: config["prompts"][1].update(turns=["</script><script>alert(1)"]))
        html = self.html()
        self.assertNotIn("</script><script>alert(1)", html)
        self.assertIn("\\u003c/script\\u003e", html)

    def test_commands_repeat_the_run(self):
        words = ["build/release/speclab", "run", "configs/a b.json", "--out", "results/runs/x"]
        self.edit("environment.json", lambda environment: environment.update(command_line=words, dirty=True))
        html = self.html()
        self.assertIn("build/release/speclab run &#39;configs/a b.json&#39; --out results/runs/x", html)
        self.assertIn(f"speclab compare {self.folder} results/runs/x --gate tau,alpha,rows,calls", html)
        self.assertIn("The run had changes that this commit does not have.", html)
        self.assertIn("git checkout 0000000000", html)

    def test_values_that_do_not_exist_sort_last(self):
        html = self.html()
        reference = re.search(r'<tr id="case-0".*?</tr>', html)[0]
        self.assertIn("<td></td>", reference, "no verdict: no data-sort")
        self.assertNotIn('data-sort=""', html)

    def test_numbers_that_are_not_finite_are_left_out_of_plots(self):
        self.edit(
            "summary.json", lambda summary: summary["cases"][1]["metrics"].update(tau=float("nan"), alpha=float("inf"))
        )
        data = json.loads(re.search(r'id="data">(.*?)</script>', self.html())[1])
        self.assertEqual(data["cases"][1]["tau"][0], None)

    def test_the_selection_of_a_large_run(self):
        run = record.Run(self.folder)
        self.assertEqual(len(run.cases), 19)
        from report import plots

        chosen = [run.cases[number] for number in plots.first_selection(run)]
        self.assertLessEqual(len(chosen), plots.MOST_SELECTED)
        slowest = min((case for case in run.speculative), key=lambda case: case.metric("speedup"))
        self.assertIn(slowest, chosen)
        distilled = [
            case for case in run.speculative if case.family() == ("speculative_sampling", ("draft", "distilled"))
        ]
        self.assertIn(max(distilled, key=lambda case: case.metric("speedup")), chosen)

    def test_options_that_do_not_go_together(self):
        for words in ([], [str(self.folder), "--compare", "a", "b"], [str(self.folder), "--comparison", "x"]):
            with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit) as end:
                report.main(words)
            self.assertEqual(end.exception.code, 2)
            self.assertIn("--compare", err.getvalue())


if __name__ == "__main__":
    unittest.main()
