"""scripts/studies/coverage.py. Checks the true values, compares intervals with scipy and with results by hand, and measures a part of
the kept table again."""

import json
import math
import pathlib
import sys
import tempfile
import unittest

import numpy as np
import scipy.stats

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/studies"))

import coverage


def some_times(prompts=25, repeats=1, seed=3):
    """Returns numerators and denominators of ratios, each an array [repeats, 1 run, prompts]."""
    random = np.random.default_rng(seed)
    below = np.exp(random.normal(scale=0.6, size=(repeats, 1, prompts)))
    return below * np.exp(random.normal(0.5, 0.4, size=(1, 1, prompts))), below


def log_ratio(above, below, axis=-1):
    return np.log(above.sum(axis=axis) / below.sum(axis=axis))


class Truth(unittest.TestCase):
    def test_steps_and_tests_of_short_texts(self):
        kept = coverage.TOKENS
        try:
            # A step drafts one token and accepts it with probability alpha. After a rejection there is a second step.
            coverage.TOKENS = 2
            steps, tests = coverage.expected_counts(np.array([0.75]))
        finally:
            coverage.TOKENS = kept
        self.assertAlmostEqual(steps[0], 1.25)
        self.assertAlmostEqual(tests[0], 1)

    def test_large_runs_come_close_to_it(self):
        for quantity, process in (
            ("speedup", "categories"),
            ("speedup", "rare"),
            ("time per token", "machine"),
            ("tau", "categories"),
            ("alpha", "rare"),
        ):
            with self.subTest(quantity=quantity, process=process):
                above, below = coverage.simulate(np.random.default_rng(5), quantity, process, 40, 1000)
                found = coverage.median_of(log_ratio(above, below))
                error = found.std() / math.sqrt(len(found))
                self.assertLess(error, 0.02)
                self.assertLess(abs(found.mean() - math.log(coverage.truth_of(quantity, process))), 4.5 * error)


class Simulation(unittest.TestCase):
    def test_texts_have_all_their_tokens(self):
        steps, tests, accepted = coverage.simulate_counts(np.random.default_rng(1), "categories", 3, 9)
        # A step emits its accepted tokens and one more.
        np.testing.assert_array_equal(steps + accepted, np.full((3, 9), coverage.TOKENS))
        self.assertTrue((tests >= accepted).all() and (tests <= steps * coverage.GAMMA).all())

    def test_neighboring_lines_are_slow_together(self):
        base, case = coverage.slowness(np.random.default_rng(2), 400, 9)
        self.assertAlmostEqual(base.std(), coverage.SLOWNESS_SD, delta=0.01)
        correlation = np.corrcoef(base.ravel(), case.ravel())[0, 1]
        self.assertAlmostEqual(correlation, coverage.SLOWNESS_CORRELATION, delta=0.01)


