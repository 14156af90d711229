"""Tests of the training code: python -m unittest discover -s scripts/train (with the packages of requirements.txt and the target model)."""

import json
import random
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import draft as drafts
import evaluate
import numpy as np
import test_text_heads
import torch
import train
from distillation.labels import TOP
from distillation.objectives import OBJECTIVES, DistillationLoss, objective_loss
from generate import require_target, sample
from initialise import start_blocks, start_head
from target import PREFIX, TO_ANSWER, Gguf, Target
from train import Text, boost, check, covered, require_text, start_key

MODEL = Path(__file__).parents[2] / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = drafts.SIZES["256"] | dict(draft_vocab=8192)


class TargetTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_grad_enabled(False)
        cls.file = Gguf(MODEL)
        cls.tokenizer = cls.file.tokenizer()
        cls.target = Target(cls.file)

    def test_tokenizer_splits_digits_and_knows_specials(self):
        encode = lambda text: self.tokenizer.encode(text).tokens
        self.assertEqual(encode("a  12<|im_end|>"), ["a", "ĠĠ", "1", "2", "<|im_end|>"])

    def test_steps_in_padded_slots_equal_one_prefill(self):
        a, b = (
            self.tokenizer.encode(PREFIX + p + TO_ANSWER).ids
            for p in ("What is the capital of France?", "Count: 1 2 3")
        )
        self.target.allocate(2, 128)
        whole = [self.target.prefill(torch.tensor([ids]), torch.tensor([0]))[0] for ids in (a, b)]
        n = 24  # feeds a shared prefix, a padded rest, and the last tokens one by one
        rows = torch.zeros(2, max(len(a), len(b)) - n, dtype=torch.long)
        for row, ids in enumerate((a, b)):
            rows[row, : len(ids) - n - 3] = torch.tensor(ids[n:-3])
        self.target.prefill(torch.tensor([a[:n]] * 2), torch.tensor([0, 1]))
        self.target.prefill(rows, torch.tensor([0, 1]), n)
        for back in (3, 2, 1):
            features = self.target.step(
                torch.tensor([a[-back], b[-back]]), torch.tensor([len(a) - back, len(b) - back])
            )
            for f, w in zip(features, whole):
                torch.testing.assert_close(f, w[-back], atol=2e-3, rtol=1e-3)

    def test_draft_survives_export_and_refuses_another_target(self):
        vocab = torch.arange(SIZE["draft_vocab"]) * 6
        draft = drafts.Draft(self.target.embed, vocab, SIZE)
        frequency = torch.ones(len(self.target.embed))
        start_head(draft, frequency, torch.randn(2000, 576))
        start_blocks(draft, frequency)
        ids = torch.tensor([self.tokenizer.encode(PREFIX + "one two three one two").ids])
        with tempfile.TemporaryDirectory() as directory:
            drafts.export(draft, directory, self.file)
            again = drafts.load(directory, self.file)
            for p in draft.parameters():
                p.copy_(p.bfloat16())
            torch.testing.assert_close(again(ids), draft(ids))
            config = Path(directory) / "config.json"
            config.write_text(config.read_text().replace(self.file.tokenizer_sha256(), "0" * 64))
            self.assertRaises(SystemExit, drafts.load, directory, self.file)

    def test_initial_weights_copy(self):
        """In the second half of a repeated random sequence, the circuit often finds the next token before any training."""
        g = torch.Generator().manual_seed(1)
        vocab = torch.arange(500, 500 + SIZE["draft_vocab"])
        draft = drafts.Draft(self.target.embed, vocab, SIZE)
        frequency = 1 / (torch.arange(len(self.target.embed)) + 200.0)
        start_head(draft, frequency, self.target.embed[torch.randint(49152, (4000,), generator=g)])
        start_blocks(draft, frequency)
        once = vocab[torch.randint(len(vocab), (4, 80), generator=g)]
        ids = torch.cat((torch.ones(4, 1, dtype=torch.long), once, once), 1)
        best = draft.vocab[(draft(ids[:, :-1]) @ draft.head.T).argmax(-1)]
        hits = (best == ids[:, 1:]).float()
        self.assertLess(hits[:, :80].mean(), 0.1)
        self.assertGreater(hits[:, 82:].mean(), 0.4)


