"""The heads of blockwise parallel decoding: one layer before the target's own output layer."""

import torch.nn.functional as F
from torch import nn

from head_kinds.base import StateHeads, TargetOutput, as_stored, linear


class BlockwiseHeads(TargetOutput, StateHeads):
    """Stern et al. 2018: W (f + U_i ReLU(V f + b) + c_i), with W the target's own output layer, which is not trained. At the start each
    head is W f."""

    kind, branches = "blockwise", False

    def __init__(self, embedding, vocab, options):
        super().__init__(embedding, vocab, options.heads)
        self.inner = nn.Linear(self.width, options.inner)
        self.outer = nn.ModuleList(linear(options.inner, self.width) for _ in range(self.count))
        self.register_buffer("rows", embedding[vocab].clone(), persistent=False)

    def hidden(self, head, features, tokens=None):
        return features + self.outer[head](F.relu(self.inner(features)))

    def tensors(self):
        out = {"ffn_in.weight": self.inner.weight, "ffn_in.bias": self.inner.bias}
        for i, layer in enumerate(self.outer):
            out[f"ffn_out.{i}.weight"], out[f"ffn_out.{i}.bias"] = layer.weight, layer.bias
        return as_stored(out)

    def shape(self):
        return {"heads": self.count, "inner": self.inner.out_features}
