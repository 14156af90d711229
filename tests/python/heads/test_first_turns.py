"""scripts/train/first_turns.py writes chosen prompts with their first turns, in the form that the engine reads."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/train"))
import first_turns  # noqa: E402

QUESTIONS = [
    {
        "question_id": 81,
        "category": "writing",
        "turns": ["Erster Satz: \u00fc.", "Second."],
        "reference": ["r"],
        "level": 2,
    },
    {"question_id": 82, "category": "maths", "turns": ["Add."]},
    {"id": "c", "turns": ["Third.", "Fourth."], "split": "measure"},
]


class FirstTurns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.questions, self.out = (pathlib.Path(folder.name) / name for name in ("questions.jsonl", "new/first.jsonl"))
        self.write(QUESTIONS)

    def write(self, records):
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        self.questions.write_text("\n\n".join(lines) + "\n")

    def chosen(self, ids):
        with contextlib.redirect_stdout(io.StringIO()):
            first_turns.main([str(self.questions), "--ids", ids, "--out", str(self.out)])
        return [json.loads(line) for line in self.out.read_text(encoding="utf-8").splitlines()]

    def test_chosen_prompts_have_their_first_turns_in_the_order_of_the_file(self):
        first = {"question_id": 81, "category": "writing", "turns": ["Erster Satz: \u00fc."]}
        last = {"id": "c", "category": "", "turns": ["Third."], "split": "measure"}
        self.assertEqual(self.chosen("c 81"), [first, last])
        self.assertEqual(self.chosen(""), [first, QUESTIONS[1], last])

    def test_the_engine_knows_every_member(self):
        source = (ROOT / "experiments/config/prompts.cpp").read_text()
        for key in (*first_turns.KEPT, "category", "turns"):
            self.assertIn(f'key == "{key}"', source)

    def test_wrong_files_and_ids_are_refused(self):
        expected = 'expected an object with "question_id" and "turns"'
        for records, ids, message in (
            (QUESTIONS, "81 99 98", "--ids: .* has no prompt 99, 98; it has 3 prompts"),
            ([*QUESTIONS, QUESTIONS[1]], "", "line 7: the id 82 occurs twice"),
            ([QUESTIONS[0], "no json"], "", f"line 3: {expected}"),
            ([{"question_id": 1}], "", f"line 1: {expected}"),
            ([{"question_id": 1, "turns": []}], "", f"line 1: {expected}"),
            ([{"question_id": 1, "turns": [5]}], "", f"line 1: {expected}"),
            ([{"turns": ["a"]}], "", f"line 1: {expected}"),
            (['"a text"'], "", f"line 1: {expected}"),
        ):
            with self.subTest(message=message):
                self.write(records)
                with self.assertRaisesRegex(SystemExit, message):
                    self.chosen(ids)
                self.assertFalse(self.out.exists())
        self.questions.unlink()
        with self.assertRaisesRegex(SystemExit, "no such file"):
            self.chosen("")


if __name__ == "__main__":
    unittest.main()
