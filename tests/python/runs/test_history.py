"""The history of runs and its page of trends: what a line holds, which changes are found, and which runs are refused."""

import contextlib
import copy
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "scripts/pages", "python", "tests/python/runs")]

import history
import history_page
import synthetic_run

QUICKSTART = ROOT / "results/baselines/epyc-avx512-2cores/quickstart"
CASE = "speculative_sampling/draft=distilled/gamma=4"


def line(speedup, number, *, noise=0.02, case="a", **changes):
    """A line of the history with one case. `changes` replaces fields of the line, of its machine, or of its case."""
    of_case = {"speedup": speedup, "speedup_lo": speedup * 0.9, "speedup_hi": speedup * 1.1, "tau": 2.0, "rows": 5.0}
    found = {
        "schema_version": 1,
        **{"config": "x", "workload": "w", "target": "t", "prompts": 9, "commit": f"{number:012d}", "dirty": False},
        "date": f"2026-01-{number + 1:02d}T00:00:00Z",
        "machine": {"device": "cpu", "cache_mib": None, "threads": 2, "numerics": "f32"},
        **{"busy": "", "ratio_noise": noise, "t": {"4": 1.1, "16": 1.5}},
        "cases": {case: of_case},
    }
    for name, value in changes.items():
        part = next((part for part in (found, found["machine"], of_case) if name in part), of_case)
        part[name] = value
    return found


def changes(lines, case="a"):
    return history_page.changes(lines, list(range(1, len(lines) + 1)), case)


def series(speedups, **more):
    return [line(value, number, **more) for number, value in enumerate(speedups)]


