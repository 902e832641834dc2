"""What SGLang does with a request when it arrives."""

from dataclasses import dataclass

from .sequence import Sequence
from .tokens import Tokens

SPARE_INPUT = 5
"""Tokens that a prompt must leave of the longest request."""

STUB = Tokens([0])
"""The prompt that the engine serves in place of one that it refuses."""


@dataclass(frozen=True, slots=True)
class Door:
    """Limits in tokens: `pool`, `page_size` and `context` (None: the model has no limit of its own)."""

    pool: int
    page_size: int
    context: int | None

    @property
    def longest(self) -> int:
        return self.pool - 1 if self.context is None else min(self.context, self.pool) - 1

    def max_new_tokens(self, sequence: Sequence) -> int:
        """What the engine cuts `max_tokens` to: a page and a token of the pool stay free."""
        prompt = sequence.prompt_len
        pages = -(-prompt // self.page_size) * self.page_size
        return max(0, min(sequence.max_tokens, self.longest - prompt - 1, self.pool - pages - self.page_size - 1))

    def refuses(self, sequence: Sequence) -> str:
        """Why the engine does not serve a prompt at all."""
        limit = self.longest - SPARE_INPUT
        if sequence.prompt_len < limit:
            return ""
        return f"a prompt of {sequence.prompt_len} tokens exceeds the maximum allowed length of {limit}"

    def turns_away(self, sequence: Sequence) -> str | None:
        """Reason to reject what the engine would refuse, cut short, or never get to."""
        refused, cut = self.refuses(sequence), self.max_new_tokens(sequence)
        if refused or cut >= sequence.max_tokens > 0:
            return refused or None
        return (
            f"prompt {sequence.prompt_len} + max_tokens {sequence.max_tokens}: SGLang would cut max_tokens to {cut}, "
            f"for a pool of {self.pool} tokens in pages of {self.page_size}"
            + ("" if self.context is None else f" and a context of {self.context}")
        )


def default_seats(pool: int, context: int | None) -> int:
    """SGLang's own max_running_requests, for a pool and a context of so many tokens."""
    return min(max(pool * 512 // (context or pool), 2048), 4096)
