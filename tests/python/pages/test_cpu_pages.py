"""The pages of results/cpu are what their records say, and pages that are written by hand name no other measured figure."""

import gzip
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "results/cpu"
for folder in ("checks", "compare", "bench_cpu"):
    sys.path.insert(0, str(ROOT / "scripts" / folder))

import check_figures
import compare_drafting
import page as bench_page
import summary as compare_summary


def records():
    """(kind, record, page) of every record in the folder."""
    for file in sorted(FOLDER.glob("*.json.gz")):
        stem = file.name.removesuffix(".json.gz")
        record = json.loads(gzip.decompress(file.read_bytes()))
        kind = "bench" if "classes" in record else "drafting" if "prompts" in record else "llama.cpp"
        yield kind, stem, record, (FOLDER / f"{stem}.md").read_text(encoding="utf-8")


class Records(unittest.TestCase):
    def test_pages_show_what_their_records_hold(self):
        seen = set()
        for kind, stem, record, text in records():
            seen.add(kind)
            with self.subTest(stem):
                if kind == "bench":
                    self.assertEqual(text, bench_page.render(record, stem))
                    continue
                lines = record["summary"]
                if kind == "drafting":
                    parts = [
                        make(lines, record["prompts"])
                        for make in (compare_drafting.table, compare_drafting.prompt_table)
                    ]
                    parts.append(compare_drafting.verdicts(lines))
                else:
                    peers = [name for name in lines[0] if name not in ("context", "what", compare_summary.OURS)]
                    makers = (compare_summary.table, compare_summary.growth, compare_summary.where_they_win)
                    parts = [make(lines, peers) for make in makers]
                for part in parts:
                    self.assertIn(part, text)
        self.assertEqual(seen, {"bench", "drafting", "llama.cpp"})

    def test_every_page_has_a_record(self):
        pages = {file.stem for file in FOLDER.glob("*.md")} - {"README"}
        self.assertEqual(pages, {stem for _, stem, _, _ in records()})


class Figures(unittest.TestCase):
    PAGES = {
        "a.md": "| forward | 9.26 | 84 % | 1.486 |\nreads 1,234.5 MB at 33.9 GB/s; 69 % of it",
        "b.md": "| other | 7.77 |",
    }

    def problems(self, section):
        return list(check_figures.problems_of_section(section, self.PAGES))

    def test_the_committed_pages_hold_no_other_figure(self):
        self.assertEqual(list(check_figures.problems(ROOT)), [])

    def test_figures_of_linked_pages_may_be_rounded(self):
        for text in ("9.26 ms", "9.3", "1.49 times", "33.9 GB/s, 34 GB/s", "84 %", "1,234.5 MB and 1,235 MB"):
            self.assertEqual(self.problems(f"## A\n[page](a.md) says {text}."), [], text)

    def test_other_figures_are_named(self):
        for text, shown in (
            ("9.27 ms", "9.27 ms"),
            ("1.48 times", "1.48 times"),
            ("85 %", "85 %"),
            ("34 %", "34 %"),  # 33.9 is on the page, but is no percentage
            ("7.77 ms", "7.77 ms"),  # on a page that the section does not link to
            ("9.265", "9.265"),  # more digits than the page has
        ):
            found = self.problems(f"## A\n[page](a.md) says {text}.")
            self.assertEqual(len(found), 1, text)
            self.assertTrue(found[0].startswith(f"'{shown}' is on none of the linked pages (a.md)"), found)

    def test_counts_goals_code_and_dates_are_no_figures(self):
        text = (
            "16 rows at context 512, 2026-11-23, `--limit 0.05`, [2.5x](c-2.5.md) (goal 1.25), ≤ 1.3 x, ≥ 80 %\n"
            "```text\n5.55 ms\n```\n| what | goal | measured |\n|---|---|---|\n| a | 2.8 x | 9.26 |\n"
        )
        self.assertEqual(self.problems(f"[page](a.md) {text}"), ["'2.5x' is on none of the linked pages (a.md)"])
        self.assertEqual(len(self.problems("[page](a.md)\n\n| goal | measured |\n|---|---|\n| 2.8 | 3.8 |\n")), 1)

    def test_a_derivation_is_computed_from_figures_of_the_pages(self):
        text = "[page](a.md): 1.45 times. "
        self.assertEqual(self.problems(text + "<!-- 1.45 = 100 / 69 -->"), [])
        self.assertIn("it is 1.19048", self.problems(text + "<!-- 1.45 = 100 / 84 -->")[0])
        self.assertIn("part 70 is on none", self.problems(text + "<!-- 1.45 = 100 / 70 -->")[0])
        for wrong in ("100 ** 2", "open('x')", "100 /", "9.26 / (1 - 1)"):
            self.assertEqual(len(self.problems(text + f"<!-- 1.45 = {wrong} -->")), 2, wrong)

    def test_exceptions_that_are_no_longer_needed_are_seen(self):
        front = check_figures.WRITTEN.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
        shown = {text for _, text in check_figures.figures(check_figures.without_goals(front))}
        self.assertEqual(set(check_figures.WITHOUT_A_RECORD) - shown, set())


if __name__ == "__main__":
    unittest.main()
