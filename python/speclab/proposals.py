"""What a proposer may return, and the checks of it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import Error

CHAIN, TREE = 0, 1  # forms of a proposal, as core/decoding/drafting/outside/message.h numbers them
MOST_TREE_TOKENS = 127
TOLERANCE = 1e-4  # how far the sum of a row may be from 1


@dataclasses.dataclass(frozen=True)
class DraftTree:
    """A tree of proposed tokens.

    tokens: ids. parents: for each token the index of an earlier token of this tree, or -1 for the end of the text. Children of
    a token are tested in the order of the list. A tree has no rows: each token counts as one-hot.
    """

    tokens: Sequence[int] | np.ndarray
    parents: Sequence[int] | np.ndarray


class BadAnswer(Error):
    """Raised for an answer of a proposer that makes no sense."""


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A checked answer: tokens and parents as int32, rows as float32, [rows, vocab]."""

    form: int
    tokens: np.ndarray
    parents: np.ndarray
    rows: np.ndarray

    def message(self) -> bytes:
        """The bytes of the answer `proposal`."""
        numbers = np.array([self.form, len(self.tokens), len(self.rows)], np.int32)
        return b"".join(part.tobytes() for part in (numbers, self.tokens, self.parents, self.rows))


def checked(answer: Any, k: int, vocab: int) -> Proposal:
    """The answer of `propose(context_ids, k)` as a Proposal. Raises BadAnswer that says what is wrong with it."""
    if isinstance(answer, DraftTree):
        return _tree(answer, k, vocab)
    if answer is None:
        return _chain((), None, k, vocab)
    if isinstance(answer, tuple) and len(answer) == 2 and not isinstance(answer[1], int | np.integer):
        return _chain(() if answer[0] is None else answer[0], answer[1], k, vocab)
    return _chain(answer, None, k, vocab)


def _array(value: Any, name: str) -> np.ndarray:
    if isinstance(value, str | bytes | dict | set):
        raise BadAnswer(f"{name}: got {type(value).__name__}, expected a list or an array of numbers")
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadAnswer(f"{name}: {error}; expected a list or an array of numbers") from error


def _whole(value: Any, name: str) -> np.ndarray:
    """The numbers as int64, so that a large one is not cut."""
    found = _array(value, name)
    if found.ndim != 1:
        raise BadAnswer(
            f"{name}: got {type(value).__name__} of shape {found.shape}, expected a list or an array of one dimension"
        )
    if found.size and found.dtype.kind not in "iu":
        raise BadAnswer(f"{name}: got numbers of type {found.dtype}, expected whole numbers")
    return found.astype(np.int64)


def _tokens(value: Any, vocab: int) -> np.ndarray:
    tokens = _whole(value, "tokens")
    outside = np.flatnonzero((tokens < 0) | (tokens >= vocab))
    if outside.size:
        place = int(outside[0])
        raise BadAnswer(f"tokens: got {tokens[place]} at place {place}, expected ids from 0 to {vocab - 1}")
    return tokens.astype(np.int32)


def _chain(tokens: Any, q_rows: Any, k: int, vocab: int) -> Proposal:
    ids = _tokens(tokens, vocab)
    if len(ids) > k:
        raise BadAnswer(f"tokens: got {len(ids)}, expected at most k = {k}")
    none = np.zeros(0, np.int32)
    if q_rows is None:
        return Proposal(CHAIN, ids, none, np.zeros((0, vocab), np.float32))
    return Proposal(CHAIN, ids, none, _rows(q_rows, ids, vocab))


def _rows(value: Any, tokens: np.ndarray, vocab: int) -> np.ndarray:
    rows = _array(value, "q_rows")
    if rows.ndim == 1 and rows.size == vocab:
        rows = rows[np.newaxis]
    wanted = (len(tokens) or 1, vocab)
    if rows.shape != wanted and not (len(tokens) == 0 and rows.shape[0:1] == (0,)):
        raise BadAnswer(
            f"q_rows: got the shape {rows.shape}, expected {wanted}: one row for each token, one entry for each id"
        )
    if rows.dtype.kind not in "fiu":
        raise BadAnswer(f"q_rows: got numbers of type {rows.dtype}, expected probabilities")
    rows = np.ascontiguousarray(rows, np.float32).reshape(-1, vocab)
    wrong = np.argwhere(~np.isfinite(rows) | (rows < 0))
    if wrong.size:
        row, token = (int(place) for place in wrong[0])
        raise BadAnswer(
            f"q_rows: got {rows[row, token]} for token {token} in row {row}, expected finite probabilities of at least 0"
        )
    for row, total in enumerate(rows.sum(axis=1, dtype=np.float64)):
        if abs(total - 1) > TOLERANCE:
            raise BadAnswer(f"q_rows: got row {row} with the sum {total:.6g}, expected 1 within {TOLERANCE}")
    for row, token in enumerate(tokens):
        if not rows[row, token] > 0:
            raise BadAnswer(f"q_rows: got q = 0 in row {row} for its own token {token}, expected q > 0")
    return rows


def _tree(tree: DraftTree, k: int, vocab: int) -> Proposal:
    tokens, parents = _tokens(tree.tokens, vocab), _whole(tree.parents, "parents")
    if len(parents) != len(tokens):
        raise BadAnswer(f"parents: got {len(parents)}, expected one for each of the {len(tokens)} tokens")
    if len(tokens) > MOST_TREE_TOKENS:
        raise BadAnswer(f"tokens: got a tree of {len(tokens)}, expected at most {MOST_TREE_TOKENS}")
    depths: list[int] = []
    for place, parent in enumerate(parents.tolist()):
        if not -1 <= parent < place:
            raise BadAnswer(f"parents: got {parent} at place {place}, expected -1 or the place of an earlier token")
        depths.append(1 if parent < 0 else depths[parent] + 1)
        if depths[-1] > k:
            raise BadAnswer(f"parents: got a token at depth {depths[-1]}, expected a depth of at most k = {k}")
    return Proposal(TREE, tokens, parents.astype(np.int32), np.zeros((0, vocab), np.float32))
