"""What SGLang's scheduler keeps of a request."""

from dataclasses import dataclass

from .sequence import Clock, Sequence


@dataclass(slots=True, eq=False)
class Request:
    """A sequence, how far its KV is scheduled, and what has become of it. Lengths in tokens.

    `launches` counts the decode steps of the whole engine; a running request takes part in each of them. `prefix`:
    what is there before the chunk scheduled last, which ends at `end`. `hit`: the prefix found at its first
    admission. `refused`: why the engine only answers it with a stub.
    """

    sequence: Sequence
    launches: Clock
    prefix: int = 0
    end: int = 0
    hit: int | None = None
    finished: bool = False
    retracted: bool = False
    refused: str = ""
    _kv: int = 0

    @property
    def kv(self) -> int:
        """Tokens whose KV is computed or on its way."""
        return self._kv + self.launches.ticks

    @kv.setter
    def kv(self, tokens: int) -> None:
        self._kv = tokens - self.launches.ticks

    @property
    def in_flight(self) -> bool:
        """A token of it is being sampled right now."""
        return self.kv >= self.sequence.num_tokens

    @property
    def gone(self) -> bool:
        """The outcome of a step in flight no longer matters to it."""
        return self.finished or self.retracted

    @property
    def output(self) -> int:
        return self.sequence.generated

    @property
    def max_new_tokens(self) -> int:
        return self.sequence.max_tokens
