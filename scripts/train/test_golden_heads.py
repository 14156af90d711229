"""Tests of the modules of heads against the golden heads of scripts/oracle/heads.py: python -m unittest discover -s scripts/train"""

import json
import types
import unittest
from pathlib import Path

import torch
from head_kinds import make_heads
from safetensors import safe_open
from safetensors.torch import load_file

GOLDEN = Path(__file__).parents[2] / "tests/golden"


class Golden(unittest.TestCase):
    """The modules have the tensors of the golden heads, which the engine's loaders read, and compute their logits (scripts/oracle/heads.py)."""

    def setUp(self):
        embedding = load_file(GOLDEN / "families/llama/model.safetensors")["model.embed_tokens.weight"].float()
        self.embedding = embedding
        self.target = types.SimpleNamespace(D=32, H=4, G=2, E=16, ffn=48, eps=1e-6, theta=10000.0, norm=torch.ones(32))

    def make(self, kind, folder, vocab, **more):
        options = dict(heads=3, unroll=1, feature_loss=0.0, decay=0.8, anchors=1, attention_heads=None, kv_heads=None)
        options |= dict(ffn=None, taps=["final_norm"], layers=2, mask_token=111)
        heads = make_heads(kind, self.embedding, vocab, types.SimpleNamespace(**(options | more)), self.target).eval()
        golden, tensors = GOLDEN / "heads" / folder, heads.tensors()
        path = next(golden.glob("*.safetensors"))
        with safe_open(path, "pt") as file:
            expected = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
        added = {"draft_vocab"} | ({"lm_head.weight"} if kind == "block_draft" else set())
        ours = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name not in added}
        self.assertEqual(ours, expected)
        return heads, load_file(path), json.loads((golden / "golden.json").read_text())

    def assert_near(self, a, b):
        b = torch.tensor(b)
        self.assertLess((a - b).abs().max().item(), 1e-4 * b.abs().max().item())

    def batch(self, ids, states):
        """A text with a label at every position."""
        return types.SimpleNamespace(
            ids=ids,
            states_of_taps=states,
            has_label=lambda position: torch.ones(1, *position.shape[-2:], dtype=torch.bool),
            place=lambda position: position.expand(1, *position.shape[-2:]),
            anchors=lambda *_: torch.tensor([[states.shape[1] - len(ids)]]),
        )

    @torch.no_grad()
    def test_eagle_heads(self):
        for kind, version in (("eagle", 1), ("eagle3", 3)):
            used = torch.arange(112)
            if version == 3:
                offsets = load_file(GOLDEN / "heads/eagle3/model.safetensors")["d2t"]
                used = offsets + torch.arange(len(offsets))
            taps = ["final_norm"] if version == 1 else [0, 1, 2]
            heads, tensors, golden = self.make(kind, kind, used, taps=taps)
            if version == 3:
                stored = heads.tensors()
                for name in ("d2t", "t2d"):
                    self.assertTrue(torch.equal(stored[name], tensors[name]))
                    self.assertEqual(stored[name].dtype, tensors[name].dtype)
                self.assertEqual(stored["draft_vocab"].tolist(), used.tolist())
            names = {"layers.0.": "layer.", "midlayer.hidden_norm": "hidden_norm"}
            names |= {"midlayer.input_layernorm": "input_layernorm", "midlayer.": "layer."}
            own = dict(heads.named_parameters())
            for name, tensor in tensors.items():
                if name in ("d2t", "t2d"):
                    continue
                begin = next((b for b in names if name.startswith(b)), "")
                key = "lm_head" if name == "lm_head.weight" else names.get(begin, "") + name[len(begin) :]
                own[key].copy_(tensor)
            text = torch.tensor(golden["tokens"])[:, 0]
            for chain in range(2):  # step 0 reads the text, the steps after it the drafted tokens
                drafted = torch.tensor([level[chain] for level in golden["drafted"]])
                ids = torch.cat([torch.zeros(1, dtype=torch.long), text, drafted])[None]
                states = torch.zeros(1, ids.shape[1], len(taps) * 32)
                states[0, : len(text)] = torch.tensor(golden["states"])
                logits = [hidden @ heads.output(0).T for _, hidden, _ in heads.predictions(self.batch(ids, states))]
                self.assert_near(logits[0][: len(text)], golden["logits"][0])
                for depth in (1, 2):
                    self.assert_near(logits[depth][len(text) - 1], golden["logits"][depth][chain])

    @torch.no_grad()
    def test_block_drafts(self):
        self.target.E, self.target.ffn = 8, 40
        heads, tensors, golden = self.make("block_draft", "block_draft", torch.arange(112), taps=[1, "final_norm"])
        own = dict(heads.named_parameters())
        for name, tensor in tensors.items():
            parts = name.split(".")
            own[f"input_norms.{parts[1]}.weight" if "input_layernorm" in name else name].copy_(tensor)
        heads.lm_head.copy_(self.embedding)
        states = torch.zeros(1, 6, 64)  # the state of the pending token is not read
        states[0, :5] = torch.tensor(golden["states"])
        ids = torch.zeros(1, 6, dtype=torch.long)
        ids[0, 5] = golden["tokens"][0]
        logits = [hidden @ heads.output(0).T for _, hidden, _ in heads.predictions(self.batch(ids, states))]
        self.assert_near(torch.cat(logits), golden["logits"][0])

    def test_look_ahead_embeddings(self):
        self.make("pass", "pass", torch.arange(112))


if __name__ == "__main__":
    unittest.main()
