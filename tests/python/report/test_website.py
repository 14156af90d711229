"""The static site over the committed results: every number leads to its record and command, and no link is broken."""

import contextlib
import html.parser
import io
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "scripts/pages", "python")]

import browser
import history
import website
from website import command, records


class Tags(html.parser.HTMLParser):
    """The links, ids and pictures of a page, and the texts of each link."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.pictures, self.texts = [], set(), [], []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values["id"]} if "id" in values else set()
        if tag == "img":
            self.pictures.append(values["src"])
        if tag == "a":
            self.links.append(values["href"])
            self.texts.append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "a"

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data


def setUpModule():
    global SITE, RECORDS, TAGS
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    SITE = pathlib.Path(folder.name) / "site"
    with contextlib.redirect_stdout(io.StringIO()):
        assert command.main(["--out", str(SITE)]) == 0
    RECORDS = records.records_of(ROOT)
    TAGS = {page.relative_to(SITE).as_posix(): Tags(page.read_text()) for page in SITE.rglob("*.html")}


def rows_of(page):
    return re.findall(r"<tr.*?</tr>", (SITE / page).read_text(), re.S)


class Links(unittest.TestCase):
    def test_every_record_has_a_page(self):
        self.assertEqual(set(TAGS), {"index.html", "trend.html", "gallery.html", *(record.page for record in RECORDS)})
        self.assertGreater(len(RECORDS), 10)

    def test_no_link_is_broken(self):
        count = 0
        for page, tags in TAGS.items():
            for link in tags.links:
                file, _, place = link.partition("#")
                target = (SITE / page).parent / file if file else SITE / page
                self.assertTrue(target.is_file(), f"{page}: {link}")
                self.assertTrue(
                    target.resolve().is_relative_to(SITE.resolve()), f"{page}: {link} leads out of the site"
                )
                if place:
                    self.assertIn(
                        place, TAGS[target.resolve().relative_to(SITE.resolve()).as_posix()].ids, f"{page}: {link}"
                    )
                count += 1
            for picture in tags.pictures:
                self.assertTrue((SITE / page).parent.joinpath(picture).is_file(), picture)
        self.assertGreater(count, 500)


class Leaderboard(unittest.TestCase):
    def test_every_number_leads_to_its_case_and_its_command(self):
        seen = 0
        for row in rows_of("index.html"):
            if "data-words" not in row:
                continue
            links = Tags(row).links
            record = next(record for record in RECORDS if record.page in links)
            target = re.search(r'href="([^"#]*)#case-(\d+)">([\d.]+)', row)
            self.assertEqual(target[1], record.page)
            case = record.run.cases[int(target[2])]
            self.assertEqual(target[3], f"{case.metric('speedup'):.2f}")
            self.assertIn(f'title="{case.id}"', html.unescape(row))
            self.assertIn(f"{record.page}#reproduce", links)
            tau = case.metric("tau")
            self.assertIn(f'#case-{target[2]}">{tau:.2f}</a>', row)
            seen += 1
        self.assertEqual(
            seen, sum(case.metric("speedup") is not None for one in RECORDS for case in one.run.speculative)
        )

    def test_machines_are_apart_and_sorted(self):
        text = (SITE / "index.html").read_text()
        for machine in {record.machine for record in RECORDS}:
            section = re.search(rf"<section><h2>{re.escape(machine)}</h2>.*?</section>", text, re.S)[0]
            pages = {link.partition("#")[0] for link in Tags(section).links}
            self.assertEqual(
                pages,
                {
                    one.page
                    for one in RECORDS
                    if one.machine == machine and any(case.metric("speedup") for case in one.run.speculative)
                },
            )
            first = [
                float(re.search(r'</th><td data-sort="([\d.e+-]+)"', row)[1])
                for row in re.findall(r"<tr data-words.*?</tr>", section)
            ]
            self.assertEqual(first, sorted(first, reverse=True))

    def test_commands_are_those_of_the_records(self):
        for record in RECORDS:
            page = (SITE / record.page).read_text()
            self.assertTrue(record.command in html.unescape(page), record.name)
            self.assertTrue(f"git checkout {record.run.environment['commit'][:10]}" in page)
            self.assertTrue(f"speclab compare {record.folder} " in page)
            self.assertFalse(str(ROOT) in page, "no path of this machine")


class Trend(unittest.TestCase):
    def test_every_line_of_the_history_has_a_row_and_a_command(self):
        lines = history.read(ROOT / history.HISTORY)
        rows = [row for row in rows_of("trend.html") if re.match(r'<tr id="w\w+-\d+"', row)]
        self.assertEqual(len(rows), len(lines))
        for line in lines:
            own = [
                row
                for row in rows
                if line["commit"][:10] in row and line["date"][:10] in row and line["workload"] in row
            ]
            self.assertTrue(own, line["commit"])
            record = next((one for one in RECORDS if history.same_run(one.line, line)), None)
            words = record.command if record else f"git checkout {line['commit']} && "
            self.assertTrue(any(words in html.unescape(row) for row in own), line["commit"])
            if record:
                self.assertTrue(any(f'href="{record.page}"' in row for row in own))

    def test_values_are_those_of_the_last_record(self):
        lines = history.read(ROOT / history.HISTORY)
        last = max((line for line in lines if line["config"] == "quickstart"), key=lambda line: line["date"])
        section = re.search(
            rf'<section id="workload-{last["workload"]}">.*?</section>', (SITE / "trend.html").read_text(), re.S
        )[0]
        for case, found in last["cases"].items():
            row = next(row for row in re.findall(r"<tr.*?</tr>", section, re.S) if f'data-sort="{case}"' in row)
            if found["speedup"]:
                self.assertIn(f">{found['speedup']:.2f} [", row)
            self.assertIn(f">{found['tau']:.3f}</a>", row)

    def test_a_config_without_a_file_is_named(self):
        from website import trend

        line = {"config": "gone", "commit": "abc"}
        self.assertIn(
            "git checkout abc && build/release/speclab run CONFIG (the config named gone)", trend.command_of(line, {})
        )
        self.assertIn("run configs/x.json", trend.command_of(line, {"gone": "configs/x.json"}))


class Gallery(unittest.TestCase):
    def test_every_figure_has_its_record_and_command(self):
        text = (SITE / "gallery.html").read_text()
        committed = sorted(ROOT.glob("results/baselines/**/figures/*.svg"))
        self.assertEqual(len(TAGS["gallery.html"].pictures), len(committed))
        for record in RECORDS:
            for figure, file in record.figures:
                part = next(one for one in text.split("<figure>") if f"{record.name}/{file.name}" in one)
                self.assertIn(f'href="{record.page}"', part)
                self.assertIn(f"scripts/report.py {record.new_folder} --only {figure.name}", part)
        known = {figure.name for record in RECORDS for figure, _ in record.figures if figure.draw}
        self.assertGreater(len(known), 5, "titles and captions come from scripts/figures")


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        source = ROOT / "results/baselines/leaderboard-retrieval-epyc-avx2-2cores"
        shutil.copytree(source, self.root / "results/baselines/one")

    def main(self, out):
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            return command.main(["--out", str(out)], root=self.root), err.getvalue()

    def test_files_of_others_are_kept(self):
        out = self.root / "mine"
        out.mkdir()
        (out / "thesis.txt").write_text("x")
        status, err = self.main(out)
        self.assertEqual(status, 2)
        self.assertIn("not a site", err)
        self.assertTrue((out / "thesis.txt").exists())

    def test_an_old_site_is_replaced(self):
        out = self.root / "site"
        self.assertEqual(self.main(out)[0], 0)
        (out / "records/gone.html").write_text("x")
        self.assertEqual(self.main(out)[0], 0)
        self.assertFalse((out / "records/gone.html").exists())
        self.assertTrue((out / "records/one.html").exists())

    def test_a_damaged_record_is_named(self):
        (self.root / "results/baselines/one/environment.json").write_text("{")
        status, err = self.main(self.root / "site")
        self.assertEqual(status, 2)
        self.assertIn("environment.json: not JSON", err)

    def test_no_record(self):
        shutil.rmtree(self.root / "results")
        status, err = self.main(self.root / "site")
        self.assertEqual(status, 2)
        self.assertIn("no record", err)

    def test_the_default_folder_is_below_build(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(command.main([], root=self.root), 0)
        self.assertTrue((self.root / "build/site/index.html").exists())

    def test_a_history_line_without_a_record_leads_to_its_row(self):
        (line,) = history.lines_of(str(self.root / "results/baselines/one"), self.root)
        other = {**line, "commit": "f" * 12, "date": "2000-01-01T00:00:00Z"}
        text = "".join(json.dumps(one) + "\n" for one in (other, line))
        (self.root / "results/history.jsonl").write_text(text)
        website.write_site(self.root, self.root / "site")
        page = (self.root / "site/trend.html").read_text()
        self.assertIn("git checkout ffffffffffff", page)
        self.assertEqual(page.count(f'id="w{line["workload"]}-'), 2)


@unittest.skipUnless(browser.find_chromium(), "Chromium is not installed (scripts/setup.sh --browser)")
class InBrowser(unittest.TestCase):
    def test_pages_load_nothing_from_outside_and_fit_on_a_phone(self):
        with browser.Browser() as chromium:
            for name in TAGS:
                page = chromium.open(SITE / name, width=400, height=800)
                page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 400, name)
                self.assertEqual(page.problems, [], name)
                inside = (SITE.resolve().as_uri(), "data:")
                outside = [address for address in page.requests if not address.startswith(inside)]
                self.assertEqual(outside, [], name)
                if name == "gallery.html":
                    loaded = "[...document.images].filter(one => one.complete).every(one => one.naturalWidth > 0)"
                    self.assertTrue(page.evaluate(loaded), "pictures are shown, not blocked")

    def test_the_leaderboard_is_filtered_and_the_trend_is_drawn(self):
        with browser.Browser() as chromium:
            page = chromium.open(SITE / "index.html")
            page.evaluate(
                "byId('find').value = 'lookup'; byId('find').dispatchEvent(new Event('input', {bubbles: true}))"
            )
            shown = page.evaluate(
                "[...document.querySelectorAll('.board tbody tr')].filter(row => !row.hidden).map(row => row.dataset.words)"
            )
            self.assertGreater(len(shown), 3)
            self.assertTrue(all("lookup" in words for words in shown))
            page = chromium.open(SITE / "trend.html")
            plots = page.evaluate(
                "[...document.querySelectorAll('[data-group]')].map(one => one.querySelectorAll('.mark').length)"
            )
            self.assertTrue(plots and all(count > 1 for count in plots), plots)
            before = plots[0]
            page.evaluate("document.querySelector('[data-plot]:checked').click()")
            self.assertLess(
                page.evaluate("document.querySelector('[data-group] ').querySelectorAll('.mark').length"), before
            )


if __name__ == "__main__":
    unittest.main()
