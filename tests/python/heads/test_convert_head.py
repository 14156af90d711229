"""scripts/models/convert_head.py: the card follows from config.json and the shapes; files with code are refused."""

import importlib.util
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/models/convert_head.py"
sys.path.insert(0, str(SCRIPT.parent))
import convert_head  # noqa: E402

HAS_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("safetensors") is not None


class Cards(unittest.TestCase):
    def card(self, config, shapes):
        return convert_head.card_of(config, shapes, 30, "head.pt")

    def test_medusa_has_as_many_heads_as_the_file(self):
        shapes = {
            f"{i}.{part}": shape
            for i in range(3)
            for part, shape in (("0.linear.weight", (8, 8)), ("1.weight", (50, 8)))
        }
        card = self.card({"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "base"}, shapes)
        self.assertEqual(card["kind"], "medusa")
        self.assertEqual(card["shape"], {"heads": 3, "blocks": 1})
        self.assertEqual(card["target"], {"name": "base", "hidden": 8, "layers": 30, "vocab": 50})
        self.assertEqual(card["taps"], ["final_norm"])

    def test_hydra(self):
        config = {"hydra_num_heads": 4, "hydra_num_layers": 2, "grounded_heads": True}
        card = self.card({**config, "hidden_state_offset": 1}, {"hydra_lm_head.0.weight": (50, 8)})
        self.assertEqual(card["shape"], {"heads": 4, "blocks": 2, "prefix_attention": False})
        self.assertEqual(card["taps"], [29])
        card = self.card({**config, "hydra_head_arch": "prefix-mlp"}, {"hydra_lm_head.0.1.weight": (50, 8)})
        self.assertTrue(card["shape"]["prefix_attention"])
        for other in ({"hydra_head_arch": "eagle-attn"}, {"grounded_heads": False}):
            with self.assertRaisesRegex(SystemExit, "not supported"):
                self.card({**config, **other}, {"hydra_lm_head.0.weight": (50, 8)})

    def test_mlp_speculator(self):
        config = {"n_predict": 3, "emb_dim": 8, "inner_dim": 6, "tie_weights": True, "scale_input": True}
        card = self.card(config, {"emb.0.weight": (50, 6), "proj.0.weight": (6, 8)})
        self.assertEqual(card["shape"], {"heads": 3, "inner": 6, "tied": True, "scale_input": True})
        self.assertEqual((card["target"]["hidden"], card["target"]["vocab"]), (8, 50))

    def test_eagle(self):
        layer = {"num_attention_heads": 2, "intermediate_size": 12, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
        config = {**layer, "vocab_size": 50, "num_hidden_layers": 1, "rope_scaling": None}
        card = self.card(config, {"fc.weight": (8, 16), "fc.bias": (8,)})
        self.assertEqual(card["kind"], "eagle")
        self.assertEqual(card["shape"], {"version": 1, "layer": layer, "fc_bias": True})
        self.assertEqual(card["taps"], ["final_norm"])
        self.assertEqual((card["target"]["hidden"], card["target"]["vocab"]), (8, 50))
        self.assertNotIn("vocabulary_map", card)
        with self.assertRaisesRegex(SystemExit, "not the fc of EAGLE"):
            self.card(config, {"fc.weight": (8, 24)})
        with self.assertRaisesRegex(SystemExit, "one layer"):
            self.card({**config, "num_hidden_layers": 2}, {"fc.weight": (8, 16)})

    def test_eagle_3(self):
        config = {"num_attention_heads": 2, "vocab_size": 50, "draft_vocab_size": 10}
        card = self.card(config, {"fc.weight": (8, 24)})
        self.assertEqual(card["shape"], {"version": 3, "layer": {"num_attention_heads": 2}})
        self.assertEqual(card["taps"], [2, 15, 27])
        self.assertEqual(card["vocabulary_map"], "draft_vocab")
        self.assertNotIn("vocabulary_map", self.card({**config, "draft_vocab_size": 50}, {"fc.weight": (8, 24)}))
        self.assertEqual(convert_head.draft_vocabulary([1, 4, 5]), [1, 5, 7])
        with self.assertRaisesRegex(SystemExit, "at least 7"):
            convert_head.card_of(config, {"fc.weight": (8, 24)}, 6, "head.pt")
        with self.assertRaisesRegex(SystemExit, "eagle_config"):
            self.card({**config, "eagle_config": {"a": 1}}, {"fc.weight": (8, 24)})

    def test_what_is_missing_is_named(self):
        with self.assertRaisesRegex(SystemExit, "no tensor 0.1.weight"):
            self.card({"medusa_num_heads": 2}, {"x": (1,)})
        with self.assertRaisesRegex(SystemExit, "neither"):
            self.card({"architectures": []}, {})
        with self.assertRaisesRegex(SystemExit, "a DFlash draft"):
            self.card({"dflash_config": {}, "num_attention_heads": 4}, {"fc.weight": (8, 16)})
        with self.assertRaisesRegex(SystemExit, "a head of Falcon"):
            self.card({"k_mask": 2, "num_attention_heads": 4}, {"lstm.weight_ih_l0": (32, 16)})
        with self.assertRaisesRegex(SystemExit, "a head of P-EAGLE"):
            self.card({"ptd_token_id": 3, "num_attention_heads": 4}, {"fc.weight": (8, 24)})

    def test_prefixes_of_whole_models_are_dropped(self):
        self.assertEqual(convert_head.plain_name("medusa_head.0.0.linear.weight"), "0.0.linear.weight")
        self.assertEqual(convert_head.plain_name("speculator.emb.0.weight"), "emb.0.weight")
        self.assertEqual(convert_head.plain_name("hydra_mlp.0.0.linear.bias"), "hydra_mlp.0.0.linear.bias")


class Touch:
    """Unpickling this creates a file."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (os.mkdir, (str(self.file),))


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "head").mkdir()

    def convert(self, *more):
        more = more or ("--layers", "2")
        command = [sys.executable, str(SCRIPT), str(self.folder / "head"), str(self.folder / "out"), *more]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    def test_a_folder_without_a_head_is_refused(self):
        self.assertIn("config.json is missing", self.convert().stderr)
        (self.folder / "head/config.json").write_text("{}")
        self.assertIn("0 files of PyTorch", self.convert().stderr)
        self.assertIn("--layers is missing", self.convert("--").stderr)

    @unittest.skipUnless(HAS_TORCH, "needs torch and safetensors (scripts/train/requirements.txt)")
    def test_a_file_with_code_is_refused_and_the_code_does_not_run(self):
        (self.folder / "head/config.json").write_text(json.dumps({"medusa_num_heads": 1}))
        with open(self.folder / "head/medusa_lm_head.pt", "wb") as file:
            pickle.dump({"0.1.weight": Touch(self.folder / "ran")}, file, protocol=2)
        result = self.convert()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("holds more than tensors", result.stderr)
        self.assertFalse((self.folder / "ran").exists())

    @unittest.skipUnless(HAS_TORCH, "needs torch and safetensors (scripts/train/requirements.txt)")
    def test_tensors_are_kept(self):
        import torch
        from safetensors.torch import load_file

        state = {
            "0.0.linear.weight": torch.randn(4, 4),
            "0.0.linear.bias": torch.randn(4),
            "0.1.weight": torch.randn(9, 4),
        }
        (self.folder / "head/config.json").write_text(json.dumps({"medusa_num_heads": 1}))
        torch.save(state, self.folder / "head/medusa_lm_head.pt")
        result = self.convert()
        self.assertEqual(result.returncode, 0, result.stderr)
        written = load_file(self.folder / "out/head.safetensors")
        self.assertEqual(written.keys(), state.keys())
        for name, tensor in state.items():
            self.assertTrue(torch.equal(written[name], tensor), name)
        self.assertEqual(json.loads((self.folder / "out/head.json").read_text())["shape"]["heads"], 1)


if __name__ == "__main__":
    unittest.main()
