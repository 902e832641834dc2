"""The standing set of decoding sequences, which advance together by one token a step."""

from collections.abc import Iterator, Mapping, Sequence as Ids
from typing import NamedTuple

from .sample import EmulatedSample
from .sequence import STILL, Clock, Sequence


class Change(NamedTuple):
    """An entry of a decode batch's journal: who joined or left.

    `tick` is that of the first token which the batch brings, or the one after the last. `owed`: it left while its
    token of the step in flight was still to come, and will get it.
    """

    batch: "DecodeBatch"
    sequence: Sequence
    tick: int
    joined: bool
    owed: bool = False


class DecodeBatch(Clock):
    """Sequences that each decode one token at every tick, at no cost per sequence and step.

    The members' `computed` and `generated` follow this clock. `journal` lists who joined or left since the last
    `take_journal`: that is how the engine learns of changes without looking at every row.

    `flying` counts steps that were scheduled (`launch`), but not committed (`advance`); a policy that commits each
    step before it schedules the next one need not call `launch`. Members move on when a step is committed, so what is
    scheduled next lies `flying` tokens ahead of their `computed`. While a step is in flight, only a sequence that it
    gives its token to may join, and the batch must be part of that step.
    """

    __slots__ = ("_context", "flying", "journal", "members")

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[Sequence, None] = {}
        self.flying = 0
        self._context = 0
        self.journal: list[Change] = []

    def join(self, sequence: Sequence) -> None:
        """Add a sequence with exactly one token left to compute once the step in flight, if any, is committed."""
        if self.flying:
            sequence.computed = sequence.num_tokens - 1
        if not (sequence.decoding or self.flying):
            raise ValueError(f"{sequence!r} cannot join a decode batch: {sequence.uncomputed} tokens are not computed")
        sequence.bind(self)
        self.members[sequence] = None
        self._context += sequence.computed - self.ticks
        self.journal.append(Change(self, sequence, self.ticks + self.flying, True))

    def leave(self, sequence: Sequence, *, owed: bool = False) -> None:
        """Take a sequence out, as it stands after the last commit. `owed`: see `Change`."""
        del self.members[sequence]
        self._context -= sequence.computed - self.ticks
        sequence.bind(STILL)
        self.journal.append(Change(self, sequence, self.ticks + (self.flying if owed else 0), False, owed))

    def arrange(self, order: Ids[Sequence]) -> None:
        """Put the members in this order, which must name each of them once."""
        self.members = dict.fromkeys(order)

    def launch(self) -> None:
        """The members, as they are now, take part in a step; later ones may be scheduled before it is committed."""
        self.flying += 1

    def advance(self, sampled: Mapping[Sequence, Ids[int]]) -> None:
        """Every member computed its last token and sampled the next, as often as an emulated sample says."""
        if self.flying:
            self.flying -= 1
        if isinstance(sampled, EmulatedSample):
            self.ticks += sampled.count
        else:
            self._advance_once(sampled)

    def _advance_once(self, sampled: Mapping[Sequence, Ids[int]]) -> None:
        self.ticks += 1
        for sequence in self.members:
            sequence.record(sampled[sequence])

    @property
    def ahead(self) -> int:
        """How many tokens beyond its `computed` a member's row in the step scheduled last starts."""
        return self.flying - 1 if self.flying > 1 else 0

    @property
    def context_tokens(self) -> int:
        """Tokens whose KV the members hold before the step scheduled last, summed."""
        return self._context + len(self.members) * (self.ticks + (self.ahead if self.flying else 0))

    def take_journal(self) -> list[Change]:
        journal, self.journal = self.journal, []
        return journal

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.members)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self.members
