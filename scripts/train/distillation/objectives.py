"""Objectives of the training: how far the law q of a draft or a head is from the target's p at a position.

Which distance to lower is the choice that DistillSpec studies (Zhou et al. 2024, arXiv 2310.08461).
A label has the target's most probable tokens, best first: their index [n, T] and p [n, T]. The T values of p at a position add up to less
than 1. All other tokens count as one class with the rest of the mass. A divergence over these T + 1 classes is at most the divergence
over all tokens.

  forward_kl       -sum p log q over the listed tokens, with q a law over all tokens of the draft or head
  reverse_kl       sum q log(q / p)
  jsd              the mean of KL(p, m) and KL(q, m), m = (p + q) / 2
  total_variation  1 - sum min(p, q) over the listed tokens: 1 minus the share of drafted tokens that are accepted
  top_k            -sum p log q over the RANKED most probable tokens: the ranking loss of HASS (Zhang et al. 2024, arXiv 2408.15766).
                   HASS adds it to the objective (--ranking of heads.py). As an objective of its own it looks at these tokens alone.
"""

import torch

OBJECTIVES = ("forward_kl", "reverse_kl", "jsd", "total_variation", "top_k")
RANKED = 10  # tokens that top_k ranks
LEAST = 1e-6  # least probability of a class in a logarithm


class DistillationLoss(torch.autograd.Function):
    """Mean over n positions of m * lse(z) - sum_k p_k z_k, z = hidden @ head.T [n, K], m = sum p; also computes the gradients. This is
    forward_kl. The logits of all positions are never in memory together."""

    @staticmethod
    def forward(ctx, hidden, head, index, p):
        n, loss = len(hidden), 0.0
        grad_hidden, grad_head = torch.empty_like(hidden), torch.zeros_like(head)
        for i in range(0, n, 512):
            h, k, w = hidden[i : i + 512], index[i : i + 512], p[i : i + 512]
            z = h @ head.T
            lse, m = z.logsumexp(1), w.sum(1)
            loss += float((m * lse).sum() - (w * z.gather(1, k)).sum())
            z = (z - lse[:, None]).exp_().mul_(m[:, None]).scatter_add_(1, k, -w)
            grad_hidden[i : i + 512] = z @ head
            grad_head.addmm_(z.T, h)
        ctx.save_for_backward(grad_hidden / n, grad_head / n)
        return hidden.new_tensor(loss / n)

    @staticmethod
    def backward(ctx, g):
        grad_hidden, grad_head = ctx.saved_tensors
        return g * grad_hidden, g * grad_head, None, None


def with_rest(listed):
    """Appends the mass of all tokens that are not listed."""
    rest = (1 - listed.sum(1, keepdim=True)).clamp(min=0)
    return torch.cat([listed, rest], dim=1)


def kl(a, b):
    return (a * (a.clamp(min=LEAST).log() - b.clamp(min=LEAST).log())).sum(1)


def losses(objective, log_q, p):
    """The loss [n] at each position, from log q and p [n, T] of the listed tokens."""
    if objective == "top_k":
        return -(p[:, :RANKED] * log_q[:, :RANKED]).sum(1)
    if objective == "total_variation":
        return 1 - torch.minimum(log_q.exp(), p).sum(1)
    target, draft = with_rest(p), with_rest(log_q.exp())
    if objective == "reverse_kl":
        return kl(draft, target)
    middle = (target + draft) / 2  # jsd
    return (kl(target, middle) + kl(draft, middle)) / 2


def objective_loss(objective, hidden, output, index, p, weight=None):
    """The mean over n positions of weight [n] (None: 1) times the loss there. q has the logits hidden [n, W] @ output [K, W].T; `index` counts
    rows of `output`."""
    if objective not in OBJECTIVES:
        raise ValueError(f"{objective} is no objective; choose one of {', '.join(OBJECTIVES)}")
    if objective == "forward_kl":
        return DistillationLoss.apply(hidden, output, index, p if weight is None else weight[:, None] * p)
    found = losses(objective, (hidden @ output.T).log_softmax(1).gather(1, index), p)
    return (found if weight is None else weight * found).mean()
