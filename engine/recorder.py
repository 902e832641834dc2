"""Turns decisions and commits into the rows of the trace."""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..policies.base import Chunk, DecodeBatch, Sequence, Step
from ..policies.decode_batch import Change
from ..policies.totals import Totals
from ..traces.request_table import RequestRow, request_table
from ..traces.run import Run
from ..traces.step_table import StepTable
from .span import Further, Span
from .stepper import Committed, Decision


@dataclass(slots=True)
class _Draft:
    """What is noted of a step when it is decided, until it is committed. `changes`: of its decode batches.
    `recomputed`, `reprefill`: tokens."""

    totals: Totals
    changes: Ids[Change]
    arrived: int
    rejected: int
    aborted: int
    recomputed: int = 0
    reprefill: int = 0


@dataclass(slots=True)
class _Request:
    """What is noted of one request while it is served; times in nanoseconds."""

    sequence: Sequence
    arrival: int
    status: str = "unfinished"
    reason: str = ""
    first_scheduled: int | None = None
    finish: int | None = None
    cached: int = 0
    peak: int = 0  # tokens whose KV was computed at some time
    recomputed: int = 0
    preemptions: int = 0
    joined: int | None = None  # tick at which it joined its decode batch, while it is in one
    token_times: "array[int]" = field(default_factory=lambda: array("q"))


