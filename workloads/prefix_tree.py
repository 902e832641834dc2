"""What an endless prefix cache would hit: the longest common beginning with any earlier prompt."""

from dataclasses import dataclass

from .arrival import Piece
from .pieces import Prompt


@dataclass(frozen=True, slots=True)
class Hit:
    """How much of a prompt an earlier one began with, in tokens and in whole pieces."""

    tokens: int
    pieces: int


class PrefixTree:
    """Prompts seen so far, as paths of pieces.

    Pieces of one content share tokens from the first on, whatever their lengths; different contents share none.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, Piece], int] = {}
        self._longest: dict[tuple[int, int | str], int] = {}

    def add(self, prompt: Prompt) -> Hit:
        """Take in a prompt; says what it had in common with those before."""
        node = tokens = pieces = 0
        matching = True
        for name, length in prompt:
            seen = self._longest.get((node, name), 0)
            if matching:
                tokens += min(length, seen)
                pieces += seen >= length
                matching = seen >= length
            if length > seen:
                self._longest[node, name] = length
            node = self._nodes.setdefault((node, (name, length)), len(self._nodes) + 1)
        return Hit(tokens, pieces)
