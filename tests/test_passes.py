"""For every policy, on pools too small for its requests: a pass looks at each request once at most, a step always ends,
and a run that cannot go on says so.

Mutations tried, and what catches each: a blocked request that is looked at again and again (the bound on calls), a
victim that is looked at again in its own pass (the law `once`).
"""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from arcsim.engine import loop
from arcsim.policies.base import EngineConfig, Policy, Step
from arcsim.policies.continuous import Continuous, ContinuousOptions
from arcsim.policies.find import known_policies
from arcsim.policies.mistralrs_paged import MistralrsPaged, MistralrsPagedOptions

from .drawing import engines, options_of, workloads
from .serving import Watching, request, serve

KNOWN = known_policies()
CALLS = 50_000
"""Far more function calls than a pass over eight requests takes."""


def bounded(schedule: Callable[[float], Step]) -> Callable[[float], Step]:
    """Raises where one call of `schedule` goes on and on."""

    def limited(now: float) -> Step:
        calls = 0

        def count(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > CALLS:
                raise RuntimeError(f"schedule() made more than {CALLS} calls")

        sys.setprofile(count)
        try:
            return schedule(now)
        finally:
            sys.setprofile(None)

    return limited


def fractions(policy: type[Policy]) -> dict[str, st.SearchStrategy[float]]:
    """Options that are shares, which `options_of` leaves alone."""
    known = {"watermark": st.sampled_from([0.0, 0.1, 0.5]), "waiting_served_ratio": st.sampled_from([0.0, 0.3, 1.2])}
    return {name: values for name, values in known.items() if name in policy.Options.model_fields}


def build(data: st.DataObject, policy: type[Policy]) -> Policy:
    fixed = {name: data.draw(values) for name, values in fractions(policy).items()}
    try:
        return policy(data.draw(engines(policy)), data.draw(options_of(policy.Options, **fixed)))
    except ValueError:
        assume(False)
        raise


def may_stall(policy: Policy) -> bool:
    """It lets in what can never fit, or reproduces the fault of preempting everybody while freed blocks arrive."""
    strict = getattr(policy.options, "strict_sglang", False)
    return strict or "door" in policy.exempt or not getattr(policy.options, "wait_for_freed", True)


@pytest.fixture(scope="module", autouse=True)
def impatient() -> Iterator[None]:
    """A run that computes nothing new is called stalled after 300 steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "THRASHING", 300)
        yield


@pytest.mark.parametrize("name", KNOWN)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_passes_end(name: str, data: st.DataObject) -> None:
    policy = build(data, KNOWN[name])
    policy.schedule = bounded(policy.schedule)  # type: ignore[assignment, method-assign]
    served = serve(policy, data.draw(workloads()))
    if served.outcome == "stalled":
        assert may_stall(policy), served.loop.report
        unfinished = {id for id, row in served.requests.items() if row["status"] == "unfinished"}
        assert unfinished and all(served.requests[id]["reason"] for id in unfinished)
        assert "stalled" in served.loop.report
    else:
        assert served.outcome in ("completed", "engine fault")


def test_a_victim_is_not_looked_at_again_in_its_pass() -> None:
    """The head has waited too long and takes the blocks of the request that this very pass let in before it. That one
    is in front then; a pass that looked at it again would be on its way to one without end."""
    engine = EngineConfig(block_size=4, num_blocks=6, max_num_seqs=8)
    options = {"decode": "bucketed", "victim": "newest", "caching": "none", "waiting_timeout": 3}
    policy = MistralrsPaged(engine, MistralrsPagedOptions.model_validate(options))
    served = serve(policy, [request("r0", 1, 3), request("r1", 5, 3), request("r2", 11, 4)])
    assert served.outcome == "completed" and any("r2 waited" in event for event in served.loop.recorder.events)


class Restless(Continuous):
    """Looks again at a request that did not fit, as in the report of a scheduler that never returned."""

    def _admit_head(self, plan: Any, head: Any) -> Any:
        blocked = super()._admit_head(plan, head)
        return "" if blocked == "memory" else blocked


def test_a_pass_without_end_is_caught() -> None:
    """The bound of this module really stops one."""
    engine = EngineConfig(block_size=4, num_blocks=4, max_num_seqs=8, max_num_batched_tokens=64)
    policy = Restless(engine, ContinuousOptions.model_validate({}))
    policy.schedule = bounded(policy.schedule)  # type: ignore[assignment, method-assign]
    with pytest.raises(ValueError, match="more than"):
        serve(policy, [request("a", 12, 4), request("b", 12, 4)], Watching())