class SampleTest(unittest.TestCase):
    def test_law(self):
        g = torch.Generator().manual_seed(0)
        n, logits = 40000, 3 * torch.randn(384, generator=g)
        for temperature, min_p in ((1.0, 0.0), (0.7, 0.0), (1.0, 0.1)):
            p = (logits / temperature).softmax(0)
            p = torch.where(p >= min_p * p.max(), p, 0.0)
            p /= p.sum()
            drawn, lse = sample(
                logits.repeat(n, 1), torch.full((n,), temperature), torch.full((n,), min_p), (torch.arange(n) + 0.5) / n
            )
            share = torch.bincount(drawn, minlength=384) / n
            self.assertLess((share - p).abs().max(), 3 / n)
            torch.testing.assert_close(lse, logits.logsumexp(0).expand(n), atol=1e-4, rtol=1e-4)

    def test_greedy(self):
        logits = torch.randn(5, 384)
        drawn, _ = sample(logits.clone(), torch.zeros(5), torch.zeros(5), torch.rand(5))
        self.assertEqual(drawn.tolist(), logits.argmax(1).tolist())


class LossTest(unittest.TestCase):
    def test_gradients_equal_autograd(self):
        torch.set_grad_enabled(True)
        g = torch.Generator().manual_seed(0)
        hidden, head = (torch.randn(s, generator=g).requires_grad_() for s in ((600, 8), (50, 8)))
        p = torch.rand(600, 50, generator=g).softmax(1) * 0.9
        top, index = p.topk(20)
        loss = -(top * (hidden @ head.T).log_softmax(1).gather(1, index)).sum(1).mean()
        expected = torch.autograd.grad(loss, (hidden, head))
        ours = DistillationLoss.apply(hidden, head, index, top)
        torch.testing.assert_close(ours, loss.detach())
        for a, b in zip(torch.autograd.grad(ours, (hidden, head)), expected):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)

    def test_a_weight_counts_a_position_that_often(self):
        g = torch.Generator().manual_seed(0)
        hidden, head = torch.randn(3, 8, generator=g), torch.randn(20, 8, generator=g)
        p, index = (torch.rand(3, 20, generator=g).softmax(1) * 0.9).topk(12)
        for objective in OBJECTIVES:
            alone = [objective_loss(objective, hidden[[i]], head, index[[i]], p[[i]]) for i in range(3)]
            found = objective_loss(objective, hidden, head, index, p, torch.tensor([0.0, 1.0, 0.25]))
            torch.testing.assert_close(found, (alone[1] + 0.25 * alone[2]) / 3)


class Named:
    """A target that has only a name."""

    def __init__(self, name):
        self.name = name

    def sha256(self):
        return self.name


class CacheTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_start_state_names_all_that_it_depends_on(self):
        shard, other, drafts_ = self.folder / "text-00000.npz", self.folder / "text-00001.npz", []
        shard.write_bytes(b"12"), other.write_bytes(b"123")
        for name in "ab":
            (self.folder / name).mkdir()
            (self.folder / name / "model.safetensors").write_text(name)
            drafts_.append(self.folder / name)
        usual = dict(size="256", seed=1, warm_steps=120, plain=False, boost=[], boost_rest=0.0)

        def key(target="t", shards=(shard,), **changes):
            return start_key(types.SimpleNamespace(**usual | changes), target, shards)

        keys = [
            key(),
            key("another"),
            key(shards=[other]),
            key(shards=[shard, other]),
            *(key(**{n: v}) for n, v in dict(size="128", seed=2, warm_steps=9, plain=True).items()),
            *(key(boost=d) for d in (drafts_[:1], drafts_[1:], drafts_)),
            key(boost=drafts_, boost_rest=0.5),
        ]
        self.assertEqual(key(), keys[0])
        self.assertEqual(len(set(keys)), len(keys))
        shard.write_bytes(b"1234")
        self.assertNotEqual(key(), keys[0], "the text has grown")

    def test_texts_of_the_evaluation_belong_to_their_target(self):
        class Written:
            def __init__(self, target, *_, **__):
                self.target = target

            def write(self, groups, *_):
                for sequence in (s for g in groups for s in g):
                    sequence.ids.append(self.target)
                    sequence.features, sequence.lse = [np.zeros(2, np.float16)], [0.0]
                return [s for g in groups for s in g]

        tokenizer = types.SimpleNamespace(encode=lambda text: types.SimpleNamespace(ids=[1, 2]))
        with mock.patch.multiple(evaluate, Writer=Written, Target=lambda file, device: file.number):
            for number in (5, 6, 5):
                file = Named(f"target {number}")
                file.number = number
                text = evaluate.target_text(file, tokenizer, ["a"], 1, 0, self.folder, "cpu")
                self.assertEqual(text["ids"].tolist(), [1, 2, number])
        self.assertEqual(len(list(self.folder.glob("evaluation-*.npz"))), 2)

    def test_a_folder_without_text_is_refused(self):
        with self.assertRaisesRegex(
            SystemExit, r"no text of the writers draft, file \(draft-00000.npz.*generate.py.*train_heads.sh"
        ):
            require_text([], self.folder, ["draft", "file"])
        require_text([self.folder / "text-00000.npz"], self.folder, ["target"])

    def test_shards_of_another_target_are_refused(self):
        shard, old = self.folder / "text-00000.npz", self.folder / "text-00001.npz"
        np.savez(shard, target="a", lse=np.zeros(1))
        np.savez(old, lse=np.zeros(1))
        require_target([shard, old], "a")
        with self.assertRaisesRegex(SystemExit, "text-00000.npz was written by another target"):
            require_target([old, shard], "b")


