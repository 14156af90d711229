"""Tests of heads that read whole texts, with a tiny target (with the packages of requirements.txt): python -m unittest discover -s scripts/train"""

import json
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import gguf
import heads as program
import numpy as np
import torch
from head_kinds import OF_TEXT, make_heads
from head_training.loop import loss_of, train
from head_training.measure import check, measure, moved
from head_training.tapped_states import TappedStates
from head_training.target_file import write_target
from head_training.text import States
from safetensors.torch import load_file
from target import Gguf, Target
from train import Text

V, D, LAYERS, N = 80, 16, 3, 24  # tokens, width, layers; tokens of a sequence
TAPS = {"block_draft": [1, "final_norm"], "eagle": ["final_norm"], "eagle3": [0, 1, 3], "pass": None}


def write_tiny_target(path):
    torch.manual_seed(3)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    for number in ("block_count", LAYERS), ("head_count", 4), ("head_count_kv", 2), ("embedding_length", D):
        getattr(writer, f"add_{number[0]}")(number[1])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_token_list([f"t{i}" for i in range(V)])
    writer.add_token_merges(["t 1", "t 2"])
    shapes = {"attn_norm": (D,), "attn_q": (D, D), "attn_k": (8, D), "attn_v": (8, D), "attn_output": (D, D)}
    shapes |= {"ffn_norm": (D,), "ffn_gate": (24, D), "ffn_up": (24, D), "ffn_down": (D, 24)}
    tensors = {"token_embd": 0.7 * torch.randn(V, D), "output_norm": 1 + 0.1 * torch.randn(D)}
    for i in range(LAYERS):
        for name, shape in shapes.items():
            noise = torch.randn(shape)
            tensors[f"blk.{i}.{name}"] = noise / D**0.5 if len(shape) == 2 else 1 + 0.1 * noise
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor.bfloat16().float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_text(folder, target, sequences=80):
    """Shards of a cyclic text with different lengths and starts: the token after x is x + 1. The states are the target's."""
    rng, shards = np.random.default_rng(1), []
    for shard in range(2):
        ids, lengths, starts, features, lse = [], [], [], [], []
        for i in range(sequences // 2):
            length, start = N - i % 3, i % 4
            tokens = torch.from_numpy((rng.integers(V) + np.arange(length)) % V)
            f = target.states(tokens[None, :-1])[0, start:].half()
            ids.append(tokens.numpy().astype(np.int32)), lengths.append(length), starts.append(start)
            features.append(f.numpy()), lse.append(target.logits(f.float()).logsumexp(1).numpy())
        shards.append(folder / f"text-{shard:05d}.npz")
        np.savez(
            shards[-1],
            ids=np.concatenate(ids),
            lengths=np.array(lengths, np.int32),
            starts=np.array(starts, np.int32),
            features=np.concatenate(features),
            lse=np.concatenate(lse),
            temperature=np.zeros(len(lengths), np.float32),
        )
    return shards


class Stopped(Exception):
    pass


class TextHeads(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        torch.set_grad_enabled(True)
        self.folder = Path(folder.name)
        write_tiny_target(self.folder / "tiny.gguf")
        self.file = Gguf(self.folder / "tiny.gguf")
        self.target = Target(self.file)
        self.shards = write_text(self.folder, self.target)
        self.embedding = self.file.tensor("token_embd.weight")
        self.text = Text(self.shards, self.embedding, torch.arange(V), "cpu")

    def options(self, kind, **more):
        usual = dict(heads=3, inner=32, unroll=2, feature_loss=1.0 if kind == "eagle" else 0.0, taps=TAPS.get(kind))
        usual |= dict(attention_heads=None, kv_heads=None, ffn=None, layers=2, anchors=4, mask_token=7, mode="frozen")
        usual |= dict(target_rate=1e-2)
        usual |= dict(device="cpu", rate=1e-2, epochs=3, minutes=10, seed=1, batch=256, decay=0.8)
        return types.SimpleNamespace(objective="forward_kl", ranking=0.0, **(usual | more))

    def make(self, kind, target=None, **more):
        """The heads, and their text."""
        options = self.options(kind, **more)
        states = States(self.text, self.shards)
        if options.taps:
            sequences = [[self.text.sequences[i][0] for i in numbers] for numbers in states.numbers]
            states.tapped = TappedStates(self.target, "0", options.taps, self.shards, sequences)
        torch.manual_seed(1)
        return make_heads(kind, self.embedding, torch.arange(V), options, target or self.target), states, options

    def cases(self):
        for kind in OF_TEXT:
            yield kind, {}
        yield "blockwise", dict(mode="fine_tuned")

    def test_training_lowers_the_loss_and_raises_the_acceptance(self):
        for kind, more in self.cases():
            with self.subTest(kind=kind):
                heads, states, options = self.make(kind, Target(self.file), **more)
                loss = lambda: loss_of(heads, next(iter(states.batches(True, 0, True, 256, 0, "cpu"))), options).item()
                (before, _), first = measure(heads, states, "cpu"), loss()
                at = train(heads, states, options, self.folder / f"{kind}.pt")
                (alpha, accuracy), last = measure(heads, states, "cpu"), loss()
                self.assertLess(last, first - 0.1)
                if kind != "pass":  # inputs alone do not lead a random target far
                    self.assertGreater(alpha.mean(), before.mean() + 0.02)
                self.assertTrue((accuracy.sum(1) <= 1 + 1e-6).all())
                self.assertEqual(at["curve"][-1]["tokens"], at["tokens"])
                self.assertLess(check(heads, states, "cpu", 50)["largest_difference"], 1e-9)

    def test_a_training_that_goes_on_equals_one_without_a_break(self):
        for kind, more in self.cases():
            with self.subTest(kind=kind):
                whole, states, options = self.make(kind, Target(self.file), epochs=1, **more)
                train(whole, states, options, self.folder / f"{kind}-whole.pt")
                path = self.folder / f"{kind}-broken.pt"
                broken, states, options = self.make(kind, Target(self.file), epochs=1, **more)
                with self.assertRaises(Stopped):
                    train(broken, states, options, path, watch=mock.Mock(side_effect=Stopped))
                again, states, options = self.make(kind, Target(self.file), epochs=1, **more)
                self.assertEqual(train(again, states, options, path)["done"], 2)
                for (name, a), b in zip(again.named_parameters(), whole.parameters()):
                    self.assertTrue(torch.equal(a, b), name)

    def test_states_of_layers(self):
        _, states, _ = self.make("eagle3")
        batch = next(iter(states.batches(True, 1, False, 200, 5, "cpu")))
        taps = self.target.states(batch.ids, [0, 1, 3])
        self.assertTrue(torch.equal(taps[..., :D], self.embedding[batch.ids]))
        norm = taps[..., 2 * D :] * (taps[..., 2 * D :].pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * self.target.norm
        torch.testing.assert_close(norm, self.target.states(batch.ids), atol=1e-5, rtol=1e-5)
        for row in range(len(batch.ids)):
            n = int(batch.length[row])
            torch.testing.assert_close(batch.states_of_taps[row, :n], taps[row, :n], atol=2e-3, rtol=2e-3)
            place = batch.place(torch.arange(int(batch.start[row]), n))[row]  # what generate.py stored there
            stored = states.features_at(1, place)
            torch.testing.assert_close(
                self.target.states(batch.ids)[row, n - len(place) : n], stored, atol=2e-3, rtol=2e-3
            )

    def test_states_that_float16_cannot_hold_are_kept_in_float32(self):
        self.target.states = lambda ids, taps: torch.full((*ids.shape, D), 1e5)
        tapped = TappedStates(self.target, "0", ["final_norm"], self.shards, [[torch.arange(4)], []])
        self.assertTrue((tapped.of(0, 0) == 1e5).all())

    def test_look_ahead_rows_are_those_of_the_target(self):
        heads, states, _ = self.make("pass")
        batch = next(iter(states.batches(True, 0, False, 200, 5, "cpu")))
        anchors = batch.anchors(4, -1, -1)
        batch.anchors = lambda *_: anchors
        rows = {head: (hidden, place) for head, hidden, place in heads.predictions(batch)}
        # The embeddings as three more tokens of the target, in texts that end at an anchor.
        self.target.embed = torch.cat([self.embedding, heads.table.detach()])
        seen = {head: 0 for head in rows}
        for row in range(len(batch.ids)):
            for anchor in anchors[row].tolist():
                ids = torch.cat([batch.ids[row, : anchor + 1], V + torch.arange(3)])
                expected = self.target.states(ids[None])[0, anchor + 1 :]
                for head, (hidden, place) in rows.items():
                    if int(batch.start[row]) <= anchor + head + 1 < int(batch.length[row]):
                        at, seen[head] = seen[head], seen[head] + 1
                        torch.testing.assert_close(hidden[at], expected[head], atol=1e-4, rtol=1e-4)
                        self.assertEqual(place[at], batch.place(torch.tensor([anchor + head + 1]))[row, 0])
        self.assertEqual(seen, {head: len(hidden) for head, (hidden, _) in rows.items()})
        self.assertGreater(seen[2], 0)

    def test_a_fine_tuned_target_is_written_as_it_was_trained(self):
        target = Target(self.file)
        heads, states, options = self.make("blockwise", target, mode="fine_tuned", epochs=1)
        self.assertLess(moved(heads, states, "cpu", 40), 2e-3)  # the stored states are rounded
        train(heads, states, options, self.folder / "tuned.pt")
        heads.round()
        self.assertGreater(moved(heads, states, "cpu", 40), 5e-3)
        write_target(target, self.file, self.folder / "new.gguf", "tuned")
        new = Gguf(self.folder / "new.gguf")
        ids = torch.randint(V, (2, 9))
        with torch.no_grad():
            torch.testing.assert_close(Target(new).states(ids), target.states(ids), atol=1e-5, rtol=1e-5)
        self.assertEqual(new.tokenizer_sha256(), self.file.tokenizer_sha256())
        self.assertNotEqual(new.embedding_sha256(), self.file.embedding_sha256())
        self.assertEqual(new.field("general.name"), "tuned")

    def call(self, kind, *more):
        out = self.folder / f"out-{kind}"
        options = ["--kind", kind, "--target", str(self.folder / "tiny.gguf"), "--cache", str(self.folder)]
        options += ["--out", str(out), "--vocab", "64", "--epochs", "4", "--rate", "1e-2"]
        options += ["--batch", "256", "--device", "cpu", *more]
        program.main(options)
        return json.loads((out / "head.json").read_text()), load_file(out / "head.safetensors")

    def test_the_program_writes_folders(self):
        cards = {}
        for kind in ("eagle", "eagle3", "pass", "block", "blockwise"):
            more = ["--mode", "fine_tuned"] if kind == "blockwise" else ["--heads", "2"]
            more += ["--ranking", "0.5"] if kind == "eagle" else []
            with mock.patch("builtins.print"):
                cards[kind], tensors = self.call(kind, *more)
            training = cards[kind]["training"]
            self.assertLess(training["check"]["largest_difference"], 1e-6)
            for a, tv in zip(training["check"]["alpha"], training["check"]["total_variation"]):
                self.assertAlmostEqual(a, 1 - tv, places=6)
            self.assertEqual((training["seed"], training["ranking"]), (1, 0.5 if kind == "eagle" else 0))
            self.assertGreater(training["tokens"], 0)
            self.assertEqual(training["curve"][-1]["tokens"], training["tokens"])
            for point in training["curve"]:
                self.assertEqual(list(point), ["step", "tokens", "seconds", "alpha", "loss"])
            self.assertEqual("vocabulary_map" in cards[kind], "draft_vocab" in tensors)
        self.assertEqual(cards["eagle"]["shape"]["version"], 1)
        self.assertEqual(cards["eagle"]["taps"], ["final_norm"])
        self.assertEqual((cards["eagle3"]["kind"], cards["eagle3"]["taps"]), ("eagle", [0, 1, 3]))
        self.assertEqual(cards["eagle3"]["shape"]["layer"]["intermediate_size"], 24)
        self.assertEqual((cards["pass"]["shape"], cards["pass"].get("taps")), ({"heads": 2}, None))
        self.assertEqual((cards["block"]["kind"], cards["block"]["shape"]["block_size"]), ("block_draft", 3))
        self.assertEqual(cards["block"]["tree"][0], [0])
        self.assertNotIn("tree", cards["eagle"])
        tuned = Gguf(self.folder / "out-blockwise/target.gguf")
        self.assertEqual(cards["blockwise"]["target"]["embedding_sha256"], tuned.embedding_sha256())
        self.assertGreater(cards["blockwise"]["training"]["moved"], 0)

    def test_bad_options_are_refused(self):
        for kind, more, message in (
            ("medusa", ["--unroll", "2"], "--unroll: heads of the kind medusa"),
            ("eagle3", ["--feature-loss", "1"], "--feature-loss: heads of the kind eagle3"),
            ("eagle", ["--mode", "fine_tuned"], "--mode: heads of the kind eagle"),
            ("eagle", ["--unroll", "0"], "--unroll: 0, expected"),
            ("eagle3", ["--taps", "1", "2"], "--taps: 2 states"),
            ("block", ["--taps", "4"], "--taps: 4, expected .* from 0 to 3"),
            ("block", ["--mask-token", "80"], "--mask-token: 80, expected a token from 0 to 79"),
            ("pass", ["--heads", "17"], "--heads: 17, expected at most 16"),
            ("pass", ["--vocab", "40000"], "--vocab: 40000, expected 64 to 32767"),
            ("pass", ["--vocab", "81"], "--vocab: 81, but the target has 80 tokens"),
            ("medusa", ["--decay", "0"], "--decay: 0.0, expected"),
            ("eagle", ["--ranking", "-1"], "--ranking: -1.0, expected a weight"),
            ("eagle", ["--ranking", "1", "--objective", "top_k"], "--ranking: the objective top_k is this loss"),
            ("medusa", ["--cache", str(self.folder / "empty")], "empty has no text of the writers target"),
            ("block", ["--attention-heads", "4", "--kv-heads", "3"], "--kv-heads: 3 is no divisor of 4"),
        ):
            with self.subTest(options=more), mock.patch("sys.stderr") as stderr, mock.patch("builtins.print"):
                with self.assertRaises(SystemExit) as end:
                    self.call(kind, *more)
                said = "".join(call.args[0] for call in stderr.write.call_args_list) + str(end.exception)
                self.assertRegex(said, message)


if __name__ == "__main__":
    unittest.main()
