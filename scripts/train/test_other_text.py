"""Tests of text that the target did not write (with the packages of requirements.txt): python -m unittest discover -s scripts/train"""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

import draft as drafts
import numpy as np
import torch
from generate import END
from head_training.text import States
from other_text import DraftWriter, prompts_of, read, save, texts_of
from train import HELD_OUT, Text, find_shards

V, D = 80, 8
SIZE = drafts.shape(16, 2, 8, 24, 70)


class Reader:
    """A target whose state at a position is the embedding of the token there."""

    device = torch.device("cpu")

    def __init__(self):
        self.embed = torch.randn(V, D, generator=torch.Generator().manual_seed(1))

    def states(self, ids):
        return self.embed[ids]

    def logits(self, features):
        return features @ self.embed.T


class OtherText(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.target = Path(folder.name), Reader()
        torch.manual_seed(1)
        self.draft = drafts.Draft(self.target.embed, torch.arange(70), SIZE)
        with torch.no_grad():
            for parameter in self.draft.parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape) + (parameter.dim() == 1))

    @torch.no_grad()
    def test_a_draft_writes_by_its_own_law(self):
        ids = torch.randint(70, (3, 9))
        keys, values = ([torch.zeros(3, 2, 9, 8) for _ in range(3)] for _ in range(2))
        writer = DraftWriter(self.draft, 1)
        rows = [writer.step(ids[:, t], t, keys, values) for t in range(9)]
        torch.testing.assert_close(torch.stack(rows, 1), self.draft(ids) @ self.draft.head.T, atol=1e-5, rtol=1e-5)

    def test_answers_end_at_the_end_or_at_the_limit(self):
        prompts = [[5, 6, 7], [8]] * 20
        rows = DraftWriter(self.draft, 1).write(prompts, 6)
        for prompt, row in zip(prompts, rows):
            answer = row[len(prompt) :]
            self.assertEqual(row[: len(prompt)], prompt)
            self.assertNotIn(END, answer[:-1])
            self.assertTrue(len(answer) == 6 or answer[-1] == END)
        self.assertEqual(rows, DraftWriter(self.draft, 1).write(prompts, 6))
        self.draft.vocab.fill_(END)
        self.assertEqual(DraftWriter(self.draft, 1).write([[5, 6], [7]], 6), [[5, 6, END], [7, END]])

    def test_the_target_reads_texts(self):
        texts = [([1, 2, 3, 4, 5], 2), ([6, 7], 0)]
        done = read(self.target, texts, 1.0)
        self.assertEqual([(s.ids, s.start) for s in done], [texts[1], texts[0]])
        for s in done:
            expected = self.target.embed[torch.tensor(s.ids[s.start : -1])]
            np.testing.assert_array_equal(np.stack(s.features), expected.half().numpy())
            np.testing.assert_allclose(s.lse, self.target.logits(expected).logsumexp(1).numpy(), rtol=1e-5)

    def shards(self, counts):
        with mock.patch("builtins.print"):
            for name, count in counts.items():
                texts = [([i % V, (i + 1) % V, (i + 2) % V, (i + 3) % V], 1) for i in range(count)]
                save(self.folder, name, read(self.target, texts, 1.0), "0")
        return find_shards(self.folder, ["target", "draft", "file"])

    def test_only_text_of_the_target_is_measured(self):
        shards = self.shards({"file": 50, "draft": 90, "text": 85})
        self.assertEqual([s.name for s in shards], ["text-00000.npz", "draft-00000.npz", "file-00000.npz"])
        self.assertEqual(find_shards(self.folder, ["file"]), shards[2:])
        text = Text(shards, self.target.embed, torch.arange(V), "cpu")
        self.assertEqual(text.own, 85)
        training, held_out = text.split()
        self.assertEqual(held_out, [0, 40, 80])
        self.assertFalse({120, 160, 200} & set(training))
        self.assertEqual(len(training), 225 - 6)
        states = States(text, shards)
        self.assertEqual(states.sequences(1, True), [])
        self.assertNotIn(120, states.sequences(1, False))
        self.assertEqual(len(states.rows(1, True)), 0)
        alone = Text(shards[1:2], self.target.embed, torch.arange(V), "cpu")  # nothing else to measure
        self.assertEqual(alone.split()[1], [0, 40, 80])

    def test_prompts_are_those_of_sequences_that_are_not_held_out(self):
        shards = self.shards({"text": 2 * HELD_OUT})
        prompts = prompts_of(shards)
        self.assertEqual(len(prompts), 2 * HELD_OUT - 2)
        self.assertTrue(all(len(p) == 2 and (p[0] + 1) % V == p[1] for p in prompts))

    def test_texts_of_a_file(self):
        encode = lambda text: [3] * len(text.split())
        path = self.folder / "texts.jsonl"
        path.write_text('{"text": "a b c"}\n{"prompt": "d", "answer": "e f"}\n')
        whole, answer = texts_of(path, encode)
        self.assertEqual(whole, ([3, 3, 3], 0))
        self.assertEqual(answer[0][answer[1] + 1 :], [3, 3, END])
        for line, message in (
            ('{"prompt": "d"}', "line 2: expected .*answer"),
            ("no json", "line 2: expected"),
            ('{"text": 5}', "line 2: expected"),
        ):
            path.write_text('{"text": "a b c"}\n' + line + "\n")
            with self.assertRaisesRegex(SystemExit, message):
                texts_of(path, encode)
        path.write_text('{"text": "a"}\n')
        with self.assertRaisesRegex(SystemExit, "no text of at least two tokens"):
            texts_of(path, encode)


if __name__ == "__main__":
    unittest.main()
