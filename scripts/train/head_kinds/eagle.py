"""The heads of EAGLE: a decoder layer that predicts the target's next state, again and again.

A row r reads the feature f_r and the token x_(r+1). It predicts the feature of position r + 1, whose logits are for x_(r+2). With
training-time test (--unroll N) the rows of step j read what step j - 1 predicted, as in decoding: the feature is the predicted one of position
r + j, the token is x_(r+1+j), and the position in the layer is r + j. Measuring takes `count` steps: step j (from 0) gives the law after j + 1
predicted features.
"""

import torch
import torch.nn.functional as F
from target import rope_tables
from torch import nn

from head_kinds.base import Heads, TargetOutput, as_stored
from head_kinds.decoder_layer import POSITIONS, DecoderLayer, Shape, unrolled_attention


class UnrolledHeads(Heads):
    """What EAGLE and EAGLE-3 share. A class has features(states), layer_input(embedded, feature) and scored(feature), which returns
    what the output layer reads."""

    reads_text, branches, clip = True, False, 1.0

    def __init__(self, embedding, vocab, target, options):
        super().__init__(embedding, vocab, options.heads)
        self.shape_of_layer = Shape.of(target, options)
        self.unroll, self.feature_loss, self.decay = options.unroll, options.feature_loss, options.decay
        for name, table in zip(("cos", "sin"), rope_tables(target.theta, self.shape_of_layer.head_dim, POSITIONS)):
            self.register_buffer(name, table[:, None], persistent=False)  # [positions, 1, E / 2]

    def run(self, tokens, feature, step, made):
        """The features that rows [n, R] of a step predict. made: keys and values of the earlier steps; those of this step are added."""
        rows = tokens.shape[1]
        cos, sin = self.cos[step : step + rows], self.sin[step : step + rows]
        x, read = self.layer_input(self.target_embedding[tokens], feature)
        attention = self.layer.self_attn
        made[:] = [(k[:, :rows], v[:, :rows]) for k, v in made]
        made.append((attention.keys(read, cos, sin), attention.values(read)))
        return self.layer.finish(x, unrolled_attention(attention.queries(read, cos, sin), made))

    def predictions(self, batch):
        self.extra = None
        longest, made = batch.ids.shape[1], []
        feature = self.features(batch.states_of_taps)
        for step in range(self.unroll if self.training else self.count):
            if longest < step + 2:
                return
            feature = self.run(batch.ids[:, step + 1 :], feature[:, : longest - 1 - step], step, made)
            position = torch.arange(step + 1, longest, device=feature.device)  # of the predicted features
            found = batch.has_label(position)
            if not found.any():
                continue
            predicted = feature[found]
            if self.training and self.feature_loss:
                true = batch.states_of_taps[:, step + 1 :][found]
                loss = self.decay**step * self.feature_loss * F.smooth_l1_loss(predicted, true)
                self.extra = loss if self.extra is None else self.extra + loss
            yield step, self.scored(predicted), batch.place(position)[found]

    def shape(self):
        return {"version": self.version, "fc_bias": self.version == 1, "layer": self.shape_of_layer.keys()}


class EagleHead(TargetOutput, UnrolledHeads):
    """Li et al. 2024 (EAGLE, EAGLE-2): the layer reads W_fc (E(x) ++ f) + b and has no norm before its attention. The output head is the
    target's. The loss is the objective plus --feature-loss times the smooth L1 distance of the features; the paper has 1 : 10. Trained
    with --unroll and --ranking it is a head of HASS (Zhang et al. 2024, arXiv 2408.15766): training-time test, and the ranking loss of the
    10 most probable tokens beside the two others."""

    kind, version = "eagle", 1

    def __init__(self, embedding, vocab, target, options):
        super().__init__(embedding, vocab, target, options)
        self.fc = nn.Linear(2 * self.width, self.width)
        self.layer = DecoderLayer(self.width, self.shape_of_layer)
        self.register_buffer("rows", embedding[vocab].clone(), persistent=False)
        with torch.no_grad():  # at the start, fc returns the feature
            self.fc.weight.zero_()
            self.fc.weight[:, self.width :] = torch.eye(self.width)
            self.fc.bias.zero_()

    def features(self, states):
        return states

    def layer_input(self, embedded, feature):
        x = self.fc(torch.cat((embedded, feature), -1))
        return x, x

    def scored(self, feature):
        return feature

    def tensors(self):
        out = {"fc.weight": self.fc.weight, "fc.bias": self.fc.bias} | self.layer.tensors("layers.0.")
        return as_stored(out)


class Eagle3Head(UnrolledHeads):
    """Li et al. 2025 (EAGLE-3): f = W_fc (three states); attention reads norm(E(x)) ++ norm(f); an output head of its own over a reduced
    vocabulary. There is no loss of features."""

    kind, version = "eagle", 3

    def __init__(self, embedding, vocab, target, options):
        super().__init__(embedding, vocab, target, options)
        self.taps = options.taps
        self.fc = nn.Linear(3 * self.width, self.width, bias=False)
        self.layer = DecoderLayer(self.width, self.shape_of_layer, inputs=2 * self.width)
        norm = lambda: nn.RMSNorm(self.width, target.eps)
        self.hidden_norm, self.input_layernorm, self.norm = norm(), norm(), norm()
        self.lm_head = nn.Parameter(embedding[vocab].clone())
        with torch.no_grad():  # at the start: fc returns the last of its three states
            self.fc.weight.zero_()
            self.fc.weight[:, 2 * self.width :] = torch.eye(self.width)
            self.norm.weight.copy_(target.norm)

    def features(self, states):
        return self.fc(states)

    def layer_input(self, embedded, feature):
        return feature, torch.cat((self.input_layernorm(embedded), self.hidden_norm(feature)), -1)

    def scored(self, feature):
        return self.norm(feature)

    def output(self, head):
        return self.lm_head

    def map(self):
        """The map of the card, and the two tensors of published heads. d2t: for each row of the output head, its token minus the number
        of the row. t2d: whether a token has a row."""
        vocab = self.vocab.cpu()
        used = torch.zeros(len(self.target_embedding), dtype=torch.bool)
        used[vocab] = True
        return super().map() | {"d2t": vocab - torch.arange(len(vocab)), "t2d": used}

    def tensors(self):
        out = {"fc.weight": self.fc.weight, "norm.weight": self.norm.weight, "lm_head.weight": self.lm_head}
        out |= self.layer.tensors("midlayer.")
        out["midlayer.hidden_norm.weight"] = self.hidden_norm.weight
        out["midlayer.input_layernorm.weight"] = self.input_layernorm.weight
        return as_stored(out) | self.map()
