"""The look-ahead embeddings of PaSS: inputs of the target itself, which stays as it is."""

import torch
from torch import nn

from head_kinds.base import Heads, TargetOutput, as_stored
from head_kinds.decoder_layer import block_attention


class PassEmbeddings(TargetOutput, Heads):
    """Monea et al. 2023 (PaSS): trained inputs LA_1 .. LA_C of the first layer. At a pending token t the forward of the engine reads the
    text up to t, then LA_1, LA_2, ...; the row of LA_i is a guess of the law at position t + i. Here the text is read once
    without gradients, and the look-ahead rows of several places t (anchors) read its keys and values. The gradients of these
    rows go through the target's layers into the embeddings. At the start each is the mean embedding of `vocab` plus a little noise."""

    kind, reads_text, branches, clip = "pass", True, False, 1.0
    taps = None

    def __init__(self, embedding, vocab, target, options):
        super().__init__(embedding, vocab, options.heads)
        # Not registered as a module: the target's weights are not trained, so checkpoints do not have them.
        object.__setattr__(self, "target", target)
        self.anchors = options.anchors
        self.table = nn.Parameter(embedding[vocab].mean(0).repeat(self.count, 1))
        with torch.no_grad():
            self.table += 0.02 * embedding[vocab].std() * torch.randn_like(self.table)
        self.register_buffer("rows", embedding[vocab].clone(), persistent=False)

    def predictions(self, batch):
        t, (n, L), C = self.target, batch.ids.shape, self.count
        slots = torch.arange(n, device=batch.ids.device)
        with torch.no_grad():
            t.allocate(n, L)
            t.prefill(batch.ids, slots)
        keys, values = t.keys, t.values  # [layers, n, G, L, E]
        anchor = batch.anchors(self.anchors, -1, -1)  # [n, A]
        A = anchor.shape[1]
        position = anchor[..., None] + torch.arange(1, C + 1, device=anchor.device)  # [n, A, C]
        inside = torch.ones(C, C, dtype=torch.bool, device=anchor.device).tril()

        def attend(layer, q, k, v):
            q, k, v = (x.reshape(n, A, C, -1, t.E) for x in (q, k, v))
            k, v, text_k, text_v = (
                x.repeat_interleave(t.H // t.G, -2)
                for x in (k, v, keys[layer].transpose(1, 2), values[layer].transpose(1, 2))
            )
            return block_attention(q, k, v, text_k, text_v, anchor + 1, inside).reshape(n * A * C, -1)

        at = position.flatten()
        x = self.table.expand(n, A, C, -1).reshape(n * A * C, -1)
        features = t._blocks(x, t.cos[at, None], t.sin[at, None], attend).view(n, A, C, -1)
        found = batch.has_label(position)
        place = batch.place(position)
        for i in range(C):
            if found[..., i].any():
                yield i, features[:, :, i][found[..., i]], place[..., i][found[..., i]]

    def tensors(self):
        return as_stored({"look_ahead.weight": self.table})

    def shape(self):
        return {"heads": self.count}
