"""Golden logits of tiny random heads in the layouts of the published code, from PyTorch in float32.

    scripts/oracle/heads.py [--check]     writes tests/golden/heads/NAME/{config.json or head.json,weights,golden.json}

The modules have the structure and the names of the published code: Medusa (FasterDecoding/Medusa), Hydra with and
without prefix attention (zankner/Hydra), the MLP speculator (foundation-model-stack/fms-extras), and EAGLE and EAGLE-3
(SafeAILab/EAGLE). Each has a config.json and a file name as published. All heads are for the tiny target
tests/golden/families/llama, whose embedding Hydra and EAGLE read. bf16 holds all weights exactly. A head of EAGLE reads
a text of POSITIONS states. Then it drafts two chains after the text from its own features.
tests/model/heads/head_oracle_test.cpp loads each folder and compares the logits. Two more folders have a block draft in
the layout of DFlash (z-lab/dflash), and look-ahead embeddings of PaSS, which have no published layout;
block_oracle_test.cpp compares them. Four more folders, which module_oracle_test.cpp compares, have:
modules for multi-token prediction in the order of DeepSeek-V3, a module in the order of MiMo, a head of P-EAGLE in the
layout that vLLM reads, and a head of Falcon in a layout of this project.
--check writes nothing and exits 1 if a golden file differs by more than rounding.
"""

import argparse
import copy
import json
import math
import pathlib
import sys
import zlib

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from transformers.models.llama import modeling_llama

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/heads"
TARGET = ROOT / "tests/golden/families/llama"
POSITIONS = 5  # number of states that a head reads; each gives a row of logits, with prefix attention only the last
ROUNDING = 1e-5  # share of the largest logit; golden logits that are this close to the new values are kept


class Block(nn.Module):
    """A residual block. conditions: number of further input vectors; if there are any, the residual is a linear layer."""

    def __init__(self, width, conditions=0):
        super().__init__()
        self.linear = nn.Linear(width * (conditions + 1), width)
        self.res_connection = nn.Linear(width * (conditions + 1), width) if conditions else nn.Identity()
        self.act = nn.SiLU()

    def forward(self, x):
        return self.res_connection(x) + self.act(self.linear(x))


class Medusa(nn.ModuleList):
    def __init__(self, config, heads, layers):
        width, vocab = config.hidden_size, config.vocab_size
        # As in the published code, all blocks of a head are the same module, with the same weights.
        super().__init__(
            nn.Sequential(*([Block(width)] * layers), nn.Linear(width, vocab, bias=False)) for _ in range(heads)
        )

    def forward(self, states, tokens, embed):
        return [head(states) for head in self]


class Hydra(nn.Module):
    def __init__(self, config, heads, layers, prefix=False):
        super().__init__()
        width, vocab = config.hidden_size, config.vocab_size
        drop = [nn.Dropout(0.0)] if prefix else []
        if prefix:
            layer = copy.deepcopy(config)
            layer.num_hidden_layers = 1
            self.prefix_embeding_layer = transformers.LlamaModel(layer)
        self.hydra_mlp = nn.ModuleList(
            nn.Sequential(*drop, Block(width, i + 1), *([*drop, Block(width)] * (layers - 1))) for i in range(heads)
        )
        outputs = [nn.Linear(width, vocab) for _ in range(heads)]
        self.hydra_lm_head = nn.ModuleList(nn.Sequential(*drop, out) if prefix else out for out in outputs)

    def forward(self, states, tokens, embed):
        if hasattr(self, "prefix_embeding_layer"):
            states = self.prefix_embeding_layer(inputs_embeds=states[None]).last_hidden_state[0, -1:]
            tokens = tokens[-1:]
        inputs, logits = [states], []
        for i, (mlp, out) in enumerate(zip(self.hydra_mlp, self.hydra_lm_head)):
            inputs.append(embed(tokens[:, i]))
            logits.append(out(mlp(torch.cat(inputs, dim=-1))))
        return logits


class ScaledNorm(nn.Module):
    """An RMS norm with a scale and a shift, or with neither of them."""

    def __init__(self, width, parameters=True):
        super().__init__()
        if parameters:
            self.weight = nn.Parameter(torch.ones(width))
            self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x + self.bias if hasattr(self, "weight") else x


