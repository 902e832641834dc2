"""A block pool whose freed blocks can be used only some steps later, as where a copy of them is still under way."""

from collections import deque
from collections.abc import Iterable, Sequence as Ids

from ..sequence import Sequence
from .block_pool import BlockPool


class LatePool(BlockPool):
    """`coming` blocks are neither held nor free; `tick` begins a step. Nothing may be published."""

    def __init__(self, usable: int, block_size: int, *, delay: int) -> None:
        super().__init__(usable, block_size)
        self.coming = 0
        self._delay = delay
        self._step = 0
        self._late: deque[tuple[int, list[int]]] = deque()

    def tick(self) -> None:
        self._step += 1
        self._land(self._step)

    def settle(self) -> None:
        """Nothing runs for a while: everything arrives."""
        self._land(self._step + self._delay)

    def _land(self, step: int) -> None:
        while self._late and self._late[0][0] <= step:
            _, blocks = self._late.popleft()
            self.coming -= len(blocks)
            self.changes += 1
            self.freed += 1
            self._free.update(dict.fromkeys(blocks))

    def release(self, blocks: Ids[int]) -> None:
        for block in blocks:
            del self._holders[block]
        self.coming += len(blocks)
        self._late.append((self._step + self._delay, list(reversed(blocks))))

    def violations(self, holders: Iterable[Sequence]) -> list[str]:
        return self._wrong_holders(holders) + self._wrong_count(self.coming)
