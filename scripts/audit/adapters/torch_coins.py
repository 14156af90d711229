"""Coins for code that draws with PyTorch: while `drawing_from(coins)` is active, PyTorch's random functions use coins.

- torch.rand, torch.rand_like: numbers that may be compared with a tensor. Each element is coins.uniform().
- torch.multinomial and Tensor.multinomial: one coins.categorical() for each row. They raise Misuse unless num_samples is 1.
- Tensor.uniform_, the functions REFUSED of torch, and the methods REFUSED_METHODS of Tensor raise Misuse, because their
  laws are not enumerated.
"""

import contextlib

import numpy as np
import torch

from audit.coins import Misuse

REFUSED = ("randn", "randn_like", "randint", "randint_like", "randperm", "bernoulli", "normal", "poisson")
REFUSED_METHODS = (
    "bernoulli",
    "bernoulli_",
    "exponential_",
    "normal_",
    "geometric_",
    "random_",
    "cauchy_",
    "log_normal_",
)


class Uniforms:
    """A tensor of uniform numbers that are not drawn. It can be indexed, and compared with tensors or numbers."""

    def __init__(self, numbers):
        self.numbers = numbers  # an array of coins.Uniform

    def __getitem__(self, index):
        return Uniforms(np.asarray(self.numbers[index], dtype=object))

    def _compare(self, other, below):
        """u < x if `below`, else u > x, for each element u and its x, in order. As in PyTorch, no comparison with NaN
        holds."""
        other = other.detach().cpu().numpy() if isinstance(other, torch.Tensor) else np.asarray(other)
        numbers, thresholds = np.broadcast_arrays(self.numbers, other)
        found = [x == x and (u < x) == below for u, x in zip(numbers.ravel(), thresholds.ravel())]
        return torch.tensor(found, dtype=torch.bool).reshape(numbers.shape)

    def __lt__(self, other):
        return self._compare(other, True)

    def __gt__(self, other):
        return self._compare(other, False)

    __le__, __ge__, __hash__ = __lt__, __gt__, None

    def __getattr__(self, name):
        raise Misuse(f"it used {name} of a tensor of random numbers, which may only be indexed and compared")

    def _refuse(self, *_):
        raise Misuse("it computed with a tensor of random numbers, which may only be compared")

    __eq__ = __ne__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _refuse
    )
    __float__ = __bool__ = __neg__ = _refuse

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """torch.lt(ratio, uniforms) and the like."""
        name = getattr(function, "__name__", str(function)).strip("_")
        if name in ("lt", "le", "gt", "ge") and len(args) == 2:
            left, right = args
            below = name in ("lt", "le")
            return left._compare(right, below) if isinstance(left, Uniforms) else right._compare(left, not below)
        raise Misuse(f"it used torch.{name} on a tensor of random numbers, which may only be compared")


@contextlib.contextmanager
def drawing_from(coins):
    def uniforms(shape):
        numbers = np.empty(tuple(shape), dtype=object)
        for place in np.ndindex(*numbers.shape):
            numbers[place] = coins.uniform()
        return Uniforms(numbers)

    def rand(*size, **_):
        return uniforms(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)

    def multinomial(weights, num_samples=1, replacement=False, *, generator=None, out=None):
        if num_samples != 1:
            raise Misuse(f"it called torch.multinomial with num_samples={num_samples}; only 1 can be enumerated")
        rows = weights.detach().cpu().double().reshape(-1, weights.shape[-1])
        drawn = torch.tensor([coins.categorical(row.tolist()) for row in rows])
        return drawn.reshape(*weights.shape[:-1], 1)

    def refused(name):
        def refuse(*_, **__):
            raise Misuse(
                f"it called {name} of torch, whose law is not enumerated (scripts/audit/adapters/torch_coins.py)"
            )

        return refuse

    replaced = {
        torch: {"rand": rand, "rand_like": lambda like, **_: uniforms(like.shape), "multinomial": multinomial},
        torch.Tensor: {"multinomial": multinomial, "uniform_": refused("uniform_")},
    }
    replaced[torch].update({name: refused(name) for name in REFUSED})
    replaced[torch.Tensor].update({name: refused(name) for name in REFUSED_METHODS})
    kept = [(place, name, getattr(place, name)) for place, names in replaced.items() for name in names]
    try:
        for place, names in replaced.items():
            for name, function in names.items():
                setattr(place, name, function)
        yield
    finally:
        for place, name, function in kept:
            setattr(place, name, function)


def logits(rows):
    """A tensor [1, n, vocab] in double precision whose softmax is `rows`."""
    return torch.log(torch.tensor(np.asarray(rows), dtype=torch.float64))[None]
