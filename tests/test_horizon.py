"""Decode steps that are decided at once leave the same trace, to the byte, as those decided one by one."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from arcsim.policies.base import Policy
from arcsim.policies.find import known_policies
from arcsim.sim.latency.affine import Affine
from arcsim.traces.run import Run

from .drawing import again, built, closed_loops, stable, workloads
from .serving import SECOND_EACH, Spanning, Watching, continuous, request, serve

AHEAD = {name: policy for name, policy in known_policies().items() if policy.horizon is not Policy.horizon}

LATENCIES = (
    SECOND_EACH,
    Affine(decode_step=0.5, prefill_step=1.0, row=0.25, context_token=0.01),
    Affine(decode_step=1 / 3, prefill_step=0.7, host_row=0.013, row=0.1, context_token=0.0173),
)


def files(run: Run) -> Mapping[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder) / "run")
        return {path.name: path.read_bytes() for path in (Path(folder) / "run").iterdir()}


def same(a: Run, b: Run) -> None:
    """As tables and as files; NaN times of those that never ran compare as files do."""
    assert a.steps.equals(b.steps) and repr(a.requests.to_pylist()) == repr(b.requests.to_pylist())
    assert files(a) == files(b)


@pytest.mark.parametrize("name", AHEAD)
@stable(80)
@given(st.data())
def test_steps_at_once_are_the_steps_one_by_one(name: str, data: st.DataObject) -> None:
    """Whatever arrives, ends, waits or is preempted. (Mutations tried, each fails here: a horizon one step too long,
    one that ignores the next arrival or lets in who arrives on its last step, blocks given out late.)"""
    policy = data.draw(built(AHEAD[name]))
    requests, loop = data.draw(workloads(most=4)), data.draw(closed_loops())
    latency = data.draw(st.sampled_from(LATENCIES))
    single = serve(policy, requests, Watching(latency), answer=loop.session())
    spans = serve(again(policy), requests, Spanning(latency), answer=loop.session(), audit=data.draw(st.booleans()))
    assert single.outcome == spans.outcome
    same(single.run, spans.run)


@pytest.mark.parametrize("at", [49.0, 50.0, 50.000000001, 50.5, 51.0])
def test_who_arrives_on_the_end_of_a_step_is_in_time_for_the_next(at: float) -> None:
    """Steps of one second; the span must end with the step that the arrival is in time for, or before it."""
    requests = [request("a", 4, 100), request("b", 4, 20, at)]
    single, spans = (serve(continuous(), requests, backend) for backend in (Watching(), Spanning()))
    assert spans.requests["b"]["first_scheduled"] == -(-at // 1)
    same(single.run, spans.run)


def test_most_steps_of_a_long_decode_are_decided_together() -> None:
    """Else the tests above would compare a thing with itself."""
    backend = Spanning()
    served = serve(continuous(2000, 16), [request("a", 64, 1000), request("b", 9, 900)], backend)
    assert len(served.run.steps) == 1000 and backend.launches < 10


@pytest.mark.parametrize("blocked", ["seats", "budget", "memory"])
def test_a_queue_that_cannot_move_does_not_stop_the_horizon(blocked: str) -> None:
    policy = {
        "seats": continuous(seats=1), "budget": continuous(seats=1, budget=1),
        "memory": continuous(100, 4, prefix_cache=False),
    }[blocked]
    backend = Spanning()
    requests = [request("a", 4 if blocked != "budget" else 1, 200), request("b", 250, 100)]
    served = serve(policy, requests, backend)
    assert served.outcome == "completed" and backend.launches < len(served.run.steps) / 2
    same(served.run, serve(again(policy), requests, Watching()).run)
