"""Two runs side by side."""

import json
import math
from typing import Any

import pytest

from arcsim.traces.compare import compare, equal_steps
from arcsim.traces.decisions import DECISIONS, first_split
from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run
from arcsim.traces.schema import STEP_COLUMNS

REQUESTS = [{"id": "a", "prompt_tokens": 5, "output_tokens": 2}, {"id": "b", "prompt_tokens": 9, "output_tokens": 2}]


def steps(count: int = 6, *, seconds: float = 1.0, start: float = 0.0) -> list[dict[str, Any]]:
    return [
        {"t_start": start + i * seconds, "t_end": start + (i + 1) * seconds, "running": 2, "forward_width": 2,
         "running_end": 2, "sampled_tokens": 2, "forward_widths": [2]}
        for i in range(count)
    ]


def run(rows: list[dict[str, Any]], requests: list[dict[str, Any]] = REQUESTS, **meta: str) -> Run:
    return run_from_rows(rows, requests, meta)


def changed(step: int, **values: Any) -> list[dict[str, Any]]:
    rows = steps()
    rows[step] = {**rows[step], **values}
    return rows


@pytest.mark.parametrize("column", [c.name for c in DECISIONS if c.name not in ("step", "forward_widths")])
def test_any_scheduling_column_parts_two_runs(column: str) -> None:
    a, b = run(steps()), run(changed(3, **{column: 7}))
    split = first_split(a, b)
    assert not equal_steps(a, b) and split is not None
    assert split.step == 3 and split.columns[column][1] == 7


@pytest.mark.parametrize("column", [c.name for c in STEP_COLUMNS if not c.decision])
def test_times_never_part_two_runs(column: str) -> None:
    a, b = run(steps()), run(changed(5, **{column: 7.5}))
    assert equal_steps(a, b) and first_split(a, b) is None


@pytest.mark.parametrize(
    ("widths", "step"), [({2: [1, 1]}, 2), ({4: []}, 4), ({1: [3], 3: [1, 1]}, 1), ({2: [1, 1], 3: []}, 2)],
)
def test_forward_widths_part_two_runs(widths: dict[int, list[int]], step: int) -> None:
    rows = steps()
    for place, values in widths.items():
        rows[place]["forward_widths"] = values
    split = first_split(run(steps()), run(rows))
    assert split is not None and split.step == step and split.columns == {"forward_widths": ([2], widths[step])}


def test_the_first_of_several_differences_is_told_with_its_surroundings() -> None:
    rows = changed(4, running=9)
    rows[2] = {**rows[2], "waiting": 1, "preempted": 1}
    split = first_split(run(steps()), run(rows))
    assert split is not None and split.step == 2
    assert split.columns == {"waiting": (0, 1), "preempted": (0, 1)}
    around = [pair[0]["step"] for pair in split.before_and_after if pair[0]]
    assert around == [0, 1, 2, 3, 4, 5]
    assert split.before_and_after[2][1] == {**(split.before_and_after[2][0] or {}), "waiting": 1, "preempted": 1}


def test_a_run_that_goes_on_is_told_apart() -> None:
    found = compare(run(steps(4)), run(steps(6)))
    assert found.split is not None and found.split.step == 4
    assert found.split.columns["running"] == (None, 2)
    assert found.split.before_and_after[-1][0] is None
    assert found.why[0] == "The decisions agree until a ends after 4 steps; b goes on."


def test_a_run_equals_itself() -> None:
    found = compare(run(steps(), arm="simulated"), run(steps(), arm="measured"))
    assert found.identical and found.same_times and found.same_requests and found.split is None
    assert found.arms == ("simulated", "measured")
    assert found.why == ("All 6 steps agree, in decisions and in times.",) and found.reasons == ()
    assert all(metric.relative == 0 for metric in found.metrics if not math.isnan(metric.a))
    assert all(gauge.mean_absolute == 0 for gauge in found.gauges)


def test_only_the_cost_of_a_step_differs() -> None:
    found = compare(run(steps()), run(steps(seconds=1.5)))
    assert found.identical and not found.same_times
    assert (found.time.total, found.time.steps, found.time.step_cost, found.time.idle) == (3, 0, 3, 0)
    assert found.why == (
        "All 6 scheduling decisions agree; only the times of the steps differ.",
        "Alike steps cost 50.0 % more in b (decode steps 50.0 % more); steps run 100.0 % of the time in a and 100.0 % "
        "in b.",
    )
    assert found.reasons == (
        "b takes +3 s: +0 s from the number of steps, +3 s from what a step costs, +0 s from idle time.",
    )
    by_name = {metric.name: metric for metric in found.metrics}
    assert (by_name["makespan"].a, by_name["makespan"].b, by_name["makespan"].relative) == (6, 9, 0.5)


def test_the_parts_of_a_time_difference_add_up() -> None:
    slow = steps(9, seconds=0.7, start=2.5)
    slow[5:] = [{**row, "t_start": row["t_start"] + 4, "t_end": row["t_end"] + 4} for row in slow[5:]]
    time = compare(run(steps()), run(slow)).time
    assert time.total == pytest.approx(time.steps + time.step_cost + time.idle)
    assert time.idle == pytest.approx(6.5)


def test_gauges_are_compared_on_one_time_axis() -> None:
    """a serves 2 at a time for 6 s, b starts 3 s later: 2 apart while only one runs. The means over the 9 s agree."""
    running = compare(run(steps()), run(changed_end(steps(start=3)))).gauges[0]
    assert running.name == "running"
    assert [running.a, running.b] == pytest.approx([2, 12 / 9])
    assert running.mean_absolute == pytest.approx(6 / 9)


def changed_end(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "running_end": 0} for row in rows]


def test_where_a_difference_comes_from_is_said() -> None:
    rows = changed(1, running=1, forward_width=1, preempted=1, recomputed_tokens=40, prefill_tokens=41)
    found = compare(run(steps()), run(rows + steps(2, start=6.0)))
    said = " ".join(found.reasons)
    assert found.why[0].startswith("The decisions part at step 1 with the same arrivals, so it is the rules")
    for part in ("Steps: 6 and 8 (+33.3%).", "Preemptions: 0 and 1.", "Tokens computed again: 0 and 40.",
                 "b takes +2 s: +2 s from the number of steps"):
        assert part in said


def test_other_requests_are_noticed_and_their_order_is_not() -> None:
    other = [{"id": "a", "prompt_tokens": 6}, *REQUESTS[1:]]
    assert not compare(run(steps()), run(steps(), other)).same_requests
    assert compare(run(steps()), run(steps(), REQUESTS[::-1])).same_requests


def test_a_comparison_is_plain_data() -> None:
    empty, full = run([], []), run(changed(2, running=5))
    for a, b in ((empty, full), (full, empty), (empty, empty)):
        found = compare(a, b).to_dict()
        assert json.loads(json.dumps(found, allow_nan=False)) == found
