"""Why two runs differ: the rules, the cost of a step, or queueing."""

from typing import Any

import pytest

from arcsim.experiment.model_error import model_errors
from arcsim.traces.compare import compare
from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run
from arcsim.traces.step_cost import step_costs

from .test_replay import simulated

OPEN = {"workload": {"kind": "synthetic", "count": 60, "prompt": {"uniform": [10, 300]}, "output": {"uniform": [1, 60]},
                     "arrivals": {"poisson": 3.0}, "seed": 3}}


def slower(factor: float, **parts: Any) -> Run:
    latency = {"kind": "affine", "decode_step": 10e-3 * factor, "prefill_step": 20e-3 * factor,
               "padded_prefill_token": 0.1e-3 * factor, "row": 1e-3 * factor, "host_row": 0.0}
    return simulated(policy="vllm", latency=latency, **({} if "workload" in parts else OPEN) | parts)


def test_a_difference_of_times_is_not_one_of_rules() -> None:
    """An open workload on a machine that is 3 % slower: they part where a request comes one step later."""
    found = compare(slower(1.0), slower(1.03))
    assert not found.identical and not found.at_once and found.offset.found == "arrivals"
    assert "the steps before it took another time, the rules do not differ up to there" in found.why[0]
    assert found.costs[0].relative == pytest.approx(0.03, abs=0.01)
    assert found.why[1].startswith("Alike steps cost") and len(found.why) == 2


def test_a_difference_of_rules_is_not_one_of_times() -> None:
    """Six seats for eight: the step costs are the same, the decisions part with the same arrivals."""
    engine = {"block_size": 16, "num_blocks": 70}
    found = compare(slower(1.0, engine=engine | {"max_num_seqs": 8}), slower(1.0, engine=engine | {"max_num_seqs": 2}))
    assert "with the same arrivals, so it is the rules, not the times" in found.why[0]
    assert "engine.max_num_seqs 8 and 2" in found.why[0] and found.settings["engine.max_num_seqs"] == (8, 2)


def test_all_at_once_no_decision_depends_on_a_time() -> None:
    workload = {"kind": "synthetic", "count": 12, "prompt": {"spread": [50, 200], "distinct": 4}, "output": 20}
    found = compare(slower(1.0, workload=workload), slower(1.4, workload=workload))
    assert found.identical and found.at_once and not found.same_times
    assert found.why[0].endswith("only the times of the steps differ.")
    assert found.costs[0].relative == pytest.approx(0.4, abs=1e-6)


def test_queueing_is_told_from_the_cost_of_a_step() -> None:
    """Twice the load: a few percent of step cost become far more of TTFT, and it is said."""
    crowded = {"workload": OPEN["workload"] | {"count": 300, "arrivals": {"poisson": 9.0}}}
    a, b = slower(1.0, **crowded), slower(1.04, **crowded)
    found = compare(a, b)
    ttft = next(metric for metric in found.metrics if metric.name == "ttft.p50")
    assert min(metric.a for metric in found.metrics if metric.name == "busy") > 0.95
    assert found.costs[0].relative < 0.06 and ttft.relative > 2 * found.costs[0].relative
    assert "queueing amplifies every difference" in found.why[1]
    assert "queueing amplifies" not in compare(slower(1.0), slower(1.04)).why[1]


def steps(kinds: list[tuple[int, int, float]]) -> list[dict[str, Any]]:
    """Rows decoded, tokens prefilled, seconds."""
    rows, now = [], 0.0
    for decode, prefill, seconds in kinds:
        rows.append({"t_start": now, "t_end": now + seconds, "forward_width": decode + (prefill > 0),
                     "decode_seqs": decode, "prefill_seqs": int(prefill > 0), "prefill_tokens": prefill,
                     "padded_tokens": prefill})
        now += seconds
    return rows


def test_costs_are_compared_kind_by_kind() -> None:
    """b runs the same kinds 10 % slower, but five times as many of the cheap ones: its mean step is far cheaper."""
    a = run_from_rows(steps([(1, 0, 1.0)] * 2 + [(4, 0, 3.0)] * 8 + [(2, 100, 9.0)] * 2))
    b = run_from_rows(steps([(1, 0, 1.1)] * 50 + [(4, 0, 3.3)] * 8 + [(2, 100, 9.9)]))
    every, decode, prefill = step_costs(a, b)
    assert [cost.relative for cost in (every, decode, prefill)] == pytest.approx([0.1, 0.1, 0.1])
    assert every.steps == (12, 59) and every.covered == pytest.approx(1.0)
    assert (every.a, every.b) == pytest.approx(((2 + 24 + 18) / 12, 1.1 * (2 + 24 + 18) / 12))


def test_kinds_that_one_run_lacks_are_left_out_and_counted() -> None:
    a, b = run_from_rows(steps([(1, 0, 1.0), (9, 0, 3.0)])), run_from_rows(steps([(1, 0, 2.0), (30, 0, 9.0)]))
    every, decode, prefill = step_costs(a, b)
    assert every.relative == decode.relative == pytest.approx(1.0) and every.covered == pytest.approx(0.25)
    assert prefill.relative != prefill.relative and prefill.covered == 0.0


def test_kinds_are_known_from_what_an_iteration_log_tells() -> None:
    """It has no padded tokens; without rows there are no kinds."""
    rows = [(1, 0, 1.0), (2, 100, 4.0)]
    log = run_from_rows([{**row, "padded_tokens": 0} for row in steps(rows)])
    log.meta["known_step_columns"] = ["decode_seqs", "forward_width", "prefill_seqs", "prefill_tokens"]
    every, _, prefill = step_costs(run_from_rows(steps([(1, 0, 2.0), (2, 100, 8.0)])), log)
    assert every.relative == prefill.relative == pytest.approx(-0.5)
    log.meta["known_step_columns"] = ["forward_width"]
    assert all(cost.relative != cost.relative and cost.covered == 0.0 for cost in step_costs(log, log))


def test_the_latency_model_on_the_steps_of_another_run() -> None:
    """A measurement whose steps took 10 % longer than the model says, of other decisions."""
    run = slower(1.0)
    measured = slower(1.1, engine={"block_size": 16, "num_blocks": 70, "max_num_seqs": 3})
    measured.meta["arm"] = "measured"
    errors = {error.name: error for error in model_errors(run, measured)}
    assert errors["all"].bias == pytest.approx(1 / 1.1 - 1, abs=1e-6) == errors["decode, 1 row"].bias
    assert model_errors(measured, run) == () == model_errors(run, run)
    run.meta["config"]["latency"] = {"kind": "roofline"}
    assert model_errors(run, measured) == ()
