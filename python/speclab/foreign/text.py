"""The common form of other programs' results: one `Text` for each decoded text."""

import dataclasses

from ..errors import Error


@dataclasses.dataclass(frozen=True)
class Counts:
    """Sums over the steps of a text, from a source that does not list its steps.

    rejected_lo, rejected_hi: bounds of the number of steps that ended with a rejection. They differ only if draft lengths vary, because
    the source then does not say which of the shorter drafts were accepted whole.
    """

    steps: int
    drafted: int
    accepted: int
    rejected_lo: int
    rejected_hi: int


@dataclasses.dataclass
class Text:
    """What a source tells about one text. A number that it does not tell is None.

    tokens: all tokens of the text, as the source counts them. seconds: its decoding time; see `Foreign.times` for what it includes.
    draft_seconds, target_seconds: the seconds that drafting and the target's forwards took, summed over the steps.
    gamma: the largest draft length.
    emitted, drafted, step_seconds: a value for each step. Emitted tokens include the bonus or correction token.
    unclear: numbers of steps that the end of the text may have cut; the estimates of alpha leave them out.
    ordered: whether the steps are listed in the order of decoding.
    """

    case: str
    name: str
    where: str
    category: str = ""
    tokens: int | None = None
    seconds: float | None = None
    draft_seconds: float | None = None
    target_seconds: float | None = None
    gamma: int | None = None
    emitted: list[int] | None = None
    drafted: list[int] | None = None
    step_seconds: list[float | None] | None = None
    unclear: frozenset[int] = frozenset()
    ordered: bool = True
    counts: Counts | None = None

    @property
    def steps(self) -> int:
        return self.counts.steps if self.counts is not None else len(self.emitted or ())

    @property
    def accepted(self) -> int:
        return self.counts.accepted if self.counts is not None else sum(max(n - 1, 0) for n in self.emitted or ())

    @property
    def in_steps(self) -> int:
        """Tokens that the steps emitted."""
        return self.steps + self.accepted if self.counts is not None else sum(self.emitted or ())

    def drafted_by(self, gamma: int | None) -> int | None:
        """Drafted tokens; `gamma` for each step if the source does not tell their number."""
        if self.counts is not None:
            return self.counts.drafted
        if self.drafted is not None:
            return sum(self.drafted)
        return None if gamma is None else gamma * self.steps


def counts_of_chain(where: str, drafts: int, drafted_at: list[int], accepted_at: list[int]) -> Counts:
    """The counts of drafts that are chains, from the numbers of drafted and of accepted tokens at each position.

    A draft is rejected unless all of its tokens are accepted. Let a be the number of drafts with exactly i accepted tokens. Of the drafts
    with exactly i tokens, at most a were accepted whole. At least a minus the number of longer drafts were accepted
    whole, because only these two kinds of drafts can have i accepted tokens.
    """
    accepted_at = accepted_at + [0] * (len(drafted_at) - len(accepted_at))
    longer = [drafts, *drafted_at, 0]  # [i]: drafts with at least i tokens
    reached = [drafts, *accepted_at, 0]  # [i]: drafts with at least i accepted tokens
    for values in (longer, reached):
        if any(one < two for one, two in zip(values, values[1:])):
            raise Error(f"{where}: counts by position grow along the draft: {values[1:-1]} of {drafts} drafts.")
    if len(reached) != len(longer) or any(one > two for one, two in zip(reached, longer)):
        raise Error(f"{where}: more tokens were accepted than drafted: {accepted_at} of {drafted_at}.")
    whole_lo = whole_hi = 0
    for i in range(len(longer) - 1):
        of_length, of_accepted = longer[i] - longer[i + 1], reached[i] - reached[i + 1]
        whole_hi += min(of_length, of_accepted)
        whole_lo += max(0, of_accepted - longer[i + 1])
    return Counts(drafts, sum(drafted_at), sum(accepted_at), drafts - whole_hi, drafts - whole_lo)