class MlpSpeculator(nn.Module):
    def __init__(self, config, n_predict, inner, tied=False, scale_input=False):
        super().__init__()
        width, vocab = config.hidden_size, config.vocab_size
        self.emb = nn.ModuleList(nn.Embedding(vocab, inner) for _ in range(n_predict))
        self.proj = nn.ModuleList(nn.Linear(inner if i else width, inner, bias=False) for i in range(n_predict))
        self.head = nn.ModuleList(nn.Linear(inner, vocab, bias=False) for _ in range(n_predict))
        self.ln = nn.ModuleList(ScaledNorm(inner) for _ in range(n_predict))
        self.ln0 = ScaledNorm(width, parameters=False) if scale_input else None
        self.state_weight = 0.5 ** (0.5 / n_predict)
        self.token_weight = math.sqrt((1 - self.state_weight**2) * inner / 2)
        if tied:
            for i in range(1, n_predict):
                self.emb[i], self.head[i], self.ln[i] = self.emb[0], self.head[0], self.ln[0]
                self.proj[i] = self.proj[1]

    def forward(self, states, tokens, embed):
        state = self.ln0(states) / 2**0.5 if self.ln0 else states
        logits = []
        for i in range(len(self.emb)):
            state = self.proj[i](state) * self.state_weight + self.emb[i](tokens[:, i]) * self.token_weight
            state = nn.functional.gelu(self.ln[i](state))
            logits.append(self.head[i](state))
        return logits


def one_layer(config):
    layer = copy.deepcopy(config)
    layer.num_hidden_layers = 1
    return layer


class Eagle(nn.Module):
    """fc over embedding and feature, and a decoder layer without a norm before its attention; the target's output head."""

    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.fc = nn.Linear(2 * width, width)
        decoder = transformers.LlamaModel(one_layer(config))
        decoder.layers[0].input_layernorm = nn.Identity()
        decoder.norm = nn.Identity()
        self.layers = decoder.layers
        object.__setattr__(self, "decoder", decoder)  # not registered as a module: self.layers has its weights already

    def features(self, states):
        return states

    def forward(self, features, tokens, embed):
        inputs = self.fc(torch.cat((embed(tokens), features), dim=-1))
        return self.decoder(inputs_embeds=inputs[None]).last_hidden_state[0]

    def logits(self, features, target):
        return target.get_output_embeddings()(features)


class WideAttention(nn.Module):
    """Causal attention over a text. Queries, keys and values read two vectors for each position, one after the other."""

    def __init__(self, config):
        super().__init__()
        self.config, width, size = config, config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(2 * width, config.num_attention_heads * size, bias=False)
        self.k_proj = nn.Linear(2 * width, config.num_key_value_heads * size, bias=False)
        self.v_proj = nn.Linear(2 * width, config.num_key_value_heads * size, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * size, width, bias=False)

    def forward(self, x):
        config, rows = self.config, len(x)

        def by_head(y, heads):
            return y.view(1, rows, heads, config.head_dim).transpose(1, 2)

        q = by_head(self.q_proj(x), config.num_attention_heads)
        k = by_head(self.k_proj(x), config.num_key_value_heads)
        v = by_head(self.v_proj(x), config.num_key_value_heads)
        cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(x[None], torch.arange(rows)[None])
        q, k = modeling_llama.apply_rotary_pos_emb(q, k, cos, sin)
        shared = config.num_attention_heads // config.num_key_value_heads
        k, v = (modeling_llama.repeat_kv(part, shared) for part in (k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(rows, -1))


class Midlayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = WideAttention(config)
        self.mlp = modeling_llama.LlamaMLP(config)
        for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
            setattr(self, name, modeling_llama.LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps))

    def forward(self, embedded, x):
        x = x + self.self_attn(torch.cat((self.input_layernorm(embedded), self.hidden_norm(x)), dim=-1))
        return x + self.mlp(self.post_attention_layernorm(x))


