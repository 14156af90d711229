"""Tests of the training of heads on made-up text (with the packages of requirements.txt): python -m unittest discover -s scripts/train"""

import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import heads as program
import numpy as np
import torch
import torch.nn.functional as F
from distillation.labels import TOP, Labels
from distillation.objectives import OBJECTIVES, objective_loss
from head_kinds import OF_STATES, make_heads
from head_training.card import card
from head_training.loop import held_out_loss, loss_of, train
from head_training.measure import check, measure
from head_training.text import Positions, States
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
            temperature=np.arange(len(ids), dtype=np.float32) % 2,
        )
    return shards, embedding


class HeadsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.shards, self.embedding = write_text(self.folder)
        vocab = torch.arange(V)
        self.states = States(Text(self.shards, self.embedding, vocab, "cpu"), self.shards)
        torch.manual_seed(1)
        self.heads = self.make("medusa")
        self.options = types.SimpleNamespace(
            device="cpu",
            rate=3e-2,
            epochs=8,
            minutes=10,
            seed=1,
            batch=256,
            decay=0.8,
            objective="forward_kl",
            ranking=0.0,
        )

    def make(self, kind, vocab=None):
        options = types.SimpleNamespace(heads=2, inner=64)
        return make_heads(kind, self.embedding, torch.arange(V) if vocab is None else vocab, options)

    def at(self, place):
        """Places of the second shard as a batch."""
        features = self.states.features_at(1, place)
        return Positions(self.states, 1, place, features)

    def test_a_label_is_the_distribution_some_positions_later(self):
        begin = self.states.text.begins[1]
        place = begin + torch.tensor([0, N - 3, N - 2])  # the last two positions have less after them
        predicted = {head: at for head, _, at in self.heads.predictions(self.at(place))}
        self.assertEqual(predicted[0].tolist(), (place[:2] + 1).tolist())
        self.assertEqual(predicted[1].tolist(), [begin + 2])
        index, p = self.states.labels_at(predicted[0], "cpu")
        self.assertTrue(torch.equal(index, self.states.text.labels.at(place[:2] + 1)[0]))
        self.assertTrue((p.sum(1) < 1.01).all())

    def test_sequential_heads_read_the_tokens_up_to_the_label(self):
        begin = self.states.text.begins[1]
        place = begin + torch.tensor([0, 5, N - 3, N - 2])
        with np.load(self.shards[1]) as z:
            tokens = z["ids"][:N].tolist()
        batch = self.at(place)
        one, two = batch.with_label(0), batch.with_label(1)
        self.assertEqual(batch.after(one, 1).tolist(), [tokens[1:2], tokens[6:7], tokens[N - 2 : N - 1]])
        self.assertEqual(batch.after(two, 2).tolist(), [tokens[1:3], tokens[6:8]])
        # The label of a place is the target's law of the token after the tokens that after() returns.
        self.assertEqual(two.tolist(), [0, 1])
        index, _ = self.states.labels_at(place[two] + 2, "cpu")
        self.assertEqual(index[:, 0].tolist(), [tokens[3], tokens[8]])

    def test_held_out_sequences_are_not_trained_on(self):
        for shard in range(2):
            a, b = (set(self.states.rows(shard, held_out).tolist()) for held_out in (False, True))
            self.assertFalse(a & b)
        self.assertTrue(len(self.states.rows(0, True)) > 0)

    def test_greedy_text_is_that_of_temperature_0(self):
        greedy = States(self.states.text, self.shards, greedy=True)
        for shard in range(2):
            places = self.states.text.begins[shard] + greedy.rows(shard, held_out=False)
            self.assertEqual({place // (N - 1) % 2 for place in places.tolist()}, {0})
            self.assertTrue(all(i % 2 == 0 for i in greedy.sequences(shard, held_out=False)))
        self.assertTrue(len(greedy.rows(0, False)) > 0)
        for shard in self.shards:
            with np.load(shard) as z:
                arrays = dict(z) | dict(temperature=np.ones(len(z["lengths"]), np.float32))
            np.savez(shard, **arrays)
        with self.assertRaisesRegex(SystemExit, "temperature 0"):
            States(self.states.text, self.shards, greedy=True)

    def test_heads_learn_and_go_on_where_they_stopped(self):
        before, _ = measure(self.heads, self.states, "cpu")
        state = self.folder / "state.pt"
        tokens = train(self.heads, self.states, self.options, state)["tokens"]
        alpha, accuracy = measure(self.heads, self.states, "cpu")
        self.assertTrue((alpha > before + 0.1).all(), (before, alpha))
        self.assertGreater(accuracy[0, 0], 0.3)
        self.assertTrue((accuracy.sum(1) <= 1 + 1e-6).all())
        again = self.make("medusa")
        at = train(again, self.states, self.options, state)  # nothing is left to do
        self.assertEqual(at["tokens"], tokens)
        self.assertEqual(at["curve"][0]["tokens"], 0)
        self.assertEqual(at["curve"][-1]["tokens"], tokens)
        self.assertGreater(at["curve"][-1]["alpha"][0], at["curve"][0]["alpha"][0] + 0.1)
        self.assertTrue(torch.equal(again.outputs[1], self.heads.outputs[1]))

    def test_the_curve_has_the_loss_on_held_out_text_by_steps(self):
        at = train(self.heads, self.states, self.options, self.folder / "state.pt")
        steps, losses = ([point[key] for point in at["curve"]] for key in ("step", "loss"))
        self.assertEqual((steps[0], steps[-1]), (0, at["step"]))
        self.assertEqual(steps, sorted(steps))
        self.assertLess(losses[-1], losses[0] - 0.1)
        self.assertEqual(losses[-1], held_out_loss(self.heads, self.states, self.options, 10**9))
        batches = [batch for shard in range(2) for batch in self.states.batches(False, shard, True, 2048, 0, "cpu")]
        whole = sum(loss_of(self.heads, batch, self.options).item() * batch.size for batch in batches)
        self.assertAlmostEqual(losses[-1], whole / sum(batch.size for batch in batches), places=6)

    def test_the_ranking_loss_is_added_to_the_objective(self):
        batch = next(iter(self.states.batches(False, 0, False, 256, 0, "cpu")))

        def loss(**options):
            return loss_of(self.heads, batch, types.SimpleNamespace(**vars(self.options) | options)).item()

        for objective in OBJECTIVES:
            added = loss(objective=objective, ranking=0.25)
            self.assertAlmostEqual(
                added, loss(objective=objective) + 0.25 * loss(objective="top_k"), places=4, msg=objective
            )

    def test_heads_of_every_kind_learn_by_every_objective(self):
        for number, kind in enumerate(OF_STATES):
            for objective in ("forward_kl", OBJECTIVES[1 + number]):
                with self.subTest(kind=kind, objective=objective):
                    torch.manual_seed(1)
                    heads = self.make(kind)
                    before, _ = measure(heads, self.states, "cpu")
                    self.options.objective = objective
                    train(heads, self.states, self.options, self.folder / f"{kind}-{objective}.pt")
                    alpha, _ = measure(heads, self.states, "cpu")
                    self.assertTrue((alpha > before + 0.05).all(), (before, alpha))

    def test_acceptance_is_1_minus_the_total_variation(self):
        for kind in OF_STATES:
            with self.subTest(kind=kind):
                torch.manual_seed(1)
                heads = self.make(kind, torch.arange(0, V, 2) if kind != "blockwise" else None)
                found = check(heads, self.states, "cpu", 40)
                self.assertLess(found["largest_difference"], 1e-12)
                self.assertEqual(found["positions"], [40, 40])
                self.assertTrue(all(0 < alpha < 1 for alpha in found["alpha"]))
        output = self.heads.outputs
        self.heads.law_output = lambda head: (output[head], torch.zeros(V, dtype=torch.long))  # a wrong vocabulary map
        with self.assertRaisesRegex(RuntimeError, "vocabulary map"):
            check(self.heads, self.states, "cpu", 40)

    def test_the_measured_acceptance_is_over_all_tokens(self):
        for kind in OF_STATES:
            for vocab in (torch.arange(V), torch.arange(0, V, 2)):
                with self.subTest(kind=kind, tokens=len(vocab)):
                    torch.manual_seed(1)
                    heads = self.make(kind, vocab)
                    alpha, accuracy = measure(heads, self.states, "cpu")
                    exact = check(heads, self.states, "cpu", 10**9)["alpha"]
                    torch.testing.assert_close(
                        alpha.double(), torch.tensor(exact, dtype=torch.float64), atol=1e-5, rtol=0
                    )
                    if (
                        kind != "blockwise"
                    ):  # only the even tokens are drafted, and only half of the best tokens are even
                        self.assertTrue((accuracy.sum(1) <= (1 if len(vocab) == V else 0.6)).all(), accuracy)

    def test_the_card_counts_the_text_that_was_used(self):
        self.assertEqual(self.states.tokens, 80 * (N - 1))
        self.assertEqual(States(self.states.text, self.shards, greedy=True).tokens, 40 * (N - 1))

    def test_a_training_is_found_again_by_the_content_of_its_text(self):
        args = types.SimpleNamespace(kind="medusa")
        keys = [program.training_key(args, "0", self.shards)]
        other = self.folder / "other"
        other.mkdir()
        for shard in self.shards:
            content = bytearray(shard.read_bytes())
            content[-1] ^= 1  # the size stays
            (other / shard.name).write_bytes(content)
        keys.append(program.training_key(args, "0", [other / shard.name for shard in self.shards]))
        self.assertNotEqual(*keys)

    def test_tensors_have_the_published_names(self):
        tensors = self.heads.tensors()
        self.assertEqual(tensors["1.0.linear.weight"].shape, (D, D))
        self.assertEqual(tensors["1.1.weight"].shape, (V, D))
        self.assertEqual(tensors["draft_vocab"].dtype, torch.int32)

    def stored(self, kind):
        """Random heads with weights that are exact in bf16, their tensors in float, and what head 1 says for three positions."""
        torch.manual_seed(2)
        vocab = torch.arange(0, V, 2)
        heads = self.make(kind, vocab)
        with torch.no_grad():
            for parameter in heads.parameters():
                parameter.copy_((parameter + 0.3 * torch.randn_like(parameter)).bfloat16().float())
        states, tokens = torch.randn(3, D), torch.tensor([[4, 7], [79, 0], [2, 2]])
        with torch.no_grad():
            logits = heads.hidden(1, states, tokens) @ heads.output(1).T
        tensors = {name: tensor.float() for name, tensor in heads.tensors().items()}
        return tensors, states, tokens, logits

    def assert_near(self, a, b):
        self.assertEqual(a.shape, b.shape)
        self.assertLess((a - b).abs().max().item(), 1e-4 * b.abs().max().item())

    # The formulas of the engine's classes, from the tensors of the file (core/model/heads).
    def test_the_file_of_hydra_heads_says_what_was_trained(self):
        t, states, tokens, logits = self.stored("hydra")
        x = torch.cat([states, self.embedding[tokens[:, 0]], self.embedding[tokens[:, 1]]], 1)
        at = "hydra_mlp.1.0."
        y = F.silu(x @ t[at + "linear.weight"].T + t[at + "linear.bias"])
        y = y + x @ t[at + "res_connection.weight"].T + t[at + "res_connection.bias"]
        self.assert_near(y @ t["hydra_lm_head.1.weight"].T + t["hydra_lm_head.1.bias"], logits)

    def test_the_file_of_an_mlp_speculator_says_what_was_trained(self):
        t, states, tokens, logits = self.stored("mlp_speculator")
        norm = lambda x: x / (x.pow(2).mean(1, keepdim=True) + 1e-6).sqrt()
        ws = 0.5**0.25
        we = ((1 - ws**2) * 64 / 2) ** 0.5
        s = norm(states) / 2**0.5
        for i in range(2):
            s = ws * (s @ t[f"proj.{i}.weight"].T) + we * t["emb.0.weight"][tokens[:, i]]
            s = F.gelu(t["ln.0.weight"] * norm(s) + t["ln.0.bias"])
        self.assert_near(s @ t["head.0.weight"].T, logits)

    def test_the_file_of_blockwise_heads_says_what_was_trained(self):
        t, states, _, logits = self.stored("blockwise")
        inner = F.relu(states @ t["ffn_in.weight"].T + t["ffn_in.bias"])
        y = states + inner @ t["ffn_out.1.weight"].T + t["ffn_out.1.bias"]
        self.assert_near(y @ self.embedding[::2].T, logits)
        self.assertNotIn("draft_vocab", t)

    def test_cards_say_how_the_engine_reads_the_heads(self):
        file = types.SimpleNamespace(
            field=lambda name: {"general.name": "tiny", "llama.block_count": 2, "tokenizer.ggml.tokens": [""] * V}[
                name
            ],
            embedding_sha256=lambda: "a" * 64,
            tokenizer_sha256=lambda: "b" * 64,
        )
        accuracy = torch.tensor([[0.6, 0.2], [0.3, 0.2]])
        for kind in OF_STATES:
            made = card(self.make(kind), file, accuracy, 3, {})
            self.assertEqual((made["kind"], made["shape"]["heads"], made["target"]["hidden"]), (kind, 2, D))
            self.assertEqual("vocabulary_map" in made, kind != "blockwise")
            self.assertEqual(made["taps"], ["final_norm"])
            self.assertEqual(made.get("tree"), None if kind == "blockwise" else [[0], [1], [0, 0]])


class LabelsOfText(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.shards, self.embedding = write_text(self.folder)
        self.begins = Text(self.shards, self.embedding, torch.arange(V), "cpu").begins
        for path in self.files():
            path.unlink()

    def files(self):
        return sorted(self.folder.glob("*-labels-*.npy"))

    def labels(self, rows):
        return Labels(self.shards, self.begins, rows, "cpu")

    def test_labels_are_the_largest_probabilities_of_the_vocabulary(self):
        vocab = torch.arange(4, V)
        begin, end = self.begins[1], 2 * self.begins[1]
        place = torch.tensor([begin, 0, end - 1, begin - 1, 7, begin])  # of both shards
        index, p = self.labels(self.embedding[vocab]).at(place)
        for row, at in enumerate(place.tolist()):
            with np.load(self.shards[at // begin]) as z:
                state = torch.from_numpy(z["features"][at % begin]).float()
            expected = (self.embedding @ state).softmax(0)[vocab].topk(TOP)
            torch.testing.assert_close(p[row], expected.values, atol=1e-6, rtol=1e-3)
            self.assertTrue(torch.equal(index[row], expected.indices))

    def test_a_shard_and_a_vocabulary_have_one_file(self):
        self.labels(self.embedding)
        first = {path: path.stat().st_mtime_ns for path in self.files()}
        self.assertEqual(len(first), 2)
        with mock.patch.object(Labels, "write", side_effect=AssertionError("they are there")):
            self.labels(self.embedding)
        self.labels(self.embedding[4:])
        self.assertEqual(len(self.files()), 4)
        self.assertEqual({path: path.stat().st_mtime_ns for path in first}, first)
        self.files()[0].unlink()
        self.labels(self.embedding), self.labels(self.embedding[4:])
        self.assertEqual(len(self.files()), 4, "a file that was deleted is made again")


class Objectives(unittest.TestCase):
    def setUp(self):
        # q = (.5, .25, .125, .125), and p = (.25, .5) on the first two tokens, in the order 1, 0.
        self.output = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()[:, None]
        self.arguments = (torch.ones(1, 1), self.output, torch.tensor([[1, 0]]), torch.tensor([[0.5, 0.25]]))

    def loss(self, objective):
        return objective_loss(objective, *self.arguments).item()

    def test_values_by_hand(self):
        log = np.log
        # Classes: token 1, token 0, the rest: p = (.5, .25, .25), q = (.25, .5, .25).
        self.assertAlmostEqual(self.loss("reverse_kl"), 0.25 * log(0.5) + 0.5 * log(2), places=5)
        middle = 0.375
        one_way = 0.5 * log(0.5 / middle) + 0.25 * log(0.25 / middle)
        self.assertAlmostEqual(self.loss("jsd"), one_way, places=5)
        self.assertAlmostEqual(self.loss("total_variation"), 1 - 0.5, places=5)
        self.assertAlmostEqual(self.loss("forward_kl"), -0.5 * log(0.25) - 0.25 * log(0.5), places=5)
        self.assertAlmostEqual(self.loss("top_k"), -0.5 * log(0.25) - 0.25 * log(0.5), places=5)

    def test_divergences_are_0_where_the_laws_are_equal(self):
        label = (torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0.5, 0.25, 0.125, 0.125]]))
        for objective in ("reverse_kl", "jsd", "total_variation"):
            self.assertAlmostEqual(objective_loss(objective, torch.ones(1, 1), self.output, *label).item(), 0, places=5)

    def test_an_unknown_objective_is_refused(self):
        with self.assertRaisesRegex(ValueError, "hinge"):
            self.loss("hinge")


if __name__ == "__main__":
    unittest.main()
