"""Prompts in blocks of one size, each with an id that equal blocks share: what Mooncake's traces are made of."""

from collections.abc import Hashable, Iterable, Iterator

from .arrival import Piece
from .pieces import Prompt

Slice = tuple[int | str, int, int]
"""`(content id, where in that content it starts, length)`, in tokens."""


class BlockIds:
    """Gives out ids 0, 1, ... in order of appearance.

    Blocks of equal content have equal ids. A prompt's last block may be partial; it shares its id with a block that
    differs only in how much of the last content it holds, since content is the same from its first token on.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._ids: dict[Hashable, int] = {}

    def of(self, prompt: Prompt) -> list[int]:
        return [self._ids.setdefault(_key(block), len(self._ids)) for block in blocks(prompt, self._size)]


def blocks(pieces: Iterable[Piece], size: int) -> Iterator[list[Slice]]:
    """Cut into blocks of `size` tokens, the last one maybe smaller."""
    block: list[Slice] = []
    room = size
    for name, length in pieces:
        start = 0
        while start < length:
            part = min(room, length - start)
            block.append((name, start, part))
            start, room = start + part, room - part
            if not room:
                yield block
                block, room = [], size
    if block:
        yield block


def _key(block: list[Slice]) -> Hashable:
    name, start, _ = block[-1]
    return (*block[:-1], (name, start))
