"""Heads that heads.py trains, by kind: the modules in PyTorch, and their tensors under the names that the engine reads.

A head i (from 0) reads the target's state f at a position and predicts the token i + 2 places later. The sequential kinds (hydra,
mlp_speculator) also read the i + 1 tokens between. Each kind has
  hidden(i, features [n, D], tokens [n, i + 1])   what the output layer of head i reads, [n, W]
  output(i)                                       that output layer over the tokens of `vocab`, [K, W]
so the logits are hidden(...) @ output(i).T. At the start the heads of all kinds but mlp_speculator are the target's own output layer.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def as_stored(tensors):
    return {name: tensor.detach().cpu().bfloat16().contiguous() for name, tensor in tensors.items()}


def linear(inputs, outputs):
    """A linear layer with a bias, all 0."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Heads(nn.Module):
    kind, sequential = "", False

    def __init__(self, embedding, vocab, count):
        """embedding [V, D]: the target's embedding and output head; vocab [K]: sorted ids that the heads cover."""
        super().__init__()
        self.count, self.width = count, embedding.shape[1]
        self.register_buffer("vocab", vocab)

    def map(self):
        return {"draft_vocab": self.vocab.cpu().to(torch.int32)}


class MedusaHeads(Heads):
    """Cai et al. 2024 (Medusa-1): W_i (f + SiLU(V_i f + b_i))."""

    kind = "medusa"

    def __init__(self, embedding, vocab, count):
        super().__init__(embedding, vocab, count)
        self.blocks = nn.ModuleList(linear(self.width, self.width) for _ in range(count))
        self.outputs = nn.ParameterList(nn.Parameter(embedding[vocab].clone()) for _ in range(count))

    def hidden(self, head, features, tokens=None):
        return features + F.silu(self.blocks[head](features))

    def output(self, head):
        return self.outputs[head]

    def tensors(self):
        out = {}
        for i, (block, output) in enumerate(zip(self.blocks, self.outputs)):
            out[f"{i}.0.linear.weight"], out[f"{i}.0.linear.bias"] = block.weight, block.bias
            out[f"{i}.1.weight"] = output
        return as_stored(out) | self.map()

    def shape(self):
        return {"heads": self.count, "blocks": 1}


class BlockwiseHeads(Heads):
    """Stern et al. 2018: W (f + U_i ReLU(V f + b) + c_i), with W the target's own output layer, which is not trained. The loss sees the
    rows of W for `vocab` alone; the decoder uses all rows."""

    kind = "blockwise"

    def __init__(self, embedding, vocab, count, inner):
        super().__init__(embedding, vocab, count)
        self.inner = nn.Linear(self.width, inner)
        self.outer = nn.ModuleList(linear(inner, self.width) for _ in range(count))
        self.register_buffer("rows", embedding[vocab].clone(), persistent=False)

    def hidden(self, head, features, tokens=None):
        return features + self.outer[head](F.relu(self.inner(features)))

    def output(self, head):
        return self.rows

    def tensors(self):
        out = {"ffn_in.weight": self.inner.weight, "ffn_in.bias": self.inner.bias}
        for i, layer in enumerate(self.outer):
            out[f"ffn_out.{i}.weight"], out[f"ffn_out.{i}.bias"] = layer.weight, layer.bias
        return as_stored(out)

    def shape(self):
        return {"heads": self.count, "inner": self.inner.out_features}


