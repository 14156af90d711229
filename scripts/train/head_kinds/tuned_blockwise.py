"""Blockwise heads that are trained together with their target: the fine-tuned mode of blockwise parallel decoding."""

import torch
from distillation.labels import TOP
from distillation.objectives import objective_loss
from torch import nn

from head_kinds.blockwise import BlockwiseHeads


class TunedBlockwise(BlockwiseHeads):
    """Stern et al. 2018, Section 6: all weights of the target are trained with the heads, its embedding too. The labels of the training are
    the laws of the target as it was. The extra loss is the loss of the target's own law of the next token with the same labels, so the
    target stays near to what it was. While measuring, the labels are the laws of the new target, because the engine will verify with it."""

    reads_text, clip = True, 1.0

    def __init__(self, embedding, vocab, target, options):
        super().__init__(embedding, vocab, options)
        object.__setattr__(self, "target", target)
        self.target_rate = options.target_rate
        target.layers = [tuple(nn.Parameter(w.detach().clone()) for w in layer) for layer in target.layers]
        target.embed, target.norm = nn.Parameter(embedding.clone()), nn.Parameter(target.norm.detach().clone())
        self.of_target = nn.ParameterList([target.embed, target.norm, *(w for layer in target.layers for w in layer)])

    def groups(self, rate):
        own = [*self.inner.parameters(), *self.outer.parameters()]
        return [dict(params=own, largest=rate), dict(params=list(self.of_target), largest=self.target_rate)]

    def output(self, head):
        return self.target.embed[self.vocab]

    def law_output(self, head):
        return self.target.embed, None

    def predictions(self, batch):
        features = self.target.states(batch.ids)
        length = batch.ids.shape[1]
        position = torch.arange(length, device=features.device)
        own = batch.has_label(position)
        self.seen, self.places = features[own], batch.place(position)[own]
        self.extra = None
        if self.training:
            index, p = batch.states.labels_at(self.places, features.device)
            self.extra = objective_loss("forward_kl", self.seen, self.output(0), index, p)
        for head in range(self.count):
            after = position[head + 1 :]  # of the labels
            found = batch.has_label(after) & own[:, : length - head - 1]
            if found.any():
                state = features[:, : length - head - 1][found]
                yield head, self.hidden(head, state), batch.place(after)[found]

    def new_features(self, place):
        """The new target's states at positions of the batch of predictions()."""
        order = self.places.argsort()
        return self.seen[order[torch.searchsorted(self.places[order], place)]]

    def labels(self, batch, place):
        if self.training:
            return super().labels(batch, place)
        index, p = [], []
        for f in self.new_features(place).split(512):
            logits = f @ self.target.embed.T
            top, where = logits[:, self.vocab].topk(TOP)
            index.append(where)
            p.append((top - logits.logsumexp(1, keepdim=True)).exp())
        return torch.cat(index), torch.cat(p)

    def target_law(self, batch, place):
        return self.new_features(place), self.target.embed

    @torch.no_grad()
    def distance(self, batch, place):
        """Total variation [m] between the laws of the target as it was and as it is."""
        old, rows = super().target_law(batch, place)
        new = (self.new_features(place).double() @ self.target.embed.double().T).softmax(1)
        return ((old.double() @ rows.double().T).softmax(1) - new).abs().sum(1) / 2
