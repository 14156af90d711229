"""The trust of composition: fitted on prompts of split "fit" alone; the code has the fitted constants."""

import contextlib
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/fit"))

import fit_trust

RECORD = ROOT / "results/fits/composition_trust.json"


def prompts_of(split):
    lines = (ROOT / "configs/prompts/speclab.jsonl").read_text(encoding="utf-8").splitlines()
    for prompt in map(json.loads, lines):
        if prompt["split"] == split:
            yield {"id": str(prompt["question_id"]), "split": split, "turns": prompt["turns"]}


class Copies(unittest.TestCase):
    def test_longest_match_most_frequent_continuation(self):
        # 1 2 3 1 2 4 1 2 | 3 9: 1 2 was followed by 3 and by 4, by 3 first; 1 2 3 was followed by 1.
        found = list(fit_trust.copies([1, 2, 3, 1, 2, 4, 1, 2, 3, 9], 8))
        self.assertEqual(found, [(2, 0.5, True), (3, 1.0, False)])
        # 2 of 3 endings continue with 7.
        found = list(fit_trust.copies([5, 8, 5, 7, 5, 7, 5, 7], 7))
        self.assertEqual(found, [(3, 1.0, True)])
        found = list(fit_trust.copies([5, 8, 6, 5, 7, 9, 5, 7, 4, 5, 7], 10))
        self.assertEqual(found, [(1, 2 / 3, True)])
        self.assertEqual(list(fit_trust.copies([1, 2, 3, 4], 1)), [])

    def test_isotonic(self):
        self.assertEqual(list(fit_trust.isotonic([0.2, 0.6, 0.4, 0.9], [1, 1, 1, 1])), [0.2, 0.5, 0.5, 0.9])
        self.assertEqual(list(fit_trust.isotonic([0.2, 0.6, 0.3, 0.0], [1, 2, 1, 0])), [0.2, 0.5, 0.5, 0.5])


class Fit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = pathlib.Path(folder.name)
        self.prompts = list(prompts_of("fit"))[:4]

    def write(self, temperature=0):
        case = {"id": "autoregressive", "strategy": "autoregressive", "options": {"temperature": temperature}}
        config = {"prompts": self.prompts, "cases": [case]}
        (self.run_folder / "config.json").write_text(json.dumps(config))
        (self.run_folder / "environment.json").write_text(json.dumps({"models": {"target": {"name": "T"}}}))
        (self.run_folder / "cases").mkdir(exist_ok=True)
        # A match of one token is right in the first two texts and wrong in the others; longer ones are right.
        texts = [[4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 8, 9], [4, 2, 3], [4, 2, 3]]
        context = [9, 4, 5, 6, 7, 8, 0]
        lines = [
            {"prompt": p["id"], "repeat": 0, "tokens": text, "turns": [{"context": context, "tokens": len(text)}]}
            for p, text in zip(self.prompts, texts)
        ]
        (self.run_folder / "cases/autoregressive.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run_script(self, *more):
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = fit_trust.main([str(self.run_folder), "--lengths", "3", *more])
        return code, out.getvalue(), error.getvalue()

    def test_prints_constants_with_their_spread(self):
        self.write()
        code, out, _ = self.run_script("--out", str(self.run_folder / "fit.json"))
        self.assertEqual(code, 0)
        self.assertIn("trust = {.50, ", out)
        fit = json.loads((self.run_folder / "fit.json").read_text())
        self.assertEqual(fit["places"][0], 4)
        self.assertEqual(fit["trust"][0], 0.5)
        lo, hi = fit["ci95"][0]
        self.assertLess(lo, 0.5)
        self.assertGreater(hi, 0.5)
        self.assertEqual(fit["prompts"], [prompt["id"] for prompt in self.prompts])

    def test_refuses_prompts_to_measure(self):
        self.prompts[2] = next(prompts_of("measure"))
        self.write()
        code, _, error = self.run_script()
        self.assertEqual(code, 2)
        self.assertIn('of split "measure"', error)
        # A run that names another split does not help, nor does a text that the project does not know.
        self.prompts[2]["split"] = "fit"
        self.write()
        code, _, error = self.run_script()
        self.assertEqual(code, 2)
        self.assertIn("but not, or not only, in configs/prompts", error)
        del self.prompts[2]["split"]
        self.write()
        self.assertEqual(self.run_script()[0], 2)

    def test_refuses_sampled_and_missing_texts(self):
        self.write(temperature=1)
        self.assertIn("no greedy autoregressive case", self.run_script()[2])
        self.prompts = list(prompts_of("fit"))[:6]
        self.write()
        self.assertIn("no text of 2 prompts", self.run_script()[2])


class Constants(unittest.TestCase):
    def test_the_strategy_has_the_fitted_ones(self):
        fit = json.loads(RECORD.read_text(encoding="utf-8"))
        code = (ROOT / "strategies/composition.cpp").read_text(encoding="utf-8")
        constants = re.search(r"std::vector<double> trust = \{([^}]*)\}", code).group(1)
        self.assertEqual([float(value) for value in constants.split(",")], fit["trust"])
        self.assertEqual(fit["trust"], sorted(fit["trust"]))

    def test_they_were_fitted_to_the_prompts_of_the_split(self):
        fit = json.loads(RECORD.read_text(encoding="utf-8"))
        self.assertEqual(fit["prompts"], [prompt["id"] for prompt in prompts_of("fit")])


if __name__ == "__main__":
    unittest.main()
