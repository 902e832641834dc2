"""What the audit asks of a KV ledger."""

from collections.abc import Iterable
from typing import Protocol

from ..sequence import Sequence


class Ledger(Protocol):
    """Who holds which part of the KV cache, in the ledger's own units (blocks, tokens)."""

    @property
    def usable(self) -> int: ...

    @property
    def free(self) -> int: ...

    @property
    def capacity(self) -> int | None:
        """Tokens that one sequence may hold at most; None: nobody limits it."""

    @property
    def used(self) -> int:
        """Units held by at least one sequence."""

    def room(self, sequence: Sequence) -> int:
        """Tokens that a sequence can hold in what it was given."""

    def violations(self, holders: Iterable[Sequence]) -> list[str]:
        """What is wrong in the ledger, given the sequences that may hold something; costs a full scan."""
