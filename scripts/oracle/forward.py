#!/usr/bin/env python3
"""Golden logits and greedy text of the target from transformers in float32, with the engine's bf16-rounded weights.

    python scripts/oracle/forward.py models/SmolLM2-135M-Instruct.Q4_1.gguf [--full FOLDER]

Writes tests/golden/forward/smollm2.json. It holds, for 20 prompts of configs/prompts/speclab.jsonl: the prompt's ids, 128
greedily decoded ids (without a stop at the end token), and for some rows the largest magnitude and the logits of 16 chosen
ids. --full also writes FOLDER/NN.f32: whole logits rows [rows, vocab], little-endian, which `scripts/oracle.sh` passes to
the engine's test.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEW_TOKENS = 128
PROMPTS = 20
ROUNDING = 1e-5  # share of the largest logit of a row; a golden file that is this close to the new values is kept
EVERY = 8  # one in EVERY generated positions is compared


def field(reader, name):
    return reader.fields[name].contents()


def load_model(reader):
    """Loads LlamaForCausalLM in float32 with weights rounded to bf16. Reorders the rows of the query and key weights: the two
    rows of a head that RoPE rotates together are neighbours in the file, and half a head apart in transformers."""
    get = lambda key: field(reader, "llama." + key)
    heads, kv_heads, hidden = get("attention.head_count"), get("attention.head_count_kv"), get("embedding_length")
    config = LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=get("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=get("feed_forward_length"),
        vocab_size=len(field(reader, "tokenizer.ggml.tokens")),
        max_position_embeddings=get("context_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": get("rope.freq_base")},
        tie_word_embeddings=True,
    )
    stored = {t.name: t for t in reader.tensors}

    def tensor(name):
        t = stored[name]
        values = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        return torch.from_numpy(values.copy()).bfloat16().float()

    def halves(name, count):
        w = tensor(name)
        return w.view(count, -1, 2, w.shape[1]).transpose(1, 2).reshape(w.shape)

    state = {
        "model.embed_tokens.weight": tensor("token_embd.weight"),
        "lm_head.weight": tensor("token_embd.weight"),
        "model.norm.weight": tensor("output_norm.weight"),
    }
    for i in range(config.num_hidden_layers):
        own, file = f"model.layers.{i}.", f"blk.{i}."
        state[own + "self_attn.q_proj.weight"] = halves(file + "attn_q.weight", heads)
        state[own + "self_attn.k_proj.weight"] = halves(file + "attn_k.weight", kv_heads)
        for ours, theirs in {
            "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
        }.items():
            state[own + ours + ".weight"] = tensor(file + theirs + ".weight")
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict(state)
    assert (
        model.model.rotary_emb.inv_freq[1].item() == 1 / get("rope.freq_base") ** (2 / (hidden // heads))
        or abs(model.model.rotary_emb.inv_freq[1].item() * get("rope.freq_base") ** (2 / (hidden // heads)) - 1) < 1e-6
    ), "transformers ignored the RoPE base"
    return model


def load_tokenizer(reader):
    tokens = field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    kinds = field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t, kind in zip(tokens, kinds) if kind == 3])
    return tokenizer


def same(old, new):
    """True if two lists of records differ by rounding alone, which depends on the machine that runs PyTorch."""
    if len(old) != len(new):
        return False
    for a, b in zip(old, new):
        if a["prompt"] != b["prompt"] or a["greedy"] != b["greedy"] or len(a["rows"]) != len(b["rows"]):
            return False
        for x, y in zip(a["rows"], b["rows"]):
            gap = max(abs(p - q) for p, q in zip(x["logits"], y["logits"]))
            if x["position"] != y["position"] or x["ids"] != y["ids"] or gap > ROUNDING * x["largest"]:
                return False
    return True


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--full", type=pathlib.Path, help="folder for whole logits rows")
    options = arguments.parse_args()
    reader = gguf.GGUFReader(options.model)
    model, tokenizer = load_model(reader), load_tokenizer(reader)
    lines = [
        json.loads(line) for line in (ROOT / "configs/prompts/speclab.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    chosen = lines[:: max(1, len(lines) // PROMPTS)][:PROMPTS]
    if options.full:
        options.full.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    records = []
    with torch.inference_mode():
        for number, line in enumerate(chosen):
            text = f"<|im_start|>user\n{line['turns'][0]}<|im_end|>\n<|im_start|>assistant\n"
            prompt = tokenizer.encode(text, add_special_tokens=False).ids
            ids, cache, rows, logits = list(prompt), None, [], []
            feed = torch.tensor([prompt])
            for step in range(NEW_TOKENS):
                out = model(feed, past_key_values=cache, use_cache=True, logits_to_keep=0 if step == 0 else 1)
                cache, row = out.past_key_values, out.logits[0, -1]
                if step == 0:  # prefill: the row of the last token and some before it
                    for position in range(0, len(prompt) - 1, max(1, len(prompt) // 3)):
                        rows.append(position)
                        logits.append(out.logits[0, position])
                if step % EVERY == 0:
                    rows.append(len(ids) - 1)
                    logits.append(row)
                ids.append(int(row.argmax()))
                feed = torch.tensor([ids[-1:]])
            logits = torch.stack(logits)
            if options.full:
                logits.numpy().astype("<f4").tofile(options.full / f"{number:02d}.f32")
            checks = []
            for position, row in zip(rows, logits):
                picked = torch.cat((row.topk(8).indices, torch.from_numpy(random.integers(0, len(row), 8))))
                checks.append(
                    {
                        "position": position,
                        "largest": float(row.abs().max()),
                        "ids": picked.tolist(),
                        "logits": [float(f"{v:.7g}") for v in row[picked]],
                    }
                )
            records.append({"prompt": prompt, "greedy": ids[len(prompt) :], "rows": checks})
            print(f"{number + 1}/{len(chosen)}: {len(prompt)} prompt tokens", flush=True)
    target = ROOT / "tests/golden/forward/smollm2.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and same(json.loads(target.read_text(encoding="utf-8"))["prompts"], records):
        print(f"{target} stays: equal up to rounding")
        return
    with target.open("w", encoding="utf-8") as out:
        out.write(
            '{"made_by": "scripts/oracle/forward.py", "prompts": [\n'
            + ",\n".join(json.dumps(r, separators=(",", ":")) for r in records)
            + "\n]}\n"
        )


if __name__ == "__main__":
    main()