class Eagle3(nn.Module):
    """fc over three states, a decoder layer whose attention reads embedding and feature, and an output head over some tokens."""

    def __init__(self, config, rows):
        super().__init__()
        width = config.hidden_size
        self.fc = nn.Linear(3 * width, width, bias=False)
        self.midlayer = Midlayer(one_layer(config))
        self.norm = modeling_llama.LlamaRMSNorm(width, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(width, rows, bias=False)
        used = torch.randperm(config.vocab_size)[:rows].sort().values
        self.register_buffer("d2t", used - torch.arange(rows))
        self.register_buffer("t2d", torch.isin(torch.arange(config.vocab_size), used))

    def features(self, states):
        return self.fc(states)

    def forward(self, features, tokens, embed):
        return self.midlayer(embed(tokens), features)

    def logits(self, features, target):
        return self.lm_head(self.norm(features))


MEDUSA = {"base_model_name_or_path": "tiny", "medusa_num_heads": 2, "medusa_num_layers": 2}
HYDRA = {"base_model_name_or_path": "tiny", "hydra_num_heads": 3, "hydra_num_layers": 2, "grounded_heads": True}
SPECULATOR = {"model_type": "mlp_speculator", "n_predict": 3, "emb_dim": 32, "inner_dim": 24, "vocab_size": 112}
# name: (file of the weights, prefix of tensor names, config.json, function that makes the module)
CASES = {
    "medusa": ("medusa_lm_head.safetensors", "", MEDUSA, lambda c: Medusa(c, 3, 2)),
    "hydra": (
        "hydra_lm_head.safetensors",
        "",
        {**HYDRA, "hydra_head_arch": "mlp", "hidden_state_offset": 0},
        lambda c: Hydra(c, 3, 2),
    ),
    "hydra_prefix": (
        "hydra_lm_head.safetensors",
        "",
        {**HYDRA, "hydra_head_arch": "prefix-mlp", "hidden_state_offset": 0},
        lambda c: Hydra(c, 3, 2, prefix=True),
    ),
    "mlp_speculator": ("model.safetensors", "speculator.", SPECULATOR, lambda c: MlpSpeculator(c, 3, 24)),
    "mlp_speculator_tied": (
        "model.safetensors",
        "speculator.",
        {**SPECULATOR, "n_predict": 4, "tie_weights": True, "scale_input": True},
        lambda c: MlpSpeculator(c, 4, 24, tied=True, scale_input=True),
    ),
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 1,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "vocab_size": 112,
}
CASES |= {
    "eagle": ("model.safetensors", "", {**LLAMA, "bias": True}, Eagle),
    "eagle3": ("model.safetensors", "", {**LLAMA, "draft_vocab_size": 40}, lambda c: Eagle3(c, 40)),
}


class DFlashLayer(nn.Module):
    """A decoder layer whose keys and values also come from the context, with attention in both directions."""

    def __init__(self, width, config):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim")
        )
        eps = config["rms_norm_eps"]
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(width, q, bias=False),
                "k_proj": nn.Linear(width, kv, bias=False),
                "v_proj": nn.Linear(width, kv, bias=False),
                "o_proj": nn.Linear(q, width, bias=False),
                "q_norm": nn.RMSNorm(self.head_dim, eps),
                "k_norm": nn.RMSNorm(self.head_dim, eps),
            }
        )
        ffn = config["intermediate_size"]
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(width, ffn, bias=False),
                "up_proj": nn.Linear(width, ffn, bias=False),
                "down_proj": nn.Linear(ffn, width, bias=False),
            }
        )

    def forward(self, x, context, rotate):
        part = self.self_attn
        y = self.input_layernorm(x)
        both = torch.cat([context, y])
        q = part["q_norm"](part["q_proj"](y).view(len(y), self.heads, self.head_dim))
        k = part["k_norm"](part["k_proj"](both).view(len(both), self.kv_heads, self.head_dim))
        v = part["v_proj"](both).view(len(both), self.kv_heads, self.head_dim)
        q, k = rotate(q, len(context)), rotate(k, 0)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        weights = torch.softmax(torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(self.head_dim), dim=-1)
        x = x + part["o_proj"](torch.einsum("hqk,khd->qhd", weights, v).flatten(1))
        y = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](nn.functional.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y))


