"""What a run comes to."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from arcsim.traces.metrics import summarise
from arcsim.traces.quantities import SCALARS, quantity, quantity_names, scalar
from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run, UnknownName
from arcsim.traces.summary_text import summary_rows

NAN = float("nan")

# The four requests of lengths 5, 9, 9, 14 under the paged scheduler that buckets by length, three tokens each:
# tokens in the step, the engine's running and waiting, forward width.
BUCKETED = [(5, 1, 3, 1), (18, 3, 1, 2), (14, 4, 0, 1), (1, 1, 3, 1), (20, 3, 1, 2), (15, 4, 0, 1), (1, 1, 3, 1),
            (22, 2, 1, 2), (16, 1, 0, 1)]


def bucketed() -> Run:
    return run_from_rows(
        {"t_start": i, "t_end": i + 1, "running": running, "waiting": waiting, "forward_width": width,
         "sampled_tokens": width, "prefill_tokens": tokens if tokens > 1 else 0}
        for i, (tokens, running, waiting, width) in enumerate(BUCKETED)
    )


def test_the_gauge_and_the_forward_width_are_two_numbers() -> None:
    summary = summarise(bucketed())
    assert summary.steps == 9
    assert summary.running.mean == pytest.approx(20 / 9) and summary.running.max == 4
    assert summary.forward_width.mean == pytest.approx(12 / 9) and summary.forward_width.max == 2
    assert summary.waiting.mean == pytest.approx(12 / 9)
    assert summary.throughput == pytest.approx(12 / 9)


def test_a_mean_over_steps_is_not_a_mean_over_time() -> None:
    long, short = {"t_start": 0, "t_end": 9, "running": 1}, {"t_start": 19, "t_end": 20, "running": 11}
    running = summarise(run_from_rows([long, short])).running
    assert (running.mean, running.time_mean, running.max) == (6, 2, 11)


def test_steps_without_duration_have_a_mean_all_the_same() -> None:
    assert summarise(run_from_rows([{"running": 1}, {"running": 3}])).running.time_mean == 2


def served() -> Run:
    requests = [
        {"arrival": 1.0, "first_scheduled": 1.5, "first_token": 2.0, "finish": 4.0, "output_tokens": 3,
         "prompt_tokens": 10, "token_times": [2.0, 2.5, 4.0]},
        {"arrival": 2.0, "first_scheduled": 2.5, "first_token": 5.0, "finish": 5.0, "output_tokens": 1,
         "prompt_tokens": 20, "token_times": [5.0]},
        {"arrival": 3.0, "status": "rejected", "prompt_tokens": 4000},
        {"arrival": 4.0, "first_scheduled": 6.0, "first_token": 7.0, "status": "unfinished", "output_tokens": 2,
         "prompt_tokens": 30, "token_times": [7.0, 9.0]},
    ]
    steps = [
        {"t_start": 1.5, "t_end": 4.0, "forward_width": 1, "sampled_tokens": 2, "prefill_tokens": 30, "kv_used": 5,
         "padded_tokens": 40, "cached_tokens": 10, "kv_total": 20, "prefix_queries": 4, "prefix_hits": 1},
        {"t_start": 4.0, "t_end": 5.0},
        {"t_start": 6.0, "t_end": 11.0, "forward_width": 2, "sampled_tokens": 4, "preempted": 3, "recomputed_tokens": 8,
         "reprefill_tokens": 9, "wasted_tokens": 1, "kv_used": 15, "kv_total": 20, "prefill_tokens": 10,
         "padded_tokens": 40, "host_seconds": 0.5, "device_seconds": 4.5},
    ]
    return run_from_rows(steps, requests, {"arm": "simulated", "outcome": "stalled"})


def test_latencies_by_their_definitions() -> None:
    """TPOT is (E2E - TTFT) / (output - 1): a request of one token has none. The gap from one request's last token to
    the next one's first is no inter-token latency (mutation tried: keeping it fails here)."""
    run = served()
    assert quantity(run, "ttft").tolist() == [1, 3, 3]
    assert quantity(run, "queue").tolist() == [0.5, 0.5, 2]
    assert quantity(run, "e2e").tolist() == [3, 3]
    assert quantity(run, "tpot").tolist() == [1]
    assert quantity(run, "itl").tolist() == [0.5, 1.5, 2]


