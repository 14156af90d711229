"""Tests of the training code: python -m unittest discover -s scripts/train (with the packages of requirements.txt and the target model)."""

import tempfile
import unittest
from pathlib import Path

import draft as drafts
import torch
from generate import sample
from initialise import start_blocks, start_head
from target import PREFIX, TO_ANSWER, Gguf, Target
from train import DistillationLoss

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


if __name__ == "__main__":
    unittest.main()
