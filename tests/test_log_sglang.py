"""SGLang's log lines from a trace; the golden traces' own lines are compared in test_golden_sglang."""

from datetime import UTC, datetime

import pytest

from arcsim.engine.loop import Loop
from arcsim.policies.base import EngineConfig
from arcsim.policies.sglang import Sglang
from arcsim.policies.sglang_options import SglangOptions
from arcsim.sim.backend import SimulatedBackend
from arcsim.sim.latency.affine import Affine
from arcsim.traces.interval import interval_lines, stamped
from arcsim.traces.run import Run
from arcsim.workloads.arrival import Arrival
from arcsim.workloads.requests import OpenSession


def simulated(count: int, output: int, *, pool: int = 2000, ratio: float = 0.7) -> Run:
    """`count` prompts of 50 tokens at once, in steps of 100 ms (prefill) and 10 ms (decode)."""
    options = SglangOptions.model_validate({"disable_overlap_schedule": True, "init_new_token_ratio": ratio})
    policy = Sglang(EngineConfig(block_size=1, num_blocks=pool), options)
    arrivals = [Arrival(f"r{n}", 0.0, ((f"u{n}", 50),), output, output) for n in range(count)]
    loop = Loop(policy, OpenSession(tuple(arrivals)), SimulatedBackend(Affine(decode_step=0.01, prefill_step=0.1)))
    loop.run()
    return loop.recorder.run({"events": loop.recorder.events})


def test_a_decode_line_every_fortieth_decode_step_with_what_was_generated_since() -> None:
    texts = [line.text for line in interval_lines(simulated(count=2, output=100), "sglang")]
    assert [text.split(",")[0] for text in texts] == ["Prefill batch"] + ["Decode batch"] * 2
    assert texts[0] == (
        "Prefill batch, #new-seq: 2, #new-token: 100, #cached-token: 0, token usage: 0.05, #running-req: 0, "
        "#queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 1000.00"
    )
    # 40 decode steps of 10 ms with two rows each; the first window began with the run, 0.1 s before the first of them
    assert texts[1] == (
        "Decode batch, #running-req: 2, #token: 180, token usage: 0.09, cuda graph: True, "
        "gen throughput (token/s): 160.00, #queue-req: 0"
    )
    assert "gen throughput (token/s): 200.00" in texts[2]


def test_the_stamp_and_the_interval_are_sglangs() -> None:
    run = simulated(count=1, output=30)
    lines = interval_lines(run, "sglang", 10)
    assert [line.text.startswith("Decode") for line in lines] == [False, True, True]
    start = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    assert stamped(lines[0], "sglang", start).startswith("[2026-05-04 03:02:01] Prefill batch, #new-seq: 1,")
    with pytest.raises(ValueError, match=r"interval: 0\.5 decode steps"):
        interval_lines(run, "sglang", 0.5)


def test_a_retraction_is_logged_before_the_step_that_it_makes_room_for() -> None:
    run = simulated(count=4, output=60, pool=300, ratio=0.05)
    lines = [line for line in interval_lines(run, "sglang", 1) if line.text.startswith(("KV", "Decode"))]
    place = next(place for place, line in enumerate(lines) if line.text.startswith("KV cache pool is full. Retract"))
    assert "#retracted_reqs: 1, #new_tokens_gained: " in lines[place].text
    assert lines[place - 1].running - lines[place + 1].running == 1
