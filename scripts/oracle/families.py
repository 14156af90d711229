"""Golden logits of tiny random models of every family, from Hugging Face transformers in float32 with eager attention.

    scripts/oracle/families.py [NAME ...]     writes tests/golden/families/NAME/{config.json,model.safetensors,golden.json}

All weights, also of norms and biases, are random numbers, so that a test notices if one is left out. bf16 holds them exactly. The
golden file has token ids and the logits of some positions. "prefill" comes from one forward over all tokens (in the case
llama_dynamic, over the first tokens). "steps" comes from a prefill of the first tokens and single cached steps after it.
tests/model/net/family_oracle_test.cpp compares the engine with them.
"""

import argparse
import json
import math
import pathlib
import zlib

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/families"
VOCAB = 112
ROUNDING = 1e-5  # share of the largest logit; a golden file that is this close to the new values is kept

SHAPE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    tie_word_embeddings=False,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)


def shape(**changes):
    return {key: value for key, value in {**SHAPE, **changes}.items() if value != "absent"}


def rope(kind, **values):
    return {"rope_type": kind, "rope_theta": 10000.0, **values}


LONGROPE = shape(
    head_dim="absent",
    num_attention_heads=2,
    num_key_value_heads=1,
    original_max_position_embeddings=44,
    rope_parameters=rope(
        "longrope", partial_rotary_factor=0.5, short_factor=[1.0, 1.1, 1.3, 1.6], long_factor=[1.2, 2.0, 4.5, 9.0]
    ),
)

# name: (family of transformers, configuration, number of tokens, how many of them are prefilled before the steps)
CASES = {
    "llama": ("Llama", shape(head_dim=16, tie_word_embeddings=True, rope_parameters=rope("default")), 24, 9),
    "llama_linear": ("Llama", shape(rope_parameters=rope("linear", factor=4.0)), 40, 20),
    # With dynamic scaling, the RoPE base grows with the length. transformers rotates all positions of a prefill with
    # the base for the length of the whole prefill. The engine rotates each position with the base for the tokens up to
    # this position. So beyond the trained context, only single steps can be compared.
    "llama_dynamic": ("Llama", shape(max_position_embeddings=16, rope_parameters=rope("dynamic", factor=3.0)), 40, 16),
    "llama_llama3": (
        "Llama",
        shape(
            head_dim=16,
            rope_parameters=rope(
                "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=48
            ),
        ),
        56,
        30,
    ),
    "llama_yarn": (
        "Llama",
        shape(head_dim=16, rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=16)),
        56,
        12,
    ),
    "llama_yarn_ramp": (
        "Llama",
        shape(
            head_dim=16,
            rope_parameters={
                **rope("yarn", factor=4.0, original_max_position_embeddings=4096, truncate=False),
                **dict(rope_theta=100.0, beta_fast=20.0, beta_slow=2.0, mscale=0.8, mscale_all_dim=0.5),
            },
        ),
        56,
        12,
    ),
    "mistral": ("Mistral", shape(sliding_window=7, rope_parameters=rope("default")), 40, 21),
    "qwen2": ("Qwen2", shape(tie_word_embeddings=True, rope_parameters=rope("default")), 24, 9),
    "qwen2_windows": (
        "Qwen2",
        shape(use_sliding_window=True, sliding_window=9, max_window_layers=1, rope_parameters=rope("default")),
        40,
        5,
    ),
    "qwen3": ("Qwen3", shape(head_dim=16, rope_parameters=rope("default")), 24, 9),
    "gpt2": (
        "GPT2",
        dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=None, eos_token_id=None),
        24,
        9,
    ),
    "opt": (
        "OPT",
        shape(intermediate_size="absent", num_key_value_heads="absent", ffn_dim=48, tie_word_embeddings=True),
        24,
        9,
    ),
    "pythia": (
        "GPTNeoX",
        shape(
            num_key_value_heads="absent",
            num_attention_heads=2,
            rope_parameters=rope("default", partial_rotary_factor=0.25),
        ),
        24,
        9,
    ),
    "neox_sequential": (
        "GPTNeoX",
        shape(
            num_key_value_heads="absent",
            use_parallel_residual=False,
            rope_parameters=rope("default", partial_rotary_factor=1.0),
        ),
        24,
        9,
    ),
    "gemma2": (
        "Gemma2",
        shape(
            hidden_size=24,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            query_pre_attn_scalar=24,
            sliding_window=6,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=30.0,
            tie_word_embeddings=True,
            rope_parameters=rope("default"),
        ),
        40,
        17,
    ),
    "gemma3": (
        "Gemma3",
        shape(
            hidden_size=24,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            query_pre_attn_scalar=24,
            sliding_window=6,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            tie_word_embeddings=True,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        ),
        40,
        17,
    ),
    "smollm3": (
        "SmolLM3",
        shape(num_hidden_layers=3, no_rope_layers=[1, 0, 1], tie_word_embeddings=True, rope_parameters=rope("default")),
        24,
        9,
    ),
    "phi3": (
        "Phi3",
        shape(
            head_dim="absent",
            num_attention_heads=2,
            num_key_value_heads=1,
            sliding_window=11,
            rope_parameters=rope("default", partial_rotary_factor=0.5),
        ),
        40,
        9,
    ),
    # transformers chooses the long or the short factors by the length of the text, the engine by the capacity of the
    # session. Below, text length and capacity (CAPACITY) are 56 and 64, or 40 and 44: both are above the trained context
    # of 44, or neither is.
    "phi3_longrope": ("Phi3", LONGROPE, 56, 46),
    "phi3_longrope_short": ("Phi3", LONGROPE, 40, 9),
}
WEIGHTS = {"phi3_longrope": "phi3", "phi3_longrope_short": "phi3"}  # case -> the case whose weights it uses, by a link
CAPACITY = {"phi3_longrope_short": 44}  # capacity of the sessions in the test; default: 64
CLASSES = {"GPT2": "GPT2LMHeadModel", "Gemma3": "Gemma3ForCausalLM"}
CONFIGS = {"Gemma3": "Gemma3TextConfig"}


