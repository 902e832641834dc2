"""Outputs that end where the backend says, at the latest at max_tokens; and the time that a policy's own work takes.

Tried by hand, each fails here: the end noted for the token after, the end of a row in a decode batch left to its
calendar, the expected length kept as the wanted one, a policy's time left out of its step.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from arcsim.engine.backend import StepResult
from arcsim.engine.ends import Ends
from arcsim.engine.errors import BackendFailed
from arcsim.engine.loop import Loop
from arcsim.engine.stepper import Stepper
from arcsim.policies.base import (
    Chunk,
    DecodeBatch,
    EmulatedSample,
    EngineConfig,
    Forward,
    Gauges,
    Policy,
    Sequence,
    Step,
    Tokens,
)
from arcsim.policies.find import find_policy
from arcsim.workloads.arrival import Arrival
from arcsim.workloads.requests import OpenSession


class Ending:
    """Ends each output at the token that `at` names, and fails at a step if it is told to."""

    def __init__(self, at: Mapping[str, int], fails: int | None = None) -> None:
        self.empty_step = 1.0
        self.clock: Callable[[], float] | None = None
        self._at = at
        self._fails = fails
        self._steps = 0
        self._result = StepResult(0.0, {})

    def launch(self, step: Step) -> None:
        self._steps += 1
        if self._steps == self._fails:
            raise BackendFailed("out of memory: lower engine.num_blocks")
        sampling = list(step.sampling())
        ended = [each for each in sampling if each.generated + 1 == self._at.get(each.id)]
        self._result = StepResult(1.0, EmulatedSample(step.sampling), ended=ended)

    def collect(self) -> StepResult:
        return self._result

    def series(self, step: Step, steps: int) -> NDArray[np.float64] | None:
        return None


REQUESTS = tuple(Arrival(name, 0.0, ((f"p{name}", 5 + row),), 3, 8) for row, name in enumerate("abcd"))


def _policy(name: str) -> Policy:
    found = find_policy(name)
    return found(EngineConfig(block_size=4, num_blocks=40), found.Options())


@pytest.mark.parametrize("name", ["continuous", "mistralrs_paged"])
def test_the_backend_ends_outputs(name: str) -> None:
    loop = Loop(_policy(name), OpenSession(REQUESTS), Ending({"a": 1, "b": 2, "c": 5}), audit=True, outputs="sampled")
    loop.run()
    assert loop.outcome == "completed"
    requests = loop.recorder.run({}).requests
    assert dict(zip(requests.column("id").to_pylist(), requests.column("output_tokens").to_pylist(), strict=True)) == {
        "a": 1, "b": 2, "c": 5, "d": 8,
    }


@pytest.mark.parametrize("name", ["continuous", "mistralrs_paged"])
def test_forced_outputs_have_the_workloads_length(name: str) -> None:
    loop = Loop(_policy(name), OpenSession(REQUESTS), Ending({}), audit=True)
    loop.run()
    assert loop.recorder.run({}).requests.column("output_tokens").to_pylist() == [3, 3, 3, 3]


def test_who_runs_on_after_the_end_is_named_again() -> None:
    """Some engines run a finished sequence one step further; its token is then wasted."""
    ends, batch = Ends(), DecodeBatch()
    one, other = Sequence("one", [1, 2], 9), Sequence("other", [1, 2], 9)
    for each in (one, other):
        ends.expect(each, 9)
        each.computed = 2
        each.append([7])
        batch.join(each)
    step = Step(Gauges(2, 0), (Forward((), batch),))
    ends.follow(batch, batch.take_journal())
    ends.end([one])
    for _ in range(3):
        assert ends.stopped(step, 1) == [one]
        batch.advance({one: [8], other: [8]})
    assert (ends.length(one), ends.length(other)) == (2, 9)


def test_what_ends_outside_a_decode_batch() -> None:
    ends, one = Ends(), Sequence("one", [1, 2], 9)
    ends.expect(one, 9)
    step = Step(Gauges(1, 0), (Forward((Chunk(one, 0, 2),)),))
    assert ends.stopped(step, 1) == []
    ends.end([one])
    assert ends.stopped(step, 1) == [one]


def test_a_backend_that_fails_ends_the_run_and_keeps_the_trace() -> None:
    loop = Loop(_policy("continuous"), OpenSession(REQUESTS), Ending({}, fails=3), audit=True)
    loop.run()
    assert (loop.outcome, loop.report) == ("failed", "out of memory: lower engine.num_blocks")
    assert len(loop.recorder.run({}).steps) == 2


def test_the_policys_time_is_part_of_its_step() -> None:
    """A clock that moves by 3 s at each look: each verb takes 3 s. `add` and `schedule` come before the first step."""
    now = [0.0]

    def clock() -> float:
        now[0] += 3.0
        return now[0]

    backend = Ending({})
    backend.clock = clock
    loop = Loop(_policy("continuous"), OpenSession(REQUESTS[:1]), backend)
    loop.run()
    steps = loop.recorder.run({}).steps
    whole = steps.column("t_end").to_numpy() - steps.column("t_start").to_numpy()
    assert whole.tolist() == [7.0, 7.0, 7.0]
    assert steps.column("host_seconds").to_pylist() == [6.0, 6.0, 6.0]


def test_a_policy_is_not_timed_without_a_clock() -> None:
    stepper = Stepper(_policy("continuous"))
    stepper.arrive(Sequence("a", Tokens.of_pieces((("p", 3),)), 2), 2)
    stepper.schedule(0.0)
    assert stepper.take_seconds() == 0.0
