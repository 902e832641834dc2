"""SGLang's batches: the running one, the last prefill, and those whose output is still to come."""

from collections.abc import Iterable, Iterator, Mapping, Sequence as Ids
from dataclasses import dataclass, field

from .sequence import Sequence
from .sglang_request import Request
from .step import Chunk


@dataclass(slots=True, eq=False)
class Rows:
    """Requests in the engine's order. `members` is never changed in place.

    `full`: the engine does not look at its queue until this is cleared. `prefill_only`: every member asked for no
    output at all, so the batch never decodes.
    """

    members: list[Request] = field(default_factory=list)
    full: bool = False
    prefill_only: bool = False
    _seen: int = -1

    def filter(self, ends: int) -> None:
        """Let go of those that have finished. `ends`: how many requests have finished by now, of all."""
        if ends != self._seen:
            self._seen = ends
            members = [request for request in self.members if not request.finished]
            self.members = self.members if len(members) == len(self.members) else members

    def append(self, other: Iterable[Request], *, prefill_only: bool) -> None:
        self.members = [*self.members, *other]
        self.prefill_only = self.prefill_only and prefill_only


@dataclass(frozen=True, slots=True, eq=False)
class LastBatch:
    """The prefill step before this one: its rows, and the request of which it computed a part only."""

    rows: list[Request]
    chunked: Request | None
    prefill_only: bool


@dataclass(slots=True, eq=False)
class Launch:
    """A step whose output is still to come.

    `rows` in the engine's order; the first `prefills` of them prefill (0: a decode step). `chunks` are the rows that
    are not in the standing decode batch. `owed`: requests that left that batch since, and get their token all the
    same. `logged`, `pending`: tokens that the engine's log line will show.
    """

    rows: list[Request]
    chunks: Ids[tuple[Request, Chunk]]
    prefills: int
    logged: int
    pending: int = 0
    owed: list[Request] = field(default_factory=list)


class NewPages(Mapping[Sequence, Ids[int]]):
    """The one page that each of some members was given, as a step states it; nothing is built until it is read."""

    __slots__ = ("_members", "_pages")

    def __init__(self, members: list[Request], pages: list[int]) -> None:
        self._members = members
        self._pages = pages

    def __getitem__(self, sequence: Sequence) -> Ids[int]:
        for request, page in zip(self._members, self._pages, strict=True):
            if request.sequence is sequence:
                return [page]
        raise KeyError(sequence)

    def __iter__(self) -> Iterator[Sequence]:
        return (request.sequence for request in self._members)

    def __len__(self) -> int:
        return len(self._pages)
