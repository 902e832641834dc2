"""Small runs of the engine for tests: requests by hand, steps of a second, and what was seen in each step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from string import ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arcsim.engine.backend import Backend
from arcsim.engine.loop import Loop
from arcsim.engine.stepper import Stepper
from arcsim.policies.base import Chunk, EmulatedSample, EngineConfig, Policy, Sequence, Step, Tokens
from arcsim.policies.continuous import Continuous, ContinuousOptions
from arcsim.policies.mistralrs_paged import MistralrsPaged, MistralrsPagedOptions
from arcsim.sim.backend import SimulatedBackend
from arcsim.sim.latency.affine import Affine
from arcsim.traces.run import Run
from arcsim.workloads.arrival import Arrival, Piece

SECOND_EACH = Affine(decode_step=1.0, prefill_step=1.0)
"""Every step takes one second, so that the k-th step (from 0) of a busy engine starts at k seconds."""

OnFinish = Callable[[str, float], Arrival | None]


def request(
    id: str, prompt: int | tuple[Piece, ...], output: int, at: float = 0.0, *, max_tokens: int | None = None,
    priority: int = 0,
) -> Arrival:
    """A request whose prompt is its own text of that many tokens, or the given pieces."""
    pieces = ((f"prompt of {id}", prompt),) if isinstance(prompt, int) else prompt
    return Arrival(id, at, pieces, output, output if max_tokens is None else max_tokens, priority)


def of_lengths(lengths: Iterable[int], output: int) -> list[Arrival]:
    """Requests A, B, C, ... (then AA, AB, ...) of these prompt lengths, all at once."""
    names = ("".join(letters) for size in (1, 2) for letters in product(ascii_uppercase, repeat=size))
    return [request(name, length, output) for name, length in zip(names, lengths, strict=False)]


def continuous(
    blocks: int = 1000, size: int = 4, seats: int | None = 64, budget: int | None = None, *,
    model_len: int | None = None, **options: Any,
) -> Continuous:
    engine = EngineConfig(block_size=size, num_blocks=blocks, max_num_seqs=seats, max_num_batched_tokens=budget,
                          max_model_len=model_len)
    return Continuous(engine, ContinuousOptions(**options))


def paged(blocks: int = 1000, size: int = 4, seats: int = 32, **options: Any) -> MistralrsPaged:
    """`blocks` with the null block, as the engine counts."""
    engine = EngineConfig(block_size=size, num_blocks=blocks, max_num_seqs=seats)
    return MistralrsPaged(engine, MistralrsPagedOptions(**options))


class Given:
    """A session of known requests; `answer` makes it a closed loop."""

    def __init__(self, requests: Iterable[Arrival], answer: OnFinish | None = None) -> None:
        self._requests = requests
        self._answer = answer

    def arrivals(self) -> Iterable[Arrival]:
        return self._requests

    def on_finish(self, id: str, now: float) -> Arrival | None:
        return None if self._answer is None else self._answer(id, now)


@dataclass(frozen=True, slots=True)
class Seen:
    """One step as it was launched. Rows as in `B9`: the sequence and its length before the step."""

    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    tokens: int
    gauges: tuple[int, int]
    preempted: tuple[str, ...]
    admitted: tuple[str, ...]
    resumed: tuple[str, ...]
    cached: tuple[int, ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, step: Step) -> "Seen":
        chunks = [chunk for forward in step.forwards for chunk in forward.all_chunks()]
        prefills = [chunk for chunk in chunks if not chunk.decode]
        return cls(
            tuple(_row(chunk) for chunk in prefills), tuple(_row(chunk) for chunk in chunks if chunk.decode),
            sum(chunk.length for chunk in prefills), (step.gauges.running, step.gauges.waiting),
            tuple(sequence.id for sequence, _ in step.preempted), tuple(sequence.id for sequence in step.admitted),
            tuple(sequence.id for sequence in step.resumed), tuple(chunk.cached for chunk in prefills),
            tuple(chunk.length for chunk in prefills),
        )


def _row(chunk: Chunk) -> str:
    return f"{chunk.sequence.id}{chunk.sequence.num_tokens}"


class Watching(SimulatedBackend):
    """Notes every step and makes the engine go step by step."""

    def __init__(self, latency: Any = SECOND_EACH, *, empty_step: float = 1.0) -> None:
        super().__init__(latency, empty_step=empty_step)
        self.seen: list[Seen] = []

    def launch(self, step: Step) -> None:
        self.seen.append(Seen.of(step))
        super().launch(step)

    def series(self, step: Step, steps: int) -> NDArray[np.float64] | None:
        return None


class Spanning(SimulatedBackend):
    """As the simulated arm runs: several decode steps at once where the policy says they are alike."""

    def __init__(self, latency: Any = SECOND_EACH, *, empty_step: float = 1.0) -> None:
        super().__init__(latency, empty_step=empty_step)
        self.launches = 0

    def launch(self, step: Step) -> None:
        self.launches += 1
        super().launch(step)


@dataclass(frozen=True, slots=True)
class Served:
    """A finished run, and what the engine did in each of its (non-empty) steps."""

    loop: Loop
    run: Run
    seen: list[Seen] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        return self.loop.outcome

    @property
    def requests(self) -> dict[str, dict[str, Any]]:
        """Rows of the request table by id."""
        return {row["id"]: row for row in self.run.requests.to_pylist()}

    def total(self, column: str) -> int:
        return int(self.run.column(column).sum())

    def mean(self, column: str) -> float:
        return float(self.run.column(column).mean())

    def ints(self, column: str) -> list[int]:
        return [int(value) for value in self.run.column(column)]


def serve(
    policy: Policy, requests: Iterable[Arrival], backend: Backend | None = None, *, answer: OnFinish | None = None,
    audit: bool = True,
) -> Served:
    """Serve the requests to the end, step by step unless another backend is given, with the laws checked."""
    used = Watching() if backend is None else backend
    loop = Loop(policy, Given(requests, answer), used, audit=audit)
    loop.run()
    return Served(loop, loop.recorder.run({}), used.seen if isinstance(used, Watching) else [])


def sequence_of(arrival: Arrival) -> Sequence:
    return Sequence(arrival.id, Tokens.of_pieces(arrival.prompt), arrival.max_tokens, arrival=arrival.time,
                    priority=arrival.priority)


def arrive(stepper: Stepper, *arrivals: Arrival) -> list[Sequence]:
    """Hand requests to the engine by hand; none may be rejected."""
    sequences = [sequence_of(arrival) for arrival in arrivals]
    for sequence, arrival in zip(sequences, arrivals, strict=True):
        assert stepper.arrive(sequence, arrival.output) is None
    return sequences


def tick(stepper: Stepper, now: float = 0.0) -> Step:
    """Schedule a step, run it on nothing and commit it."""
    step = stepper.schedule(now).step
    assert step.totals.width >= 0  # asked before the commit, as the engine does
    stepper.commit(step, EmulatedSample(step.sampling))
    return step
