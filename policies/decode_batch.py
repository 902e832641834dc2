"""The standing set of decoding sequences, which advance together by one token a step."""

from collections.abc import Iterator, Mapping, Sequence as Ids

from .sample import EmulatedSample
from .sequence import STILL, Clock, Sequence


class DecodeBatch(Clock):
    """Sequences that each decode one token at every tick, at no cost per sequence and step.

    The members' `computed` and `generated` follow this clock. `journal` lists who joined (True) or left (False) at
    which tick since the last `take_journal`: that is how the engine learns of changes without looking at every row.
    """

    __slots__ = ("_context", "_journal", "members")

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[Sequence, None] = {}
        self._context = 0
        self._journal: list[tuple[DecodeBatch, Sequence, int, bool]] = []

    def join(self, sequence: Sequence) -> None:
        """Add a sequence with exactly one token left to compute."""
        if not sequence.decoding:
            raise ValueError(f"{sequence!r} cannot join a decode batch: {sequence.uncomputed} tokens are not computed")
        sequence.bind(self)
        self.members[sequence] = None
        self._context += sequence.computed - self.ticks
        self._journal.append((self, sequence, self.ticks, True))

    def leave(self, sequence: Sequence) -> None:
        del self.members[sequence]
        self._context -= sequence.computed - self.ticks
        sequence.bind(STILL)
        self._journal.append((self, sequence, self.ticks, False))

    def advance(self, sampled: Mapping[Sequence, Ids[int]]) -> None:
        """Every member computed its last token and sampled the next, as often as an emulated sample says."""
        if isinstance(sampled, EmulatedSample):
            self.ticks += sampled.count
        else:
            self._advance_once(sampled)

    def _advance_once(self, sampled: Mapping[Sequence, Ids[int]]) -> None:
        self.ticks += 1
        for sequence in self.members:
            sequence.record(sampled[sequence])

    @property
    def context_tokens(self) -> int:
        """Tokens whose KV the members hold before the next step, summed."""
        return self._context + len(self.members) * self.ticks

    def take_journal(self) -> list[tuple["DecodeBatch", Sequence, int, bool]]:
        journal, self._journal = self._journal, []
        return journal

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.members)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self.members
