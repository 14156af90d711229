"""The modules of the golden heads in PyTorch, with the structure and the names of the published code (scripts/oracle/heads.py)."""

import copy
import math

import torch
import transformers
from torch import nn
from transformers.models.llama import modeling_llama


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


FALCON_LAYER = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 40,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}


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
