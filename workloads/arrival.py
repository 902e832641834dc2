"""One request of a workload: when it arrives, what it brings, how much it will generate."""

from dataclasses import dataclass

Piece = tuple[int | str, int]
"""`(content id, length in tokens)`: equal content ids stand for equal tokens from the first on."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """`time` in seconds from the start of the run; lengths in tokens.

    `output` is the true output length, which no policy sees; `max_tokens` is what the client asked for.
    """

    id: str
    time: float
    prompt: tuple[Piece, ...]
    output: int
    max_tokens: int
    priority: int = 0

    @property
    def prompt_tokens(self) -> int:
        return sum(length for _, length in self.prompt)
