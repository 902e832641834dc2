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
    def used(self) -> int:
        """Units held by at least one sequence."""

    def violations(self, holders: Iterable[Sequence]) -> list[str]:
        """What is wrong in the ledger, given the sequences that may hold something; costs a full scan."""
