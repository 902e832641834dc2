"""One step of a golden trace beside what the policy did in it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Facts = Mapping[str, Any]
"""Field -> value, as in the trace's JSON. A field that the trace leaves out is absent, not None."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`step` is None for what is said of the whole run. `state`: the queues, for a person. In the fields `ordered`,
    the order of a mapping's keys counts."""

    step: int | None
    expected: Facts
    found: Facts
    state: str
    ordered: Collection[str] = ()


class Format(Protocol):
    """How the golden traces of one engine are replayed: a module of this folder."""

    def replay(self, trace: Mapping[str, Any]) -> Iterator[Frame]:
        """A frame a step, then one for the run. May be left before its end. Raises `KeyError`, `TypeError`,
        `IndexError` or `ValueError` where the trace is not of this format."""
