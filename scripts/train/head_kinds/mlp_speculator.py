"""The MLP speculator: a chain of small layers, each of which reads the token drafted before its own."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from head_kinds.base import StateHeads, as_stored


class MlpSpeculator(StateHeads):
    """Wertheimer et al. 2024, with tied layers and a scaled input: s_i = GELU(norm(w_s P s_(i-1) + w_e E(x_i))), logits_i = H s_i. Its
    weights start at random."""

    kind, sequential = "mlp_speculator", True

    def __init__(self, embedding, vocab, options):
        super().__init__(embedding, vocab, options.heads)
        inner = options.inner
        scale = 1 / math.sqrt(inner)
        self.embedding = nn.Parameter(torch.randn(len(embedding), inner) * scale)
        self.first = nn.Parameter(torch.randn(inner, self.width) / math.sqrt(self.width))
        self.next = nn.Parameter(torch.randn(inner, inner) * scale)
        self.scale, self.shift = nn.Parameter(torch.ones(inner)), nn.Parameter(torch.zeros(inner))
        self.head = nn.Parameter(torch.randn(len(vocab), inner) * scale)
        self.state_weight = 0.5 ** (0.5 / self.count)
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