class DFlash(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(DFlashLayer(width, config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(width, config["rms_norm_eps"])
        self.fc = nn.Linear(width * len(config["dflash_config"]["target_layer_ids"]), width, bias=False)
        self.hidden_norm = nn.RMSNorm(width, config["rms_norm_eps"])

    def rotate(self, x, first):
        half = self.config["head_dim"] // 2
        frequencies = self.config["rope_theta"] ** (-torch.arange(half) / half)
        angles = torch.outer(torch.arange(first, first + len(x)), frequencies)[:, None]
        a, b = x[..., :half], x[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x, states):
        context = self.hidden_norm(self.fc(states))
        for layer in self.layers:
            x = layer(x, context, self.rotate)
        return self.norm(x)


DFLASH = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "vocab_size": 112,
    "num_target_layers": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 40,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "layer_types": ["full_attention", "full_attention"],
    "block_size": 4,
    "dflash_config": {"mask_token_id": 111, "target_layer_ids": [0, 1]},
}
PASS = {
    "format": "speclab head 1",
    "kind": "pass",
    "weights": "head.safetensors",
    "target": {"name": "tiny", "hidden": 32, "layers": 2, "vocab": 112},
    "shape": {"heads": 3},
}


def make_block(target):
    """A block draft after POSITIONS positions with random states."""
    module = DFlash(target.config.hidden_size, DFLASH).eval()
    randomise(module)
    states = torch.randn(POSITIONS, module.fc.in_features).bfloat16().float()
    pending = torch.randint(target.config.vocab_size, (1,))
    block = DFLASH["block_size"]
    tokens = torch.cat([pending, torch.full((block - 1,), DFLASH["dflash_config"]["mask_token_id"])])
    with torch.inference_mode():
        logits = target.lm_head(module(target.get_input_embeddings()(tokens), states))[1:]
    golden = {"states": states.tolist(), "tokens": pending.tolist(), "logits": rounded([logits])}
    return golden, DFLASH, "model.safetensors", tensors_of(module, "")


def make_pass(target):
    """The target's logits at the last token of a text and at the look-ahead embeddings after it."""
    lookahead = torch.randn(PASS["shape"]["heads"], target.config.hidden_size).bfloat16().float()
    text = torch.randint(target.config.vocab_size, (POSITIONS,))
    with torch.inference_mode():
        inputs = torch.cat([target.get_input_embeddings()(text), lookahead])[None]
        logits = target(inputs_embeds=inputs).logits[0, POSITIONS - 1 :]
    golden = {"states": [], "tokens": text.tolist(), "logits": rounded([logits])}
    return golden, PASS, "head.safetensors", {"look_ahead.weight": lookahead}


class MtpModules(nn.Module):
    """Modules for multi-token prediction: two norms, a projection, a decoder layer and the norm before the output head."""

    def __init__(self, decoders, width, eps, normed):
        super().__init__()
        self.normed = normed  # the state comes before the embedding, and outputs are passed on after their norm
        self.layers = nn.ModuleList(decoder.layers[0] for decoder in decoders)
        for decoder, layer in zip(decoders, self.layers):
            decoder.norm = nn.Identity()
            for name in ("enorm", "hnorm"):
                setattr(layer, name, nn.RMSNorm(width, eps))
            layer.eh_proj = nn.Linear(2 * width, width, bias=False)
            layer.shared_head = nn.ModuleDict({"norm": nn.RMSNorm(width, eps)})
        object.__setattr__(self, "decoders", decoders)  # not registered: self.layers has their weights already

    def forward(self, k, states, embedded):
        layer = self.layers[k]
        inputs = [layer.enorm(embedded), layer.hnorm(states)]
        x = layer.eh_proj(torch.cat(inputs[::-1] if self.normed else inputs, dim=-1))
        x = self.decoders[k](inputs_embeds=x[None]).last_hidden_state[0]
        return layer.shared_head["norm"](x) if self.normed else x

    def logits(self, k, outputs, target):
        return target.get_output_embeddings()(outputs if self.normed else self.layers[k].shared_head["norm"](outputs))


def own_card(kind, shape):
    target = {"name": "tiny", "hidden": 32, "layers": 2, "vocab": 112}
    return {"format": "speclab head 1", "kind": kind, "weights": "head.safetensors", "target": target, "shape": shape}


def make_mtp(target):
    """Two modules, as in DeepSeek-V3, on a text of POSITIONS states. Position i of module k (from 0) reads token i + k."""
    config, embed = target.config, target.get_input_embeddings()
    decoders = [transformers.LlamaModel(one_layer(config)) for _ in range(2)]
    modules = MtpModules(decoders, config.hidden_size, config.rms_norm_eps, normed=False).eval()
    randomise(modules)
    states = torch.randn(POSITIONS, config.hidden_size).bfloat16().float()
    tokens = torch.randint(config.vocab_size, (POSITIONS + 1,))
    with torch.inference_mode():
        outputs, logits = states, []
        for k in range(2):
            outputs = modules(k, outputs, embed(tokens[k : k + POSITIONS]))
            logits.append(modules.logits(k, outputs, target))
    golden = {"states": states.tolist(), "tokens": tokens.tolist(), "logits": rounded(logits)}
    return golden, own_card("mtp", {"modules": 2}), "head.safetensors", tensors_of(modules, "")


MTP_LAYER = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 40,
    "rms_norm_eps": 1e-6,
    "rope_theta": 20000.0,
    "attention_bias": True,
}


def make_mtp_normed(target):
    """One module in the order of MiMo, with the layer of Qwen3. It reads a text, and then its own last output with one more token."""
    config, embed = target.config, target.get_input_embeddings()
    layer = transformers.Qwen3Config(hidden_size=config.hidden_size, num_hidden_layers=1, vocab_size=4, **MTP_LAYER)
    modules = MtpModules(
        [transformers.Qwen3Model(layer)], config.hidden_size, MTP_LAYER["rms_norm_eps"], normed=True
    ).eval()
    randomise(modules)
    states = torch.randn(POSITIONS, config.hidden_size).bfloat16().float()
    tokens = torch.randint(config.vocab_size, (POSITIONS + 1,))
    with torch.inference_mode():
        outputs = modules(0, states, embed(tokens[:POSITIONS]))
        longer = modules(0, torch.cat((states, outputs[-1:])), embed(tokens))
        logits = [modules.logits(0, rows, target) for rows in (outputs, longer[-1:])]
    golden = {"states": states.tolist(), "tokens": tokens.tolist(), "logits": rounded(logits)}
    shape = {"modules": 1, "first": "state", "passes_on": "normed", "layer": {**MTP_LAYER, "qk_norm": True}}
    return golden, own_card("mtp", shape), "head.safetensors", tensors_of(modules, "")


class ParallelEagle(Eagle3):
    """A head of EAGLE-3 with a second layer, an embedding of its own, and the state that stands at masked places."""

    def __init__(self, config, rows):
        super().__init__(config, rows)
        decoder = transformers.LlamaModel(one_layer(config))
        decoder.norm = nn.Identity()
        self.layers = nn.ModuleList([self.midlayer, *decoder.layers])
        del self.midlayer
        object.__setattr__(self, "decoder", decoder)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.mask_hidden = nn.Parameter(torch.zeros(1, 3 * config.hidden_size))

    def forward(self, features, tokens):
        x = self.layers[0](self.embed_tokens(tokens), features)
        return self.decoder(inputs_embeds=x[None]).last_hidden_state[0]


PARALLEL = {**LLAMA, "num_hidden_layers": 2, "draft_vocab_size": 40, "ptd_token_id": 111, "para_num": 4}


def make_parallel_eagle(target):
    """Logits at the last of POSITIONS pairs of state and token, and at the masked places after it."""
    head = ParallelEagle(target.config, PARALLEL["draft_vocab_size"]).eval()
    randomise(head)
    states = torch.randn(POSITIONS, 3 * target.config.hidden_size).bfloat16().float()
    tokens = torch.randint(target.config.vocab_size, (POSITIONS,))
    masks = PARALLEL["para_num"] - 1
    with torch.inference_mode():
        features = head.features(torch.cat((states, head.mask_hidden.expand(masks, -1))))
        read = torch.cat((tokens, torch.full((masks,), PARALLEL["ptd_token_id"])))
        logits = head.logits(head(features, read)[-masks - 1 :], target)
    golden = {"states": states.tolist(), "tokens": tokens.tolist(), "logits": rounded([logits])}
    return golden, PARALLEL, "model.safetensors", tensors_of(head, "")


FALCON_LAYER = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 40,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
FALCON_BLOCK = 2


class Falcon(nn.Module):
    """An LSTM over pairs of embedding and feature, and the decoder layer of EAGLE. visible: what each position attends to."""

    def __init__(self, width):
        super().__init__()
        config = transformers.LlamaConfig(hidden_size=width, num_hidden_layers=1, vocab_size=4, **FALCON_LAYER)
        config._attn_implementation = "eager"
        self.lstm = nn.LSTM(2 * width, width, num_layers=2, batch_first=True)
        decoder = transformers.LlamaModel(config)
        decoder.layers[0].input_layernorm = nn.Identity()
        self.layers = decoder.layers
        object.__setattr__(self, "rotary", decoder.rotary_emb)  # it has no weights

    def forward(self, features, embedded, visible):
        x = self.lstm(torch.cat((embedded, features), dim=-1)[None])[0]
        mask = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))[None, None]
        rotation = self.rotary(x, torch.arange(x.shape[1])[None])
        y = self.layers[0](x, attention_mask=mask, position_embeddings=rotation)
        return (y[0] if isinstance(y, tuple) else y).reshape(x.shape[1], -1)


