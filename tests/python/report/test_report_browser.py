"""The pages in a headless Chromium: scripts without errors, no request, sorting, filters, plots, keys, texts, narrow and dark screens.
Skipped without Chromium (scripts/setup.sh --browser installs it)."""

import json
import pathlib
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "tests/python/runs")]

import browser
import report
import synthetic_comparison
import synthetic_run
import synthetic_trees
from report import comparison

from figures.record import Run

TREE_CASE = "widths=4-2-2-1/rule=rejection/temperature=1"


def with_predictions(summary):
    """The made-up run has no prediction that the table shows; this one is always 5 % too high."""
    for case in summary["cases"]:
        speedup = case["metrics"].get("speedup")
        if case["reference"] and speedup:
            entry = {
                "value": 1.05 * speedup,
                "kind": "prediction",
                "measured": speedup,
                "error": 0.05,
                "quantity": "speedup",
            }
            equation = "(1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + t(gamma+1)))"
            case["predictions"]["measured_t_speedup"] = {**entry, "equation": equation, "assumptions": "made up"}
            case["by_prompt"] = {str(n): {"category": "chat", "tau": n, "speedup": 1 / n} for n in (1, 2, 3)}
    summary["calibration"] = {"t_n": {str(n): 1 + 0.05 * (n - 1) for n in range(1, 17)}}


def with_window(folder):
    """Gives the first step of a case two probes below a relay, as lookahead decoding has them."""
    case = next(case for case in Run(folder).cases if case.gamma == 2)
    file = folder / case.file
    first, rest = file.read_text().split("\n", 1)
    line = json.loads(first)
    nodes = 1 + len(line["steps"][0]["tokens"])
    line["steps"][0].update(probes=[[7, 0, -1], [8, nodes, 9], [9, nodes + 1, 7]], pool=12)
    file.write_text(json.dumps(line) + "\n" + rest)
    return case.id


def edited(folder, change):
    file = folder / "summary.json"
    summary = json.loads(file.read_text())
    change(summary)
    file.write_text(json.dumps(summary))
    return summary


def setUpModule():
    if browser.find_chromium() is None:
        print("Chromium is not installed. scripts/setup.sh --browser installs it.")
        raise SystemExit(77)
    global PAGES, RUN, BROWSER, WINDOW
    scratch = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(scratch.cleanup)
    folder = pathlib.Path(scratch.name)
    RUN = folder / "run"
    synthetic_run.write(RUN)
    WINDOW = with_window(RUN)
    summary = edited(RUN, with_predictions)
    synthetic_trees.write(folder / "trees")
    PAGES = {name: folder / f"{name}.html" for name in ("run", "trees", "comparison", "gates")}
    for name, run in (("run", RUN), ("trees", folder / "trees")):
        report.write(report.run_page(Run(run)), PAGES[name])
    found = synthetic_comparison.comparison(summary), synthetic_comparison.gated(summary)
    for name, one in zip(("comparison", "gates"), found):
        comparison.write_comparison(one, Run(RUN), Run(RUN), PAGES[name])
    BROWSER = unittest.enterModuleContext(browser.Browser())


class InBrowser(unittest.TestCase):
    def open(self, name, **options):
        page = BROWSER.open(PAGES[name], **options)
        self.addCleanup(self.assertEqual, page.problems, [])
        return page

    def column(self, page, number):
        """The texts in a column of the table of cases, for the rows that are shown."""
        rows = "[...document.querySelectorAll('.cases tbody tr')].filter(row => !row.hidden)"
        return page.evaluate(f"{rows}.map(row => row.cells[{number}].textContent)")

    def click(self, page, selector):
        self.assertTrue(page.evaluate(f"!!document.querySelector({selector!r})"), selector)
        page.evaluate(f"document.querySelector({selector!r}).click()")

    def set(self, page, selector, value, event="input"):
        page.evaluate(f"""(() => {{ const field = document.querySelector({selector!r}); field.value = {json.dumps(value)};
            field.dispatchEvent(new Event({event!r}, {{bubbles: true}})); }})()""")


