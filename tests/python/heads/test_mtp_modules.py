"""scripts/models/mtp_modules.py: which tensors of a checkpoint are modules, what the card says, and what is refused."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/models/convert_head.py"
sys.path.insert(0, str(SCRIPT.parent))
import mtp_modules  # noqa: E402

HAS_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("safetensors") is not None

CONFIG = {
    "num_hidden_layers": 2,
    "num_nextn_predict_layers": 1,
    "hidden_size": 8,
    "vocab_size": 20,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 12,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_scaling": None,
}
LAYER = (
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.gate_proj.weight",
    "post_attention_layernorm.weight",
)
OWN = ("enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight")
MODEL = ("model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight", "lm_head.weight")


def deepseek(module=0, more=()):
    return [*MODEL, *(f"model.layers.{2 + module}.{name}" for name in (*OWN, *LAYER, *more))]


class Modules(unittest.TestCase):
    def test_the_layout_of_deepseek(self):
        found = mtp_modules.modules_of(deepseek(), CONFIG)
        self.assertEqual(found.keys(), {f"layers.0.{name}" for name in (*OWN, *LAYER)})
        self.assertEqual(found["layers.0.enorm.weight"], "model.layers.2.enorm.weight")
        card = mtp_modules.card_of(CONFIG, found)
        self.assertEqual(card["kind"], "mtp")
        self.assertEqual(card["target"], {"name": "", "hidden": 8, "layers": 2, "vocab": 20})
        shape = card["shape"]
        self.assertEqual((shape["modules"], shape["first"], shape["passes_on"]), (1, "embedding", "stream"))
        self.assertEqual(shape["layer"]["intermediate_size"], 12)
        self.assertNotIn("rope_scaling", shape["layer"])
        for key in ("attention_bias", "qkv_bias", "qk_norm"):
            self.assertIs(shape["layer"][key], False)

    def test_several_modules(self):
        config = {**CONFIG, "num_nextn_predict_layers": 2}
        found = mtp_modules.modules_of([*deepseek(), *deepseek(1)], config)
        self.assertEqual(found["layers.1.eh_proj.weight"], "model.layers.3.eh_proj.weight")
        self.assertEqual(mtp_modules.card_of(config, found)["shape"]["modules"], 2)
        with self.assertRaisesRegex(ValueError, "no tensors of module 1"):
            mtp_modules.modules_of(deepseek(), config)
        with self.assertRaisesRegex(ValueError, "belongs to module 1"):
            mtp_modules.modules_of([*deepseek(), *deepseek(1)], CONFIG)

    def test_the_layout_of_mimo(self):
        own = ("token_layernorm.weight", "hidden_layernorm.weight", "input_proj.weight", "final_layernorm.weight")
        layer = (*LAYER, "self_attn.q_proj.bias")
        found = mtp_modules.modules_of([*MODEL, *(f"model.mtp_layers.0.{name}" for name in (*own, *layer))], CONFIG)
        self.assertEqual(found.keys(), {f"layers.0.{name}" for name in (*OWN, *layer)})
        self.assertEqual(found["layers.0.hnorm.weight"], "model.mtp_layers.0.hidden_layernorm.weight")
        shape = mtp_modules.card_of(CONFIG, found)["shape"]
        self.assertEqual((shape["first"], shape["passes_on"]), ("state", "normed"))
        self.assertIs(shape["layer"]["qkv_bias"], True)
        self.assertIs(shape["layer"]["attention_bias"], False)

    def test_modules_that_the_engine_does_not_compute_are_refused(self):
        for name, reason in (
            ("mlp.gate.weight", "mixture of experts"),
            ("mlp.experts.3.up_proj.weight", "mixture of experts"),
            ("self_attn.kv_a_proj_with_mqa.weight", "latent attention"),
            ("eh_proj.weight_scale_inv", "quantised"),
        ):
            with self.assertRaisesRegex(ValueError, f"model.layers.2.{name}: .*{reason}"):
                mtp_modules.modules_of(deepseek(more=(name,)), CONFIG)
        with self.assertRaisesRegex(ValueError, "Qwen3-Next"):
            mtp_modules.modules_of([*MODEL, "mtp.fc.weight"], {**CONFIG, "num_nextn_predict_layers": 0})

    def test_only_a_config_with_modules_is_one_of_a_checkpoint(self):
        self.assertTrue(mtp_modules.has_modules(CONFIG))
        self.assertTrue(mtp_modules.has_modules({"mtp_num_hidden_layers": 1}))
        self.assertFalse(mtp_modules.has_modules({**CONFIG, "num_nextn_predict_layers": 0}))
        self.assertFalse(mtp_modules.has_modules({"medusa_num_heads": 2}))


@unittest.skipUnless(HAS_TORCH, "needs torch and safetensors (scripts/train/requirements.txt)")
class Files(unittest.TestCase):
    def setUp(self):
        import torch

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "model").mkdir()
        (self.folder / "model/config.json").write_text(json.dumps(CONFIG))
        names = deepseek(more=("embed_tokens.weight", "shared_head.head.weight"))
        self.tensors = {name: torch.randn(4, 4) for name in names}
        for copy, of in (("embed_tokens", "model.embed_tokens"), ("shared_head.head", "lm_head")):
            self.tensors[f"model.layers.2.{copy}.weight"] = self.tensors[f"{of}.weight"].clone()

    def convert(self, *more):
        from safetensors.torch import save_file

        save_file(self.tensors, self.folder / "model/model.safetensors")
        command = [sys.executable, str(SCRIPT), str(self.folder / "model"), str(self.folder / "out"), *more]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    def test_the_tensors_of_the_modules_are_kept_and_copies_left_out(self):
        import torch
        from safetensors.torch import load_file

        result = self.convert()
        self.assertEqual(result.returncode, 0, result.stderr)
        written = load_file(self.folder / "out/head.safetensors")
        self.assertEqual(written.keys(), {f"layers.0.{name}" for name in (*OWN, *LAYER)})
        for name, tensor in written.items():
            self.assertTrue(torch.equal(tensor, self.tensors[name.replace("layers.0.", "model.layers.2.")]), name)
        self.assertEqual(json.loads((self.folder / "out/head.json").read_text())["shape"]["modules"], 1)

    def test_a_copy_that_differs_from_the_model_is_refused(self):
        self.tensors["model.layers.2.shared_head.head.weight"] += 1
        result = self.convert()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("not the output head of the model, lm_head.weight", result.stderr)

    def test_another_number_of_layers_is_refused(self):
        self.assertIn("--layers 3, but the checkpoint has 2 layers", self.convert("--layers", "3").stderr)


if __name__ == "__main__":
    unittest.main()