def falcon_tensors(head):
    """The tensors as LstmLayers of the engine reads them: one matrix for each gate, over the input and the previous output."""
    tensors = {name: value for name, value in tensors_of(head, "").items() if not name.startswith("lstm.")}
    for layer in range(2):
        parts = [getattr(head.lstm, f"{kind}_l{layer}").detach() for kind in ("weight_ih", "weight_hh", "bias_ih")]
        for gate, w, u, b in zip("ifgo", *(part.chunk(4) for part in parts)):
            tensors[f"lstm.{layer}.{gate}.weight"] = torch.cat((w, u), dim=1).contiguous()
            tensors[f"lstm.{layer}.{gate}.bias"] = b.clone().contiguous()
    return tensors


def make_falcon(target):
    """The first block after a text of POSITIONS states and tokens, and a block below it for each of two drafted blocks."""
    embed, k = target.get_input_embeddings(), FALCON_BLOCK
    head = Falcon(target.config.hidden_size).eval()
    randomise(head)
    for layer in range(2):
        getattr(head.lstm, f"bias_hh_l{layer}").data.zero_()  # the file has the sum of the two biases of PyTorch
    states = torch.randn(POSITIONS, target.config.hidden_size).bfloat16().float()
    tokens, drafted = torch.randint(target.config.vocab_size, (POSITIONS,)), torch.randint(112, (2, k))

    def visible(length):
        """Every position sees itself and all before it. In each block of k, from the last k of the text on, all see all."""
        seen = torch.ones(length, length).tril().bool()
        for first in range(POSITIONS - k, length, k):
            seen[first : first + k, first : first + k] = True
        return seen

    with torch.inference_mode():
        outputs = head(states, embed(tokens), visible(POSITIONS))[-k:]
        logits = [target.get_output_embeddings()(outputs)]
        for block in drafted:
            features, read = torch.cat((states, outputs)), torch.cat((tokens, block))
            below = head(features, embed(read), visible(POSITIONS + k))[-k:]
            logits.append(target.get_output_embeddings()(below))
    golden = {
        "states": states.tolist(),
        "tokens": tokens.tolist(),
        "drafted": drafted.tolist(),  # by block: its tokens
        "logits": rounded(logits),  # of the first block, and of each block below it
    }
    card = own_card("falcon", {"block": k, "layer": FALCON_LAYER})
    return golden, card, "head.safetensors", falcon_tensors(head)


