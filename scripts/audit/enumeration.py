"""The law of the tokens that a verifier emits, over every draft and every outcome of its coins.

A verifier is a function

    verify(p, q, draft, coins) -> (accepted, next_token)

of the target's rows p [gamma + 1, vocab], the draft's rows q [gamma, vocab], the drafted tokens and the coins (coins.py).
It may declare the number of coins that each of its runs takes: verify.coins is this number, or a function of gamma. A run
that takes another number is an error.

It emits the first `accepted` tokens of the draft and then next_token. A step that emits fewer than gamma + 1 tokens is
completed with tokens of the target, because that is what the later steps of a lossless verifier draw.

A verifier of trees is a function

    verify(p, q, tree, coins) -> (nodes, next_token)

of the rows p and q [n + 1, vocab] of the n drafted nodes and the pending token, the tree (drafts.Tree) and the coins. Row i of q is
the distribution from which node i was drawn, without the children drawn before it if the draws are without replacement. Row 0 of q
is NaN. It emits the tokens of `nodes`, a path that begins at a child of node 0 and may be empty, and then next_token. verify.coins may
be a function of n. A step is completed to one token more than the deepest path has.
"""

import dataclasses
import itertools
import operator
import random
import sys

import numpy as np

from audit import coins as coins_module
from audit import drafts as drafts_module
from audit import tables as tables_module

MOST_TEXTS = 16  # of one depth in tree_bound(), which looks at all sets of texts


@dataclasses.dataclass
class Failure:
    """What went wrong first, and on which table. `history`: the emitted tokens after which the law is wrong. It is None in two
    cases: the verifier gave no law (the text names the draft and the outcomes of the coins), or E[tau] is above the optimum."""

    table: str
    text: str
    history: tuple | None


@dataclasses.dataclass
class TableResult:
    """Errors: the largest difference between the probability of a text by the verifier and by the target. first: of texts of one
    token. joint: of texts of gamma + 1 tokens. For trees, gamma is the depth of the tree."""

    first_error: float = 0.0
    joint_error: float = 0.0
    tau: float = 0.0
    runs: int = 0
    failure: Failure | None = None


class Nonsense(Exception):
    """The verifier raised an exception, returned something that is not a result, or misused the coins."""

    def __init__(self, draft, outcomes, text):
        super().__init__(f"{draft}, outcomes of the coins {outcomes}: {text}")


def enumerate_table(verify, table, gamma, tolerance):
    """Returns the errors and E[tau] of a verifier of chains on one table. Raises Nonsense."""
    return _enumerate(verify, table, gamma, drafts_module.chains(table, gamma), tolerance)


def enumerate_trees(verify, table, parents, draws, tolerance):
    """The same for a verifier of trees of one shape (drafts.trees)."""
    trees = drafts_module.trees(table, parents, draws)
    return _enumerate(verify, table, drafts_module.depth(parents), trees, tolerance)


def _enumerate(verify, table, gamma, drafts, tolerance):
    """`gamma`: the largest number of drafted tokens that a step can emit."""
    begins, ends, result = {}, {}, TableResult()
    for draft in drafts:
        for probability, emitted in _runs(verify, draft):
            mass = draft.probability * probability
            result.runs += 1
            result.tau += mass * len(emitted)
            ends[emitted] = ends.get(emitted, 0.0) + mass
            for size in range(1, len(emitted) + 1):
                begins[emitted[:size]] = begins.get(emitted[:size], 0.0) + mass
    _compare(table, gamma, begins, ends, tolerance, result)
    return result


def _compare(table, gamma, begins, ends, tolerance, result):
    """Fills the errors and the failure. `level` holds three probabilities for each history. found: the completed text begins with
    the history. completed: the same, and the step ended at or before the last token of the history. target: a text of the target
    begins with the history."""
    level = {(): (1.0, 0.0, 1.0)}
    for depth in range(gamma + 1):
        longer, error = {}, 0.0
        for history, (found, completed, target) in level.items():
            p = table.p[history]
            for x in range(table.vocab):
                text = (*history, x)
                from_completion = completed * p[x]
                mass = from_completion + begins.get(text, 0.0)
                longer[text] = mass, from_completion + ends.get(text, 0.0), target * p[x]
                error = max(error, abs(mass - target * p[x]))
                # The error of a text is at most the sum of these differences along the text.
                if result.failure is None and abs(mass - found * p[x]) > tolerance / (gamma + 1):
                    law = [(completed * p[y] + begins.get((*history, y), 0.0)) / found for y in range(table.vocab)]
                    text = f"the next token has the law {_row(law)}, the target's row is {_row(p)}"
                    result.failure = Failure(table.name, text, history)
        if depth == 0:
            result.first_error = error
        result.joint_error = error
        level = longer


def _row(values):
    return "[" + " ".join(f"{v:.6g}" for v in values) + "]"


