"""Closed forms for the curves behind measured points (Leviathan et al. 2023), for drawing only. The predictions of a case
come from summary.json, where the C++ library wrote them. A test compares these formulas with the C++ library."""

import numpy as np


def tau(alpha, gamma):
    """Eq. 1: expected tokens per step."""
    alpha = np.asarray(alpha, dtype=float)
    safe = np.where(alpha == 1, 0.5, alpha)
    return np.where(alpha == 1, gamma + 1.0, (1 - safe ** (gamma + 1)) / (1 - safe))


def speedup(alpha, gamma, c):
    """Theorem 3.8: walltime factor."""
    return tau(alpha, gamma) / (gamma * c + 1)


def operations(alpha, gamma, c_hat):
    """Theorem 3.11: factor by which the arithmetic operations grow."""
    return (gamma * c_hat + gamma + 1) / tau(alpha, gamma)


def best_gamma(alpha, c, most=40):
    """Draft length with the largest speedup by Theorem 3.8; 0 where no length gains. alpha and c may be arrays."""
    gains = np.stack([speedup(alpha, gamma, c) for gamma in range(most + 1)])
    return gains.argmax(axis=0)
