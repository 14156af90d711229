#!/usr/bin/env python3
"""Times generation with Hugging Face transformers (`generate()`) on SpecLab's target: plain, with prompt lookup, and
assisted. Decoding is greedy, with batch 1, and in bf16 on a GPU.

    transformers_times.py --model FILE.gguf [--backend cuda] [--device N]

Prints JSON with milliseconds per token, without prefill. On the target itself it times plain generation, prompt lookup and assisted
generation, where 20 of the 30 layers of the target are the assistant. At the shapes of the inflated 1B and 8B models it times plain
generation with random weights (the time does not depend on the weights). With a backend other than cuda, the script runs on the CPU, in float32, with one prompt
and four tokens, and leaves the inflated shapes out. Exit status 77: PyTorch or another package is missing, or PyTorch sees no GPU.
"""

import argparse
import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
try:
    import numpy as np
    import tokenizers
    import torch
    import transformers
except ImportError as problem:
    print(f"PyTorch or another package is missing: {problem}", file=sys.stderr)
    sys.exit(77)

from gguf_file import GgufFile

SHAPES = {
    "1b": {
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 4480,
    },
    "8b": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    },
}
NAMES = {  # name in the GGUF file -> name in transformers
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def config_of(file, **changes):
    def field(name):
        return file.fields["llama." + name]

    values = {
        "hidden_size": field("embedding_length"),
        "num_hidden_layers": field("block_count"),
        "num_attention_heads": field("attention.head_count"),
        "num_key_value_heads": field("attention.head_count_kv"),
        "intermediate_size": field("feed_forward_length"),
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"),
        "rope_theta": field("rope.freq_base"),
        "vocab_size": len(file.fields["tokenizer.ggml.tokens"]),
        "max_position_embeddings": field("context_length"),
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,  # so that every generation has the same length
        "pad_token_id": 0,
    }
    return transformers.LlamaConfig(**{**values, **changes})


def in_halves(weight, head_dim):
    """Reorders the rows of each head. RoPE rotates rows 2i and 2i + 1 together in the file, and i and i + head_dim / 2 in transformers."""
    out, hidden = weight.shape
    return weight.reshape(out // head_dim, head_dim // 2, 2, hidden).swapaxes(1, 2).reshape(out, hidden)


def load(file, layers, device):
    """Loads the target with only these layers."""
    config = config_of(file, num_hidden_layers=len(layers))
    head_dim = config.hidden_size // config.num_attention_heads
    state = {
        "model.embed_tokens.weight": file.tensor("token_embd.weight"),
        "model.norm.weight": file.tensor("output_norm.weight"),
    }
    for at, layer in enumerate(layers):
        for ours, theirs in NAMES.items():
            weight = file.tensor(f"blk.{layer}.{ours}.weight")
            state[f"model.layers.{at}.{theirs}.weight"] = (
                in_halves(weight, head_dim) if ours in ("attn_q", "attn_k") else weight
            )
    model = empty(config, device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(state.pop(name))))
    if state:
        raise ValueError(f"tensors without a place: {sorted(state)}")
    return model


def empty(config, device):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if device != "cpu" else torch.float32)  # a CPU may not support bf16
    try:
        with torch.device(device):
            model = transformers.LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval()


def prompts(file, count):
    """Token ids of the first prompts of the quickstart, in the target's chat template."""
    words = file.fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in file.fields["tokenizer.ggml.merges"]]
    words = tokenizers.Tokenizer(tokenizers.models.BPE({word: i for i, word in enumerate(words)}, merges))
    digits, level = (
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, level])
    words.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    lines = (ROOT / "configs/prompts/quickstart.jsonl").read_text(encoding="utf-8").splitlines()[:count]
    texts = [f"<|im_start|>user\n{json.loads(line)['turns'][0]}<|im_end|>\n<|im_start|>assistant\n" for line in lines]
    return [words.encode(text).ids for text in texts]


def timed(model, ids, tokens, **how):
    """Times a generation; returns seconds and the new tokens."""
    row = torch.tensor([ids], device=model.device)
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.no_grad():
        out = model.generate(row, attention_mask=torch.ones_like(row), do_sample=False, max_new_tokens=tokens, **how)
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin, out[0, len(ids) :].tolist()


def measure(shape, mode, model, texts, tokens, reference=None, **how):
    timed(model, texts[0], 2, **how)  # warms up
    seconds, outputs = 0.0, []
    for ids in texts:
        first, _ = timed(model, ids, 1)
        whole, out = timed(model, ids, tokens, **how)
        seconds += whole - first
        outputs.append(out)
    each = 1e3 * seconds / (len(texts) * (tokens - 1))
    same = None if reference is None else sum(a == b for a, b in zip(outputs, reference)) / len(outputs)
    return {"shape": shape, "mode": mode, "ms_per_token": each, "same_text_as_generate": same}, outputs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--device", type=int, default=0)
    arguments = parser.parse_args()
    on_gpu = arguments.backend == "cuda"
    if on_gpu and not torch.cuda.is_available():
        print("PyTorch sees no GPU", file=sys.stderr)
        sys.exit(77)
    device = f"cuda:{arguments.device}" if on_gpu else "cpu"
    tokens = 64 if on_gpu else 4
    file = GgufFile(arguments.model)
    texts = prompts(file, 3 if on_gpu else 1)
    layers = file.fields["llama.block_count"]
    target = load(file, range(layers), device)
    run, plain = measure("135m", "generate", target, texts, tokens)
    runs = [run]
    runs.append(measure("135m", "prompt_lookup", target, texts, tokens, plain, prompt_lookup_num_tokens=5)[0])
    assistant = load(file, [round(i * (layers - 1) / 19) for i in range(20)], device)
    runs.append(measure("135m", "assisted", target, texts, tokens, plain, assistant_model=assistant)[0])
    del target, assistant
    for shape, changes in SHAPES.items() if on_gpu else ():
        model = empty(config_of(file, **changes), device)
        runs.append(measure(shape, "generate", model, texts[:1], tokens)[0])
        del model
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({**versions, "tokens": tokens, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
