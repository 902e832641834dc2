"""The first place at which a policy parts from a golden trace."""

from dataclasses import dataclass
from typing import Any

from .frame import Frame

ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    """`step` is None for what is said of the whole run. `expected` is the trace's value, `found` the policy's."""

    step: int | None
    field: str
    expected: Any
    found: Any
    state: str

    @property
    def place(self) -> str:
        return f"{'the run' if self.step is None else f'step {self.step}'}, {self.field}"

    @classmethod
    def first(cls, frame: Frame) -> "Difference | None":
        """In the trace's order of fields, then those that it lacks."""
        for field in dict.fromkeys([*frame.expected, *frame.found]):
            expected, found = frame.expected.get(field, ABSENT), frame.found.get(field, ABSENT)
            if not same(expected, found, ordered=field in frame.ordered):
                return cls(frame.step, field, expected, found, frame.state)
        return None


def same(expected: Any, found: Any, *, ordered: bool) -> bool:
    """Equal, and of one kind: True is not 1. With `ordered`, mappings have their keys in the same order."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if expected.keys() != found.keys() or (ordered and list(expected) != list(found)):
            return False
        return all(same(value, found[key], ordered=ordered) for key, value in expected.items())
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        pairs = zip(expected, found, strict=False)
        return len(expected) == len(found) and all(same(a, b, ordered=ordered) for a, b in pairs)
    return bool(expected == found) and isinstance(expected, bool) is isinstance(found, bool)
