"""The heads of Medusa: one residual block and an output layer for each head."""

import torch.nn.functional as F
from torch import nn

from head_kinds.base import StateHeads, as_stored, linear


class MedusaHeads(StateHeads):
    """Cai et al. 2024 (Medusa-1): W_i (f + SiLU(V_i f + b_i)). At the start each head is the target's output layer."""

    kind = "medusa"

    def __init__(self, embedding, vocab, options):
        super().__init__(embedding, vocab, options.heads)
        self.blocks = nn.ModuleList(linear(self.width, self.width) for _ in range(self.count))
        self.outputs = nn.ParameterList(nn.Parameter(embedding[vocab].clone()) for _ in range(self.count))

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
