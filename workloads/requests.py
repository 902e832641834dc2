"""Workloads whose requests are prepared before the run starts."""

from collections.abc import Sequence as Items
from dataclasses import dataclass

from .arrival import Arrival
from .pieces import Prompt


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests that arrive when they arrive, however the engine fares. `notes` say how they came about."""

    name: str
    requests: tuple[Arrival, ...]
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.requests)

    def start(self) -> "OpenSession":
        return OpenSession(self.requests)


@dataclass(frozen=True, slots=True)
class OpenSession:
    """There is nothing to remember: all requests are known from the start."""

    requests: tuple[Arrival, ...]

    def arrivals(self) -> tuple[Arrival, ...]:
        return self.requests

    def on_finish(self, id: str, now: float) -> None:
        """No request waits for another to end."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What becomes requests, an entry per request each: seconds, content, tokens, tokens, priority and name."""

    times: Items[float]
    prompts: Items[Prompt]
    outputs: Items[int]
    max_tokens: Items[int]
    priorities: Items[int]
    ids: Items[str] | None = None


def make_requests(columns: Columns) -> tuple[Arrival, ...]:
    """Requests r0, r1, ... where they have no names; an output ends at `max_tokens` if it would be longer."""
    ids = columns.ids if columns.ids is not None else [f"r{index}" for index in range(len(columns.times))]
    rows = zip(
        ids, columns.times, columns.prompts, columns.outputs, columns.max_tokens, columns.priorities, strict=True,
    )
    return tuple(
        Arrival(id, time, prompt, min(output, most), most, priority)
        for id, time, prompt, output, most, priority in rows
    )


def cap_note(columns: Columns) -> list[str]:
    """Says so where `max_tokens` cuts outputs."""
    capped = sum(most < output for output, most in zip(columns.outputs, columns.max_tokens, strict=True))
    return [f"max_tokens ends {capped} of {len(columns.outputs)} outputs early"] if capped else []
