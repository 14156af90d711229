"""No constant is measured on prompts to which it was fitted: the splits share no prompt, and configs respect them."""

import collections
import json
import pathlib
import random
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/train"))

import prompts as training

FILES = sorted((ROOT / "configs/prompts").glob("*.jsonl"))
CONFIGS = sorted(file for file in (ROOT / "configs").glob("**/*.json") if file.parent.name != "devices")
GRAM = 8
TASKS = 20000  # number of training prompts to draw, so that templates with filled slots are compared too

# Strategies whose defaults were chosen by looking at texts or times of prompts, and options whose single values were chosen so. A
# list of values is a sweep, which chooses nothing, unless each value was chosen (trees of results/fits). configs/README.md says how
# each value was chosen.
CHOSEN_STRATEGIES = {"composition"}
CHOSEN_OPTIONS = {
    "min_score",
    "min_probability",
    "confidence_threshold",
    "product_threshold",
    "entropy_threshold",
    "trust",
    "known",
}


def grams(text):
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}


def read(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def selected(source):
    """The prompts that experiments/config/prompts.cpp selects."""
    chosen, count = [], collections.Counter()
    for prompt in read(ROOT / source["file"]):
        if source.get("split", "any") not in ("any", prompt["split"]):
            continue
        if source.get("categories") and prompt["category"] not in source["categories"]:
            continue
        count[prompt["category"]] += 1
        if source.get("per_category") and count[prompt["category"]] > source["per_category"]:
            continue
        chosen.append(prompt)
    return chosen[: source.get("limit") or None]


def uses_chosen_constants(config):
    return any(
        not CHOSEN_STRATEGIES.isdisjoint([case["strategy"]] if isinstance(case["strategy"], str) else case["strategy"])
        or any(name in CHOSEN_OPTIONS and value and not isinstance(value, list) for name, value in case.items())
        or "results/fits/" in json.dumps(case)
        for case in config["cases"]
    )


class Splits(unittest.TestCase):
    def test_every_prompt_has_one(self):
        for file in FILES:
            for prompt in read(file):
                self.assertIn(prompt.get("split"), ("fit", "measure"), f"{file.name}: {prompt['question_id']}")

    def test_no_text_is_in_both(self):
        of_text, of_id = {}, {}
        for file in FILES:
            for prompt in read(file):
                self.assertEqual(of_id.setdefault(prompt["question_id"], prompt["split"]), prompt["split"], file.name)
                for turn in prompt["turns"]:
                    self.assertEqual(of_text.setdefault(turn, prompt["split"]), prompt["split"], turn)

    def test_no_eight_words_are_in_both(self):
        found = {"fit": {}, "measure": {}}
        for file in FILES:
            for prompt in read(file):
                for turn in prompt["turns"]:
                    found[prompt["split"]].update(dict.fromkeys(grams(turn), prompt["question_id"]))
        for gram in found["fit"].keys() & found["measure"].keys():
            self.fail(f"{found['fit'][gram]} (fit) and {found['measure'][gram]} (measure): {' '.join(gram)}")

    def test_no_eight_words_are_in_the_training_prompts(self):
        seen = set()
        for lists in vars(training).values():
            for text in lists if isinstance(lists, list) else ():
                for piece in re.split(r"\{[^}]*\}", text):
                    seen |= grams(piece)
        for task in training.tasks(random.Random(1), TASKS, []):
            seen |= grams(task.prompt)
        self.assertGreater(len(seen), 1000)
        for file in FILES:
            for prompt in read(file):
                for turn in prompt["turns"]:
                    shared = grams(turn) & seen
                    self.assertFalse(shared, f"{file.name}: {prompt['question_id']}: {shared}")


class MeasuringConfigs(unittest.TestCase):
    def test_chosen_constants_are_measured_on_other_prompts(self):
        checked = set()
        for file in CONFIGS:
            config = json.loads(file.read_text(encoding="utf-8"))
            if not uses_chosen_constants(config):
                continue
            checked.add(file.stem)
            self.assertEqual(config["prompts"].get("split"), "measure", file.name)
            self.assertEqual({prompt["split"] for prompt in selected(config["prompts"])}, {"measure"}, file.name)
        self.assertLessEqual({"quickstart", "copy_family", "copy_summaries"}, checked)

    def test_texts_to_fit_are_of_the_other_split(self):
        config = json.loads((ROOT / "configs/fit_texts.json").read_text(encoding="utf-8"))
        self.assertEqual({prompt["split"] for prompt in selected(config["prompts"])}, {"fit"})

    def test_the_studies_of_copies_have_all_categories_that_they_name(self):
        count = lambda name: collections.Counter(
            prompt["category"]
            for prompt in selected(json.loads((ROOT / f"configs/{name}.json").read_text(encoding="utf-8"))["prompts"])
        )
        self.assertEqual(count("copy_summaries"), {"summarisation": 6, "passage_qa": 6, "editing": 6})
        self.assertEqual(set(count("copy_family").values()), {6})


if __name__ == "__main__":
    unittest.main()
