"""Turns decisions and commits into the rows of the trace."""

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..policies.base import Chunk, DecodeBatch, Sequence, Step
from ..traces.request_table import RequestRow, request_table
from ..traces.run import Run
from ..traces.step_table import StepTable
from .span import Further, Span
from .stepper import Committed, Decision


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
    """Collects the trace of one run.

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
        self._recomputed = self._reprefill = 0

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
        for batch, sequence, tick, joined in decision.changes:
            self._follow(batch, sequence, tick, joined)
        self.events += [f"step {len(self.steps)}: {event}" for event in step.events]
        for sequence, reason in step.rejected:
            self._reject(sequence, reason)
        for sequence, _ in step.preempted:
            self._requests[sequence].preemptions += 1
        self.progress += step.totals.sampling
        self._recomputed = self._reprefill = 0
        for forward in step.forwards:
            for chunk in forward.chunks:
                self._run(self._requests[chunk.sequence], chunk, start)

    def _follow(self, batch: DecodeBatch, sequence: Sequence, tick: int, joined: bool) -> None:
        request = self._requests[sequence]
        if joined:
            request.joined = tick
        else:
            request.token_times += self._tick_ends.setdefault(batch, array("q"))[request.joined:tick]
            request.joined = None

    def _run(self, request: _Request, chunk: Chunk, start: int) -> None:
        if request.first_scheduled is None:
            request.first_scheduled, request.cached = start, chunk.cached
        if not chunk.decode:
            self._prefill(request, chunk.start, chunk.end)

    def _prefill(self, request: _Request, start: int, end: int) -> None:
        generated = request.sequence.generated
        peak = max(request.peak, request.sequence.prompt_len + generated - 1 if generated else 0)
        again = max(0, min(end, peak) - start)
        request.recomputed += again
        self._recomputed += again
        self._reprefill += max(0, min(end, peak + (generated > 0)) - start)
        self.progress += max(0, end - max(start, peak))
        request.peak = max(peak, end)

    def commit(self, step: Step, span: Span, committed: Committed) -> None:
        """The step was run and committed, and so were the further decode steps of its span."""
        further = span.further
        if further is None:
            row = self._row(step, 0, step.gauges.kv_used, committed)
            self.steps.append(row, span.start, span.first_end, span.host, span.device, _widths(step))
        else:
            self._append_all(step, span, further, committed)
        self._arrived = self._rejected = self._aborted = 0
        self._stamp(step, span)
        for sequence in committed.finished:
            request = self._requests[sequence]
            request.status, request.finish = "finished", span.end

    def _append_all(self, step: Step, span: Span, further: Further, committed: Committed) -> None:
        """The first step of a span, those like it, and the last, which differs in what its commit changed."""
        middle, kv, host = Committed(step.gauges, (), 0), step.gauges.kv_used, span.host
        ends = [span.first_end, *further.ends[-2:].tolist()]
        self.steps.append(self._row(step, 0, kv, middle), span.start, span.first_end, host, span.device)
        self._arrived = self._rejected = self._aborted = 0
        self.steps.append_series(
            self._row(step, 1, kv, middle), span.first_end, further.ends[:-1], further.used[:-1],
            context_increment=step.totals.decode_seqs, host=host, device=further.device[:-1],
        )
        row = self._row(step, len(further.ends), further.used[-1], committed)
        self.steps.append(row, ends[-2], ends[-1], host, float(further.device[-1]))

    def _row(self, step: Step, place: int, kv: int, committed: Committed) -> tuple[int, ...]:
        """The counts of the step at `place` in its span; `kv`: units held after its scheduling."""
        totals, gauges, end = step.totals, step.gauges, committed.gauges
        sampled = totals.sampling - committed.wasted
        return (
            gauges.running, gauges.waiting, totals.width, totals.prefill_seqs, totals.decode_seqs,
            totals.prefill_tokens, totals.padded_tokens, totals.decode_seqs, totals.cached,
            self._recomputed, self._reprefill, totals.context + place * totals.decode_seqs,
            sampled, committed.wasted, self._arrived, len(step.admitted), len(step.resumed),
            step.prefix_queries, step.prefix_hits, len(step.preempted), len(committed.finished),
            self._rejected, self._aborted, kv, self._kv_total, end.running, end.waiting,
            kv if end is gauges else end.kv_used, sampled if end.logged_tokens is None else end.logged_tokens,
            end.pending_tokens or 0,
        )

    def _stamp(self, step: Step, span: Span) -> None:
        for forward in step.forwards:
            if forward.decode is not None:
                ends = self._tick_ends.setdefault(forward.decode, array("q"))
                ends.append(span.first_end)
                if span.further is not None:
                    ends.frombytes(span.further.ends.tobytes())
            for chunk in forward.chunks:
                if chunk.samples:
                    self._requests[chunk.sequence].token_times.append(span.end)

    def _reject(self, sequence: Sequence, reason: str) -> None:
        self._requests[sequence].status, self._requests[sequence].reason = "rejected", reason
        self._rejected += 1

    def explain(self, sequence: Sequence, reason: str) -> None:
        """Say why a request was not finished."""
        self._requests[sequence].reason = reason

    def run(self, meta: dict[str, Any]) -> Run:
        """The trace so far. Once only."""
        for batch in self._tick_ends:
            for owner, sequence, tick, joined in batch.take_journal():
                self._follow(owner, sequence, tick, joined)
        rows = [self._request_row(request) for request in self._requests.values()]
        return Run(self.steps.build(), request_table(rows), meta)

    def _request_row(self, request: _Request) -> RequestRow:
        sequence, times = request.sequence, request.token_times
        if request.joined is not None and sequence.clock in self._tick_ends:
            times += self._tick_ends[sequence.clock][request.joined:]
        return RequestRow(
            sequence.id, request.arrival, request.first_scheduled, times[0] if times else None, request.finish,
            sequence.prompt_len, len(times), request.cached, request.recomputed, request.preemptions,
            request.status, request.reason, np.array(times, dtype=np.int64),
        )


def _widths(step: Step) -> tuple[int, ...] | None:
    return tuple(forward.width for forward in step.forwards) if len(step.forwards) > 1 else None
