"""The experiments and prompts that come with the project."""

import json
import math
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIGS = sorted((ROOT / "configs").glob("*.json"))
PAPER = sorted((ROOT / "configs/paper").glob("*.json"))
EXPECTED = {
    "quickstart",
    "own_pair",
    "gamma_sweep",
    "acceptance_rules",
    "lenience",
    "dumbing_down",
    "chen_k_sweep",
    "temperature_sweep",
    "sampling_small",
    "quality_tradeoff",
    "draft_capability",
    "scale_ladder",
    "lookahead_wng",
    "lookahead_scaling",
    "lookahead_ablation",
    "lookahead_parallel",
    "jacobi",
    "leaderboard_draft_free",
    "leaderboard_retrieval",
    "copy_family",
    "copy_summaries",
    "fit_texts",
    "budget",
    "budget_best_fixed",
    "layer_skip_search",
    "sparse_kv_context",
}


def read_prompts(name):
    return [json.loads(line) for line in (ROOT / "configs/prompts" / name).read_text(encoding="utf-8").splitlines()]


class Prompts(unittest.TestCase):
    def test_spec_bench_format(self):
        for file in ("speclab.jsonl", "quickstart.jsonl", "measure.jsonl"):
            prompts = read_prompts(file)
            for prompt in prompts:
                self.assertEqual(list(prompt), ["question_id", "category", "split", "turns"])
                self.assertTrue(
                    all(isinstance(turn, str) and turn.strip() == turn and turn for turn in prompt["turns"]),
                    prompt["question_id"],
                )
            self.assertEqual(len({prompt["question_id"] for prompt in prompts}), len(prompts))

    def test_enough_of_every_category(self):
        prompts = read_prompts("speclab.jsonl")
        count = {}
        for prompt in prompts:
            count[prompt["category"]] = count.get(prompt["category"], 0) + 1
        self.assertGreaterEqual(len(prompts), 60)
        for category in ("chat", "code", "maths", "translation", "summarisation", "passage_qa"):
            self.assertGreaterEqual(count[category], 10, category)
        self.assertTrue(any(len(prompt["turns"]) == 2 for prompt in prompts))
        self.assertEqual(len({prompt["turns"][0] for prompt in prompts}), len(prompts))

    def test_measuring_prompts_are_as_many_of_each_category(self):
        categories = [prompt["category"] for prompt in read_prompts("measure.jsonl")]
        everyone = {prompt["category"] for prompt in read_prompts("speclab.jsonl")}
        self.assertEqual({category: categories.count(category) for category in everyone}, dict.fromkeys(everyone, 6))

    def test_texts_to_summarise_have_their_length(self):
        for prompt in read_prompts("speclab.jsonl") + read_prompts("measure.jsonl"):
            if prompt["category"] in ("summarisation", "passage_qa"):
                self.assertTrue(120 <= len(prompt["turns"][0].split()) <= 350, prompt["question_id"])

    def test_the_quickstart_is_a_balanced_part(self):
        every = {prompt["question_id"]: prompt for prompt in read_prompts("speclab.jsonl")}
        quick = read_prompts("quickstart.jsonl")
        categories = [prompt["category"] for prompt in quick]
        self.assertEqual(set(categories), {prompt["category"] for prompt in every.values()} - {"editing"})
        self.assertLessEqual({categories.count(category) for category in categories}, {1, 2})
        for prompt in quick:
            self.assertEqual(prompt["turns"], every[prompt["question_id"]]["turns"][:1])