class BoostTest(unittest.TestCase):
    VOCABULARY, WIDTH, SEQUENCES = 160, 12, 90

    def setUp(self):
        torch.manual_seed(0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        rng = np.random.default_rng(0)
        lengths = rng.integers(4, 12, self.SEQUENCES)
        starts = np.array([rng.integers(0, n - 1) for n in lengths])
        positions = int((lengths - 1 - starts).sum())
        self.embedding = torch.randn(self.VOCABULARY, self.WIDTH)
        features = rng.standard_normal((positions, self.WIDTH)).astype(np.float16)
        lse = (torch.from_numpy(features).float() @ self.embedding.T).logsumexp(1).numpy()
        ids = rng.integers(0, self.VOCABULARY, int(lengths.sum())).astype(np.int32)
        shard = Path(folder.name) / "text-00000.npz"
        np.savez(shard, ids=ids, lengths=lengths, starts=starts, features=features, lse=lse)
        self.vocab = torch.arange(0, self.VOCABULARY, 2)
        self.text = Text([shard], self.embedding, self.vocab, "cpu")

    def draft(self, vocab):
        size = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8, intermediate_size=8)
        made = drafts.Draft(self.embedding, vocab, size)
        with torch.no_grad():
            for p in made.parameters():
                p.normal_()
        return made.eval()

    def hits(self, draft):
        """For each position of the text, whether the draft's best token is the target's; one sequence at a time."""
        out = []
        for tokens, start, offset in self.text.sequences:
            best = draft.vocab[(draft(tokens[None])[0, start:] @ draft.head.T).argmax(1)]
            wanted = self.vocab[self.text.labels.at(torch.arange(offset, offset + len(tokens) - start))[0][:, 0]]
            out += (best == wanted).tolist()
        return torch.tensor(out)

    def test_positions_that_an_earlier_draft_gets_right_are_left_out(self):
        torch.set_grad_enabled(False)
        first, second = self.draft(self.vocab), self.draft(torch.arange(self.VOCABULARY))
        one, two = self.hits(first), self.hits(second)
        self.assertGreater(one.sum(), 0)
        self.assertGreater((two & ~one).sum(), 0)
        self.assertEqual(covered(self.text, self.vocab, [first]).tolist(), one.tolist())
        self.assertEqual(covered(self.text, self.vocab, [first, second]).tolist(), (one | two).tolist())
        self.assertEqual(covered(self.text, self.vocab, []).sum(), 0)
        numbers = list(range(self.SEQUENCES))
        whole = self.text.load(numbers, "cpu")
        boost(self.text, self.vocab, [first, second], 0)
        kept = ~(one | two)
        ids, *parts = self.text.load(numbers, "cpu")
        self.assertTrue(ids.equal(whole[0]))
        for part, before in zip(parts, whole[1:]):
            self.assertTrue(part.equal(before[kept]))
        all_of_them = self.text.load(numbers, "cpu", weighted=False)
        for part, before in zip(all_of_them[:-1], whole):
            self.assertTrue(part.equal(before), "validation counts every position")
        boost(self.text, self.vocab, [first, second], 0.25)
        weighted = self.text.load(numbers, "cpu")
        self.assertTrue(weighted[4].equal(whole[4]))
        self.assertTrue(weighted[5].equal(torch.where(kept, 1.0, 0.25)))

    def test_sequences_without_a_failure_are_left_out(self):
        training, held_out = self.text.split()
        self.assertEqual(len(training) + len(held_out), self.SEQUENCES)
        tokens, start, offset = self.text.sequences[training[3]]
        self.text.weight[offset : offset + len(tokens) - start] = 0
        self.assertEqual(self.text.split(), (training[:3] + training[4:], held_out))
        for batch in self.text.batches(self.text.split()[0], 40, random.Random(0)):
            self.assertGreater(len(self.text.load(batch, "cpu")[4]), 0)
        with mock.patch("train.covered", lambda text, *_: torch.ones(text.tokens, dtype=torch.bool)):
            with self.assertRaisesRegex(SystemExit, "nothing is left"):
                boost(self.text, self.vocab, [], 0)

    def test_rows_are_those_of_the_loss(self):
        index, p = self.text.labels.at(torch.arange(self.text.tokens))
        self.assertEqual((index.shape, p.shape), ((self.text.tokens, TOP),) * 2)
        self.assertEqual(self.text.weight.shape, (self.text.tokens,))

    def test_the_acceptance_of_a_draft_is_1_minus_its_total_variation(self):
        torch.set_grad_enabled(False)
        draft, (_, held_out) = self.draft(self.vocab), self.text.split()
        found = check(draft, self.text, held_out, 12)
        tokens, start, offset = self.text.sequences[held_out[0]]
        self.assertLess(len(tokens) - start, 12, "a later sequence counts too")
        expected, left = 0.0, 12
        for i in held_out:
            tokens, start, offset = self.text.sequences[i]
            rows = min(left, len(tokens) - start)
            p = (self.text.features(0)[offset : offset + rows].float() @ self.embedding.T).softmax(1)
            q = torch.zeros_like(p)
            q[:, self.vocab] = (draft(tokens[None])[0, start : start + rows] @ draft.head.T).softmax(1)
            expected, left = expected + torch.minimum(p, q).sum().item(), left - rows
        self.assertAlmostEqual(found["alpha"], expected / 12, places=5)
        self.assertAlmostEqual(found["alpha"], 1 - found["total_variation"], places=9)
        self.assertLess(found["largest_difference"], 1e-9)
        self.assertEqual((found["positions"], left), (12, 0))
        draft.vocab[1] = draft.vocab[0]
        with self.assertRaisesRegex(RuntimeError, "names a token twice"):
            check(draft, self.text, held_out, 12)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        torch.set_grad_enabled(True)
        self.folder = Path(folder.name)
        test_text_heads.write_tiny_target(self.folder / "tiny.gguf")
        with torch.no_grad():
            test_text_heads.write_text(self.folder, Target(Gguf(self.folder / "tiny.gguf")))

    def train(self, objective):
        """What the program writes beside the text, and the head of the exported draft."""
        options = f"train.py --plain --workers 1 --device cpu --epochs 4 --warm-steps 4 --batch 256 --objective {objective}".split()
        options += ["--target", self.folder / "tiny.gguf", "--cache", self.folder, "--out", self.folder / objective]
        with mock.patch.object(sys, "argv", [str(option) for option in options]), mock.patch("builtins.print"):
            with mock.patch.dict(train.SIZES, {"256": drafts.shape(16, 2, 8, 24, 70)}):
                train.main()
        draft = drafts.load(self.folder / objective, Gguf(self.folder / "tiny.gguf"))
        return json.loads((self.folder / "summary.json").read_text()), draft.head

    def test_each_objective_trains_a_draft(self):
        heads = []
        for objective in OBJECTIVES:
            with self.subTest(objective=objective):
                summary, head = self.train(objective)
                self.assertEqual(summary["objective"], objective)
                self.assertLess(summary["check"]["largest_difference"], 1e-9)
                self.assertAlmostEqual(summary["check"]["alpha"], 1 - summary["check"]["total_variation"], places=9)
                heads.append(head)
        for i, head in enumerate(heads):
            self.assertFalse(any(head.equal(other) for other in heads[:i]))
        self.assertEqual(len(list(self.folder.glob("start-256-*.pt"))), 1, "all trainings start alike")


if __name__ == "__main__":
    unittest.main()