SPECIAL = {
    "block_draft": make_block,
    "pass": make_pass,
    "mtp": make_mtp,
    "mtp_normed": make_mtp_normed,
    "parallel_eagle": make_parallel_eagle,
    "falcon": make_falcon,
}


def randomise(module):
    for name, parameter in module.named_parameters():
        wide = parameter.dim() > 1
        noise = torch.randn(parameter.shape) * (2 / math.sqrt(parameter.shape[-1]) if wide else 0.1)
        if "emb." in name:
            noise = torch.randn(parameter.shape)
        if not wide and "bias" not in name:
            noise = noise + 1  # a norm
        parameter.data = noise.bfloat16().float()


def tensors_of(module, prefix):
    """The tensors as a file has them. Modules that are used twice come twice, except in the MLP speculator, whose file has each
    parameter once."""
    names = {name for name, _ in module.named_parameters()} if prefix else module.state_dict().keys()
    return {prefix + name: module.state_dict()[name].clone().contiguous() for name in names}


def rounded(logits):
    return [[[float(f"{value:.7g}") for value in row] for row in rows.tolist()] for rows in logits]


def eagle_golden(module, states, target):
    """Logits of all positions of a text, and of two drafted chains after it. Each row is computed from scratch."""
    embed, vocab = target.get_input_embeddings(), target.config.vocab_size
    tokens, chains = torch.randint(vocab, (len(states),)), torch.randint(vocab, (2, 2))
    with torch.inference_mode():
        logits = [module.logits(module(module.features(states), tokens, embed), target)]
        levels = [[], []]
        for chain in chains:
            features, read = module.features(states), tokens
            for depth, token in enumerate(chain):
                features = torch.cat((features, module(features, read, embed)[-1:]))
                read = torch.cat((read, token[None]))
                levels[depth].append(module.logits(module(features, read, embed)[-1:], target))
        logits += [torch.cat(rows) for rows in levels]
    return {
        "states": states.tolist(),
        "tokens": tokens[:, None].tolist(),  # by state: the token after it
        "drafted": chains.T.tolist(),  # by depth: the token of each chain
        "logits": rounded(logits),  # of the text, of both tokens of depth 1, and of depth 2
    }


