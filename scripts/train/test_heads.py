"""Tests of the training of heads on made-up text (with the packages of requirements.txt): python -m unittest discover -s scripts/train"""

import tempfile
import types
import unittest
from pathlib import Path

import numpy as np
import torch
from heads import MedusaHeads, States, measure, train
from train import Text

V, D, N = 80, 16, 60  # tokens of the vocabulary, width of a state, tokens of a sequence


def write_text(folder, sequences=80):
    """Shards of a cyclic text: the token after x is x + 1. The state at a position is the code of its next token, whose logit is
    largest."""
    rng = np.random.default_rng(1)
    codes = torch.from_numpy(rng.normal(size=(V, D))).float()
    embedding = codes * 3 / codes.norm(dim=1, keepdim=True)
    shards = []
    for shard in range(2):
        ids, features = [], []
        for _ in range(sequences // 2):
            tokens = (rng.integers(V) + np.arange(N)) % V
            ids.append(tokens)
            features.append(embedding[tokens[1:]])  # positions 0 .. N - 2
        features = torch.cat(features).half()
        lse = (features.float() @ embedding.T).logsumexp(1)
        shards.append(folder / f"text-{shard:05d}.npz")
        np.savez(
            shards[-1],
            ids=np.concatenate(ids).astype(np.int32),
            lengths=np.full(len(ids), N, np.int32),
            starts=np.zeros(len(ids), np.int32),
            features=features.numpy(),
            lse=lse.numpy(),
        )
    return shards, embedding


class HeadsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.shards, embedding = write_text(self.folder)
        vocab = torch.arange(V)
        self.states = States(Text(self.shards, embedding, vocab, "cpu"), self.shards)
        torch.manual_seed(1)
        self.heads = MedusaHeads(embedding, vocab, 2)
        self.options = types.SimpleNamespace(
            device="cpu", rate=3e-2, epochs=8, minutes=10, seed=1, batch=256, decay=0.8
        )

    def test_a_label_is_the_distribution_some_positions_later(self):
        begin = self.states.text.begins[1]
        place = begin + torch.tensor([0, N - 3, N - 2])  # the last two positions have less after them
        keep, index, p = self.states.labels(place, 0, "cpu")
        self.assertEqual(keep.tolist(), [0, 1])
        self.assertTrue(torch.equal(index, self.states.text.index[place[:2] + 1].long()))
        self.assertEqual(self.states.labels(place, 1, "cpu")[0].tolist(), [0])
        self.assertTrue((p.sum(1) < 1.01).all())

    def test_held_out_sequences_are_not_trained_on(self):
        for shard in range(2):
            a, b = (set(self.states.rows(shard, held_out).tolist()) for held_out in (False, True))
            self.assertFalse(a & b)
        self.assertTrue(len(self.states.rows(0, True)) > 0)

    def test_heads_learn_and_go_on_where_they_stopped(self):
        before, _ = measure(self.heads, self.states, "cpu")
        state = self.folder / "state.pt"
        _, tokens, _ = train(self.heads, self.states, self.options, state)
        alpha, accuracy = measure(self.heads, self.states, "cpu")
        self.assertTrue((alpha > before + 0.1).all(), (before, alpha))
        self.assertGreater(accuracy[0, 0], 0.3)
        self.assertTrue((accuracy.sum(1) <= 1 + 1e-6).all())
        again = MedusaHeads(self.heads.outputs[0].detach(), torch.arange(V), 2)
        steps = train(again, self.states, self.options, state)  # nothing is left to do
        self.assertEqual(steps[1], tokens)
        self.assertTrue(torch.equal(again.outputs[1], self.heads.outputs[1]))

    def test_tensors_have_the_published_names(self):
        tensors = self.heads.tensors()
        self.assertEqual(tensors["1.0.linear.weight"].shape, (D, D))
        self.assertEqual(tensors["1.1.weight"].shape, (V, D))
        self.assertEqual(tensors["draft_vocab"].dtype, torch.int32)


if __name__ == "__main__":
    unittest.main()
