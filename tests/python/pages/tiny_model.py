"""A tiny Llama with a byte-level tokenizer, as a Hugging Face directory: for tests that run the real binary on text."""

import array
import functools
import json
import pathlib
import random
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
VOCAB = 272  # tokens of the tokenizer below, and some more


@functools.cache
def exit_status(*command):
    """The exit status of a command that changes nothing. The command runs only once, also if a test asks for it again."""
    return subprocess.run(command).returncode


def write_tiny_model(folder, layers, seed=1, hidden=32, ffn=48, context=4096):
    """Random weights; 4 query heads, 2 key/value heads of 8."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "vocab_size": VOCAB,
        "bos_token_id": None,
        "eos_token_id": 259,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = (ROOT / "tests/fuzz/corpus/tokenizer/good_gpt2").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    shapes = {"model.embed_tokens.weight": [VOCAB, hidden], "model.norm.weight": [hidden]}
    for layer in range(layers):
        name = f"model.layers.{layer}."
        shapes |= {
            name + "input_layernorm.weight": [hidden],
            name + "post_attention_layernorm.weight": [hidden],
            name + "self_attn.q_proj.weight": [32, hidden],
            name + "self_attn.k_proj.weight": [16, hidden],
            name + "self_attn.v_proj.weight": [16, hidden],
            name + "self_attn.o_proj.weight": [hidden, 32],
            name + "mlp.gate_proj.weight": [ffn, hidden],
            name + "mlp.up_proj.weight": [ffn, hidden],
            name + "mlp.down_proj.weight": [hidden, ffn],
        }
    numbers = random.Random(seed)
    header, data = {}, array.array("f")
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        begin = 4 * len(data)
        data.extend(1.0 if len(shape) == 1 else numbers.uniform(-0.5, 0.5) for _ in range(count))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, 4 * len(data)]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())
