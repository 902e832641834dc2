"""A dense KV cache: every sequence has its own, as long as the tokens it holds."""

from collections.abc import Iterable

from ..sequence import Sequence


class DenseCache:
    """How many tokens of KV each sequence holds. The unit is a token.

    Nobody counts memory on this path and nothing is ever refused, so `usable` is the most that was held at any time.
    """

    capacity: None = None

    def __init__(self) -> None:
        self.usable = 0
        self.used = 0
        self._held: dict[Sequence, int] = {}

    @property
    def free(self) -> int:
        return self.usable - self.used

    def room(self, sequence: Sequence) -> int:
        """Tokens that a sequence can hold."""
        return self._held.get(sequence, 0)

    def hold(self, sequence: Sequence, tokens: int) -> None:
        """Make a sequence's cache `tokens` long; a shorter one than before gives the rest back."""
        self.used += tokens - self._held.get(sequence, 0)
        self.usable = max(self.usable, self.used)
        self._held[sequence] = tokens

    def drop(self, sequence: Sequence) -> None:
        """Throw a sequence's cache away, if it has one."""
        self.used -= self._held.pop(sequence, 0)

    def violations(self, holders: Iterable[Sequence]) -> list[str]:
        """Laws: the caches add up, none outlives its sequence, and each holds what its sequence has computed."""
        known = set(holders)
        wrong = [f"{sequence!r} has left, its cache of {held} tokens has not"
                 for sequence, held in self._held.items() if sequence not in known]
        wrong += [f"{sequence!r} holds {self.room(sequence)} tokens"
                  for sequence in known if self.room(sequence) < sequence.computed]
        if self.used != sum(self._held.values()):
            wrong.append(f"{self.used} tokens in use, the caches hold {sum(self._held.values())}")
        return wrong