class HydraHeads(Heads):
    """Ankner et al. 2024, without prefix attention: x = f ++ E(x_0) ++ ... ++ E(x_i), then W_i (R_i x + SiLU(V_i x + b_i)) + c_i."""

    kind, sequential = "hydra", True

    def __init__(self, embedding, vocab, count):
        super().__init__(embedding, vocab, count)
        widths = [(i + 2) * self.width for i in range(count)]
        self.blocks = nn.ModuleList(linear(width, self.width) for width in widths)
        self.residuals = nn.ModuleList(linear(width, self.width) for width in widths)
        for layer in self.residuals:  # at first the state alone
            layer.weight.data[:, : self.width] = torch.eye(self.width)
        self.outputs = nn.ModuleList(linear(self.width, len(vocab)) for _ in range(count))
        for layer in self.outputs:
            layer.weight.data.copy_(embedding[vocab])
        self.register_buffer("embedding", embedding.clone(), persistent=False)

    def hidden(self, head, features, tokens):
        x = torch.cat([features, self.embedding[tokens].flatten(1)], dim=1)
        y = self.residuals[head](x) + F.silu(self.blocks[head](x))
        return torch.cat([y, torch.ones_like(y[:, :1])], dim=1)  # the bias of the output layer is its last column

    def output(self, head):
        layer = self.outputs[head]
        return torch.cat([layer.weight, layer.bias[:, None]], dim=1)

    def tensors(self):
        out = {}
        for i in range(self.count):
            for name, layer in (
                (f"hydra_mlp.{i}.0.linear", self.blocks[i]),
                (f"hydra_mlp.{i}.0.res_connection", self.residuals[i]),
                (f"hydra_lm_head.{i}", self.outputs[i]),
            ):
                out[f"{name}.weight"], out[f"{name}.bias"] = layer.weight, layer.bias
        return as_stored(out) | self.map()

    def shape(self):
        return {"heads": self.count, "blocks": 1}


class MlpSpeculator(Heads):
    """Wertheimer et al. 2024, with tied layers and a scaled input: s_i = GELU(norm(w_s P s_(i-1) + w_e E(x_i))), logits_i = H s_i."""

    kind, sequential = "mlp_speculator", True

    def __init__(self, embedding, vocab, count, inner):
        super().__init__(embedding, vocab, count)
        scale = 1 / math.sqrt(inner)
        self.embedding = nn.Parameter(torch.randn(len(embedding), inner) * scale)
        self.first = nn.Parameter(torch.randn(inner, self.width) / math.sqrt(self.width))
        self.next = nn.Parameter(torch.randn(inner, inner) * scale)
        self.scale, self.shift = nn.Parameter(torch.ones(inner)), nn.Parameter(torch.zeros(inner))
        self.head = nn.Parameter(torch.randn(len(vocab), inner) * scale)
        self.state_weight = 0.5 ** (0.5 / count)
        self.token_weight = math.sqrt((1 - self.state_weight**2) * inner / 2)

    @staticmethod
    def normed(x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def hidden(self, head, features, tokens):
        state = self.normed(features) / math.sqrt(2)
        for i in range(head + 1):
            projected = state @ (self.next if i else self.first).T
            x = self.state_weight * projected + self.token_weight * self.embedding[tokens[:, i]]
            state = F.gelu(self.scale * self.normed(x) + self.shift)
        return state

    def output(self, head):
        return self.head

    def tensors(self):
        out = {
            "emb.0.weight": self.embedding,
            "proj.0.weight": self.first,
            "ln.0.weight": self.scale,
            "ln.0.bias": self.shift,
            "head.0.weight": self.head,
        }
        if self.count > 1:
            out["proj.1.weight"] = self.next
        return as_stored(out) | self.map()

    def shape(self):
        return {"heads": self.count, "inner": len(self.scale), "tied": True, "scale_input": True}


KINDS = ("blockwise", "hydra", "medusa", "mlp_speculator")


def make_heads(kind, embedding, vocab, count, inner):
    """inner: width of the hidden layer of blockwise heads and of an MLP speculator; the other kinds have none."""
    if kind == "medusa":
        return MedusaHeads(embedding, vocab, count)
    if kind == "hydra":
        return HydraHeads(embedding, vocab, count)
    return {"blockwise": BlockwiseHeads, "mlp_speculator": MlpSpeculator}[kind](embedding, vocab, count, inner)
