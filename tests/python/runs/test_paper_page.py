"""The page of published tables, on made-up runs whose order is known; and its list of tables, which must fit the configs."""

import contextlib
import io
import itertools
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts/pages", "scripts", "python")]

import paper_page
import paper_tables

SOURCE = "Somebody et al. 2020, Table 1: a device"
PUBLISHED = [
    {"case": "a", "source": SOURCE, "reason": "rows are not free", "metrics": {"speedup": 3, "tau": 4}},
    {"case": "b", "source": SOURCE, "reason": "another draft", "metrics": {"speedup": 2, "tau": 3.5}},
    {"case": "c", "source": SOURCE, "reason": "other prompts", "category": "code", "metrics": {"speedup": 1.25}},
]
HERE = {"a": {"speedup": 0.8, "tau": 2.5}, "b": {"speedup": 1.2, "tau": 2}, "c": {"speedup": 0.5}}
SIMULATED = {"near": {"a": 2.5, "b": 1.5, "c": 0.9}, "costs/far.json": {"a": 1, "b": 1.4, "c": None}}
TABLE = paper_tables.Table("P2", "configs/paper/made.json", ("chen_table1",), ("near", "costs/far.json"))
OTHER = paper_tables.Table("P5", "configs/other.json", ("specinfer_table1",))


SETTINGS = {"target": "t", "prompts": {"file": "p"}, "options": {}, "cases": [{"strategy": "made"}]}
CONFIG = {"name": "made", **SETTINGS, "published": PUBLISHED}