class Changes(unittest.TestCase):
    def test_a_change_of_level_is_found_where_it_is(self):
        found = changes(series([1.5, 1.51, 1.49, 1.5, 1.4, 1.41, 1.4]))
        self.assertEqual([place for place, _ in found], [5])
        self.assertRegex(found[0][1], r"^speedup -6\.\d %$")
        self.assertEqual(changes(series([1.5, 1.51, 1.49, 1.5, 1.49, 1.51, 1.5])), [])

    def test_the_last_record_alone(self):
        found = changes(series([1.5, 1.51, 1.49, 1.5, 1.4]))
        self.assertEqual([place for place, _ in found], [5])
        self.assertRegex(found[0][1], r"^\*last\*: speedup -6\.\d %$")
        self.assertEqual(changes(series([1.5, 1.4])), [(2, "*last*: speedup -6.7 %")])
        self.assertEqual(changes(series([1.5, 1.49])), [])
        self.assertEqual(changes(series([1.5])), [])

    def test_an_outlier_in_the_middle_is_no_level(self):
        self.assertEqual(changes(series([1.5, 1.51, 1.3, 1.5, 1.49, 1.51])), [])
        self.assertEqual(len(changes(series([1.5, 1.51, 1.3, 1.3, 1.49, 1.51]))), 2)  # two values are one

    def test_few_false_alarms(self):
        """Series without a change whose noise is the stated one: at most FALSE_ALARM of them show a change point."""
        draw = random.Random(5)
        for length in (4, 10):
            signals = [[draw.gauss(0, 1) for _ in range(length)] for _ in range(500)]
            alarms = sum(bool(history_page.change_points(one)) for one in signals)
            self.assertLessEqual(alarms, 9, length)  # at most 5 are expected
            last = sum(history_page.last_is_off(one, 0) for one in signals)
            self.assertTrue(1 <= last <= 14, (length, last))  # 5 are expected

    def test_a_shift_of_five_deviations_is_found(self):
        draw = random.Random(6)
        found = []
        for _ in range(100):
            signal = [draw.gauss(0, 1) for _ in range(6)] + [draw.gauss(5, 1) for _ in range(6)]
            found.append(history_page.change_points(signal))
            self.assertTrue(found[-1])
        self.assertGreater(sum(places == [6] for places in found), 90)

    def test_noise(self):
        """The noise comes from repeats, or else from the interval of a run. From six values on, their own scatter counts too."""
        step = [1.5, 1.5, 1.5, 1.3, 1.3]
        self.assertEqual(len(changes(series(step))), 1)
        self.assertEqual(changes(series(step, noise=None)), [])  # the intervals are +- 10 %
        rough = [1.5, 1.2, 1.6, 1.25, 1.55, 1.22, 1.58, 1.2]
        self.assertEqual(changes(series(rough)), [])

    def test_machines_are_compared_with_themselves(self):
        mixed = [line(value, number, device="b" if number % 2 else "a") for number, value in enumerate([1.5, 1.2] * 4)]
        self.assertEqual(changes(mixed), [])
        for field, value in (("cache_mib", 320), ("threads", 4), ("numerics", "bf16")):
            self.assertEqual(changes([line(1.5, 0), line(1.2, 1, **{field: value})]), [])

    def test_a_busy_machine_gives_no_times(self):
        self.assertEqual(changes([line(1.5, 0), line(1.5, 1), line(0.9, 2, busy="a compiler ran")]), [])

    def test_counts_are_compared_exactly(self):
        lines = [line(1.5, 0), line(1.5, 1, rows=5.00001), line(1.5, 2, rows=5.00001, tau=2.1)]
        self.assertEqual(changes(lines), [(2, "rows/token +0.0 %"), (3, "tau 2 → 2.1")])
        lines[1]["machine"]["numerics"] = "bf16"
        self.assertEqual(changes(lines), [(3, "tau 2 → 2.1, rows/token +0.0 %")])

    def test_counts_that_a_record_lacks(self):
        lines = [line(1.5, 0), line(1.5, 1), line(1.5, 2)]
        del lines[1]["cases"]["a"]
        lines[2]["cases"]["a"]["alpha"] = 0.5
        self.assertEqual(changes(lines), [])

    def test_c_and_row_times(self):
        lines = [
            line(1.5, number, c=0.05 if number < 3 else 0.07, t={"4": 1.1 if number < 3 else 1.6})
            for number in range(6)
        ]
        self.assertEqual(changes(lines), [(4, "c +40.0 %")])
        self.assertEqual(history_page.table_changes(lines, [1, 2, 3, 4, 5, 6]), [(4, "t(4) +45.5 %")])


class Page(unittest.TestCase):
    def test_a_line_for_each_case(self):
        lines = series([1.5, 1.5 * 1.03, 1.4]) + [line(1.2, 3, case="b", device="other", dirty=True)]
        text = history_page.page(lines)
        self.assertIn("| a | 1.40 [1.26, 1.54] | A▄▅▂ B· | 2.000 |  |  | 1.30 (10.0) | 5.000 |", text)
        self.assertIn("| b | 1.20 [1.08, 1.32] | A··· B▄ |", text)
        self.assertIn("| 4 | 0000000000 | 2026-01-04 | B: other, 2 threads, f32 |", text)
        self.assertIn("| uncommitted changes |", text)

    def test_workloads_are_sections(self):
        text = history_page.page([line(1.5, 0), line(1.5, 1, workload="v"), line(1.5, 2)])
        self.assertEqual(text.count("## x, t"), 2)
        self.assertIn("workload v.\n\n| record", text)
        self.assertEqual(text.count("1 cases, measured once: no trend yet."), 1)
        self.assertIn("No run is in the history yet", history_page.page([]))

    def test_operation_counts(self):
        text = history_page.page([line(1.5, number, calls=0.5, drafts=2.0, flops=3_456_000_000) for number in range(2)])
        self.assertIn("| 5.000 | 0.500 | 2.000 | 3.46 |", text)

    def test_the_time_of_the_forwards_of_a_case(self):
        """Between the calibrated row counts, t(n) is a straight line; t(1) is 1."""
        forward = lambda rows, tau, t: history_page.forward_of({"t": t}, {"rows": rows, "tau": tau})
        t = {"4": 1.1, "16": 1.5}
        self.assertEqual(forward(1, 1, t), (1, 1))
        self.assertAlmostEqual(forward(1.25, 2, t)[1], 1.05)
        self.assertAlmostEqual(forward(2, 2, t)[1], 1.1)
        self.assertAlmostEqual(forward(5, 2, t)[1], 1.3)
        self.assertAlmostEqual(forward(8, 2, t)[1], 1.5)
        self.assertIsNone(forward(9, 2, t))
        self.assertIsNone(forward(1, 1, {}))
        self.assertIsNone(forward(None, 2, t))

    def test_a_change_names_its_commit(self):
        lines = [{"commit": "a" * 12}, {"commit": "b" * 12}, {"commit": "c" * 12}]
        self.assertEqual(history_page.marked([(2, "x"), (3, "y")], lines), "2 (bbbbbbb): x; 3 (ccccccc): y")
        step = [1.5, 1.51, 1.49, 1.5, 1.4, 1.41, 1.4]
        found = [line(value, number, commit=f"{number:07d}fffff") for number, value in enumerate(step)]
        self.assertRegex(history_page.page(found), r"\| 5 \(0000004\): speedup -6\.\d % \|")

    def test_bars(self):
        self.assertEqual(history_page.bars([None, 1, 1.03, 1.01, 0.5, 9, None]), "·▄▅▄▁█·")
        self.assertEqual(history_page.bars([None]), "·")