def test_the_summary_counts_what_was_done() -> None:
    summary = summarise(served())
    assert summary.requests == {"finished": 2, "rejected": 1, "unfinished": 1}
    assert (summary.arm, summary.outcome) == ("simulated", "stalled")
    assert (summary.steps, summary.empty_steps, summary.makespan) == (3, 1, 10)
    assert (summary.throughput, summary.request_rate, summary.total_throughput) == (0.6, 0.2, 6.6)
    assert (summary.preemptions, summary.recomputed_tokens, summary.reprefill_tokens) == (3, 8, 9)
    assert (summary.cached_tokens, summary.cached_share, summary.prefix_hit_share) == (10, 0.2, 0.25)
    assert summary.padded_share == 0.5
    assert (summary.kv_peak, summary.kv_total, summary.kv_peak_share) == (15, 20, 0.75)
    assert (summary.host_seconds, summary.device_seconds, summary.wasted_tokens) == (0.5, 4.5, 1)


def test_percentiles_lie_between_the_two_nearest_values() -> None:
    requests = [{"first_token": second} for second in range(1, 11)]
    ttft = summarise(run_from_rows([], requests)).ttft
    assert (ttft.count, ttft.mean, ttft.p50, ttft.max) == (10, 5.5, 5.5, 10)
    assert [ttft.p90, ttft.p99] == pytest.approx([9.1, 9.91])


def test_a_run_without_anything_has_a_summary() -> None:
    summary = summarise(run_from_rows())
    assert summary.makespan == 0 and math.isnan(summary.throughput) and math.isnan(summary.ttft.p50)
    assert json.loads(json.dumps(summary.to_dict(), allow_nan=False))["running"]["mean"] is None
    assert all(text for _, text in summary_rows(summary))


def test_every_name_can_be_asked_for() -> None:
    run = served()
    assert all(isinstance(quantity(run, name), np.ndarray) for name in quantity_names())
    assert all(isinstance(scalar(run, name), float) for name in SCALARS)
    assert quantity(run, "forward_width").tolist() == [1, 0, 2]
    assert quantity(run, "step_seconds").tolist() == [2.5, 1, 5]
    assert (scalar(run, "steps"), scalar(run, "throughput"), scalar(run, "rejected")) == (3, 0.6, 1)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match="no quantity 'latency'; there are ttft, tpot"):
        quantity(served(), "latency")
    with pytest.raises(UnknownName, match="no number 'speed' of a run; there are throughput"):
        scalar(served(), "speed")


lists_of_times = st.lists(st.lists(st.integers(0, 10**6), max_size=6).map(sorted), max_size=8)


@settings(max_examples=100, deadline=None)
@given(lists_of_times)
def test_gaps_are_taken_within_each_request(times: list[list[int]]) -> None:
    run = run_from_rows([], [{"token_times": [float(t) for t in each]} for each in times])
    wanted = [float(b - a) for each in times for a, b in zip(each, each[1:], strict=False)]
    assert quantity(run, "itl").tolist() == wanted


def test_the_rows_people_read() -> None:
    rows = dict(summary_rows(summarise(served())))
    assert rows["requests"] == "2 finished, 1 rejected, 1 unfinished"
    assert rows["steps"] == "3 (1 empty)"
    assert rows["TTFT p50 · p90 · p99"] == "3,000 · 3,000 · 3,000 ms"
    assert rows["KV peak"] == "15 (75.0 %) of 20"
    assert rows["forward width: mean · by time · max"] == "1 · 1.471 · 2"