class Loading(InBrowser):
    def test_no_page_has_a_problem_or_a_request(self):
        for name, file in PAGES.items():
            page = self.open(name)
            self.assertEqual(page.problems, [], name)
            self.assertEqual(page.requests, [file.resolve().as_uri()], name)

    def test_problems_and_requests_would_be_seen(self):
        file = PAGES["run"].with_name("bad.html")
        file.write_text("<img src='no.png'><script>console.error('wrong'); nothing()</script>")
        page = BROWSER.open(file)
        self.assertEqual(len(page.requests), 2)
        self.assertTrue(any("wrong" in one for one in page.problems))
        self.assertTrue(any("nothing is not defined" in one for one in page.problems))

    def test_no_page_is_wider_than_a_phone(self):
        for name in PAGES:
            page = self.open(name, width=400, height=800)
            page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 400, name)
            if name != "gates":
                self.assertGreater(page.evaluate("document.querySelectorAll('svg.chart').length"), 1)

    def test_text_can_be_read_in_light_and_dark(self):
        contrast = """(() => {
            const parse = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
            const light = text => { const [r, g, b] = parse(text).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                return .2126 * r + .7152 * g + .0722 * b; };
            const paper = light(getComputedStyle(document.body).backgroundColor);
            return ['body', '.muted', '.bad', 'nav a', '.verdict.faster', '.verdict.slower', '.lossy', '.tok.accepted', '.tok.rejection'].flatMap(name => {
                const found = document.querySelector(name);
                if (!found) return [];
                const style = getComputedStyle(found), under = style.backgroundColor.includes('0, 0, 0, 0') ? paper : light(style.backgroundColor);
                const [a, b] = [light(style.color), under].sort((x, y) => y - x);
                return [[name, (a + .05) / (b + .05)]];
            }).concat([['paper', paper]]); })()"""
        papers = []
        for scheme in ("light", "dark"):
            found = dict(self.open("run", scheme=scheme).evaluate(contrast))
            papers.append(found.pop("paper"))
            self.assertGreater(len(found), 6)
            for name, ratio in found.items():
                self.assertGreaterEqual(ratio, 4.5, f"{name}, {scheme}")
        self.assertGreater(papers[0], 0.8)
        self.assertLess(papers[1], 0.1)

    def test_paper(self):
        page = self.open("run", scheme="dark")
        page.media("dark", "print")
        looks = page.evaluate(
            "['.cases', '#filters', '#plots button'].map(name => getComputedStyle(document.querySelector(name)).display)"
        )
        self.assertEqual(looks[:2], ["table", "none"])
        self.assertEqual(page.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
        page.media("light")
        page.evaluate(
            "window.counts = []; addEventListener('beforeprint', () => counts.push(document.querySelectorAll('details:not([open])').length))"
        )
        file = PAGES["run"].with_suffix(".pdf")
        page.pdf(file)
        self.assertTrue(file.read_bytes().startswith(b"%PDF"))
        self.assertEqual(page.evaluate("counts"), [1], "only the long config stays closed")
        self.assertGreater(page.evaluate("document.querySelectorAll('details:not([open])').length"), 5, "closed again")


class Table(InBrowser):
    def test_columns_are_sorted_and_missing_values_come_last(self):
        page = self.open("run")
        speedups = [case.metric("speedup") for case in Run(RUN).cases if not case.autoregressive]
        header = "th[aria-sort]:nth-child(3)"
        state = f"document.querySelector('.cases {header}').getAttribute('aria-sort')"
        self.assertEqual(page.evaluate(state), "none")
        for order, descending in (("descending", True), ("ascending", False)):
            self.click(page, f".cases {header} button")
            self.assertEqual(page.evaluate(state), order)
            found = [float(text.split()[0]) for text in self.column(page, 2)]
            expected = [f"{value:.2f}" for value in sorted([*speedups, 1.0], reverse=descending)]
            self.assertEqual([f"{value:.2f}" for value in found], expected)
        self.click(page, ".cases th[aria-sort]:nth-child(2) button")
        self.assertEqual(page.evaluate(state), "none")
        self.assertEqual(self.column(page, 1)[0], "autoregressive")
        verdicts = self.column(page, 3)
        self.click(page, ".cases th[aria-sort]:nth-child(4) button")
        self.assertEqual(self.column(page, 3), [*sorted(filter(None, verdicts)), ""], "the reference has no verdict")

    def test_numbers_are_not_sorted_as_words(self):
        page = self.open("run")
        self.click(page, ".cases th[aria-sort]:nth-child(6) button")
        found = [float(text) for text in self.column(page, 5)]
        self.assertEqual(found, sorted(found, reverse=True))
        self.assertGreater(found[0], 100)
        self.assertLess(found[-1], 100)

    def test_words_and_verdicts_filter(self):
        page = self.open("run")
        self.set(page, "#find", "layers γ")
        labels = [case.label(without=()) for case in Run(RUN).cases]
        expected = [label for label in labels if label.startswith("layers")]
        self.assertEqual(self.column(page, 1), expected)
        self.assertEqual(page.evaluate("byId('count').textContent"), f"{len(expected)} of {len(labels)} cases")
        self.set(page, "#find", "")
        self.set(page, "#of-verdict", "slower")
        self.assertEqual(set(self.column(page, 3)), {"slower"})
        self.set(page, "#of-strategy", "prompt_lookup")
        self.assertEqual(self.column(page, 1), [])
        page.evaluate("document.querySelector('#filters [type=reset]').click()")
        page.evaluate("new Promise(done => setTimeout(done, 20))")
        self.assertEqual(self.column(page, 1), labels)

    def test_the_ledger_follows_the_selection(self):
        page = self.open("run")
        self.click(page, "[data-select=none]")
        shown = "[...document.querySelectorAll('#ledger tbody tr')].filter(row => !row.hidden).length"
        every = page.evaluate(shown)
        self.click(page, "#ledger-selected")
        self.assertEqual(page.evaluate(shown), 0)
        self.click(page, "#case-1 input")
        self.assertEqual(
            page.evaluate(shown), sum(entry["value"] is not None for entry in Run(RUN).cases[1].predictions.values())
        )
        self.click(page, "#ledger-selected")
        self.assertEqual(page.evaluate(shown), every)


class Plots(InBrowser):
    def marks(self, page, plot=0):
        return page.evaluate(
            f"[...document.querySelectorAll('#plot-area figure')[{plot}].querySelectorAll('.mark')].map(mark => mark.dataset.tip)"
        )

    def test_cases_are_taken_in_and_out(self):
        page = self.open("run")
        self.click(page, "[data-select=none]")
        self.assertEqual(
            page.evaluate("document.querySelectorAll('#plot-area figure:not([hidden])').length"), 1, "only t(n)"
        )
        self.click(page, "#case-3 input")
        case = Run(RUN).cases[3]
        low, high = case.metric("speedup_ci95")
        label, value = case.label(without=()), case.metric("speedup")
        self.assertEqual(
            self.marks(page),
            [
                f"{label}, all prompts\nspeedup {value:.2f} [{low:.2f}, {high:.2f}]\n{report.verdict(case)}",
                f"{label}\npredicted {1.05 * value:.2f}",
            ],
        )
        self.assertIn("error of the prediction +5.0 %", self.marks(page, 1)[0])
        self.assertEqual(len(self.marks(page, 3)), case.gamma, "acceptance by position")
        self.assertEqual(len(self.marks(page, 4)), 16, "t(n)")
        self.click(page, "#chips button")
        self.assertFalse(page.evaluate("document.querySelector('#case-3 input').checked"))

    def test_categories_and_metrics(self):
        page = self.open("run")
        self.click(page, "[data-select=none]")
        self.click(page, "#case-3 input")
        self.set(page, "#metric", "tau", "change")
        self.click(page, "[data-category=code]")
        self.assertEqual(
            page.evaluate("document.querySelector('[data-category=code]').getAttribute('aria-pressed')"), "true"
        )
        case = Run(RUN).cases[3]
        tau = case.categories["code"]["metrics"]["tau"]
        self.assertEqual(self.marks(page)[1], f"{case.label(without=())}, code\ntau {tau:.2f}")
        self.click(page, "[data-category=all]")
        self.assertEqual(len(self.marks(page)), 1)

    def test_the_mouse_and_the_keys_show_values(self):
        page = self.open("run")
        page.evaluate("document.querySelector('#plot-area svg').scrollIntoView({block: 'center'})")
        page.frames()
        place = page.evaluate(
            "(() => { const box = document.querySelector('#plot-area .mark').getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        page.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        tip = "byId('tip').hidden ? null : byId('tip').textContent"
        first, second = self.marks(page)[:2]
        self.assertIn(page.evaluate(tip), (first, second))
        page.evaluate("document.querySelector('#plot-area svg.chart').focus()")
        for key, expected in (
            ("ArrowRight", first),
            ("ArrowRight", second),
            ("ArrowLeft", first),
            ("End", self.marks(page)[-1]),
        ):
            page.press(key)
            self.assertEqual(page.evaluate(tip), expected)
        page.press("Escape")
        self.assertEqual(page.evaluate(tip), None)

    def test_the_waterfall_has_every_term(self):
        page = self.open("run")
        case = Run(RUN).cases[2]
        self.set(page, "#waterfall-case", "2", "change")
        tips = page.evaluate(
            "[...document.querySelectorAll('#waterfall-plot .mark')].map(mark => mark.dataset.tip.split('\\n')[0])"
        )
        self.assertEqual(
            [tip.rsplit(": ", 1)[1] for tip in tips], [f"{term['speedup']:.3f}" for term in case.waterfall]
        )

    def test_the_parts_of_a_change_add_up(self):
        page = self.open("comparison")
        found = page.evaluate(
            "data.cases.map(entry => [entry.change[0], Math.exp(entry.parts.reduce((a, b) => a + b, 0))])"
        )
        for whole, product in found:
            self.assertAlmostEqual(whole, product, 4)
        tips = page.evaluate("[...document.querySelectorAll('#waterfall-plot .mark')].map(mark => mark.dataset.tip)")
        self.assertEqual(len(tips), 7, "BASE, five parts, NEW")
        self.assertIn("factor −5.8 %", tips[3])
        running, new = (float(tips[place].split("\n")[0].split(": ")[1]) for place in (5, 6))
        self.assertAlmostEqual(running, new, 2)


class Keyboard(InBrowser):
    def test_tab_reaches_the_headings_and_enter_sorts(self):
        page = self.open("run")
        reached = []
        for _ in range(30):
            page.press("Tab", 9)
            reached.append(page.evaluate("document.activeElement.textContent || document.activeElement.id"))
            if reached[-1] == "speedup":
                break
        self.assertEqual(reached[0], "Skip to what the page says")
        self.assertEqual(reached[-1], "speedup", reached)
        page.press("Enter", 13, "\r")
        self.assertEqual(page.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')"), "descending")
        self.assertNotEqual(
            page.evaluate("getComputedStyle(document.activeElement).outlineStyle"), "none", "the focus is seen"
        )

    def test_everything_that_acts_has_a_name(self):
        for name in PAGES:
            nameless = self.open(
                name
            ).evaluate("""[...document.querySelectorAll('button, select, input')].filter(one =>
                !(one.textContent.trim() && one.tagName === 'BUTTON') && !one.ariaLabel && !one.closest('label')).map(one => one.outerHTML)""")
            self.assertEqual(nameless, [], name)


class Texts(InBrowser):
    def show(self, page, case_id, prompt=None):
        number = next(
            place
            for place, case in enumerate(
                Run(RUN if "draft=distilled/gamma=2" in case_id else RUN.with_name("trees")).cases
            )
            if case.id == case_id
        )
        self.set(page, "#text-case", str(number), "change")

    def test_tokens_have_the_colours_of_their_origin(self):
        page = self.open("run")
        case = next(case for case in Run(RUN).cases if case.id == WINDOW)
        line = case.lines()[0]
        self.show(page, WINDOW)
        tokens = page.evaluate(
            "[...document.querySelectorAll('.steps .tok')].map(one => [one.className.slice(4), one.textContent])"
        )
        looks = [look for look, _ in tokens]
        steps = line["steps"]
        self.assertEqual(looks.count("accepted"), sum(step["accepted"] for step in steps))
        self.assertEqual(looks.count("lost"), sum(step["drafted"] - step["accepted"] for step in steps))
        corrections = sum(step["emitted"] - step["accepted"] for step in steps if step["ended_by"] == "rejection")
        self.assertEqual(looks.count("rejection"), corrections)
        emitted = [text for look, text in tokens if look != "lost"]
        self.assertEqual("".join(emitted).replace("·", " ").replace("↵", "\n"), "".join(line["pieces"][1:]))
        flow = page.evaluate("document.querySelector('.flow').textContent")
        self.assertEqual(flow.replace("↵", ""), line["text"])

    def test_a_step_opens_under_the_enter_key(self):
        page = self.open("run")
        self.show(page, WINDOW)
        page.evaluate("document.querySelectorAll('.steps button')[1].focus()")
        page.press("Enter", 13, "\r")
        rows = page.evaluate("[...document.querySelectorAll('.detail tbody tr')].map(row => row.cells.length)")
        self.assertEqual(rows, [6, 6], "two drafted tokens of a chain")
        page.press("Enter", 13, "\r")
        self.assertEqual(page.evaluate("document.querySelectorAll('.detail').length"), 0)

    def test_the_window_of_a_lookahead_step(self):
        page = self.open("run")
        self.show(page, WINDOW)
        self.click(page, ".steps button")
        kinds = page.evaluate("[...document.querySelectorAll('.tree g')].map(one => one.classList[0])")
        self.assertEqual(kinds[0], "root")
        self.assertEqual(kinds[3:], ["relay", "probe", "probe"])
        self.assertEqual(page.evaluate("document.querySelectorAll('.tree .edge').length"), len(kinds) - 1)
        self.assertIn("pool: 12", page.evaluate("document.querySelector('.detail').textContent"))

    def test_the_tree_of_a_step(self):
        page = self.open("trees")
        case = next(case for case in Run(RUN.with_name("trees")).cases if case.id.endswith(TREE_CASE))
        step = case.lines()[0]["steps"][0]
        self.show(page, case.id)
        self.click(page, ".steps button")
        kinds = page.evaluate("[...document.querySelectorAll('.tree g')].map(one => one.classList[0])")
        self.assertEqual(len(kinds), step["nodes"])
        self.assertEqual(kinds.count("accepted"), sum(token["accepted"] for token in step["tokens"]))
        self.assertEqual(kinds.count("untested"), sum(not token["tested"] for token in step["tokens"]))
        overlap = """(() => { const boxes = [...document.querySelectorAll('.tree g')].map(one => one.getBoundingClientRect());
            return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1)); })()"""
        self.assertFalse(page.evaluate(overlap))

    def test_the_table_of_prompts_leads_to_their_texts(self):
        page = self.open("run")
        self.show(page, WINDOW)
        rows = page.evaluate(
            "[...document.querySelectorAll('#text-prompts tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        )
        self.assertEqual(rows[1], ["2", "chat", "2.00", "0.50", ""])
        self.click(page, "#text-prompts tbody tr:nth-child(3) button")
        self.assertTrue(page.evaluate("byId('text-prompt').selectedOptions[0].text.startsWith('3')"))


class Large(InBrowser):
    def test_two_hundred_cases(self):
        """A run of 200 cases with 14 prompts each: below 10 MB without figures, and still quick."""
        folder = RUN.with_name("large")
        many(RUN, folder, 200, 14)
        html = report.run_page(Run(folder))
        self.assertLess(len(html.encode()), 8e6)
        PAGES["large"] = folder.with_suffix(".html")
        self.addCleanup(PAGES.pop, "large")
        report.write(html, PAGES["large"])
        page = self.open("large")
        self.assertEqual(page.evaluate("document.querySelectorAll('.cases tbody tr').length"), 200)
        start = time.monotonic()
        self.click(page, "[data-select=shown]")
        self.assertGreater(page.evaluate("document.querySelectorAll('#plot-area .mark').length"), 400)
        self.click(page, ".cases th[aria-sort]:nth-child(3) button")
        self.assertLess(time.monotonic() - start, 20)


def many(source, folder, cases, prompts):
    """A run whose cases are copies of one case with a draft, under other names, with each text as often as there are prompts."""
    summary = json.loads((source / "summary.json").read_text())
    reference, case = summary["cases"][0], next(case for case in summary["cases"] if case["gamma"] == 8)
    text = (source / case["file"]).read_text().split("\n")[0]
    (folder / "cases").mkdir(parents=True)
    summary["cases"] = [reference]
    (folder / reference["file"]).write_text((source / reference["file"]).read_text())
    for number in range(1, cases):
        name = f"speculative_sampling/draft=made-up-{number}/gamma=8"
        file = f"cases/{number}.jsonl"
        lines = [
            text.replace(case["id"], name).replace('"prompt":"1"', f'"prompt":"{prompt}"') for prompt in range(prompts)
        ]
        (folder / file).write_text("\n".join(lines) + "\n")
        prompt = {"category": "chat", "tau": 1.5, "speedup": 1.25, "copied_4grams": 0.5}
        by_prompt = {str(place): prompt for place in range(prompts)}
        summary["cases"].append(
            {**case, "id": name, "file": file, "draft": f"made-up-{number}", "by_prompt": by_prompt}
        )
    (folder / "summary.json").write_text(json.dumps(summary))
    for name in ("environment.json", "config.json"):
        (folder / name).write_text((source / name).read_text())


if __name__ == "__main__":
    unittest.main()