class Intervals(unittest.TestCase):
    def test_medians_and_quantiles(self):
        values = np.random.default_rng(4).normal(size=(3, 5))
        np.testing.assert_array_equal(coverage.median_of(values), np.median(values, axis=0))
        rows = np.sort(values, axis=1)
        np.testing.assert_allclose(coverage.quantile_of_sorted(rows, 0.3), np.quantile(values, 0.3, axis=1))

    def test_jackknife_by_hand(self):
        # Ratios without one prompt: 60 / 2, 150 / 3, 110 / 3; of all: 160 / 4. The logs are .287682, -.223144 and .087011 away
        # from the log of 40; s^2 = 2 / 3 * sum of squared deviations from their mean; t(2) = 4.302653.
        above, below = np.array([[[100.0, 10, 50]]]), np.array([[[2.0, 1, 1]]])
        lo, hi = coverage.intervals("tau", above, below, coverage.draws_of(3, 1))["jackknife t"]
        deviations = np.log([30 / 40, 50 / 40, 110 / 3 / 40])
        half = 4.302653 * math.sqrt(2 / 3 * ((deviations - deviations.mean()) ** 2).sum())
        self.assertAlmostEqual(lo[0], 40 * math.exp(-half), places=4)
        self.assertAlmostEqual(hi[0], 40 * math.exp(half), places=3)

    def test_bootstraps_are_those_of_scipy(self):
        above, below = some_times()
        found = coverage.intervals("speedup", above, below, coverage.draws_of(25, 1))
        for kind, method in (("percentile", "percentile"), ("BCa", "BCa")):
            wanted = scipy.stats.bootstrap(
                (above[0, 0], below[0, 0]),
                lambda a, b, axis=-1: log_ratio(a, b, axis),
                paired=True,
                vectorized=True,
                n_resamples=20000,
                method=method,
                rng=np.random.default_rng(7),
            ).confidence_interval
            for end, other in zip(found[kind], wanted):
                # Two bootstraps differ: the standard error of a 2.5 % quantile of 2000 draws is about .06 sd.
                self.assertAlmostEqual(math.log(end[0]), other, delta=0.3 * (wanted.high - wanted.low) / 4)

    def test_standard_error_is_that_of_the_jackknife_in_first_order(self):
        above, below = some_times(prompts=400)
        error = coverage.standard_error(above, below, np.ones((1, 400)))[0, 0, 0]
        parts = np.log((above.sum() - above) / (below.sum() - below))[0, 0]
        self.assertAlmostEqual(error / math.sqrt(399 * parts.var()), 1, delta=0.02)

    def test_repeats_do_not_narrow_it(self):
        """A repeat has the same prompts, so three equal repeats have the interval of one."""
        above, below = some_times()
        draws = coverage.draws_of(25, 1)
        one = coverage.intervals("speedup", above, below, draws)
        three = coverage.intervals("speedup", *(np.repeat(part, 3, axis=0) for part in (above, below)), draws)
        for kind in coverage.LOG_KINDS:
            np.testing.assert_allclose(one[kind], three[kind])

    def test_wilson_and_odds_stay_within_a_share(self):
        above, below = np.array([[[40.0, 9, 20, 31]]]), np.array([[[40.0, 10, 21, 33]]])
        found = coverage.intervals("alpha", above, below, coverage.draws_of(4, 1))
        wanted = scipy.stats.binomtest(100, 104).proportion_ci(method="wilson")
        self.assertAlmostEqual(found["Wilson"][0][0], wanted.low)
        self.assertAlmostEqual(found["Wilson"][1][0], wanted.high)
        self.assertLess(found["jackknife t, odds"][1][0], 1)


class KeptStudy(unittest.TestCase):
    RUNS = 600
    PARTS = (
        ("speedup", "i.i.d.", 9),
        ("speedup", "rare", 25),
        ("time per token", "machine", 25),
        ("tau", "categories", 25),
        ("alpha", "i.i.d.", 9),
    )

    @classmethod
    def setUpClass(cls):
        cls.study = coverage.read_study(coverage.JSON_FILE)
        cls.cells = {(one["quantity"], one["process"], one["prompts"]): one for one in cls.study["cells"]}

    def test_it_has_all_cells(self):
        self.assertEqual(list(self.cells), coverage.places())
        self.assertEqual(self.study["replicates"], 20000)
        for key, one in self.cells.items():
            self.assertAlmostEqual(one["truth"], coverage.truth_of(*key[:2]), places=9)

    def test_a_part_measured_again_agrees(self):
        for key in self.PARTS:
            kept, again = self.cells[key], coverage.cell(*key, self.RUNS, seed=2)
            self.assertEqual(kept["coverage"].keys(), again["coverage"].keys())
            for kind, share in kept["coverage"].items():
                with self.subTest(key=key, kind=kind):
                    error = math.sqrt(max(share * (1 - share), 0.002) * (1 / self.RUNS + 1 / self.study["replicates"]))
                    self.assertLess(abs(again["coverage"][kind] - share), 4.5 * error)
                    self.assertAlmostEqual(again["width"][kind] / kept["width"][kind], 1, delta=0.1)

    def test_the_kept_page_is_that_of_the_kept_file(self):
        self.assertEqual(coverage.PAGE.read_text(encoding="utf-8"), coverage.page_of(self.study))

    def test_another_file_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "a.json"
            file.write_text("{}")
            with self.assertRaises(SystemExit):
                coverage.read_study(file)

    def test_measure_writes_both_files(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            words = ["measure", "--replicates", "4", "--json", str(folder / "c.json"), "--page", str(folder / "c.md")]
            coverage.main(words)
            study = json.loads((folder / "c.json").read_text())
            self.assertEqual(len(study["cells"]), len(coverage.places()))
            self.assertIn("from 4 simulated runs", (folder / "c.md").read_text())


if __name__ == "__main__":
    unittest.main()
