"""Prompts as pieces of content: what can be done to them without writing out a token."""

from collections.abc import Iterable, Iterator
from math import ceil

from .arrival import Piece

Prompt = tuple[Piece, ...]

LONGEST = 1 << 20
"""Most tokens of one piece; longer content is several, so that token ids of different content stay apart."""


def content(name: int | str, tokens: int) -> Prompt:
    """One content of that many tokens."""
    if tokens <= LONGEST:
        return ((name, tokens),) if tokens > 0 else ()
    parts = range(LONGEST, tokens, LONGEST)
    return ((name, LONGEST), *((f"{name} from {start}", min(LONGEST, tokens - start)) for start in parts))


def with_prefix(prefix: int | str, shared: int, own: int | str, tokens: int) -> Prompt:
    """A prompt of `tokens` that starts with `shared` tokens of a common prefix.

    The prefix is part of the prompt, not added to it: a prompt no longer than the prefix is the beginning of the
    prefix and has nothing of its own.
    """
    return content(prefix, min(shared, tokens)) + content(own, tokens - shared)


def cut(pieces: Iterable[Piece], tokens: int) -> Prompt:
    """The first `tokens` tokens."""
    return tuple(_cut(pieces, tokens))


def _cut(pieces: Iterable[Piece], left: int) -> Iterator[Piece]:
    for name, length in pieces:
        if left <= 0:
            return
        yield name, min(length, left)
        left -= length


def scaled(pieces: Iterable[Piece], factor: float) -> Prompt:
    """Every length times `factor`; the total is rounded up.

    Each boundary moves by itself, so prompts that begin alike still do. A piece that has become empty is left out.
    """
    return tuple(_scaled(pieces, factor))


def _scaled(pieces: Iterable[Piece], factor: float) -> Iterator[Piece]:
    end = start = 0
    for name, length in pieces:
        end += length
        stop = scale_up(end, factor)
        if stop > start:
            yield name, stop - start
        start = stop


def scale_up(tokens: int, factor: float) -> int:
    """`tokens * factor` rounded up, blind to noise in the ninth decimal (100 tokens times 1.1 are 110).

    Something does not become nothing.
    """
    return max(ceil(round(tokens * factor, 9)), min(tokens, 1))
