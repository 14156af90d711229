"""Coins that walk every branch: a program that gets all its randomness from them runs once for each sequence of outcomes.

The probability of a run is the product of the probabilities of its outcomes. So the law of the program is exact, and no
run is sampled. Outcomes of probability zero are left out.
"""

import math

MOST_COINS = 1000  # of one run
MOST_RUNS = 1_000_000  # of one draft


class Misuse(Exception):
    """The program used a coin in a way that has no exact law."""


class Uniform:
    """A number u that is uniform in [0, 1). It is not drawn. A comparison with a number is a coin that decides on which side u
    lies, given the earlier comparisons of this u. Nothing else can be done with it."""

    __slots__ = ("_coins", "_low", "_high")

    def __init__(self, coins):
        self._coins, self._low, self._high = coins, 0.0, 1.0

    def _below(self, threshold):
        """True if u < threshold. Equality has probability zero."""
        x = _number(threshold, "the number that coins.uniform() is compared with")
        if x >= self._high:
            return True
        if x <= self._low:
            return False
        below = self._coins._choose((x - self._low, self._high - x)) == 0
        self._low, self._high = (self._low, x) if below else (x, self._high)
        return below

    def __lt__(self, other):
        return self._below(other)

    __le__ = __lt__

    def __gt__(self, other):
        return not self._below(other)

    __ge__ = __gt__
    __hash__ = None

    def _refuse(self, *_):
        raise Misuse("coins.uniform() may only be compared with a number (<, <=, >, >=): its value is not drawn")

    __eq__ = __ne__ = __bool__ = __float__ = __int__ = __index__ = __abs__ = __neg__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _refuse


class Coins:
    """What a verifier gets. Each call is one random decision, independent of all others. `taken` is the number of calls.
    It counts decisions with a single possible outcome too, and counts a uniform number once."""

    def __init__(self, path):
        self._path, self._used, self.probability, self.taken = path, 0, 1.0, 0

    def bernoulli(self, probability):
        """True with this probability: always for 1 or more, never for 0 or less."""
        self.taken += 1
        p = _number(probability, "the probability of coins.bernoulli()")
        if p >= 1 or p <= 0:
            return p >= 1
        return self._choose((p, 1 - p)) == 0

    def categorical(self, weights):
        """Index i with probability weights[i] / sum(weights)."""
        self.taken += 1
        values = [_number(w, "a weight of coins.categorical()") for w in weights]
        if not values or min(values) < 0 or not 0 < sum(values) < math.inf:
            raise Misuse(
                f"coins.categorical() got the weights {values}; expected numbers >= 0 with a positive, finite sum"
            )
        return self._choose(tuple(values))

    def uniform(self):
        """A number u, uniform in [0, 1), that may be compared with numbers (see Uniform)."""
        self.taken += 1
        return Uniform(self)

    def replay(self):
        """Coins with the outcomes that these coins had."""
        return Coins([list(entry) for entry in self._path[: self._used]])

    def outcomes(self):
        """The outcomes so far. 0 stands for "yes" of bernoulli and for "below" of a comparison; for categorical it is
        the index."""
        return [taken for _, taken in self._path[: self._used]]

    def _choose(self, weights):
        if self._used == MOST_COINS:
            raise Misuse(f"more than {MOST_COINS} coins in one run: the number of draws seems to have no bound")
        if self._used == len(self._path):
            self._path.append([weights, _next_possible(weights, 0)])
        known, taken = self._path[self._used]
        if known != weights:
            raise Misuse(
                f"coin {self._used + 1} has the weights {weights} and had {known} in a run with the same outcomes before it: "
                "the verifier uses randomness other than coins, or remembers earlier calls"
            )
        self._used += 1
        self.probability *= weights[taken] / sum(weights)
        return taken


def _number(value, what):
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise Misuse(f"{what} is {value!r}; expected a number") from None
    if math.isnan(number):
        raise Misuse(f"{what} is not a number (NaN)")
    return number


def _next_possible(weights, first):
    return next((i for i in range(first, len(weights)) if weights[i] > 0), len(weights))


def walk(program, most_runs=MOST_RUNS):
    """Calls program(coins) once for each sequence of outcomes. Yields (probability, result)."""
    path = []
    for _ in range(most_runs):
        coins = Coins(path)
        result = program(coins)
        if coins._used < len(path):
            raise Misuse(
                f"the verifier used {coins._used} coins and had used at least {len(path)} in a run with the same outcomes: "
                "it uses randomness other than coins, or remembers earlier calls"
            )
        yield coins.probability, result
        while path:
            weights, taken = path[-1]
            path[-1][1] = _next_possible(weights, taken + 1)
            if path[-1][1] < len(weights):
                break
            path.pop()
        if not path:
            return
    raise Misuse(f"more than {most_runs} runs for one draft")
