"""Objectives of the training of heads: how far the head's law q is from the target's p at a position.

A label has the target's most probable tokens, best first: their index [n, T] and p [n, T]. The T values of p at a position add up to less
than 1. All other tokens count as one class with the rest of the mass. A divergence over these T + 1 classes is at most the divergence
over all tokens.

  forward_kl       -sum p log q over the listed tokens, with q a law over all tokens of the head: the loss of train.py
  reverse_kl       sum q log(q / p)
  jsd              the mean of KL(p, m) and KL(q, m), m = (p + q) / 2
  total_variation  1 - sum min(p, q) over the listed tokens: 1 minus the acceptance that measure() in head_training/measure.py reports
  top_k            -sum p log q over the RANKED most probable tokens: the ranking distillation of HASS (Zhang et al. 2024, arXiv 2408.15766)
"""

import torch
from train import DistillationLoss

OBJECTIVES = ("forward_kl", "reverse_kl", "jsd", "total_variation", "top_k")
RANKED = 10  # tokens that the objective top_k ranks
LEAST = 1e-6  # least probability of a class in a logarithm


def with_rest(listed):
    """Appends the mass of all tokens that are not listed."""
    rest = (1 - listed.sum(1, keepdim=True)).clamp(min=0)
    return torch.cat([listed, rest], dim=1)


def kl(a, b):
    return (a * (a.clamp(min=LEAST).log() - b.clamp(min=LEAST).log())).sum(1)


def head_loss(objective, hidden, output, index, p):
    """The mean over the n positions; hidden [n, W] and output [K, W] are those of a head (head_kinds/)."""
    if objective == "forward_kl":
        return DistillationLoss.apply(hidden, output, index, p)
    log_q = (hidden @ output.T).log_softmax(1).gather(1, index)
    if objective == "top_k":
        return -(p[:, :RANKED] * log_q[:, :RANKED]).sum(1).mean()
    if objective == "total_variation":
        return 1 - torch.minimum(log_q.exp(), p).sum(1).mean()
    target, draft = with_rest(p), with_rest(log_q.exp())
    if objective == "reverse_kl":
        return kl(draft, target).mean()
    if objective == "jsd":
        middle = (target + draft) / 2
        return ((kl(target, middle) + kl(draft, middle)) / 2).mean()
    raise ValueError(f"{objective} is no objective; choose one of {', '.join(OBJECTIVES)}")
