"""Block drafts: a few decoder layers that guess all tokens of a block at once, from the target's states of the text before it."""

import torch
from target import rope_tables
from torch import nn

from head_kinds.base import Heads, as_stored
from head_kinds.decoder_layer import POSITIONS, DecoderLayer, Shape, block_attention


class BlockDraft(Heads):
    """The form of DFlash (arXiv 2602.06036), see core/model/heads/block_head.h. A block begins at the pending token, position t, and has
    `count` masked positions after it. It sees the states of the positions before t, and all of its own rows. Its row i (from 1) predicts the
    token at t + i, so its label is the law at position t + i - 1. Blocks begin at several random places (anchors) of each sequence."""

    kind, reads_text, clip = "block_draft", True, 1.0

    def __init__(self, embedding, vocab, target, options):
        super().__init__(embedding, vocab, options.heads)
        self.taps, self.anchors, self.mask = options.taps, options.anchors, options.mask_token
        self.form = Shape.of(target, options)
        width, norm = self.width, lambda: nn.RMSNorm(self.width, target.eps)
        self.fc = nn.Linear(len(self.taps) * width, width, bias=False)
        self.layers = nn.ModuleList(DecoderLayer(width, self.form, qk_norm=True) for _ in range(options.layers))
        self.input_norms = nn.ModuleList(norm() for _ in self.layers)
        self.hidden_norm, self.norm = norm(), norm()
        self.lm_head = nn.Parameter(embedding[vocab].clone())
        with torch.no_grad():
            self.norm.weight.copy_(target.norm)
        for name, table in zip(("cos", "sin"), rope_tables(target.theta, self.form.head_dim, POSITIONS)):
            self.register_buffer(name, table[:, None], persistent=False)  # [positions, 1, E / 2]

    def predictions(self, batch):
        size, L = self.count + 1, batch.ids.shape[1]
        context = self.hidden_norm(self.fc(batch.states_of_taps))  # [n, L, D]
        anchor = batch.anchors(self.anchors, 0, 0)  # [n, A]
        position = anchor[..., None] + torch.arange(size, device=anchor.device)  # [n, A, C]
        tokens = torch.full_like(position, self.mask)
        tokens[..., 0] = batch.ids.gather(1, anchor)
        inside = torch.ones(size, size, dtype=torch.bool, device=anchor.device)
        x = self.target_embedding[tokens]
        angles = self.cos[position], self.sin[position]
        of_text = self.cos[:L], self.sin[:L]
        for layer, norm in zip(self.layers, self.input_norms):
            y, part = norm(x), layer.self_attn
            attended = block_attention(
                part.queries(y, *angles),
                part.keys(y, *angles),
                part.values(y),
                part.keys(context, *of_text),
                part.values(context),
                anchor,
                inside,
            )
            x = layer.finish(x, attended)
        x = self.norm(x)
        before = position[..., :-1]  # of the labels of the rows 1, 2, ...
        found, place = batch.has_label(before), batch.place(before)
        for i in range(self.count):
            if found[..., i].any():
                yield i, x[:, :, i + 1][found[..., i]], place[..., i][found[..., i]]

    def output(self, head):
        return self.lm_head

    def tensors(self):
        out = {
            "fc.weight": self.fc.weight,
            "hidden_norm.weight": self.hidden_norm.weight,
            "norm.weight": self.norm.weight,
            "lm_head.weight": self.lm_head,
        }
        for i, (layer, norm) in enumerate(zip(self.layers, self.input_norms)):
            out |= layer.tensors(f"layers.{i}.") | {f"layers.{i}.input_layernorm.weight": norm.weight}
        return as_stored(out) | self.map()

    def shape(self):
        return {
            "block_size": self.count + 1,
            "mask_token_id": self.mask,
            "num_hidden_layers": len(self.layers),
            "qk_norm": True,
        } | self.form.keys()