def randomise(model, random):
    """Fills a model with random bf16 numbers. Matrices are scaled so that the output of a layer varies about as much as its
    input. Norms are near their neutral value, and biases are large enough to matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=random)
            if parameter.dim() == 1:
                centred = name.endswith(".bias") or "Gemma" in type(model).__name__
                value = noise * 0.3 + (0.0 if centred else 1.0)
            elif "embed" in name or ".wte." in name or ".wpe." in name:
                value = noise * (0.5 if "position" in name or ".wpe." in name else 1.0)
            else:
                value = noise * 1.5 / math.sqrt(parameter.shape[0 if ".c_" in name else 1])
            parameter.copy_(value.to(torch.bfloat16))


def numbers(row):
    return [float(f"{value:.7g}") for value in row]


def make(name):
    family, values, length, begin = CASES[name]
    config = getattr(transformers, CONFIGS.get(family, family + "Config"))(**values)
    config._attn_implementation = "eager"
    model = getattr(transformers, CLASSES.get(family, family + "ForCausalLM"))(config).eval()
    assert model.config._attn_implementation == "eager"
    random = torch.Generator().manual_seed(zlib.crc32(WEIGHTS.get(name, name).encode()))
    randomise(model, random)
    tokens = torch.randint(VOCAB, (length,), generator=random)
    whole = begin if name == "llama_dynamic" else length
    with torch.inference_mode():
        prefill = model(tokens[None, :whole]).logits[0]
        out = model(tokens[None, :begin], use_cache=True)
        steps = list(out.logits[0])
        for position in range(begin, length):
            out = model(tokens[None, position : position + 1], past_key_values=out.past_key_values, use_cache=True)
            steps.append(out.logits[0, -1])
    difference = max(float((a - b).abs().max()) for a, b in zip(prefill, steps)) / float(prefill.abs().max())
    assert difference < 1e-5, f"{name}: transformers' prefill and steps differ by {difference}"

    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").unlink(missing_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    if name in WEIGHTS:
        link, shared = folder / "model.safetensors", pathlib.Path("..") / WEIGHTS[name] / "model.safetensors"
        assert link.read_bytes() == (folder / shared).read_bytes(), f"{name}: other weights than {WEIGHTS[name]}"
        link.unlink()
        link.symlink_to(shared)
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text())
    for key in ("transformers_version", "_attn_implementation", "dtype", "initializer_range"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    rows = {
        "prefill": {p: numbers(prefill[p]) for p in sorted({0, 1, whole // 2, whole - 1})},
        "steps": {p: numbers(steps[p]) for p in sorted({begin, begin + 1, (begin + length) // 2, length - 1})},
    }
    if name in WEIGHTS:  # one row of each kind is enough, because the other case checks the same weights with more rows
        middle = (begin + length) // 2
        rows = {"prefill": {whole - 1: numbers(prefill[-1])}, "steps": {middle: numbers(steps[middle])}}
    if name in CAPACITY:
        rows["capacity"] = CAPACITY[name]
    golden = {"made_by": "scripts/oracle/families.py", "tokens": tokens.tolist(), "begin": begin, **rows}
    golden = json.loads(json.dumps(golden))  # turns the positions, which are keys, into texts
    target = folder / "golden.json"
    if not (target.exists() and same(json.loads(target.read_text()), golden)):
        target.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(
        f"{name}: {size / 1000:.0f} kB, largest logit {float(prefill.abs().max()):.1f}, steps differ by {difference:.1e}"
    )


def same(old, new):
    """True if two golden files differ by rounding alone, which depends on the machine that runs PyTorch."""
    if any(old.get(key) != new.get(key) for key in ("tokens", "begin", "capacity")):
        return False
    for kind in ("prefill", "steps"):
        if old[kind].keys() != new[kind].keys():
            return False
        largest = max(abs(value) for row in new[kind].values() for value in row)
        for position, row in new[kind].items():
            if (
                len(row) != len(old[kind][position])
                or max(abs(a - b) for a, b in zip(row, old[kind][position])) > ROUNDING * largest
            ):
                return False
    return True


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="NAME")
    options = arguments.parse_args()
    for name in options.names or CASES:
        make(name)


if __name__ == "__main__":
    main()