class Append(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "results").mkdir()

    def fails(self, *names):
        """The message of a command that ends with exit code 2."""
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            status = history.main([str(name) for name in names], self.root)
        self.assertEqual(status, 2, err.getvalue())
        return err.getvalue()

    def test_a_line_holds_the_numbers_of_the_record(self):
        history.append(self.root, [str(QUICKSTART)])
        (found,) = history.read(self.root / history.HISTORY)
        summary = json.loads((QUICKSTART / "summary.json").read_text())
        metrics = next(case["metrics"] for case in summary["cases"] if case["id"] == CASE)
        own = found["cases"][CASE]
        self.assertEqual((found["config"], found["commit"], found["prompts"]), ("quickstart", "e28599a3c641", 9))
        ends = [own["speedup_lo"], own["speedup_hi"]]
        self.assertEqual(ends, [float(f"{end:.4g}") for end in metrics["speedup_ci95"]])
        self.assertAlmostEqual(own["speedup"], metrics["speedup"], 3)
        self.assertAlmostEqual(own["tau"], metrics["tau"], 5)
        self.assertEqual(own["flops"], float(f"{metrics['flops']:.6g}"))
        self.assertAlmostEqual(own["rows"], metrics["target_rows"], 5)
        self.assertEqual(found["t"]["4"], float(f"{summary['calibration']['t_n']['4']:.4g}"))
        self.assertEqual(set(found["cases"]), {case["id"] for case in summary["cases"]})
        self.assertIsNone(found["cases"]["autoregressive"]["speedup"])
        self.assertEqual(history.main(["check"], self.root), 0)
        (self.root / history.PAGE).write_text("old")
        self.assertEqual(history.main(["check"], self.root), 1)
        self.assertEqual(history.main(["page"], self.root), 0)
        self.assertEqual(history.main(["check"], self.root), 0)

    def test_a_run_once(self):
        history.append(self.root, [str(QUICKSTART)])
        before = (self.root / history.HISTORY).read_bytes()
        other = QUICKSTART.with_name("staged")
        self.assertIn("is in results/history.jsonl already", self.fails("append", other, QUICKSTART))
        self.assertEqual((self.root / history.HISTORY).read_bytes(), before)  # all or none
        history.append(self.root, [str(other)])
        self.assertTrue((self.root / history.HISTORY).read_bytes() != before)

    def test_runs_that_are_refused(self):
        folder = self.root / "run"
        synthetic_run.write(folder)
        for name, change, problem in (
            ("summary.json", {"complete": False}, "not complete"),
            ("summary.json", {"errors": [{"case": "x", "prompt": None, "message": "m"}]}, "has errors"),
            ("environment.json", {"build_type": "Debug"}, "a Debug build"),
        ):
            text = (folder / name).read_text()
            (folder / name).write_text(json.dumps({**json.loads(text), **change}))
            self.assertIn(problem, self.fails("append", folder))
            (folder / name).write_text(text)
        self.assertIn("Give the folder", self.fails("append", self.root / "absent"))
        self.assertIn("Give COMMIT:FOLDER", self.fails("append", "nothing:results"))

    def test_a_damaged_history(self):
        file = self.root / history.HISTORY
        for text, problem in (
            ('{"schema_version": 1', "line 2: not JSON"),
            ('{"schema_version": 9}', "schema_version 9"),
        ):
            file.write_text(json.dumps({**line(1, 1), "cases": {}}) + "\n" + text + "\n")
            self.assertIn(problem, self.fails("append", QUICKSTART))

    def test_a_record_of_an_earlier_commit(self):
        git = lambda *words: (
            subprocess.run(["git", "-C", self.root, *words], capture_output=True, text=True, check=True).stdout
        )
        git("init", "-q")
        kept = self.root / "kept"
        kept.mkdir()
        for name in ("summary.json", "environment.json", "config.json"):
            (kept / name).write_bytes((QUICKSTART / name).read_bytes())
        git("add", "-A")
        git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "kept")
        commit = git("rev-parse", "HEAD").strip()
        history.append(self.root, [f"{commit}:kept"])
        (early,) = history.read(self.root / history.HISTORY)
        self.assertEqual({**early, "cases": 0}, {**history.lines_of(str(QUICKSTART), self.root)[0], "cases": 0})
        self.assertIn(CASE, early["cases"])

    def test_a_workload_is_target_prompts_and_lengths(self):
        config = json.loads((QUICKSTART / "config.json").read_text())
        environment = json.loads((QUICKSTART / "environment.json").read_text())
        seen = set()
        for place, change in enumerate(("none", "prompt", "seed", "length", "target", "description")):
            folder = self.root / str(place)
            folder.mkdir()
            changed, of = copy.deepcopy(config), copy.deepcopy(environment)
            if change == "prompt":
                changed["prompts"][0]["turns"][0] += "!"
            elif change == "seed":
                changed["seeds"] = [9]
            elif change == "length":
                changed["cases"][0]["options"]["max_tokens"] = 7
            elif change == "target":
                of["models"]["target"]["sha256"] = "0"
            elif change == "description":
                changed["description"] = "other"
            (folder / "config.json").write_text(json.dumps(changed))
            (folder / "environment.json").write_text(json.dumps(of))
            (folder / "summary.json").write_bytes((QUICKSTART / "summary.json").read_bytes())
            seen.add(history.lines_of(str(folder), self.root)[0]["workload"])
        self.assertEqual(len(seen), 5)  # a description changes nothing


class Committed(unittest.TestCase):
    def test_the_page_is_up_to_date(self):
        self.assertEqual(history.main(["check"]), 0)

    def test_every_committed_record_is_in_the_history(self):
        kept = {(one["config"], one["commit"], one["date"]) for one in history.read(ROOT / history.HISTORY)}
        for file in sorted((ROOT / "results/baselines").rglob("summary.json")):
            environment = json.loads(file.with_name("environment.json").read_text())
            name = json.loads(file.read_text())["name"]
            self.assertIn((name, environment["commit"][:12], environment["date"]), kept, f"{file.parent}: append it")

    def test_it_is_small(self):
        self.assertLess(sum((ROOT / name).stat().st_size for name in (history.HISTORY, history.PAGE)), 150_000)


if __name__ == "__main__":
    unittest.main()
