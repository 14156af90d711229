"""What all kinds of heads have in common.

A head i (from 0) predicts the law of one token further than head i - 1. During training and measuring a kind answers one question,
  predictions(batch)   yields (i, hidden [m, W], place [m]): what the output layer of head i reads, and the numbers in the text of the
                       positions whose next token is predicted
The logits over the tokens of `vocab` are hidden @ output(i).T. The laws that the engine computes have the logits hidden @ rows.T, where
(rows, ids) is law_output(i) and ids are the tokens of the rows.
"""

import torch
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
    kind = ""  # in the card
    taps = ["final_norm"]  # the states that the heads read, as in the card; None: none
    reads_text = False  # predictions() gets whole sequences (head_training.text.Sequences), not positions (Positions)
    branches = True  # the card has a tree
    clip = None  # largest norm of a gradient; None: not clipped

    def __init__(self, embedding, vocab, count):
        """embedding [V, D]: the target's embedding and output head; vocab [K]: sorted ids that the heads cover."""
        super().__init__()
        self.count, self.width = count, embedding.shape[1]
        self.extra = None  # a further loss that predictions() sets, or None
        self.register_buffer("vocab", vocab)
        self.register_buffer("target_embedding", embedding, persistent=False)

    def law_output(self, head):
        return self.output(head), self.vocab

    def map_name(self):
        """Name of the tensor with the tokens of a reduced output head; None: the output head is the target's."""
        return "draft_vocab"

    def map(self):
        return {"draft_vocab": self.vocab.cpu().to(torch.int32)}

    def labels(self, batch, place):
        """(index [m, T], p [m, T]): the target's most probable tokens at these positions, as numbers in `vocab`, and p of them."""
        return batch.states.labels_at(place, self.vocab.device)

    def target_law(self, batch, place):
        """(features [m, D], rows [V, D]): the target's logits at these positions are features @ rows.T."""
        return batch.states.features_at(batch.shard, place).to(self.vocab.device), self.target_embedding

    def groups(self, rate):
        """The weights to train, as groups of an optimizer with their largest learning rates."""
        return [dict(params=[p for p in self.parameters() if p.requires_grad], largest=rate)]

    @torch.no_grad()
    def round(self):
        """Rounds the weights to bf16, as the file has them."""
        for parameter in self.parameters():
            parameter.copy_(parameter.bfloat16().float())


class TargetOutput:
    """For kinds whose output layer is the target's own, over all its tokens. The loss sees the rows of `vocab` alone."""

    def output(self, head):
        return self.rows

    def law_output(self, head):
        return self.target_embedding, None

    def map_name(self):
        return None

    def map(self):
        return {}


class StateHeads(Heads):
    """Heads that read the target's state f at one position t, and predict the tokens at t + 2, t + 3, ... Sequential kinds also read
    the tokens between. Each kind has hidden(i, features [n, D], tokens [n, i + 1])."""

    sequential = False

    def predictions(self, batch):
        for head in range(self.count):
            keep = batch.with_label(head)
            if not len(keep):
                continue
            tokens = batch.after(keep, head + 1) if self.sequential else None
            hidden = self.hidden(head, batch.features[keep.to(batch.features.device)], tokens)
            yield head, hidden, batch.place[keep] + head + 1