def _runs(verify, draft):
    last, declared = [], _declared_coins(verify, draft)

    def program(coins):
        last[:] = [coins]
        emitted = draft.emitted(verify(draft.p.copy(), draft.q.copy(), draft.judged, coins))
        if declared is not None and coins.taken != declared:
            raise coins_module.Misuse(f"the number of coins was {coins.taken}; verify.coins declares {declared}")
        return emitted

    def twice(coins):
        """Calls the program twice with the same outcomes, which shows randomness that does not come from the coins."""
        before = _generators()
        emitted = program(coins)
        if _generators() != before:
            raise coins_module.Misuse(
                "it drew from a generator of Python, NumPy or PyTorch: its only randomness must be coins"
            )
        again = coins.replay()
        if program(again) != emitted:
            raise coins_module.Misuse(
                "two calls with the same outcomes gave different results: its only randomness must be coins"
            )
        return emitted

    walk = coins_module.walk(twice)
    while True:
        try:
            with _no_own_generators():
                entry = next(walk, None)
        except coins_module.Misuse as error:
            raise Nonsense(draft, last[0].outcomes() if last else [], str(error)) from error
        except Exception as error:  # whatever a foreign function raises
            raise Nonsense(draft, last[0].outcomes() if last else [], f"{type(error).__name__}: {error}") from error
        if entry is None:
            return
        yield entry


def _declared_coins(verify, draft):
    """The number of coins that the verifier says it takes for this draft. None: it does not say."""
    declared = getattr(verify, "coins", None)
    try:
        number = declared(draft.size) if callable(declared) else declared
        return None if declared is None else operator.index(number)
    except Exception as error:  # whatever a foreign function raises
        raise Nonsense(
            draft, [], f"verify.coins is {declared!r}; expected a whole number, or a function of gamma that returns one"
        ) from error


def _generators():
    """The states of the global generators. A change means that the verifier drew from one of them."""
    kind, keys, *rest = np.random.get_state()
    torch = sys.modules.get("torch")
    return random.getstate(), (kind, keys.tobytes(), *rest), torch.get_rng_state().numpy().tobytes() if torch else None


class _no_own_generators:
    """While it is active, np.random.default_rng raises: the state of such a generator cannot be seen."""

    def __enter__(self):
        def refuse(*_, **__):
            raise coins_module.Misuse("it made a random generator of its own: its only randomness must be coins")

        self.kept = np.random.default_rng
        np.random.default_rng = refuse

    def __exit__(self, *_):
        np.random.default_rng = self.kept


def audit_tables(gamma, vocabularies, count, seed):
    """The golden pair (tables.golden), and `count` random tables of each kind and vocabulary size."""
    yield tables_module.golden(gamma)
    generator = np.random.default_rng(seed)
    for kind, vocab in itertools.product(tables_module.KINDS, vocabularies):
        for _ in range(count):
            yield tables_module.random_table(kind, vocab, gamma, generator)


def best_tokens(table, gamma):
    """The largest E[tau] of any lossless verifier that uses p and q on the path of the draft. Block verification reaches it:
    1 + sum over i and x_1..x_i of q(x_1..x_i) rho_i (Sun et al. 2024, arXiv 2403.10444)."""

    def kept(history, probability, rho):
        if len(history) == gamma:
            return 0.0
        p, q, total = table.p[history], table.q[history], 0.0
        for x in range(table.vocab):
            if q[x] > 0:
                longer = min(1.0, rho * p[x] / q[x])
                total += probability * q[x] * longer + kept((*history, x), probability * q[x], longer)
        return total

    return 1 + kept((), 1.0, 1.0)


def tree_bound(table, parents, draws):
    """No lossless verifier of these trees has a larger E[tau] than this bound. It is 1 + the sum over the depths i of the largest probability with
    which the first i tokens of a text of the target can be a path of the tree. This probability is the value of an optimal
    transport. By duality it is 1 + min over the sets H of texts of P(text in H) - P(all paths of depth i are in H)
    (Sun et al. 2023, arXiv 2310.15141; Hu et al. 2025, arXiv 2502.18779). At depth 1 a verifier reaches it. If a depth has more
    than MOST_TEXTS texts, the probability of the previous depth takes its place. It is no smaller."""
    trees = list(drafts_module.trees(table, parents, draws))
    bound, most = 1.0, 1.0
    for size in range(1, drafts_module.depth(parents) + 1):
        texts = {text: i for i, text in enumerate(itertools.product(range(table.vocab), repeat=size))}
        if len(texts) <= MOST_TEXTS:
            difference = np.zeros(2 ** len(texts))  # of every set H; the bits of its number are its texts
            for text, i in texts.items():
                difference[1 << i] += np.prod([table.p[text[:j]][text[j]] for j in range(size)])
            for draft in trees:
                drafted = {draft.judged.text(node) for node in range(1, draft.size + 1)}
                difference[sum(1 << texts[text] for text in drafted if len(text) == size)] -= draft.probability
            for i in range(len(texts)):  # adds what H has without text i
                halves = difference.reshape(-1, 2, 1 << i)
                halves[:, 1] += halves[:, 0]
            most = 1 + float(difference.min())
        bound += most
    return bound
