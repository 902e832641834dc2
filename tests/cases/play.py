"""Plays a reported case step by step, without time, and notes what the reports speak of."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from arcsim.engine.stepper import Stepper
from arcsim.policies.base import EngineConfig, Policy, Sequence, Step, Tokens
from arcsim.policies.continuous import Continuous, ContinuousOptions

NEVER = -1
Pieces = Iterable[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Request:
    """`at` is the step from which it waits. The prompt is its own text of that many tokens, or the given pieces."""

    id: str
    at: int
    prompt: int
    output: int
    priority: int = 0
    pieces: tuple[tuple[str, int], ...] | None = None
    max_tokens: int | None = None

    def sequence(self) -> Sequence:
        tokens = Tokens.of_pieces(self.pieces or ((f"prompt of {self.id}", self.prompt),))
        most = self.output if self.max_tokens is None else self.max_tokens
        return Sequence(self.id, tokens, most, arrival=float(self.at), priority=self.priority)


def alike(count: int, at: int, prompt: int, output: int, name: str = "q", **more: Any) -> list[Request]:
    return [Request(f"{name}{index}", at, prompt, output, **more) for index in range(count)]


@dataclass(slots=True)
class Told:
    """Of one request: the steps at which things happened (-1: never), and counts."""

    admitted: int = NEVER
    first_token: int = NEVER
    finished: int = NEVER
    preempted: int = 0
    cached_at_admission: int = 0
    tokens: list[int] = field(default_factory=list)  # the step of each


@dataclass(slots=True)
class Outcome:
    """What a case came to.

    `gauges`: running and waiting after scheduling, at each step. `dropped`: computed tokens whose KV was preempted;
    `recomputed`: those that were computed again. `lookups`: waiting requests looked at, over all passes.
    """

    policy: Policy
    told: dict[str, Told] = field(default_factory=dict)
    gauges: list[tuple[int, int]] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    prefill_tokens: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    dropped: int = 0
    recomputed: int = 0
    lookups: int = 0
    queries: int = 0
    hits: int = 0

    @property
    def steps(self) -> int:
        return len(self.gauges)

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """The gauges, run-length encoded."""
        return [(*pair, len(list(same))) for pair, same in groupby(self.gauges)]

    @property
    def preemptions(self) -> int:
        return sum(told.preempted for told in self.told.values())

    @property
    def finished(self) -> int:
        return sum(told.finished != NEVER for told in self.told.values())

    @property
    def peak_running(self) -> int:
        return max((running for running, _ in self.gauges), default=0)


Watch = Callable[[int, Step], None]


class Play:
    """One case: the requests of step k wait before it is scheduled, and leave at its end."""

    def __init__(self, policy: Policy, requests: Iterable[Request], watch: Watch | None = None) -> None:
        self.outcome = Outcome(policy)
        self._stepper = Stepper(policy)
        self._coming = sorted(requests, key=lambda request: request.at)
        self._peak: dict[Sequence, int] = {}
        self._step = 0
        self._watch = watch

    def run(self, limit: int = 200_000) -> Outcome:
        while self._step < limit:
            self._arrive()
            if self._stepper.live:
                self._serve()
            elif self._coming:
                self.outcome.gauges.append((0, 0))
            else:
                break
            self._step += 1
        return self.outcome

    def _arrive(self) -> None:
        while self._coming and self._coming[0].at <= self._step:
            request = self._coming.pop(0)
            sequence = request.sequence()
            self.outcome.told[request.id] = Told()
            self._peak[sequence] = 0
            reason = self._stepper.arrive(sequence, request.output)
            if reason is not None:
                self.outcome.rejected[request.id] = reason

    def _serve(self) -> None:
        step = self._stepper.schedule(float(self._step)).step
        if self._watch is not None:
            self._watch(self._step, step)
        self._note(step)
        committed = self._stepper.commit(step, step.emulated())
        for sequence in committed.finished:
            self.outcome.told[sequence.id].finished = self._step

    def _note(self, step: Step) -> None:
        outcome = self.outcome
        outcome.gauges.append((step.gauges.running, step.gauges.waiting))
        outcome.prefill_tokens.append(step.totals.prefill_tokens)
        outcome.widths.append(step.totals.width)
        outcome.lookups += len(step.examined)
        outcome.queries += step.prefix_queries
        outcome.hits += step.prefix_hits
        for sequence in step.admitted:
            told = outcome.told[sequence.id]
            told.admitted, told.cached_at_admission = self._step, sequence.cached
        for sequence, _ in step.preempted:
            outcome.told[sequence.id].preempted += 1
            outcome.dropped += self._peak[sequence]
        for forward in step.forwards:
            for chunk in forward.all_chunks():
                self._ran(chunk.sequence, chunk.start, chunk.end, chunk.samples)

    def _ran(self, sequence: Sequence, start: int, end: int, samples: bool) -> None:
        self.outcome.recomputed += max(0, min(end, self._peak[sequence]) - start)
        self._peak[sequence] = max(self._peak[sequence], end)
        if samples:
            told = self.outcome.told[sequence.id]
            told.first_token = self._step if told.first_token == NEVER else told.first_token
            told.tokens.append(self._step)


def play(policy: Policy, requests: Iterable[Request], limit: int = 200_000, watch: Watch | None = None) -> Outcome:
    return Play(policy, requests, watch).run(limit)


def continuous(
    blocks: int, size: int = 16, seats: int | None = 256, budget: int | None = 2048,
    kind: type[Continuous] = Continuous, **options: Any,
) -> Continuous:
    """`continuous` without a prefix cache, unless the options say otherwise."""
    engine = EngineConfig(block_size=size, num_blocks=blocks, max_num_seqs=seats, max_num_batched_tokens=budget)
    return kind(engine, ContinuousOptions(**({"prefix_cache": False} | options)))
