"""The heads of Hydra, which also read the tokens drafted before their own."""

import torch
import torch.nn.functional as F
from torch import nn

from head_kinds.base import StateHeads, as_stored, linear


class HydraHeads(StateHeads):
    """Ankner et al. 2024, without prefix attention: x = f ++ E(x_0) ++ ... ++ E(x_i), then W_i (R_i x + SiLU(V_i x + b_i)) + c_i. At the
    start each head is the target's output layer."""

    kind, sequential = "hydra", True

    def __init__(self, embedding, vocab, options):
        super().__init__(embedding, vocab, options.heads)
        widths = [(i + 2) * self.width for i in range(self.count)]
        self.blocks = nn.ModuleList(linear(width, self.width) for width in widths)
        self.residuals = nn.ModuleList(linear(width, self.width) for width in widths)
        for layer in self.residuals:  # at the start, the residual is the state alone
            layer.weight.data[:, : self.width] = torch.eye(self.width)
        self.outputs = nn.ModuleList(linear(self.width, len(vocab)) for _ in range(self.count))
        for layer in self.outputs:
            layer.weight.data.copy_(embedding[vocab])

    def hidden(self, head, features, tokens):
        x = torch.cat([features, self.target_embedding[tokens].flatten(1)], dim=1)
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
