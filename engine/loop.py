"""The engine's loop on a SimPy clock: one process for arrivals, one that serves."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import simpy

from ..policies.base import EngineFault, Policy, Sequence, Step, Tokens
from ..policies.sample import EmulatedSample
from ..workloads.arrival import Arrival
from ..workloads.workload import Session
from .audit import Audit
from .backend import Backend, StepResult
from .errors import BackendFailed
from .feed import Feed
from .recorder import Recorder
from .span import Further, Span
from .stall import stall_report, waits_for
from .stepper import Stepper
from .times import SECOND, to_ns, to_seconds

WORTH = 3
"""Fewer further steps than this are decided one by one."""

THRASHING = 100_000
"""Steps in a row that compute nothing new before the run is called stalled."""

Events = Generator[simpy.Event, Any, None]


class Loop:
    """Serves one pass over a workload with one policy on one backend, and records it.

    With `audit` the laws are checked after every step. `outputs`: as long as the workload says, or until the backend
    says that they ended (at most max_tokens). `outcome` afterwards: completed, stalled, engine fault, failed or
    interrupted, with `report` saying why. Time is in nanoseconds, and requests that arrive at the instant a step is
    scheduled are in time for it.
    """

    def __init__(
        self, policy: Policy, session: Session, backend: Backend, *, audit: bool = False,
        progress: Callable[[int, float], None] | None = None, outputs: Literal["forced", "sampled"] = "forced",
    ) -> None:
        self.recorder = Recorder(policy.ledger.usable if policy.ledger is not None else 0)
        self.outcome = "unfinished"
        self.report = ""
        self._env = simpy.Environment()
        self._arrivals = self._env.process(self._arrive())
        self._policy = policy
        self._stepper = Stepper(policy, backend.clock)
        self._forced = outputs == "forced"
        self._session = session
        self._backend = backend
        self._audit = Audit(policy, self._stepper.ends) if audit else None
        self._progress = progress
        self._feed = Feed(session.arrivals())
        self._inbox: list[tuple[int, Arrival]] = []
        self._arrived = self._env.event()
        self._ended = 0
        self._empty_steps = self._fruitless = self._seen = 0

    def run(self) -> None:
        """Serve until everything is accounted for. Raises `PolicyError`, `LawBroken`, or what the backend raises."""
        try:
            self._env.run(until=self._env.process(self._serve()))
        except EngineFault as fault:
            self._stop("engine fault", str(fault))
        except BackendFailed as failure:
            self._stop("failed", str(failure))
        except KeyboardInterrupt:
            self._stop("interrupted", f"interrupted at {self.now:.3f} s of the run's clock")

    @property
    def now_ns(self) -> int:
        return int(self._env.now)

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        return to_seconds(self.now_ns)

    # Arrivals

    def _arrive(self) -> Events:
        """Put requests into the inbox at their time; an interrupt says that an earlier one was added."""
        while True:
            try:
                yield self._until_next()
            except simpy.Interrupt:
                continue
            self._inbox += self._feed.take(self.now_ns)
            if self._inbox and not self._arrived.triggered:
                self._arrived.succeed()

    def _until_next(self) -> simpy.Event:
        coming = self._feed.next_ns
        return self._env.event() if coming is None else self._env.timeout(max(0, coming - self.now_ns))

    def _let_in(self) -> Events:
        """Requests of this instant come first, and so do those that a rejected one brings with it."""
        while self._due() or self._inbox:
            if self._due():
                yield self._env.timeout(0)
            inbox, self._inbox = self._inbox, []
            for time, arrival in inbox:
                self._submit(time, arrival)

    def _due(self) -> bool:
        coming = self._feed.next_ns
        return coming is not None and coming <= self._env.now

    def _submit(self, time: int, arrival: Arrival) -> None:
        sequence = Sequence(
            arrival.id, Tokens.of_pieces(arrival.prompt), arrival.max_tokens, arrival=to_seconds(time),
            priority=arrival.priority,
        )
        reason = self._stepper.arrive(sequence, arrival.output if self._forced else arrival.max_tokens)
        self.recorder.arrive(sequence, time, reason)
        if self._audit is not None:
            self._audit.arrive(sequence, reason)
        self._empty_steps = 0
        if reason is not None:
            self._end(sequence)

    def _end(self, sequence: Sequence) -> None:
        """A request left the engine; a closed loop may send its next one."""
        self._ended += 1
        if self._progress is not None:
            self._progress(self._ended, self.now)
        following = self._session.on_finish(sequence.id, self.now)
        if following is not None:
            self._feed.add(following)
            self._arrivals.interrupt()

    # Serving

    def _serve(self) -> Events:
        while self.outcome == "unfinished":
            yield from self._let_in()
            if self._stepper.live:
                yield from self._step()
                continue
            self._stepper.idle()
            if self._feed.next_ns is None:
                self.outcome = "completed"
            else:
                yield from self._sleep()

    def _sleep(self) -> Events:
        """Until the next request arrives."""
        self._arrived = self._env.event()
        yield self._arrived

    def _step(self) -> Events:
        start = self.now_ns
        decision = self._stepper.schedule(to_seconds(start))
        step = decision.step
        self.recorder.decide(decision, start)
        if self._audit is not None:
            self._audit.decide(step, start)
        span, result = self._run_step(step, start)
        yield self._env.timeout(span.end - start)
        committed = self._stepper.commit(step, result.sampled, span.steps, result.ended)
        self.recorder.commit(step, span, committed)
        if self._audit is not None:
            self._audit.commit(committed)
        for sequence in (*(sequence for sequence, _ in step.rejected), *committed.finished):
            self._end(sequence)
        yield from self._watch(step)

    def _run_step(self, step: Step, start: int) -> tuple[Span, StepResult]:
        """Run a step, and as many further decode steps as are decided by it. The policy's own time comes first."""
        deciding = self._stepper.take_seconds()
        result = self._result(step)
        end, host = start + to_ns(deciding + result.seconds), deciding + result.host_seconds
        further = self._further(step, end, host)
        if further is not None:
            result = replace(result, sampled=EmulatedSample(step.sampling, 1 + len(further.ends)))
        return Span(start, end, host, result.device_seconds, further), result

    def _result(self, step: Step) -> StepResult:
        if step.empty:
            return StepResult(self._backend.empty_step, {})
        self._backend.launch(step)
        return self._backend.collect()

    def _further(self, step: Step, end: int, host: float) -> Further | None:
        """Decode steps like the one that ends at `end` which start before the next request arrives."""
        if step.empty or self._backend.clock is not None:  # what is measured is run one by one
            return None
        steps = self._stepper.horizon(step)
        seconds = self._backend.series(step, steps) if steps >= WORTH else None
        if seconds is None:
            return None
        ends = end + np.cumsum(np.rint(seconds * SECOND).astype(np.int64))
        coming = self._feed.next_ns
        if coming is not None:
            steps = 0 if coming <= end else 1 + int(np.searchsorted(ends[:-1], coming, side="left"))
        if not steps:
            return None
        return Further(ends[:steps], seconds[:steps] - host, self._stepper.extend(step, steps))

    # Watching

    def _watch(self, step: Step) -> Events:
        """End a run in which nothing will ever happen, or in which nothing new is computed any more."""
        moved = not step.empty or step.preempted or step.rejected
        self._empty_steps = 0 if moved else self._empty_steps + 1
        self._fruitless = 0 if self.recorder.progress > self._seen else self._fruitless + 1
        self._seen = self.recorder.progress
        if self._fruitless >= THRASHING:
            self._stall(f"{THRASHING} steps in a row computed nothing new")
        elif self._empty_steps >= self._policy.stall_after and not self._inbox:
            if self._feed.next_ns is None:
                self._stall(f"{self._empty_steps} empty steps in a row, and nothing more arrives")
            else:
                yield from self._sleep()

    def _stall(self, why: str) -> None:
        self._stop("stalled", stall_report(self._policy, why))
        for sequence in self._stepper.live:
            self.recorder.explain(sequence, waits_for(self._policy, sequence))

    def _stop(self, outcome: str, report: str) -> None:
        self.outcome, self.report = outcome, report

