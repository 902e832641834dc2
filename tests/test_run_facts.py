"""The numbers that statements read from runs.

Mutations tried, each caught here: the time-weighted mean left unweighted, values of the wrong variant, NaN kept.
"""

import math
from typing import Any

import pytest

from arcsim.experiment.run_facts import RunFacts
from arcsim.experiment.statement_words import FUNCTIONS, PREDICATES, REDUCERS, TIME_REDUCERS, readable
from arcsim.traces.rows import run_from_rows

STEPS: list[dict[str, Any]] = [
    {"t_start": 0.0, "t_end": 1.0, "running": 4, "forward_width": 1, "sampled_tokens": 1, "recomputed_tokens": 5},
    {"t_start": 1.0, "t_end": 4.0, "running": 8, "forward_width": 2, "sampled_tokens": 2, "recomputed_tokens": 2},
]
SERVED = {"arrival": 0.0, "first_token": 1.0, "finish": 4.0, "output_tokens": 3}
REQUESTS: list[dict[str, Any]] = [SERVED, {"arrival": 0.0, "status": "rejected"}]
WIDER = [STEPS[0], STEPS[1] | {"forward_width": 3, "running": 9}]
FACTS = RunFacts({
    "a": run_from_rows(STEPS, REQUESTS), "again": run_from_rows([row | {"t_end": 9.0} for row in STEPS], REQUESTS),
    "wider": run_from_rows(WIDER, REQUESTS), "shorter": run_from_rows(STEPS[:1], REQUESTS), "empty": run_from_rows(),
})


@pytest.mark.parametrize(("function", "column", "value"), [
    ("mean", "running", 6.0), ("time_mean", "running", 7.0), ("min", "running", 4.0), ("max", "running", 8.0),
    ("sum", "running", 12.0), ("p50", "running", 6.0), ("p90", "running", 7.6), ("std", "running", 2.0),
    ("mean", "ttft", 1.0), ("mean", "e2e", 4.0), ("mean", "tpot", 1.5), ("max", "step_seconds", 3.0),
    ("steps", None, 2.0), ("throughput", None, 0.75), ("makespan", None, 4.0), ("recomputed", None, 7.0),
    ("finished", None, 1.0), ("rejected", None, 1.0), ("preemptions", None, 0.0),
])
def test_a_function_reads_its_number(function: str, column: str | None, value: float) -> None:
    assert FACTS.value(function, column, "a") == pytest.approx(value)


def test_every_function_of_a_statement_is_known_and_gives_nothing_of_nothing() -> None:
    for function in set(FUNCTIONS) - set(PREDICATES):
        reads_columns = function in REDUCERS or function in TIME_REDUCERS
        for column in readable(function) if reads_columns else (None,):
            FACTS.value(function, column, "a")
            assert not reads_columns or math.isnan(FACTS.value(function, column, "empty"))


def test_what_is_not_known_does_not_count() -> None:
    facts = RunFacts({"a": run_from_rows([STEPS[0] | {"host_seconds": math.nan}, STEPS[1] | {"host_seconds": 0.5}])})
    assert facts.value("mean", "host_seconds", "a") == facts.value("time_mean", "host_seconds", "a") == 0.5


def test_runs_that_decide_alike_have_no_difference_whatever_their_times() -> None:
    assert FACTS.difference("a", "again") is None


def test_a_difference_says_where_the_runs_part() -> None:
    assert FACTS.difference("a", "wider") == (
        "they part at step 1: running 8 and 9, forward_width 2 and 3, forward_widths [2] and [3]"
    )
    assert FACTS.difference("a", "shorter") == "they part at step 1: one of them has ended"
