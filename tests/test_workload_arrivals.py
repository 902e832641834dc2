"""The rules for arrivals, and the closed loop."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError

from arcsim.workloads.arrivals import AnyArrivals, Arrivals
from arcsim.workloads.build import build
from arcsim.workloads.closed_loop import ClosedLoopWorkload
from arcsim.workloads.config import load_config
from arcsim.workloads.streams import stream


def arrivals(rule: Any) -> Arrivals:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyArrivals)
    rule = adapter.validate_python(rule)
    assert isinstance(rule, Arrivals)
    return rule


def times(rule: Any, count: int, seed: int = 0) -> list[float]:
    return arrivals(rule).times(count, stream(seed, "test"))


@given(
    st.one_of(
        st.just("at_once"),
        st.builds(lambda rate: {"poisson": rate}, st.floats(0.001, 1e4)),
        st.builds(lambda rate: {"uniform": rate}, st.floats(0.001, 1e4)),
        st.builds(lambda rate, cv: {"gamma": {"rate": rate, "cv": cv}}, st.floats(0.001, 1e4), st.floats(0.1, 8)),
    ),
    st.integers(1, 200), st.integers(0, 2**40),
)
def test_times_are_ordered_counted_and_reproducible(rule: Any, count: int, seed: int) -> None:
    drawn = times(rule, count, seed)
    assert len(drawn) == count
    assert drawn[0] >= 0 and all(before <= after for before, after in zip(drawn, drawn[1:], strict=False))
    assert drawn == times(rule, count, seed)


@pytest.mark.parametrize(("rule", "variation"), [
    ({"poisson": 4}, 1.0), ({"gamma": {"rate": 4, "cv": 0.25}}, 0.25), ({"gamma": {"rate": 4, "cv": 2.0}}, 2.0),
    ({"uniform": 4}, 0.0),
])
def test_rate_and_variation_are_those_asked_for(rule: Any, variation: float) -> None:
    """Caught: taking the rate for the mean gap, and cv for cv squared."""
    gaps = np.diff(times(rule, 40_000))
    assert 1 / gaps.mean() == pytest.approx(4, rel=0.04)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05, abs=1e-6)


def test_explicit_times_are_taken_as_they_are() -> None:
    assert times({"explicit": [0, 0, 2.5]}, 3) == [0, 0, 2.5]
    with pytest.raises(ValueError, match="3 times for 2 requests"):
        times({"explicit": [0, 0, 2.5]}, 2)


@pytest.mark.parametrize(("rule", "reason"), [
    ("now", "one of at_once, poisson"),
    (3, "one of at_once, poisson"),
    ({"poisson": 0}, "greater than 0"),
    ({"poisson": float("inf")}, "finite"),
    ({"poisson": "2"}, "valid number"),
    ({"gamma": {"rate": 1}}, "required"),
    ({"explicit": []}, "at least 1 item"),
    ({"explicit": [1, 0]}, "must not go back"),
    ({"explicit": [-1]}, "greater than or equal to 0"),
    ({"closed_loop": 0}, "greater than 0"),
    ({"closed_loop": 2, "think_time": -1}, "greater than or equal to 0"),
])
def test_impossible_rules_are_refused(rule: Any, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        arrivals(rule)


def closed_loop(count: int, clients: int, think_time: float = 0.0) -> ClosedLoopWorkload:
    workload = build(load_config({
        "kind": "synthetic", "count": count, "prompt": 10, "output": {"uniform": [1, 50]},
        "arrivals": {"closed_loop": clients, "think_time": think_time},
    }))
    assert isinstance(workload, ClosedLoopWorkload)
    return workload


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 10), st.randoms(use_true_random=False))
def test_a_closed_loop_sends_each_request_once(count: int, clients: int, think_time: float, order: Any) -> None:
    """Whatever the order of ends: at most `clients` in flight, the next one `think_time` after an end."""
    session = closed_loop(count, clients, think_time).start()
    flying = [request.id for request in session.arrivals()]
    assert len(flying) == min(count, clients)
    seen, now = list(flying), 0.0
    while flying:
        now += 1.0
        ended = flying.pop(order.randrange(len(flying)))
        following = session.on_finish(ended, now)
        if following is not None:
            assert following.time == now + think_time
            flying.append(following.id)
            seen.append(following.id)
        assert len(flying) <= clients
    assert seen == [f"r{index}" for index in range(count)]


def test_a_closed_loop_starts_again_from_its_beginning() -> None:
    workload = closed_loop(6, 2)
    first = workload.start()
    assert first.on_finish("r0", 1.0) is not None
    again = workload.start()
    following = again.on_finish("r0", 1.0)
    assert following is not None and following.id == "r2"
