"""scripts/compare/compare_drafting.py: numbers that it reads from other programs, and numbers that it computes from them."""

import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/compare"))

import compare_drafting as drafting

LOOKUP = """encoded   26 tokens in    0.105 seconds, speed:  247.61 t/s
decoded   13 tokens in    0.240 seconds, speed:   54.1 t/s

n_draft      = 16
n_predict    = 13
n_drafted    = 20
n_accept     = 4
"""
# Stand-ins for torch and transformers. With prompt lookup the forward over the prompt emits three tokens.
TORCH = """
import contextlib
import numpy
float32 = "float32"
__version__ = "0"
tensor, ones_like, inference_mode = numpy.array, numpy.ones_like, contextlib.nullcontext
set_num_threads = lambda threads: None
"""
TRANSFORMERS = """
import types
import numpy
__version__ = "0"
logging = types.SimpleNamespace(set_verbosity_error=lambda: None)
utils = types.SimpleNamespace(logging=types.SimpleNamespace(disable_progress_bar=lambda: None))

class AutoModelForCausalLM:
    @classmethod
    def from_pretrained(cls, *names, **options):
        return cls()
    def eval(self):
        return self
    def forward(self, tokens):
        return tokens
    def generate(self, ids, streamer, max_new_tokens, prompt_lookup_num_tokens=0, **options):
        put = lambda count: streamer.put(types.SimpleNamespace(numel=lambda: count))
        put(ids.size)
        for count in [3, 1, max_new_tokens - 4] if prompt_lookup_num_tokens else [1] * max_new_tokens:
            self.forward(count)
            put(count)
        return numpy.concatenate([ids, numpy.zeros((1, max_new_tokens), dtype=int)], axis=1)
"""
PROMPTS = [{"id": "a", "category": "x"}, {"id": "b", "category": "y"}]


def result(tokens, calls, ms, same=True):
    return {"tokens": tokens, "calls": calls, "ms": ms, "prefill_ms": 1, "same_text": same}


class CompareDrafting(unittest.TestCase):
    def test_the_first_token_of_a_text_is_no_token_of_a_call(self):
        # Nine passes of the loop emitted 13 tokens; the first used the forward of the prompt, the others one forward each.
        got = drafting.read_example(LOOKUP, "an \033[0;96mans\033[0m - draft candidate: token=5\nwer", lookahead=False)
        self.assertEqual((got["context"], got["tokens"], got["calls"], got["ms"]), (26, 12, 8, 240.0))
        self.assertEqual(got["text"], "an answer")
        got = drafting.read_example(LOOKUP, "", lookahead=True)  # lookahead counts from the second token on
        self.assertEqual((got["tokens"], got["calls"]), (13, 9))
        with self.assertRaisesRegex(drafting.Problem, "n_accept"):
            drafting.read_example(LOOKUP.replace("n_accept", "accepted"), "", lookahead=False)

    def test_tokens_of_the_forward_over_the_prompt_do_not_count(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("torch", TORCH), ("transformers", TRANSFORMERS)):
                pathlib.Path(folder, name + ".py").write_text(text, encoding="utf-8")
            with unittest.mock.patch.dict(os.environ, {"PYTHONPATH": folder}):
                other = drafting.Transformers(sys.executable, "model.gguf", 1, "float32")
            greedy, lookup = (other.decode(name, {"ids": [5, 6]}, 6) for name in drafting.TRANSFORMERS)
            other.close()
            other.process.stdout.close()
        self.assertEqual((greedy["tokens"], greedy["calls"], len(greedy["ids"])), (5, 5, 6))
        self.assertEqual((lookup["tokens"], lookup["calls"], len(lookup["ids"])), (3, 2, 6))

    def test_speeds_are_against_the_own_greedy_decoding(self):
        runs = {
            drafting.GREEDY: {
                "a": [result(10, 10, 100), result(10, 10, 120)],
                "b": [result(30, 30, 300), result(30, 30, 280)],
            },
            "speclab prompt_lookup, 16": {"a": [result(10, 5, 50)] * 2, "b": [result(30, 15, 150, False)] * 2},
            drafting.LLAMA[0]: {"a": [result(10, 10, 200)] * 2, "b": [result(30, 30, 600)] * 2},
            drafting.LLAMA[1]: {"a": [result(10, 8, 200)] * 2, "b": [result(30, 24, 600)] * 2},
        }
        summary = drafting.summarise(runs, PROMPTS)
        ours, theirs = summary["speclab prompt_lookup, 16"], summary[drafting.LLAMA[1]]
        self.assertAlmostEqual(ours["tau"], 2)
        self.assertAlmostEqual(ours["speedup"], 2)
        self.assertEqual(ours["same_text"], 1)
        self.assertAlmostEqual(theirs["tau"], 1.25)
        self.assertAlmostEqual(theirs["speedup"], 1)
        self.assertAlmostEqual(theirs["beside_speclab_greedy"], 0.5)
        self.assertAlmostEqual(ours["by_prompt"]["b"]["ms_per_token"], 5)
        self.assertIn("1.60 times the tokens per call and 4.00 times the speed of", drafting.verdicts(summary))
        self.assertIn("1 of 2", drafting.table(summary, PROMPTS))
        self.assertIn("1.25", drafting.prompt_table(summary, PROMPTS))

    def test_texts_are_compared_as_far_as_both_go(self):
        prompt = {"greedy": {"ids": [1, 2, 3], "text": "one two"}}
        self.assertTrue(drafting.same_text({"ids": [1, 2, 3, 4]}, prompt))
        self.assertTrue(drafting.same_text({"ids": [1, 2]}, prompt))
        self.assertFalse(drafting.same_text({"ids": [1, 3, 3]}, prompt))
        self.assertTrue(drafting.same_text({"text": " one two three"}, prompt))
        self.assertFalse(drafting.same_text({"text": "one"}, prompt))

    def test_prompts_are_the_first_turns_of_each_category(self):
        prompts = drafting.read_prompts(ROOT / "configs/prompts/speclab.jsonl", 1)
        self.assertEqual(len({prompt["category"] for prompt in prompts}), len(prompts))
        self.assertGreater(len(drafting.read_prompts(ROOT / "configs/prompts/speclab.jsonl", 0)), 50)

    def test_every_program_of_others_has_an_answer(self):
        self.assertEqual(set(drafting.ANSWERS), {*drafting.LLAMA[1:], drafting.TRANSFORMERS[1]})
        self.assertLessEqual(set(drafting.ANSWERS.values()), set(drafting.OURS))


if __name__ == "__main__":
    unittest.main()
