"""Decoder layers of heads, with the names that transformers gives the tensors of Llama and Qwen3, and their two kinds of attention.

Shapes: n sequences, L positions, A anchors (places at which a block begins), C positions of a block, H heads, E width of a head.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from target import rotate
from torch import nn

POSITIONS = 4096  # number of positions that have angles of RoPE


@dataclass
class Shape:
    """The shape of a decoder layer. Its input and output are as wide as the target's states."""

    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    eps: float
    theta: float

    @staticmethod
    def of(target, options):
        """As the options say, else as in the target. With --attention-heads alone, there is a key/value head for each query head."""
        heads = options.attention_heads or target.H
        kv_heads = options.kv_heads or (target.G if options.attention_heads is None else heads)
        if heads % kv_heads:
            raise SystemExit(f"--kv-heads: {kv_heads} is no divisor of {heads} query heads")
        return Shape(heads, kv_heads, target.E, options.ffn or target.ffn, target.eps, target.theta)

    def keys(self):
        """As in a config.json of transformers."""
        return {
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.ffn,
            "rms_norm_eps": self.eps,
            "rope_theta": self.theta,
        }


def matrix(inputs, outputs, zero=False):
    """A linear layer without a bias, random or all 0."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=0.0 if zero else 1 / math.sqrt(inputs))
    return layer


class Attention(nn.Module):
    """The projections of attention. Queries, keys and values are [..., H, E]; a key or value head is repeated for its query heads."""

    def __init__(self, inputs, width, shape, qk_norm):
        super().__init__()
        self.shape = shape
        self.q_proj = matrix(inputs, shape.heads * shape.head_dim)
        self.k_proj = matrix(inputs, shape.kv_heads * shape.head_dim)
        self.v_proj = matrix(inputs, shape.kv_heads * shape.head_dim)
        self.o_proj = matrix(shape.heads * shape.head_dim, width, zero=True)
        norm = lambda: nn.RMSNorm(shape.head_dim, shape.eps) if qk_norm else nn.Identity()
        self.q_norm, self.k_norm = norm(), norm()

    def split(self, x):
        return x.view(*x.shape[:-1], -1, self.shape.head_dim)

    def repeat(self, x):
        return x.repeat_interleave(self.shape.heads // self.shape.kv_heads, -2)

    def queries(self, x, cos, sin):
        """cos, sin: broadcastable to [..., H, E / 2]."""
        return rotate(self.q_norm(self.split(self.q_proj(x))), cos, sin)

    def keys(self, x, cos, sin):
        return self.repeat(rotate(self.k_norm(self.split(self.k_proj(x))), cos, sin))

    def values(self, x):
        return self.repeat(self.split(self.v_proj(x)))

    def out(self, y):
        return self.o_proj(y.flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, width, ffn):
        super().__init__()
        self.gate_proj, self.up_proj = matrix(width, ffn), matrix(width, ffn)
        self.down_proj = matrix(ffn, width, zero=True)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """The modules of a layer. The kinds put them together. At the start a layer adds nothing to its input."""

    def __init__(self, width, shape, inputs=None, qk_norm=False):
        super().__init__()
        self.self_attn = Attention(inputs or width, width, shape, qk_norm)
        self.mlp = FeedForward(width, shape.ffn)
        self.post_attention_layernorm = nn.RMSNorm(width, shape.eps)

    def finish(self, x, attended):
        """x + attention, then the feed-forward."""
        x = x + self.self_attn.out(attended)
        return x + self.mlp(self.post_attention_layernorm(x))

    def tensors(self, name):
        return {name + key: value for key, value in self.named_parameters()}


def unrolled_attention(q, made):
    """Attention of step j of training-time test (Li et al. 2025, EAGLE-3). made: keys and values [n, L, H, E] of the steps 0 .. j. Row r of
    step j continues the draft that row r of step j - 1 made. So it sees the true rows up to r (step 0), and row r of the
    steps from 1 to j."""
    q = q.transpose(1, 2)
    keys, values = zip(*((k.transpose(1, 2), v.transpose(1, 2)) for k, v in made))
    if len(made) == 1:
        return F.scaled_dot_product_attention(q, keys[0], values[0], is_causal=True).transpose(1, 2)
    rows, scale = q.shape[2], q.shape[3] ** -0.5
    later = torch.ones(rows, rows, dtype=torch.bool, device=q.device).triu(1)
    true = (q @ keys[0].mT * scale).masked_fill(later, -torch.inf)
    own = torch.stack([(q * k).sum(-1) * scale for k in keys[1:]], -1)
    weights = torch.cat([true, own], -1).softmax(-1)
    y = weights[..., :rows] @ values[0]
    for i, v in enumerate(values[1:]):
        y = y + weights[..., rows + i, None] * v
    return y.transpose(1, 2)


def block_attention(q, k, v, context_k, context_v, visible, inside):
    """Attention of blocks. q, k, v [n, A, C, H, E]: of the rows of the blocks. context_k, context_v [n, L, H, E]: of the text. visible
    [n, A]: a block sees this many positions, from the first one of the text on. inside [C, C]: the rows of its own block that a row sees."""
    L, scale = context_k.shape[1], q.shape[-1] ** -0.5
    hidden = torch.arange(L, device=q.device) >= visible[..., None]  # [n, A, L]
    outside = torch.einsum("nache,nlhe->nhacl", q, context_k) * scale
    outside = outside.masked_fill(hidden[:, None, :, None], -torch.inf)
    within = torch.einsum("nache,nadhe->nhacd", q, k) * scale
    within = within.masked_fill(~inside, -torch.inf)
    weights = torch.cat([outside, within], -1).softmax(-1)
    y = torch.einsum("nhacl,nlhe->nache", weights[..., :L], context_v)
    return y + torch.einsum("nhacd,nadhe->nache", weights[..., L:], v)
