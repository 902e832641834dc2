"""A token string held as runs of consecutive ids, so that long prompts cost nothing until a cache asks."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

RunKey = tuple[int, ...]
"""A canonical name of a stretch of tokens: first id and length of each maximal run of consecutive ids, flattened."""

MAX_PIECE = 1 << 20
"""Most tokens one piece of content may have; keeps the ids of different content apart."""


def content_base(content: int | str) -> int:
    """First token id of a content, the same on every machine. Ids of one content are consecutive."""
    digest = blake2b(repr(content).encode(), digest_size=5).digest()
    return int.from_bytes(digest) * MAX_PIECE


class Tokens:
    """Token ids in order, kept as maximal runs `(first, length)`.

    Two stretches of tokens are equal exactly when their `key` is: the runs are maximal, so their form is unique.
    """

    __slots__ = ("_firsts", "_length", "_starts")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._starts: list[int] = []
        self._firsts: list[int] = []
        self._length = 0
        self.extend(ids)

    @classmethod
    def of_pieces(cls, pieces: Iterable[tuple[int | str, int]]) -> "Tokens":
        """Tokens of `(content, length)` pieces: equal content gives equal ids from its first token on."""
        tokens = cls()
        for content, length in pieces:
            tokens.extend_run(content_base(content), length)
        return tokens

    def extend(self, ids: Iterable[int]) -> None:
        if isinstance(ids, range) and ids.step == 1:
            self.extend_run(ids.start, len(ids))
        else:
            for token in ids:
                self.extend_run(token, 1)

    def extend_run(self, first: int, length: int) -> None:
        if length <= 0:
            return
        if not self._starts or self._firsts[-1] + self._length - self._starts[-1] != first:
            self._starts.append(self._length)
            self._firsts.append(first)
        self._length += length

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Runs `(first, length)` of the tokens at positions `start` to `stop`, clipped to them."""
        index = bisect_right(self._starts, start) - 1
        while start < stop:
            end = self._starts[index + 1] if index + 1 < len(self._starts) else self._length
            length = min(end, stop) - start
            if length <= 0:
                raise IndexError(f"tokens {start} to {stop} of {self._length}")
            yield self._firsts[index] + start - self._starts[index], length
            start += length
            index += 1

    def key(self, start: int, stop: int) -> RunKey:
        """Name of the tokens at positions `start` to `stop`; equal names mean equal tokens."""
        if self._starts and self._starts[-1] <= start < stop <= self._length:  # within the last run, as most output is
            return self._firsts[-1] + start - self._starts[-1], stop - start
        return tuple(number for run in self.runs(start, stop) for number in run)

    def at(self, position: int) -> int:
        """The token id at a position."""
        index = bisect_right(self._starts, position) - 1
        return self._firsts[index] + position - self._starts[index]

    def common(self, start: int, stop: int, other: "Tokens", other_start: int) -> int:
        """How many tokens from `start` on, up to `stop`, are those of `other` from `other_start` on."""
        if self is other and start == other_start:
            return stop - start
        starts, firsts, theirs, their_firsts = self._starts, self._firsts, other._starts, other._firsts
        left = end = min(stop - start, len(other) - other_start)
        i, j = bisect_right(starts, start) - 1, bisect_right(theirs, other_start) - 1
        while left > 0:
            into, their_into = start - starts[i], other_start - theirs[j]
            if firsts[i] + into != their_firsts[j] + their_into:
                break
            ours = (starts[i + 1] - start) if i + 1 < len(starts) else left
            their = (theirs[j + 1] - other_start) if j + 1 < len(theirs) else left
            same = min(ours, their, left)
            i, j = i + (same == ours), j + (same == their)
            start, other_start, left = start + same, other_start + same, left - same
        return end - left

    def ids(self, start: int, stop: int) -> list[int]:
        return [first + offset for first, length in self.runs(start, stop) for offset in range(length)]

    def __len__(self) -> int:
        return self._length


def as_tokens(prompt: "Tokens | Sequence[int]") -> Tokens:
    return prompt if isinstance(prompt, Tokens) else Tokens(prompt)
