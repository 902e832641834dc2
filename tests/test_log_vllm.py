"""vLLM's interval log lines, replayed from a trace."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from arcsim.conform.check import read
from arcsim.conform.vllm_record import Record
from arcsim.traces.interval import interval_lines, log_style, stamped
from arcsim.traces.log_vllm import VllmLine, lines
from arcsim.traces.rows import run_from_rows

from .serving import request, serve
from .test_vllm import vllm

Row = Mapping[str, Any]


def texts(steps: list[Row], requests: list[Row] | None = None, **options: Any) -> list[str]:
    return [line.text for line in interval_lines(run_from_rows(steps, requests or []), "vllm", **options)]


def test_the_line_is_the_engines() -> None:
    """A line of a public thread, time stamp and all."""
    line = VllmLine(10.0, 23998.2, 18.1, 10, 90, 19.3, 0.0, 10)
    start = datetime(2026, 3, 17, 15, 38, 0, tzinfo=UTC)
    assert stamped(line, "vllm", start) == (
        "INFO 03-17 15:38:10 [loggers.py:310] Engine 000: Avg prompt throughput: 23998.2 tokens/s, Avg generation "
        "throughput: 18.1 tokens/s, Running: 10 reqs, Waiting: 90 reqs, GPU KV cache usage: 19.3%, Prefix cache hit "
        "rate: 0.0%"
    )
    assert log_style("vllm").interval == 10


def test_counts_are_those_after_the_last_commit() -> None:
    """Not those that the step was scheduled with; the step in flight at the tick does not count."""
    steps: list[Row] = [
        {"t_start": 0, "t_end": 9, "running": 5, "running_end": 3, "waiting": 4, "waiting_end": 2, "kv_used": 9,
         "kv_used_end": 6, "kv_total": 20, "sampled_tokens": 5, "forward_width": 5},
        {"t_start": 9, "t_end": 11, "running": 8, "running_end": 8, "kv_total": 20, "sampled_tokens": 1},
    ]
    assert texts(steps)[0].endswith("Running: 3 reqs, Waiting: 2 reqs, GPU KV cache usage: 30.0%, Prefix cache hit "
                                    "rate: 0.0%")
    assert lines(run_from_rows(steps))[0].forward_width == 5


def test_a_prompt_counts_when_its_first_token_is_there_less_its_hit() -> None:
    """Not when it is prefilled. (Mutation tried: counting prefill_tokens gives 40.0 in the first line.)"""
    steps: list[Row] = [
        {"t_start": 0, "t_end": 8, "prefill_tokens": 400}, {"t_start": 8, "t_end": 14, "sampled_tokens": 2},
    ]
    requests: list[Row] = [
        {"first_token": 14.0, "prompt_tokens": 500, "cached_tokens": 100}, {"prompt_tokens": 77},
        {"first_token": 20.0, "prompt_tokens": 10},
    ]
    found = texts(steps, requests)
    assert len(found) == 1 and "prompt throughput: 41.0 tokens/s, Avg generation throughput: 0.2 tokens/s" in found[0]


def test_idle_twice_in_a_row_is_debug() -> None:
    """A window with nothing in it is shown if the one before it was not idle."""
    steps: list[Row] = [
        {"t_start": 0, "t_end": 5, "sampled_tokens": 10}, {"t_start": 41, "t_end": 42, "sampled_tokens": 20},
        {"t_start": 42, "t_end": 61},
    ]
    found = lines(run_from_rows(steps))
    assert [(line.time, line.generation_throughput) for line in found] == [(10, 1.0), (20, 0.0), (50, 2.0), (60, 0.0)]


def test_the_hit_rate_is_over_the_last_thousand_requests() -> None:
    """Whole steps drop out, oldest first, until the rest is a thousand at most; the latest stays, whatever it has."""
    def step(number: int, admitted: int, queries: int, hits: int) -> Row:
        return {"t_start": 10 * number, "t_end": 10 * number + 5, "admitted": admitted, "prefix_queries": queries,
                "prefix_hits": hits, "sampled_tokens": 1}

    steps = [step(0, 600, 600, 600), step(1, 400, 400, 0), step(2, 1, 1, 0), step(3, 0, 0, 0), step(4, 2000, 100, 90)]
    rates = [line.hit_rate for line in lines(run_from_rows(steps))]
    assert rates == [100.0, 60.0, 0.0, 0.0, 90.0]


def test_look_ups_are_told_with_the_next_commit() -> None:
    """Where steps overlap, that is the commit of the step ahead: the line at 10 s knows of the second one's."""
    apart: list[Row] = [
        {"t_start": 0, "t_end": 10, "admitted": 1, "prefix_queries": 10, "sampled_tokens": 1},
        {"t_start": 10, "t_end": 20, "admitted": 1, "prefix_queries": 10, "prefix_hits": 10, "sampled_tokens": 1},
    ]
    ahead = [apart[0], {**apart[1], "t_start": 0}]
    assert [line.hit_rate for line in lines(run_from_rows(apart))] == [0.0, 50.0]
    assert [line.hit_rate for line in lines(run_from_rows(ahead))] == [50.0, 50.0]


def test_without_steps_there_is_no_line_and_a_bad_interval_is_told() -> None:
    assert texts([]) == []
    with pytest.raises(ValueError, match="interval: 0 seconds; it has to be above 0"):
        texts([], interval=0)


def test_a_tiny_interval_over_a_long_run_is_no_trouble() -> None:
    run = run_from_rows([{"t_start": 0, "t_end": 1e6, "sampled_tokens": 1}])
    assert len(lines(run, interval=1e-6)) == 1


def test_the_lines_of_a_simulated_run() -> None:
    """Steps of a second: two prompts in the first window, then a generates on its own."""
    assert vllm().log_style == "vllm"
    found = lines(serve(vllm(), [request("a", 8, 15), request("b", 8, 5)]).run)
    assert [(line.time, line.running, line.prompt_throughput) for line in found] == [(10, 1, 1.6), (20, 0, 0.0)]


GAUGES = re.compile(r"Running: (\d+) reqs, Waiting: (\d+) reqs, CPU KV cache usage: ([\d.]+)%")


@pytest.mark.parametrize("name", ["a_rate2_ample", "b_rate1.2_ample", "c_rate3.5_tight"])
def test_the_gauges_that_a_real_engine_logged_are_those_after_commits(shared: Path, name: str) -> None:
    """The log of a recorded run shows, in this order, gauges that the policy has after commits of the same run."""
    trace = read(shared / "data" / "vllm_cpu" / f"{name}.json.gz")
    logged = GAUGES.findall((shared / "data" / "vllm_cpu" / f"{name}.log").read_text())
    record, after = Record(trace), []
    for step in trace["steps"]:
        record.step(step["t_start"])
        gauges, usable = record.gauges, record.policy.pool.usable
        after.append((str(gauges.running), str(gauges.waiting), f"{100 * gauges.kv_used / usable:.1f}"))
    place = iter(after)
    assert len(logged) > 20 and all(line in place for line in logged)
