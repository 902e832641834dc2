"""The engine's interval log lines, replayed from a trace."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from arcsim.traces.interval import LogLine, interval_lines, log_style, stamped
from arcsim.traces.log_mistralrs import MistralrsLine, lines
from arcsim.traces.rows import run_from_rows

Row = Mapping[str, float]


def texts(*steps: Row, **options: Any) -> list[str]:
    return [line.text for line in interval_lines(run_from_rows(steps), **options)]


def test_the_line_is_the_engines() -> None:
    """A line that a user of the engine pasted in a public thread: an idle server, both gauges at 0."""
    steps = ({"t_end": 3, "arrived": 1, "sampled_tokens": 433, "running": 1}, {"t_start": 4, "t_end": 4.001})
    assert texts(*steps) == ["Throughput (T/s) 86.60, Prefix cache hitrate 0.00%, 0 running, 0 waiting"]


def test_a_public_log_with_a_lifetime_rate_is_reproduced() -> None:
    """Three consecutive lines of a public thread, with 40 and 45 seconds between them in which no token was made."""
    steps: list[Row] = [
        {"t_start": 0, "t_end": 4, "arrived": 1, "sampled_tokens": 4, "running": 1},
        {"t_start": 40, "t_end": 44, "arrived": 1, "prefix_hits": 1, "sampled_tokens": 90, "running": 1},
        {"t_start": 85.5, "t_end": 89, "arrived": 2, "prefix_hits": 2, "sampled_tokens": 89, "running": 0},
    ]
    start = datetime(2025, 12, 16, 17, 22, 20, 429927, tzinfo=UTC)
    found = [stamped(line, start=start) for line in interval_lines(run_from_rows(steps), rate="lifetime")]
    prefix = "Z  INFO mistralrs_core::engine::logger: Throughput (T/s)"
    assert found == [
        f"2025-12-16T17:22:25.429927{prefix} 0.80, Prefix cache hitrate 0.00%, 1 running, 0 waiting",
        f"2025-12-16T17:23:05.429927{prefix} 18.00, Prefix cache hitrate 50.00%, 1 running, 0 waiting",
        f"2025-12-16T17:23:50.429927{prefix} 17.80, Prefix cache hitrate 75.00%, 0 running, 0 waiting",
    ]


WINDOWS = (
    {"t_start": 0, "t_end": 4, "arrived": 4, "prefix_hits": 0, "sampled_tokens": 10},
    {"t_start": 5.5, "t_end": 9, "arrived": 2, "prefix_hits": 2, "sampled_tokens": 20},
    {"t_start": 11, "t_end": 14, "arrived": 0, "prefix_hits": 1, "sampled_tokens": 30},
)


def test_both_halves_of_the_line_cover_the_same_window() -> None:
    """The rate is that of the window and is left out where nothing arrived. (Mutation tried: counting lifetime hits
    on the interval line gives 33.33 % and 50.00 % here and fails.)"""
    assert texts(*WINDOWS) == [
        "Throughput (T/s) 2.00, Prefix cache hitrate 0.00%, 0 running, 0 waiting",
        "Throughput (T/s) 4.00, Prefix cache hitrate 100.00%, 0 running, 0 waiting",
        "Throughput (T/s) 6.00, 0 running, 0 waiting",
    ]
    assert [line.split(", ")[1] for line in texts(*WINDOWS, rate="lifetime")] == [
        f"Prefix cache hitrate {rate}%" for rate in ("0.00", "33.33", "50.00")
    ]


def test_counters_are_differenced_at_every_tick_printed_or_not() -> None:
    """A long prefill makes no token in the first window, so no line: its arrivals must not show up in the second.
    (Mutation tried: remembering the counters of printed lines only fails here.)"""
    prefill = {"t_start": 0, "t_end": 7, "arrived": 4, "prefix_hits": 2, "sampled_tokens": 5}
    assert texts(prefill) == ["Throughput (T/s) 1.00, 0 running, 0 waiting"]


def test_hits_of_readmissions_can_pass_a_hundred_percent() -> None:
    found = texts({"t_end": 1, "arrived": 8, "prefix_hits": 546, "sampled_tokens": 1})
    assert "Prefix cache hitrate 6825.00%" in found[0]


def test_gauges_are_those_of_the_last_scheduling_before_the_tick() -> None:
    """Not an average, not reset while idle; the step in flight at the tick has already set them."""
    steps: list[Row] = [
        {"t_start": 0, "t_end": 4, "arrived": 9, "sampled_tokens": 1, "running": 9, "waiting": 9},
        {"t_start": 4.9, "t_end": 6, "sampled_tokens": 1, "running": 3, "waiting": 6, "forward_width": 2},
        {"t_start": 6, "t_end": 6.5, "sampled_tokens": 1, "running": 4, "waiting": 5, "forward_width": 4},
    ]
    found = interval_lines(run_from_rows(steps))
    assert [(x.time, x.running, x.waiting, x.forward_width) for x in found] == [(5, 3, 6, 2), (10, 4, 5, 4)]


def test_an_event_on_a_tick_belongs_to_it() -> None:
    """0.1 s has no exact binary form: the comparison must not depend on it."""
    steps = [{"t_start": i / 10, "t_end": (i + 1) / 10, "arrived": 1, "sampled_tokens": 1} for i in range(50)]
    found = lines(run_from_rows(steps), interval=0.1)
    assert [line.tokens for line in found] == [1] * 50


def test_no_line_before_the_first_request() -> None:
    assert texts({"t_end": 1, "sampled_tokens": 5}) == []
    assert texts() == []


def test_what_counts_as_throughput_is_a_choice() -> None:
    step = {"t_end": 1, "arrived": 1, "sampled_tokens": 1, "logged_tokens": 500}
    assert texts(step)[0].startswith("Throughput (T/s) 0.20,")
    assert texts(step, throughput="logged")[0].startswith("Throughput (T/s) 100.00,")


def test_a_wrong_option_is_named() -> None:
    run = run_from_rows(WINDOWS)
    with pytest.raises(ValueError, match="no log style 'vllm9'; there are plain, mistralrs"):
        log_style("vllm9")
    with pytest.raises(ValueError, match="interval: 0 seconds; it has to be above 0"):
        interval_lines(run, interval=0)
    for style in ("mistralrs", "vllm", "sglang"):
        with pytest.raises(ValueError, match="interval: inf"):
            interval_lines(run, style, inf)
    with pytest.raises(ValueError, match="rate: 'daily'; it has to be one of interval, lifetime"):
        interval_lines(run, rate="daily")


def test_a_tiny_interval_over_a_long_run_is_no_trouble() -> None:
    run = run_from_rows([{"t_start": 0, "t_end": 1e6, "arrived": 1, "sampled_tokens": 1}])
    assert len(interval_lines(run, interval=1e-6)) == 1


def logger_thread(steps: list[Row], interval: int) -> list[LogLine]:
    """The engine's logger, tick by tick, in whole seconds."""
    found: list[LogLine] = []
    hits = new = 0
    for tick in range(interval, int(max((s["t_end"] for s in steps), default=0)) + interval + 1, interval):
        scheduled = [s for s in steps if s["t_start"] <= tick]
        tokens = sum(int(s["sampled_tokens"]) for s in steps if tick - interval < s["t_end"] <= tick)
        all_hits, all_new = (sum(int(s[name]) for s in scheduled) for name in ("prefix_hits", "arrived"))
        if all_new and tokens:
            last = scheduled[-1]
            rate = 100 * (all_hits - hits) / (all_new - new) if all_new > new else None
            gauges = (int(last[name]) for name in ("running", "waiting", "forward_width"))
            found.append(MistralrsLine(tick, tokens, tokens / interval, rate, *gauges))
        hits, new = all_hits, all_new
    return found


small = st.integers(0, 4)
step_facts = st.tuples(small, st.integers(1, 6), small, small, small, small, small, small)


@settings(max_examples=150, deadline=None)
@given(st.lists(step_facts, max_size=20), st.integers(1, 5))
def test_the_lines_are_those_of_a_ticking_logger(facts: list[tuple[int, ...]], interval: int) -> None:
    names = ("prefix_hits", "arrived", "sampled_tokens", "running", "waiting", "forward_width")
    steps: list[Row] = []
    now = 0
    for idle, seconds, *counts in facts:
        now += idle
        steps.append({"t_start": now, "t_end": now + seconds, **dict(zip(names, counts, strict=True))})
        now += seconds
    assert list(interval_lines(run_from_rows(steps), interval=interval)) == logger_thread(steps, interval)