class Recorder:
    """Collects the trace of one run. Several steps may be decided before the first of them is committed.

    `events`: rare branches that the policy took, by step. `progress` grows with every token that is computed or
    sampled for the first time: it tells work from thrashing.
    """

    def __init__(self, kv_total: int) -> None:
        self.progress = 0
        self.events: list[str] = []
        self.steps = StepTable()
        self._kv_total = kv_total
        self._requests: dict[Sequence, _Request] = {}
        self._tick_ends: dict[DecodeBatch, array[int]] = {}
        self._arrived = self._rejected = self._aborted = 0
        self._drafts: deque[_Draft] = deque()

    def arrive(self, sequence: Sequence, arrival: int, reason: str | None) -> None:
        """A request came, and was rejected if there is a reason."""
        self._requests[sequence] = _Request(sequence, arrival)
        self._arrived += 1
        if reason is not None:
            self._reject(sequence, reason)

    def abort(self, sequence: Sequence, reason: str) -> None:
        self._requests[sequence].status, self._requests[sequence].reason = "aborted", reason
        self._aborted += 1

    def decide(self, decision: Decision, start: int) -> None:
        """A step was scheduled at `start`; call before it is committed."""
        step = decision.step
        self.events += [f"step {len(self.steps) + len(self._drafts)}: {event}" for event in step.events]
        for sequence, reason in step.rejected:
            self._reject(sequence, reason)
        for sequence, _ in step.preempted:
            self._requests[sequence].preemptions += 1
        draft = _Draft(step.totals, decision.changes, self._arrived, self._rejected, self._aborted)
        self._arrived = self._rejected = self._aborted = 0
        for forward in step.forwards:
            for chunk in forward.chunks:
                self._run(self._requests[chunk.sequence], chunk, start, draft)
        self._drafts.append(draft)

    def _follow(self, change: Change) -> None:
        batch, sequence, tick, joined, _ = change
        request = self._requests[sequence]
        if joined:
            request.joined = tick
        else:
            request.token_times += self._tick_ends.setdefault(batch, array("q"))[request.joined:tick]
            request.joined = None

    def _run(self, request: _Request, chunk: Chunk, start: int, draft: _Draft) -> None:
        if request.first_scheduled is None:
            request.first_scheduled, request.cached = start, chunk.cached
        if not chunk.decode:
            self._prefill(request, chunk.start, chunk.end, draft)

    def _prefill(self, request: _Request, start: int, end: int, draft: _Draft) -> None:
        generated = request.sequence.generated
        peak = max(request.peak, request.sequence.prompt_len + generated - 1 if generated else 0)
        again = max(0, min(end, peak) - start)
        request.recomputed += again
        draft.recomputed += again
        draft.reprefill += max(0, min(end, peak + (generated > 0)) - start)
        self.progress += max(0, end - max(start, peak))
        request.peak = max(peak, end)

    def commit(self, step: Step, span: Span, committed: Committed) -> None:
        """The oldest step that was decided, but not committed, is; and so are the further decode steps of its span."""
        draft = self._drafts.popleft()
        for change in draft.changes:
            self._follow(change)
        further = span.further
        self.progress += draft.totals.sampling * span.steps - committed.wasted
        if further is None:
            row = self._row(step, 0, step.gauges.kv_used, committed, draft)
            self.steps.append(row, span.start, span.first_end, span.host, span.device, _widths(step))
        else:
            self._append_all(step, span, further, committed, draft)
        self._stamp(step, span, committed)
        for sequence in committed.finished:
            request = self._requests[sequence]
            request.status, request.finish = "finished", span.end

    def _append_all(self, step: Step, span: Span, further: Further, committed: Committed, draft: _Draft) -> None:
        """The first step of a span, those like it, and the last, which differs in what its commit changed."""
        kv, host, ends = step.gauges.kv_used, span.host, further.ends
        middle, after = Committed(step.gauges, (), 0), None
        start: int | NDArray[np.int64] = span.first_end
        last = int(ends[-2]) if len(ends) > 1 else span.first_end
        if further.starts is not None and further.after is not None:
            middle, after = Committed(replace(step.gauges, kv_used=further.after[0]), (), 0), further.after[1:-1]
            start, last = further.starts[:-2], int(further.starts[-2])
        self.steps.append(self._row(step, 0, kv, middle, draft), span.start, span.first_end, host, span.device)
        draft = _Draft(draft.totals, (), 0, 0, 0)
        self.steps.append_series(
            self._row(step, 1, kv, middle, draft), start, ends[:-1], further.used[:-1], after,
            context_increment=draft.totals.decode_seqs, host=host, device=further.device[:-1],
        )
        row = self._row(step, len(ends), further.used[-1], committed, draft)
        self.steps.append(row, last, int(ends[-1]), host, float(further.device[-1]))

    def _row(self, step: Step, place: int, kv: int, committed: Committed, draft: _Draft) -> tuple[int, ...]:
        """The counts of the step at `place` in its span; `kv`: units held after its scheduling."""
        totals, gauges, end = draft.totals, step.gauges, committed.gauges
        sampled = totals.sampling - committed.wasted
        return (
            gauges.running, gauges.waiting, totals.width, totals.prefill_seqs, totals.decode_seqs,
            totals.prefill_tokens, totals.padded_tokens, totals.decode_tokens, totals.cached,
            draft.recomputed, draft.reprefill, totals.context + place * totals.decode_seqs,
            totals.attended, sampled, committed.wasted, draft.arrived, len(step.admitted), len(step.resumed),
            step.prefix_queries, step.prefix_hits, len(step.preempted), len(committed.finished),
            draft.rejected, draft.aborted, kv, self._kv_total, end.running, end.waiting,
            end.kv_used, sampled if end.logged_tokens is None else end.logged_tokens,
            end.pending_tokens or 0,
        )

    def _stamp(self, step: Step, span: Span, committed: Committed) -> None:
        for forward in step.forwards:
            if forward.decode is not None:
                ends = self._tick_ends.setdefault(forward.decode, array("q"))
                ends.append(span.first_end)
                if span.further is not None:
                    ends.frombytes(span.further.ends.tobytes())
            for chunk in forward.chunks:
                if chunk.samples and chunk.sequence not in committed.wasters:
                    tokens = 1 + chunk.accepted - committed.surplus.get(chunk.sequence, 0)
                    self._requests[chunk.sequence].token_times.extend([span.end] * tokens)

    def _reject(self, sequence: Sequence, reason: str) -> None:
        self._requests[sequence].status, self._requests[sequence].reason = "rejected", reason
        self._rejected += 1

    def explain(self, sequence: Sequence, reason: str) -> None:
        """Say why a request was not finished."""
        self._requests[sequence].reason = reason

    def run(self, meta: dict[str, Any]) -> Run:
        """The trace so far. Once only."""
        for change in (change for draft in self._drafts for change in draft.changes):
            self._follow(change)
        for batch in self._tick_ends:
            for change in batch.take_journal():
                self._follow(change)
        rows = [self._request_row(request) for request in self._requests.values()]
        return Run(self.steps.build(), request_table(rows), meta)

    def _request_row(self, request: _Request) -> RequestRow:
        sequence, times = request.sequence, request.token_times
        if request.joined is not None and sequence.clock in self._tick_ends:
            times += self._tick_ends[sequence.clock][request.joined:]
        if request.finish is not None:  # what was sampled past the end is no output
            times = times[:bisect_right(times, request.finish)]
        return RequestRow(
            sequence.id, request.arrival, request.first_scheduled, times[0] if times else None, request.finish,
            sequence.prompt_len, len(times), request.cached, request.recomputed, request.preemptions,
            request.status, request.reason, np.array(times, dtype=np.int64),
        )


def _widths(step: Step) -> tuple[int, ...] | None:
    return tuple(forward.width for forward in step.forwards) if len(step.forwards) > 1 else None
