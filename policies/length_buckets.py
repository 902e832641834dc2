"""Sequences of one length, which may share a forward pass, and which of several such buckets runs."""

import math
from collections.abc import Callable, Iterable, Sequence as Ids
from dataclasses import dataclass, field

from .sequence import Sequence

Priority = Callable[[Sequence], float]


@dataclass(slots=True)
class Bucket:
    """Sequences that may share a forward pass. `length` in tokens, of the shortest where they are `ragged`.
    `decoding`: none of them is a prompt."""

    length: int
    ragged: bool = False
    decoding: bool = True
    members: list[Sequence] = field(default_factory=list)


TieBreak = Callable[[Ids[Bucket]], Bucket]
"""Picks one of several buckets of exactly the same priority."""


def shortest(buckets: Iterable[Bucket]) -> Bucket:
    return min(buckets, key=lambda bucket: bucket.length)


class Greedy:
    """The bucket whose members' priorities add up to most.

    mistral.rs leaves an exact tie to the order of its hash map; `tie_break` decides here, by default for the shortest.
    """

    def __init__(self) -> None:
        self.tie_break: TieBreak = shortest

    def choose(self, buckets: Ids[Bucket], priority: Priority) -> Bucket:
        sums = [sum(map(priority, bucket.members)) for bucket in buckets]
        best = [bucket for bucket, total in zip(buckets, sums, strict=True) if math.isclose(total, max(sums))]
        return best[0] if len(best) == 1 else self.tie_break(best)

    def rest(self) -> None:
        """A step in which there was nothing to choose."""


class Coalescing(Greedy):
    """Pull request 104 of the fork: the shortest bucket runs instead if merging it into the next one pays.

    Running it until it has caught up idles the others for `gap` steps and widens every later forward by its members:
    taken if (others x gap) <= (members x `payback`). The two must agree on `ragged`, or they never merge.
    """

    payback = 256

    def choose(self, buckets: Ids[Bucket], priority: Priority) -> Bucket:
        greedy, least = super().choose(buckets, priority), shortest(buckets)
        longer = [bucket.length for bucket in buckets
                  if bucket.length > least.length and bucket.ragged == least.ragged]
        if greedy is least or not longer:
            return greedy
        others = sum(len(bucket.members) for bucket in buckets) - len(least.members)
        pays = others * (min(longer) - least.length) <= len(least.members) * self.payback
        return least if pays else greedy


class CatchUp(Greedy):
    """mistral.rs 0.9.5: decodes that are a few tokens behind the greedy choice catch up with it first.

    If that choice has no prompt in it, the shortest bucket without prompts that is at most `window` tokens behind
    runs instead, but at most `most` times in a row. Found from recordings of the published wheel, not from its source.
    """

    window = 8
    most = 8

    def __init__(self) -> None:
        super().__init__()
        self._in_a_row = 0

    def choose(self, buckets: Ids[Bucket], priority: Priority) -> Bucket:
        greedy = super().choose(buckets, priority)
        behind = [bucket for bucket in buckets
                  if bucket.decoding and 0 < greedy.length - bucket.length <= self.window]
        if not greedy.decoding or not behind or self._in_a_row >= self.most:
            self._in_a_row = 0
            return greedy
        self._in_a_row += 1
        return shortest(behind)

    def rest(self) -> None:
        self._in_a_row = 0
