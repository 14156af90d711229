"""Runs Triton kernels without Triton: our own stand-in for triton.language, with arrays of NumPy in place of memory.

A Triton kernel is Python code that computes with whole arrays, so Python can run its source for one program at a time. Language
has the functions that the kernels of vLLM's verifiers use, and no others. All floating-point numbers have double precision, so
that rounding does not decide.

The random numbers are coins (coins.py). A number of coins.uniform() may be compared, also its logarithm plus a number. A kernel draws
a token by a race: it adds Gumbel noise to logits, or divides weights by exponential noise, and takes the token with the largest
score. Here such a race is decided by coins (Race).
"""

import math

import numpy as np

from audit import coins as coins_module


class Value(np.ndarray):
    """What a kernel computes with: a number or an array. Operators such as += make a new value, as they do in Triton."""

    def to(self, dtype):
        return self.astype(dtype)

    def __iadd__(self, other):
        return self + other

    def __isub__(self, other):
        return self - other

    def __imul__(self, other):
        return self * other

    def __iand__(self, other):
        return self & other

    def __ior__(self, other):
        return self | other


def value(numbers):
    return np.asarray(numbers).view(Value)


class Pointer:
    """An address in a flat array: an offset, or an array of offsets."""

    def __init__(self, memory, offset=0):
        self.memory, self.offset, self.dtype = memory, offset, self
        self.element_ty = memory.dtype

    def __add__(self, offset):
        return Pointer(self.memory, self.offset + offset)

    def __sub__(self, offset):
        return Pointer(self.memory, self.offset - offset)


class LogOfUniform:
    """log(u) + shift of a number u of coins.uniform(). It may only be shifted and compared."""

    __array_ufunc__ = None  # so that NumPy leaves array > LogOfUniform to __lt__

    def __init__(self, uniform, shift=0.0):
        self.uniform, self.shift = uniform, shift

    def __add__(self, number):
        return LogOfUniform(self.uniform, self.shift + number)

    def __sub__(self, number):
        return LogOfUniform(self.uniform, self.shift - number)

    def __lt__(self, number):
        return self.uniform < np.exp(number - self.shift)

    def __gt__(self, number):
        return self.uniform > np.exp(number - self.shift)

    __radd__, __le__, __ge__ = __add__, __lt__, __gt__


class Noise:
    """Uniform numbers, one for each token, and what was done to them. -log(-log(u)) makes Gumbel noise of them, which may be added to
    logits."""

    __array_ufunc__ = None

    def __init__(self, heats, done=()):
        self.heats, self.done = heats, done

    def log(self):
        return Noise(self.heats, (*self.done, "log"))

    def __neg__(self):
        return Noise(self.heats, (*self.done, "-"))

    def __add__(self, logits):
        if self.done != ("log", "-", "log", "-"):
            raise coins_module.Misuse(
                f"it added a number to noise after the operations {list(self.done)}; expected -log(-log(u))"
            )
        return Race(self.heats, np.exp(logits))

    __radd__ = __add__


class Heats:
    """The blocks of tokens of one race: the weight of those that ran so far, and the best score among them."""

    def __init__(self, coins):
        self.coins, self.weight, self.best = coins, 0.0, 0.0


class Race:
    """Scores log(weight / e) or weight / e of a block of tokens, with exponential noise e. Token i has the largest one with
    probability weights[i] / sum(weights)."""

    __array_ufunc__ = None  # so that NumPy leaves array * Race to __rmul__

    def __init__(self, heats, weights):
        self.heats, self.weights = heats, weights

    def __rmul__(self, weights):
        return Race(self.heats, self.weights * weights)

    def run(self):
        """The largest score of the block, and its index. Only comparisons of these scores with each other have a meaning. A block beats
        all blocks before it with a probability that is its share of their weight, whichever token won in it."""
        total, heats = float(self.weights.sum()), self.heats
        if not total > 0:
            return value(-math.inf), value(0)
        heats.weight += total
        best = heats.coins.bernoulli(total / heats.weight)
        heats.best += best
        return value(heats.best if best else heats.best - 0.5), value(heats.coins.categorical(self.weights))


class Language:
    """The part of triton.language that the kernels use, for one program."""

    constexpr, float32, float64, int32, int64 = object, np.float64, np.float64, np.int64, np.int64

    def __init__(self):
        self.program = ()

    def program_id(self, axis):
        return value(self.program[axis])

    def arange(self, start, end):
        return value(np.arange(start, end))

    def load(self, pointer, mask=True, other=0):
        if pointer.memory.dtype == object:  # coins
            if np.ndim(pointer.offset) == 0:
                return pointer.memory[int(pointer.offset)]
            return Race(Heats(pointer.memory[0]), np.where(mask, 1.0, 0.0))
        loaded = pointer.memory[np.where(mask, pointer.offset, 0)]
        return value(np.where(mask, loaded, other))

    def store(self, pointer, values):
        pointer.memory[pointer.offset] = values

    def max(self, values, axis=0, return_indices=False):
        if isinstance(values, Race):
            largest, index = values.run()
        else:
            largest, index = value(values.max()), value(values.argmax())
        return (largest, index) if return_indices else largest

    def argmax(self, values, axis=0):
        return self.max(values, axis, return_indices=True)[1]

    def sum(self, values, axis=0):
        return value(values.sum())

    def where(self, mask, values, other):
        if isinstance(values, Race):
            return Race(values.heats, np.where(mask, values.weights, 0.0))  # a score of -inf never wins
        return value(np.where(mask, values, other))

    def log(self, values):
        if isinstance(values, coins_module.Uniform):
            return LogOfUniform(values)
        return values.log() if isinstance(values, Noise) else np.log(values)

    def cast(self, values, dtype):
        return value(values).to(dtype)

    def zeros(self, shape, dtype):
        return value(np.zeros(shape, dtype))

    def full(self, shape, number, dtype):
        return value(np.full(shape, number, dtype))

    exp, maximum, minimum = staticmethod(np.exp), staticmethod(np.maximum), staticmethod(np.minimum)
