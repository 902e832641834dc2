"""The step table and the request table as they are collected."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from arcsim.traces import step_table
from arcsim.traces.request_table import RequestRow, request_table
from arcsim.traces.run import Run
from arcsim.traces.schema import REQUEST_COLUMNS, STEP_COLUMNS
from arcsim.traces.step_table import COUNTS, StepTable

EMPTY_REQUESTS = request_table([])


def row(**counts: int) -> tuple[int, ...]:
    assert set(counts) <= set(COUNTS)
    return tuple(counts.get(name, 0) for name in COUNTS)


def run_of(table: StepTable) -> Run:
    return Run(table.build(), EMPTY_REQUESTS)


def test_columns_are_those_of_the_schema_in_order() -> None:
    table = StepTable()
    table.append(row(running=1, forward_width=1), 0, 5)
    assert table.build().column_names == [column.name for column in STEP_COLUMNS]
    assert request_table([]).column_names == [column.name for column in REQUEST_COLUMNS]


def test_a_step_becomes_a_row() -> None:
    table = StepTable()
    table.append(row(running=3, waiting=2, kv_used=7, context_tokens=2**40), 1_500_000_000, 2_000_000_001, 0.25, 0.125)
    run = run_of(table)
    values = {name: run.column(name).tolist() for name in ("step", "running", "waiting", "kv_used", "context_tokens")}
    assert values == {"step": [0], "running": [3], "waiting": [2], "kv_used": [7], "context_tokens": [2**40]}
    assert (run.column("t_start")[0], run.column("t_end")[0]) == (1.5, 2_000_000_001 / 1e9)
    assert (run.column("host_seconds")[0], run.column("device_seconds")[0]) == (0.25, 0.125)


def test_an_empty_table_builds() -> None:
    run = run_of(StepTable())
    assert run.steps.num_rows == 0 and run.column("t_end").dtype == np.float64


def test_forward_widths_are_told_or_derived() -> None:
    table = StepTable()
    table.append(row(forward_width=4), 0, 1)
    table.append(row(forward_width=0), 1, 2)
    table.append(row(forward_width=5), 2, 3, widths=(2, 3))
    table.append_series(row(forward_width=2), 3, np.array([4, 5]), [0, 0], context_increment=2)
    table.append(row(forward_width=3), 5, 6, widths=(1, 2))
    assert table.build().column("forward_widths").to_pylist() == [[4], [], [2, 3], [2], [2], [1, 2]]


def test_a_series_spells_out_its_steps() -> None:
    table = StepTable()
    table.append(row(kv_used=1, kv_used_end=9), 0, 10)
    ends = np.array([30, 45, 70])
    table.append_series(row(context_tokens=100, running=4, forward_width=4), 20, ends, [5, 5, 6], context_increment=4,
                        host=0.5, device=[1.0, 2.0, 3.0])
    table.append(row(kv_used=2), 70, 90)
    run = run_of(table)
    assert run.column("context_tokens").tolist() == [0, 100, 104, 108, 0]
    assert run.column("kv_used").tolist() == [1, 5, 5, 6, 2]
    assert run.column("kv_used_end").tolist() == [9, 5, 5, 6, 0]
    assert (run.column("t_start") * 1e9).round().tolist() == [0, 20, 30, 45, 70]
    assert (run.column("t_end") * 1e9).round().tolist() == [10, 30, 45, 70, 90]
    assert run.column("host_seconds").tolist() == [0, 0.5, 0.5, 0.5, 0]
    assert run.column("device_seconds").tolist() == [0, 1, 2, 3, 0]


Segment = tuple[int, int, int, int]
segment = st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 2**33), st.integers(0, 99))


@settings(max_examples=60, deadline=None)
@given(st.lists(segment, max_size=30), st.integers(1, 7))
def test_a_series_is_the_same_as_its_steps_one_by_one(parts: list[Segment], block: int) -> None:
    """However the steps came in and however often they were packed, the table is the same. (Mutation tried: the
    context of a series not growing, and series starts taken from the wrong step, both fail here.)"""
    whole, single = StepTable(), StepTable()
    now = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_table, "_BLOCK", block)
        for steps, width, context, kv in parts:
            now += 3  # idle
            ends = now + np.cumsum(np.arange(1, steps + 1))
            used, device = [kv + i for i in range(steps)], [float(kv + i) for i in range(steps)]
            facts = {"forward_width": width, "context_tokens": context, "running": kv}
            whole.append_series(row(**facts), now, ends, used, context_increment=width, host=0.5, device=device)
            for i, end in enumerate(ends.tolist()):
                facts.update(context_tokens=context + i * width, kv_used=used[i], kv_used_end=used[i])
                single.append(row(**facts), now, end, 0.5, device[i])
                now = end
            assert len(whole) == len(single)
    assert whole.build().equals(single.build())


def test_a_row_of_another_length_is_refused() -> None:
    table = StepTable()
    table.append((1, 2, 3), 0, 1)
    with pytest.raises(ValueError, match=f"a step has {len(COUNTS)} counts"):
        table.build()


def test_a_series_whose_parts_differ_in_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a series of 2 ends, 1 KV counts and 2 device times"):
        StepTable().append_series(row(), 0, np.array([1, 2]), [1], context_increment=1)


def test_a_count_that_does_not_fit_its_column_is_refused() -> None:
    table = StepTable()
    table.append(row(running=2**31), 0, 1)
    with pytest.raises(ValueError, match="column running: a value is beyond 32 bits"):
        table.build()


def test_a_request_becomes_a_row() -> None:
    served = RequestRow("a", 0, 1_000, 2_000, 3_000, 10, 2, token_times=np.array([2_000, 3_000]))
    turned_away = RequestRow("b", 500, None, None, None, 99, 0, status="rejected", reason="too long")
    rows = request_table([served, turned_away]).to_pylist()
    assert rows[0]["token_times"] == [2e-6, 3e-6] and rows[0]["finish"] == 3e-6
    assert rows[1]["token_times"] == [] and rows[1]["reason"] == "too long"
    assert all(np.isnan(rows[1][name]) for name in ("first_scheduled", "first_token", "finish"))