class Configs(unittest.TestCase):
    def test_all_are_there_and_describe_themselves(self):
        self.assertLessEqual(EXPECTED, {file.stem for file in CONFIGS})
        for file in CONFIGS:
            config = json.loads(file.read_text(encoding="utf-8"))
            self.assertEqual(config["name"], file.stem)
            self.assertGreater(len(config["description"]), 40)
            self.assertTrue((ROOT / config["prompts"]["file"]).exists())

    def test_texts_that_differ_from_the_reference_have_its_length(self):
        """A sampled or lossy text may end anywhere, and times per token of texts of 20 and of 96 tokens are not comparable."""
        found = 0
        for file in CONFIGS + PAPER:
            config = json.loads(file.read_text(encoding="utf-8"))
            for case in config["cases"]:
                case = {"temperature": 0, "coins": "independent", "rule": "rejection", **config["options"], **case}
                values = lambda key: case[key] if isinstance(case[key], list) else [case[key]]
                other_text = (any(t > 0 for t in values("temperature")) and "independent" in values("coins")) or values(
                    "rule"
                ) != ["rejection"]
                if other_text:
                    found += 1
                    self.assertIs(case.get("ignore_eos"), True, f"{file.name}: {case}")
        self.assertGreater(found, 20)

    def test_studies_of_sampled_drafts_compute_bounds(self):
        """The table of such a study shows how far its rule is from the best one."""
        names = {
            "acceptance_rules",
            "chen_k_sweep",
            "draft_capability",
            "gamma_sweep",
            "merged_trees",
            "sampling_small",
        }
        names |= {"specinfer_table1", "spectr", "temperature_sweep", "verifiers"}
        without = [
            file.stem
            for file in CONFIGS + PAPER
            if file.stem in names and json.loads(file.read_text(encoding="utf-8")).get("bounds") is not True
        ]
        self.assertEqual(without, [])

    def test_every_case_says_how_much_it_drafts(self):
        """A kept run must not change when the default of the option "budget" does, and a published one had no budget."""
        without = {"autoregressive", "simulated"}
        found = 0
        for file in CONFIGS + PAPER:
            config = json.loads(file.read_text(encoding="utf-8"))
            for case in config["cases"]:
                names = case["strategy"] if isinstance(case["strategy"], list) else [case["strategy"]]
                if set(names) <= without:
                    continue
                found += 1
                value = {**config["options"], **case}.get("budget")
                self.assertIsNotNone(value, f"{file.name}: {case}")
                if file in PAPER:
                    self.assertEqual(value, "fixed", f"{file.name}: {case}")
        self.assertGreater(found, 40)

    def test_papers_are_cited_and_their_models_have_a_place(self):
        self.assertIn("gpt2_report", {file.stem for file in PAPER})
        own = json.loads((ROOT / "configs/quickstart.json").read_text(encoding="utf-8"))["target"]
        for file in PAPER:
            config = json.loads(file.read_text(encoding="utf-8"))
            self.assertEqual(config["name"], file.stem)
            target = config["target"]
            self.assertTrue(target == own or target["from"], file.name)
            self.assertTrue(config["published"])
            for row in config["published"]:
                self.assertGreater(len(row["source"]), 20)
                self.assertTrue(target != own or row["reason"], f"{file.name}: {row['case']}")

    def test_papers_are_measured_within_two_hours(self):
        """At 60 ms for each token, five times what autoregressive decoding takes on two cores."""
        for file in PAPER:
            config = json.loads(file.read_text(encoding="utf-8"))
            prompts = config["prompts"]
            count = len(prompts.get("inline", ())) or sum(
                config["prompts"].get("per_category", 2)
                for category in {prompt["category"] for prompt in read_prompts(pathlib.Path(prompts["file"]).name)}
                if category in prompts.get("categories", [category])
            )
            cases = 0
            for case in config["cases"]:
                sweeps = [
                    len(value)
                    for key, value in {**config["options"], **case}.items()
                    if isinstance(value, list) and key != "widths"
                ]
                cases += math.prod(sweeps)
            tokens = count * cases * config["repeats"] * config["options"]["max_tokens"]
            self.assertLess(0.06 * tokens, 2 * 3600, f"{file.name}: {cases} cases, {count} prompts")

    def test_the_page_of_papers_has_a_line_for_each(self):
        page = (ROOT / "configs/paper/README.md").read_text(encoding="utf-8")
        for file in PAPER:
            self.assertRegex(page, rf"(?m)^\| `{file.stem}` \|", file.name)

    def test_the_page_of_configs_names_all(self):
        page = (ROOT / "configs/README.md").read_text(encoding="utf-8")
        table = page.split("## Experiments that come with it")[1].split("\n## ")[0]
        for file in PAPER:
            self.assertIn(f"`paper/{file.stem}`", table)
        for file in CONFIGS:
            self.assertIn(f"`{file.stem}`", table)


if __name__ == "__main__":
    unittest.main()