def case(name, metrics):
    measured = metrics | {"speedup_ci95": [metrics["speedup"] - 0.1, metrics["speedup"] + 0.1]}
    of_category = {"code": {"prompts": 6, "metrics": measured}}
    if name == "c":
        measured = {"speedup": 99}  # over all prompts; the published number is one of code
    return {
        "id": name,
        "strategy": "made",
        "options": {},
        "prompts": 12,
        "metrics": measured,
        "categories": of_category,
    }


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.out = self.root / "page.md"
        self.asked = []
        self.write("configs/paper/made.json", CONFIG)
        for device in ("configs/devices/near.json", "costs/far.json"):
            self.write(device, {})

    def write(self, name, content):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))

    def run_folder(self, place="run", lines=True, source=CONFIG, here=HERE, **more):
        environment = {
            "models": {"target": {"name": "tiny"}},
            "cpu": {"model": "a processor"},
            "threads": 2,
            "numerics": "f32",
            "date": "2026-01-01T00:00:00Z",
        }
        cases = [case(one, metrics) for one, metrics in here.items()]
        summary = {"schema_version": 1, "name": "made", "complete": True, "ratio_noise": 0.01, "cases": cases} | more
        self.write(f"{place}/summary.json", summary)
        self.write(f"{place}/environment.json", environment)
        self.write(f"{place}/config.json", {"source": source})
        if lines:
            (self.root / place / "cases").mkdir(exist_ok=True)
        return self.root / place

    def simulate(self, folder, *words):
        self.asked.append(words)
        names = [word for before, word in zip(("", *words), words) if before == "--device"]
        found = []
        for name in names:
            rows = [
                {"case": case, "speedup": value, "speedup_ci95": value and [value - 0.1, value + 0.1]}
                | {"problem": None if value else "no shape of the target"}
                for case, value in SIMULATED[name].items()
            ]
            found.append({"device": f"the {name}", "source": "a sheet", "error": "Not validated.", "cases": rows})
        return found

    def call(self, *arguments, tables=(TABLE, OTHER)):
        out, err = io.StringIO(), io.StringIO()
        words = [*map(str, arguments), "--out", str(self.out)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = paper_page.main(words, root=self.root, tables=tables, simulate=self.simulate)
        return code, out.getvalue(), err.getvalue()

    def page(self, *arguments, **more):
        code, out, err = self.call(*arguments, **more)
        self.assertEqual((code, err), (0, ""))
        self.assertIn(f"wrote {self.out}", out)
        return self.out.read_text(encoding="utf-8")

    def test_published_measured_and_simulated_stand_side_by_side(self):
        page = self.page(self.run_folder())
        self.assertIn(
            "| case | metric | published | measured here | simulated: the near | simulated: the costs/far", page
        )
        self.assertIn("| a | speedup | 3 | 0.80 [0.70, 0.90] | 2.50 [2.40, 2.60] | 1.00 [0.90, 1.10] |", page)
        self.assertIn("| a | tau | 4 | 2.50 |  |  |", page)
        self.assertIn("| c, code | speedup | 1.25 | 0.50 [0.40, 0.60] | 0.90 [0.80, 1.00] | — |", page)
        self.assertIn("Not simulated: c on the costs/far.json: no shape of the target", page)
        self.assertIn("tiny on a processor, 2 threads, f32, 2026-01-01, 12 prompts.", page)
        self.assertIn("arXiv 2302.01318, Table 1", page, "the source of the anchor")
        self.assertIn("| the near | a sheet | Not validated. |", page)
        self.assertIn("- `configs/other.json`", page.split("## Tables without a run")[1])
        devices = ("--device", "near", "--device", "costs/far.json")
        self.assertEqual(self.asked, [devices, (*devices, "--category", "code")])

    def test_the_order_is_compared_and_its_cause_is_named(self):
        page = self.page(self.run_folder())
        near, far = "3 of 3 simulated on the near", "0 of 1 simulated on the costs/far.json"
        self.assertIn(f"- speedup: pairs in the published order: 2 of 3 measured here; {near}; {far}.", page)
        self.assertIn("- tau: pairs in the published order: 1 of 1 measured here.", page)
        self.assertIn(
            "1 pair has the opposite order in speedup. 1 pair has the published order with the times of", page
        )
        self.assertNotIn("acceptance differs", page)
        self.assertIn("- `a`: rows are not free", page)
        self.assertIn("- `b`: another draft", page)
        self.assertNotIn("other prompts", page, "c is in the published order")

    def test_an_order_that_no_device_restores_is_acceptance(self):
        table = paper_tables.Table("P2", TABLE.config, TABLE.anchors, ("costs/far.json",))
        page = self.page(self.run_folder(), tables=(table,))
        self.assertIn("1 pair has the opposite order in speedup. 1 pair has the published order on no device", page)
        self.assertIn("on no device above: acceptance differs", page)
        self.assertNotIn("the costs of this machine", page)

    def test_noise_has_no_order(self):
        page = self.page(self.run_folder(ratio_noise=0.55))
        self.assertIn("- speedup: pairs in the published order: 2 of 3 (1 too close) measured here;", page)
        self.assertIn("No pair has the opposite order.", page)

    def test_pairs_that_differ_in_one_setting_are_told_apart(self):
        row = lambda case, category="": paper_page.Row(case, category, "p", "", "tau", 1, 1, None)
        apart = lambda *rows: paper_page.one_setting_apart(rows)
        self.assertTrue(apart(row("s/draft=d/gamma=2"), row("s/draft=d/gamma=4")))
        self.assertTrue(apart(row("s/gamma=2", "code"), row("s/gamma=2", "chat")))
        self.assertTrue(apart(row("s/tree=a/b.json"), row("s/tree=a/b.json/rule=block")))
        self.assertFalse(apart(row("s/draft=d/gamma=2"), row("s/draft=e/gamma=4")))
        self.assertFalse(apart(row("s/gamma=2"), row("t/gamma=4")))
        here = {**HERE, "a/x=1": {"speedup": 0.8, "tau": 2}, "a/x=2": {"speedup": 0.9, "tau": 2}}
        two = [{"case": f"a/x={x}", "source": SOURCE, "metrics": {"speedup": 1 + x}} for x in (1, 2)]
        self.write("configs/paper/made.json", {**CONFIG, "published": [*PUBLISHED, *two]})
        table = paper_tables.Table("P2", TABLE.config, TABLE.anchors)
        page = self.page(self.run_folder(here=here), tables=(table,))
        self.assertIn("measured here; 1 of 2 (1 too close) of those that differ in one setting.", page)

    def test_a_batch_is_named(self):
        table = paper_tables.Table("P2", TABLE.config, TABLE.anchors, ("near",), batch=32)
        page = self.page(self.run_folder(), tables=(table,))
        self.assertIn("| simulated: the near, batch 32 |", page)
        self.assertIn("--batch", self.asked[0])
        self.assertNotIn("Tables without a run", page)

    def test_a_record_without_lines_is_not_simulated(self):
        page = self.page(self.run_folder(lines=False))
        self.assertEqual(self.asked, [])
        self.assertIn("| case | metric | published | measured here |\n", page)
        self.assertIn("Not simulated: ", page)
        self.assertIn("kept without its raw lines", page)
        self.assertNotIn(str(self.root), page, "paths are those below the root")

    def test_a_table_without_a_device_says_so(self):
        table = paper_tables.Table("P2", TABLE.config, TABLE.anchors)
        page = self.page(self.run_folder(), tables=(table,))
        self.assertIn("Not simulated: the sources kept here do not name the device", page)

    def test_committed_records_are_found_and_old_ones_left_out(self):
        self.run_folder("results/baselines/machine/made")
        self.run_folder("results/baselines/machine/unknown", name="unknown")
        code, out, err = self.call()
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(self.out.read_text(encoding="utf-8").count("## made"), 1)
        self.run_folder("results/baselines/older", here={"a": HERE["a"]})
        code, out, err = self.call()
        self.assertEqual(code, 0)
        self.assertIn("left out", err)
        self.assertEqual(self.out.read_text(encoding="utf-8").count("## made"), 1)

    def test_without_a_run_nothing_is_written(self):
        code, out, err = self.call()
        self.assertEqual((code, err), (0, ""))
        self.assertIn("no run of configs/paper/made.json", out)
        self.assertIn("no run of configs/other.json", out)
        self.assertFalse(self.out.exists())

    def test_what_cannot_be_shown_is_refused(self):
        def refused(text, *arguments, **more):
            code, _, err = self.call(*arguments, **more)
            self.assertEqual(code, 2, err)
            self.assertIn(text, err)
            self.assertFalse(self.out.exists())

        refused("Give the folder", self.root / "nowhere")
        refused("a run of quickstart, which repeats no published table", self.run_folder("q", name="quickstart"))
        refused("is not complete", self.run_folder("unfinished", complete=False))
        filtered = self.run_folder("filtered", here={"a": HERE["a"], "b": HERE["b"]})
        refused("no case c, for which configs/paper/made.json quotes numbers", filtered)
        missing = paper_tables.Table("P2", TABLE.config, TABLE.anchors, ("near", "nowhere"))
        refused("no file of the device nowhere", self.run_folder("run"), tables=(missing,))
        (self.root / "run/config.json").unlink()
        refused("config.json", self.root / "run")

    def test_other_settings_are_told_and_other_words_are_not(self):
        words = {**CONFIG, "description": "older words", "published": PUBLISHED[:1]}
        self.assertNotIn("other settings", self.page(self.run_folder(source=words)))
        short = {**CONFIG, "prompts": {"file": "p", "limit": 2}, "options": {"max_tokens": 8}}
        page = self.page(self.run_folder("short", source=short))
        self.assertIn("**This run has other settings than the config: prompts, options.**", page)


class Tables(unittest.TestCase):
    def config(self, table):
        return json.loads((ROOT / table.config).read_text(encoding="utf-8"))

    def test_every_config_that_quotes_numbers_has_one(self):
        files = [*(ROOT / "configs").glob("*.json"), *(ROOT / "configs/paper").glob("*.json")]
        quoting = [
            file.relative_to(ROOT).as_posix()
            for file in files
            if json.loads(file.read_text(encoding="utf-8")).get("published")
        ]
        self.assertGreater(len(quoting), 20)
        self.assertEqual(sorted(quoting), sorted(table.config for table in paper_tables.TABLES))
        names = [table.name for table in paper_tables.TABLES]
        self.assertEqual(len(set(names)), len(names))
        for table in paper_tables.TABLES:
            self.assertEqual(self.config(table)["name"], table.name)

    def test_devices_and_anchors_are_there(self):
        for table in paper_tables.TABLES:
            paper_page.require_devices(table, ROOT)
            self.assertTrue(list(table.settings()), table.name)
            priced = any("speedup" in row.get("metrics", {}) for row in self.config(table)["published"])
            self.assertTrue(priced or not table.devices, table.name)

    def test_devices_with_named_drafts_have_those_of_the_config(self):
        found = 0
        for table in paper_tables.TABLES:
            for device in table.devices:
                if not (ROOT / device).is_file():
                    continue
                drafts = json.loads((ROOT / device).read_text(encoding="utf-8")).get("drafts_us")
                if drafts is not None:
                    found += 1
                    self.assertLessEqual(set(self.config(table)["drafts"]), set(drafts), f"{table.name}: {device}")
        self.assertEqual(found, 3)

    def test_published_numbers_are_those_of_the_anchors(self):
        """A published number is a number of an anchor's row, or the quotient of two of them, such as two rates."""
        others = {"spectr": [2.13 / 1.37], "spec_bench": [2.73, 2.17]}  # token recycling: leaderboard of Spec-Bench
        for table in paper_tables.TABLES:
            if not table.config.startswith("configs/paper/"):
                continue
            known = list(others.get(table.name, []))
            for name in table.anchors:
                anchor = json.loads((paper_tables.ANCHORS / f"{name}.json").read_text(encoding="utf-8"))
                for row in anchor["rows"]:
                    numbers = [value for value in row if isinstance(value, int | float) and value]
                    known += numbers + [a / b for a, b in itertools.permutations(numbers, 2)]
            for row in self.config(table)["published"]:
                for name, value in {**row.get("metrics", {}), **row.get("predictions", {})}.items():
                    self.assertTrue(
                        any(abs(value - one) < 6e-4 for one in known), f"{table.name}: {row['case']}: {name} {value}"
                    )

    def test_published_costs_give_the_row_that_they_come_from(self):
        costs = json.loads((ROOT / paper_tables.COSTS / "llama2_7b_68m.json").read_text(encoding="utf-8"))
        row = lambda rows: costs["target"]["constant_us"] + rows * costs["target"]["per_row_us"]
        speedup = 5.08 * row(1) / (row(128) + 10 * costs["draft"]["constant_us"])
        self.assertAlmostEqual(row(1), 24200, delta=0.01)
        self.assertAlmostEqual(speedup, 4.04, delta=0.005)


if __name__ == "__main__":
    unittest.main()
