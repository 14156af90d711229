"""The acceptance of a drafted token over all tokens of the target, and its comparison with the total variation of the two laws.

p [n, V] is the target's law, q [n, R] the law of a draft or head. ids [R]: the tokens of q's columns, or None if R = V.
"""

import torch

CHECKED = 256  # positions whose whole laws are compared
LARGEST_DIFFERENCE = 1e-6


def acceptance(p, q, ids):
    """The probability [n] that a token drawn from q is accepted: sum_v q min(1, p / q)."""
    of_draft = p if ids is None else p[:, ids]
    return torch.where(q > 0, q * (of_draft / q).clamp(max=1), 0.0).sum(1)


def total_variation(p, q, ids):
    """Half of the sum over all tokens of |p - q|. q is 0 at the tokens that it does not cover."""
    if ids is not None:
        q = torch.zeros_like(p).index_copy(1, ids, q)
    return (p - q).abs().sum(1) / 2


def compare(alpha, distance):
    """The largest difference between E[alpha] and 1 - E[TV], tensors of the same shape in float64.
    Raises RuntimeError if it is above LARGEST_DIFFERENCE. The two differ if a row holds NaN or does not sum to 1, or if a vocabulary map
    names a token twice. This comparison does not find a map that is only permuted."""
    difference = (alpha + distance - 1).abs().max().item()
    if not difference <= LARGEST_DIFFERENCE:
        raise RuntimeError(
            f"E[alpha] {alpha.tolist()} and 1 - E[TV] {(1 - distance).tolist()} differ by {difference:.3g}, expected at most "
            f"{LARGEST_DIFFERENCE}: p or q is no law, or the vocabulary map names a token twice"
        )
    return difference
