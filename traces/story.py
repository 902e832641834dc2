"""What became of one request, told from the tables of its run: queued, prefilling, preempted, decoding."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .arrow import flat, sizes
from .run import Run

Numbers = NDArray[np.float64]

QUEUED, PREFILL, DECODE, PREEMPTED, WAITED = "queued", "prefill", "decode", "preempted", "waited"
"""`WAITED`: queued or prefilling, where the run does not say when it began to run."""


@dataclass(frozen=True, slots=True)
class Part:
    """`kind` is one of the five above; from `start` to `end`, seconds."""

    kind: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """`parts` follow each other without overlap. `chunks`: starts of the steps that prefilled during its prefill;
    `tokens`: when each of its tokens was there. Seconds."""

    parts: tuple[Part, ...]
    chunks: Numbers
    tokens: Numbers


@dataclass(frozen=True, slots=True)
class _Pause:
    preempted: float
    resumed: float
    until: float  # the next token


class Stories:
    """The stories of the requests of one run.

    The tables say how often a request was preempted and which steps preempted and resumed, but not whom. A request's
    pauses are therefore read as its longest gaps without a token, as many as it was preempted, that hold a step which
    preempted; the pause ends with the last step in the gap that resumed a sequence. Two preemptions before the same
    token are one pause.
    """

    def __init__(self, run: Run) -> None:
        starts, ends = run.column("t_start"), run.column("t_end")
        # What is preempted while a step is in flight still gets that step's token.
        moments = np.maximum(starts, np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]]))
        self._preempting = moments[run.column("preempted") > 0]
        self._resuming = starts[run.column("resumed") > 0]
        self._prefilling = starts[run.column("prefill_tokens") > 0]
        column = run.requests.column("token_times")
        self._tokens, self._offsets = flat(column), np.concatenate([[0], np.cumsum(sizes(column))])
        self._arrival, self._first = run.request_column("arrival"), run.request_column("first_scheduled")
        self._preemptions = run.request_column("preemptions")
        self._first_token, self._finish = run.request_column("first_token"), run.request_column("finish")
        self._finished = ~np.isnan(self._finish)
        self._end = float(np.nanmax(np.concatenate([[0.0], ends, self._finish])))
        self._status = run.requests.column("status")

    def __len__(self) -> int:
        return len(self._arrival)

    def of(self, row: int) -> Story:
        """That of the request in `row` of the request table. One that was turned away before it ran has no parts."""
        tokens = self._tokens[self._offsets[row]:self._offsets[row + 1]]
        parts = tuple(part for part in self._parts(row, tokens) if part.end > part.start)
        chunks = [self._within(self._prefilling, part.start, part.end) for part in parts if part.kind == PREFILL]
        return Story(parts, np.concatenate(chunks) if chunks else np.zeros(0), tokens)

    def _parts(self, row: int, tokens: Numbers) -> list[Part]:
        arrival, first = float(self._arrival[row]), float(self._first[row])
        left = self._status[row].as_py() != "unfinished" and not self._finished[row]
        if np.isnan(first) and not np.isnan(self._first_token[row]):
            return self._seen_from_outside(row, tokens)
        if np.isnan(first):
            return [] if left else [Part(QUEUED, arrival, self._end)]
        stamps = [first, *tokens.tolist()]
        if not self._finished[row] and not left:
            stamps.append(max(self._end, stamps[-1]))
        return [Part(QUEUED, arrival, first), *self._served(stamps, len(tokens) > 0, int(self._preemptions[row]))]

    def _seen_from_outside(self, row: int, tokens: Numbers) -> list[Part]:
        first, arrival = float(self._first_token[row]), float(self._arrival[row])
        last = float(self._finish[row]) if self._finished[row] else float(tokens[-1]) if len(tokens) else first
        return [Part(WAITED, arrival, first), Part(DECODE, first, last)]

    def _served(self, stamps: list[float], has_token: bool, preemptions: int) -> list[Part]:
        """`stamps`: when it was first scheduled, each token, and where it had not finished the end of the run."""
        parts, mark, kind = [], stamps[0], PREFILL
        first_token = stamps[1] if has_token else stamps[-1]
        for pause in self._pauses(stamps, preemptions):
            if kind == PREFILL and pause.preempted >= first_token:
                parts.append(Part(PREFILL, mark, first_token))
                mark, kind = first_token, DECODE
            parts += [
                Part(kind, mark, pause.preempted), Part(PREEMPTED, pause.preempted, pause.resumed),
                Part(PREFILL, pause.resumed, pause.until),
            ]
            mark, kind = pause.until, DECODE
        if kind == PREFILL:
            parts.append(Part(PREFILL, mark, first_token))
            mark = first_token
        return [*parts, Part(DECODE, mark, stamps[-1])] if has_token else parts

    def _pauses(self, stamps: list[float], preemptions: int) -> list[_Pause]:
        if not preemptions:
            return []
        found = [pause for gap in pairwise(stamps) if (pause := self._pause(*gap)) is not None]
        longest = sorted(found, key=lambda pause: pause.preempted - pause.until)[:preemptions]
        return sorted(longest, key=lambda pause: pause.preempted)

    def _pause(self, start: float, until: float) -> _Pause | None:
        preempting = self._within(self._preempting, start, until)
        if not len(preempting):
            return None
        preempted = float(preempting[0])
        resuming = self._within(self._resuming, preempted, until)
        return _Pause(preempted, float(resuming[-1]) if len(resuming) else until, until)

    @staticmethod
    def _within(moments: Numbers, start: float, end: float) -> Numbers:
        """Those of the ascending `moments` in [start, end)."""
        low, high = np.searchsorted(moments, (start, end))
        return moments[low:high]
