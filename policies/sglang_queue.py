"""SGLang's waiting queue."""

from .sequence import Sequence


class Queue:
    """Sequences in the order in which they are looked at; `tokens` they have in all. `limit`: most of them."""

    def __init__(self, limit: int | None) -> None:
        self.sequences: list[Sequence] = []
        self.tokens = 0
        self._limit = limit

    def push(self, sequence: Sequence) -> str | None:
        """Returns the reason if there are too many."""
        if self._limit is not None and len(self.sequences) >= self._limit:
            return f"the request queue is full (max_queued_requests {self._limit})"
        self.sequences.append(sequence)
        self.tokens += sequence.num_tokens
        return None

    def take(self, count: int) -> None:
        """The first `count` are served."""
        self.tokens -= sum(sequence.num_tokens for sequence in self.sequences[:count])
        del self.sequences[:count]

    def remove(self, sequence: Sequence) -> None:
        self.sequences.remove(sequence)
        self.tokens -= sequence.num_tokens
