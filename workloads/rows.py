"""What a trace file holds, whatever its format: one request per row, in columns."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .pieces import Prompt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Lengths in tokens, `times` in seconds on the file's own clock (None: the file has none), in the file's order.

    `dated`: the clock starts at a moment that has nothing to do with the trace, so its first request becomes 0.
    `content`: the pieces of each prompt where the file knows them, else each prompt is its own.
    `ids`: the requests' names where the file has any, else they are numbered.
    `notes`: what a reader did that the user should know.
    """

    prompts: Integers
    outputs: Integers
    times: Floats | None = None
    dated: bool = False
    content: list[Prompt] | None = None
    max_tokens: Integers | None = None
    priorities: Integers | None = None
    notes: tuple[str, ...] = ()
    ids: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.prompts)

    def take(self, index: Integers) -> "Rows":
        """The rows at those places, in that order."""
        return replace(
            self,
            prompts=self.prompts[index],
            outputs=self.outputs[index],
            times=_taken(self.times, index),
            content=None if self.content is None else [self.content[row] for row in index.tolist()],
            max_tokens=None if self.max_tokens is None else self.max_tokens[index],
            priorities=None if self.priorities is None else self.priorities[index],
            ids=None if self.ids is None else tuple(self.ids[row] for row in index.tolist()),
        )

    def where(self, keep: npt.NDArray[np.bool_]) -> "Rows":
        return self.take(np.flatnonzero(keep))

    def noted(self, *notes: str) -> "Rows":
        return replace(self, notes=(*self.notes, *notes))


def _taken(times: Floats | None, index: Integers) -> Floats | None:
    return None if times is None else times[index]
