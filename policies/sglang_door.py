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
    def longest_prompt(self) -> int:
        """A prompt has to be shorter than this to be served at all."""
        return (self.pool if self.context is None else min(self.context, self.pool)) - 1 - SPARE_INPUT

    def within_context(self, sequence: Sequence) -> int:
        """Output tokens that the model's context leaves."""
        return sequence.max_tokens if self.context is None else self.context - sequence.prompt_len - 2

    def within_pool(self, sequence: Sequence) -> int:
        """Output tokens that the pool leaves: a page and a token stay free."""
        pages = -(-sequence.prompt_len // self.page_size)
        return self.pool - (pages + 1) * self.page_size - 1

    def max_new_tokens(self, sequence: Sequence) -> int:
        """What the engine cuts `max_tokens` to."""
        return max(0, min(sequence.max_tokens, self.within_context(sequence), self.within_pool(sequence)))

    def refuses(self, sequence: Sequence) -> str:
        """Why the engine does not serve a prompt at all."""
        if sequence.prompt_len < self.longest_prompt:
            return ""
        return f"prompt {sequence.prompt_len} is not below the longest that SGLang serves here, {self.longest_prompt}"

    def turns_away(self, sequence: Sequence) -> str | None:
        """Reason to reject what the engine would refuse, cut short for want of memory, or never get to."""
        wanted, room = min(sequence.max_tokens, self.within_context(sequence)), self.within_pool(sequence)
        if room >= wanted and room >= 0:
            return self.refuses(sequence) or None
        return (
            f"prompt {sequence.prompt_len} + max_tokens {wanted} do not fit a pool of {self.pool} tokens, of which "
            f"SGLang keeps a page of {self.page_size} and a token free"
        )


def default_seats(pool: int, context: int | None) -> int:
    """SGLang's own max_running_requests, for a pool and a context of so many tokens."""
    return min(max(pool * 512 // (context or pool), 2048), 4096)