def make(name, target):
    torch.manual_seed(zlib.crc32(name.encode()))
    if name in SPECIAL:
        return SPECIAL[name](target)
    file, prefix, config, build = CASES[name]
    module = build(target.config).eval()
    randomise(module)
    if hasattr(module, "features"):
        width = target.config.hidden_size * (3 if name == "eagle3" else 1)
        states = torch.randn(POSITIONS, width).bfloat16().float()
        return eagle_golden(module, states, target), config, file, tensors_of(module, prefix)
    heads = next(value for key, value in config.items() if key in ("n_predict", "hydra_num_heads", "medusa_num_heads"))
    states = torch.randn(POSITIONS, target.config.hidden_size).bfloat16().float()
    tokens = torch.randint(target.config.vocab_size, (POSITIONS, heads + 1))
    with torch.inference_mode():
        logits = module(states, tokens, target.get_input_embeddings())
    golden = {
        "states": states.tolist(),
        "tokens": tokens.tolist(),  # by state: the pending token, and the drafted tokens after it
        "logits": rounded(logits),
    }
    return golden, config, file, tensors_of(module, prefix)


def same(old, new):
    if any(old.get(key) != new.get(key) for key in ("tokens", "states", "drafted")):
        return False
    for before, after in zip(old["logits"], new["logits"], strict=True):
        largest = max(abs(value) for row in after for value in row)
        for a, b in zip(before, after, strict=True):
            if max(abs(x - y) for x, y in zip(a, b, strict=True)) > ROUNDING * largest:
                return False
    return True


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()
    target = transformers.AutoModelForCausalLM.from_pretrained(
        TARGET, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    for name in (*CASES, *SPECIAL):
        golden, config, file, tensors = make(name, target)
        folder = OUT / name
        path = folder / "golden.json"
        if path.exists() and same(json.loads(path.read_text()), golden):
            print(f"{folder} stays: equal up to rounding")
            continue
        if options.check:
            sys.exit(f"{folder} differs from what PyTorch says; run scripts/oracle/heads.py")
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / file, metadata={"format": "pt"})
        card = "head.json" if "format" in config else "config.json"
        (folder / card).write_text(json.dumps(config, indent=1) + "\n")
        path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
        print(f"{folder}: {sum(f.stat().st_size for f in folder.iterdir()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
