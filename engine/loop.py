"""The engine's loop on a SimPy clock: one process for arrivals, one that serves."""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence as Ids
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import simpy

from ..policies.base import EngineFault, Gauges, Policy, Sequence, Step, Tokens
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
from .stepper import Decision, Stepper
from .times import SECOND, to_ns, to_seconds

WORTH = 3
"""Fewer further steps than this are decided one by one."""

THRASHING = 100_000
"""Steps in a row that compute nothing new before the run is called stalled."""

UNSETTLED = Gauges(-1, -1)
"""In place of the gauges after a commit, once a request has come."""

Events = Generator[simpy.Event, Any, None]


@dataclass(slots=True)
class _Launched:
    """A step that was scheduled at `start` (nanoseconds). `hidden`: another one was in flight then. `deciding`: seconds
    of the policy's own work, where they are measured."""

    step: Step
    start: int
    hidden: bool
    deciding: float = 0.0
    result: StepResult | None = None


class Loop:
    """Serves one pass over a workload with one policy on one backend, and records it.

    Where the policy overlaps, a step is scheduled and launched before the output of the one ahead of it is committed,
    and the next one as soon as that is done. The device takes a step when it has ended the one ahead of it and the
    step's own host seconds are over.

    With `audit` the laws are checked after every step (decode steps decided at once count as one). `outputs`: as long
    as the workload says, or until the backend says that they ended (at most max_tokens). `outcome` afterwards:
    completed, stalled, engine fault, failed or interrupted, with `report` saying why. Time is in nanoseconds, and
    requests that arrive at the instant a step is scheduled are in time for it.
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
        self._flying: deque[_Launched] = deque()
        self._depth = 1 if policy.overlap else 0
        self._device_free = 0
        self._settled = UNSETTLED

    def run(self) -> None:
        """Serve until everything is accounted for. Raises `PolicyError`, `LawBroken`, or what the backend raises."""
        try:
            self._env.run(until=self._env.process(self._serve()))
            if self._audit is not None:
                self._audit.close()
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
        self._settled = UNSETTLED
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
            if self._flying:
                yield from self._land()
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
        further = self._carry_on() if self._depth else None
        if further is not None:
            yield from self._run_on(further)
            return
        launched = self._launch()
        if len(self._flying) > self._depth:
            yield from self._land()
        yield from self._watch(launched)

    def _launch(self) -> _Launched:
        """Schedule a step and start it."""
        decision = self._stepper.schedule(to_seconds(self.now_ns))
        return self._take_off(decision, self.now_ns)

    def _take_off(self, decision: Decision, start: int) -> _Launched:
        step = decision.step
        self.recorder.decide(decision, start)
        if self._audit is not None:
            self._audit.decide(step, start)
        if not step.empty:
            self._backend.launch(step)
        hidden = any(not other.step.empty for other in self._flying)
        launched = _Launched(step, start, hidden, self._stepper.take_seconds())
        self._flying.append(launched)
        return launched

    def _land(self, further: Further | None = None) -> Events:
        """Wait for the output of the oldest step in flight, and of those decided with it, and commit it."""
        launched = self._flying.popleft()
        step = launched.step
        span, sampled = self._span(launched, further)
        yield self._env.timeout(max(0, span.end - self.now_ns))
        self._device_free = span.end
        ended = () if launched.result is None else launched.result.ended
        committed = self._stepper.commit(step, sampled, span.steps, ended)
        self._settled = committed.gauges
        self.recorder.commit(step, span, committed)
        if self._audit is not None:
            self._audit.commit(committed)
        for sequence in (*(sequence for sequence, _ in step.rejected), *committed.finished):
            self._end(sequence)

    def _span(self, launched: _Launched, further: Further | None) -> tuple[Span, Mapping[Sequence, Ids[int]]]:
        """When a step ends, and what it gives; together with as many further decode steps as are decided by it."""
        step, start, end = launched.step, launched.start, self._end_of(launched)
        result = launched.result
        if result is None:
            return Span(start, end, 0.0, 0.0), {}
        if not self._depth:
            further = self._further(step, end, result.host_seconds)
        span = Span(start, end, result.host_seconds, result.device_seconds, further)
        return span, EmulatedSample(step.sampling, span.steps) if further else result.sampled

    def _end_of(self, launched: _Launched) -> int:
        """When the output of a step is there: it waits for the step ahead, but does its host part meanwhile."""
        if launched.step.empty:
            empty = 0 if launched.hidden else to_ns(self._backend.empty_step)
            return max(launched.start, self._device_free) + empty
        if launched.result is None:
            launched.result = _after(launched.deciding, self._backend.collect())
        waited = max(0, self._device_free - launched.start - to_ns(launched.result.host_seconds))
        return launched.start + waited + to_ns(launched.result.seconds)

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

    # Several steps at once, one step ahead of the outputs

    def _carry_on(self) -> Further | None:
        """Decode steps like the one in flight that are scheduled before the next request arrives."""
        if len(self._flying) != 1 or self._changed(self._flying[0].step):
            return None
        launched = self._flying[0]
        steps = self._stepper.horizon(launched.step)
        seconds = self._backend.series(launched.step, steps) if steps >= WORTH else None
        if seconds is None:
            return None
        end = self._end_of(launched)
        host_seconds = launched.result.host_seconds if launched.result is not None else 0.0
        host = to_ns(host_seconds)
        device = np.rint(seconds * SECOND).astype(np.int64) - host
        if min(end - self.now_ns, int(device.min())) < host:
            return None  # the device would wait for the host
        ends = end + np.cumsum(device)
        starts = np.concatenate([[self.now_ns, end], ends[:-2]])
        coming = self._feed.next_ns
        steps = steps if coming is None else int(np.searchsorted(starts, coming, side="left"))
        if steps < WORTH:
            return None
        used = self._stepper.extend(launched.step, steps)
        return Further(ends[:steps - 1], seconds[:steps - 1] - host_seconds, used[:-1], starts[:steps], used)

    def _changed(self, step: Step) -> bool:
        """The next step would not find the queues as this one left them."""
        now = self._settled
        return step.empty or (now.running, now.waiting) != (step.gauges.running, step.gauges.waiting)

    def _run_on(self, further: Further) -> Events:
        launched = self._flying[0]
        assert further.starts is not None and further.after is not None
        yield from self._land(further)
        step = Step(replace(launched.step.gauges, kv_used=further.after[-1]), launched.step.forwards)
        last = self._take_off(self._stepper.carry_on(step), int(further.starts[-1]))
        last.hidden = True
        yield from self._watch(last)

    # Watching

    def _watch(self, launched: _Launched) -> Events:
        """End a run in which nothing will ever happen, or in which nothing new is computed any more."""
        step = launched.step
        moved = not step.empty or step.preempted or step.rejected or launched.hidden
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


def _after(deciding: float, result: StepResult) -> StepResult:
    """With the policy's own work ahead of the step."""
    if not deciding:
        return result
    return replace(result, seconds=deciding + result.seconds, host_seconds=deciding + result.host_seconds)
