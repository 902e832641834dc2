"""Two clocks on one axis: found by arrivals or by sliding, or given."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arcsim.traces.align import HELD, find_offset, match, slide
from arcsim.traces.arrow import table
from arcsim.traces.compare import compare
from arcsim.traces.curve import Curve
from arcsim.traces.importers.catalog import import_file
from arcsim.traces.known import KEY, untold
from arcsim.traces.metrics import summarise
from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run
from arcsim.traces.schema import SAMPLE_COLUMNS
from arcsim.traces.summary_text import DASH, summary_rows

from .command import arcsim
from .importing import iteration, read


def busy(seed: int = 0, count: int = 400, start: float = 0.0, cost: float = 1.0, **meta: Any) -> Run:
    """A run whose running gauge wanders; `cost` stretches its steps."""
    random = np.random.default_rng(seed)
    seconds, running = cost * random.uniform(0.1, 0.3, count), np.abs(np.cumsum(random.integers(-2, 3, count)))
    ends = start + np.cumsum(seconds)
    rows = [
        {"t_start": end - took, "t_end": end, "running": held, "forward_width": held, "running_end": held, "arrived": 1,
         "decode_seqs": held, "sampled_tokens": held}
        for end, took, held in zip(ends.tolist(), seconds.tolist(), running.tolist(), strict=True)
    ]
    return run_from_rows(rows, (), {"arm": "measured"} | meta)


def sampled(run: Run, every: float, shift: float) -> Run:
    """What a logger that looks at the gauge now and then would have told, on a clock that is `shift` ahead."""
    curve = Curve.of(run, "running")
    times = np.arange(curve.start + every / 2, curve.end, every)
    data: dict[str, Any] = {column.name: [None] * len(times) for column in SAMPLE_COLUMNS}
    data |= {"time": times + shift, "kind": ["interval"] * len(times), "rank": [0] * len(times),
             "running": curve.at(times).astype(int), "waiting": [0] * len(times)}
    blank = run_from_rows((), (), {"arm": "measured", "outcome": "imported"})
    return Run(blank.steps, blank.requests, blank.meta, table(SAMPLE_COLUMNS, data))


@pytest.mark.parametrize("shift", [-37.0, 0.0, 3.25, 250.0])
def test_a_shifted_clock_is_found_by_sliding(shift: float) -> None:
    a = busy()
    assert slide(Curve.of(a, "running"), Curve.of(busy(start=shift), "running")) == pytest.approx(-shift, abs=0.05)


@pytest.mark.parametrize("shift", [-37.0, 3.25])
def test_a_log_is_laid_over_the_run_that_wrote_it(shift: float) -> None:
    """Either way round. Tried: without the points held against the curve it is off by 1.5 s."""
    run = busy(3)
    log = sampled(run, 2.0, shift)
    found = find_offset(run, log)
    assert found.found == "correlation" and found.seconds == pytest.approx(-shift, abs=0.15)
    assert found.correlation > 0.85
    assert find_offset(log, run).seconds == pytest.approx(shift, abs=0.15)
    compared = compare(run, log)
    assert not compared.step_level and not compared.identical
    assert compared.why[0].startswith("The steps of at least one run are not known")
    running = next(gauge for gauge in compared.gauges if gauge.name == "running")
    assert running.b == pytest.approx(running.a, rel=0.1) and compared.reasons == ()
    known = {metric.name: metric.b for metric in compared.metrics}
    assert np.isnan(known["running.mean"]) and np.isnan(known["preemptions"]) and np.isnan(known["makespan"])


def test_an_offset_that_is_given_is_taken() -> None:
    run = busy()
    found = find_offset(run, sampled(run, 2.0, 5.0), -4.0)
    assert (found.seconds, found.found) == (-4.0, "given")


def test_runs_that_start_their_own_clock_are_not_moved() -> None:
    found = find_offset(busy(), busy(start=9.0))
    assert (found.seconds, found.found) == (0.0, "clock")


def test_the_same_arrivals_tell_the_offset() -> None:
    """However the gauges look; one that arrives otherwise makes them other arrivals."""
    requests = [{"id": name, "arrival": when} for name, when in (("x", 1.0), ("y", 2.5), ("z", 7.0))]
    moved = [{**request, "arrival": float(str(request["arrival"])) + 40} for request in requests]
    a, b = (run_from_rows((), rows) for rows in (requests, moved[::-1]))
    assert (find_offset(a, b).seconds, find_offset(a, b).found) == (-40.0, "arrivals")
    late = run_from_rows((), [*moved[:2], {**moved[2], "arrival": 47.1}])
    assert find_offset(a, late).found == "correlation"
    unknown = run_from_rows((), [*moved[:2], {**moved[2], "arrival": float("nan")}])
    assert (find_offset(a, unknown).seconds, find_offset(a, unknown).found) == (0.0, "correlation")


def test_a_long_log_is_held_against_a_run_by_some_of_its_points() -> None:
    """As well as by all of them."""
    curve = Curve.of(busy(count=60_000), "running")
    times = np.arange(curve.start, curve.end, 0.4)
    points = times - 3.0, curve.at(times)
    assert len(times) > 3 * HELD and match(curve, points, 2.6) == pytest.approx(3.0, abs=0.05)


def test_nothing_to_slide_is_no_error() -> None:
    empty = Curve(np.zeros(0), np.zeros(0))
    assert slide(empty, empty) == 0.0 == slide(Curve.of(busy(), "running"), empty)
    assert match(empty, (np.zeros(1), np.zeros(1)), 2.0) == 2.0


def test_only_what_a_log_tells_is_compared() -> None:
    """An iteration log knows widths and prefills, not the gauges."""
    known = [KEY, {"forward_width", "decode_seqs", "sampled_tokens"}]
    a = busy()
    rows = [{name: row[name] for name in ("t_start", "t_end", *known[1])} for row in a.steps.to_pylist()]
    log = run_from_rows(rows, (), {"arm": "measured", KEY: sorted(known[1])})
    found = compare(a, log)
    assert found.identical and set(found.columns_compared) == {"step", *known[1]}
    rows[7]["decode_seqs"] += 1
    changed = compare(a, run_from_rows(rows, (), log.meta))
    assert changed.split is not None and changed.split.step == 7 and list(changed.split.columns) == ["decode_seqs"]
    assert changed.split.before_and_after[0][0] is not None
    assert set(changed.split.before_and_after[0][0]) == {"step", "forward_width", "decode_seqs"}
    assert "with the same arrivals" not in changed.why[0]


def test_what_a_log_does_not_tell_is_not_told_as_none(tmp_path: Path) -> None:
    """An iteration log says nothing of what waits, of preemptions or of a cache, in tables, pages and sentences."""
    run = run_from_rows([
        {"t_start": step / 10, "t_end": step / 10 + 0.05, "running": 3, "forward_width": 3, "decode_seqs": 3,
         "waiting": 5, "preempted": step % 2, "cached_tokens": 7, "sampled_tokens": 3} for step in range(20)
    ], [{"id": "r0", "status": "finished"}])
    log = read(tmp_path, "\n".join(iteration(step, 0, 2, 50.0) for step in range(20))).run
    found = compare(run, log)
    assert [gauge.name for gauge in found.gauges] == ["running", "forward_width"]
    told = " ".join(found.reasons)
    assert "Sequences in a forward" in told and "reemption" not in told and "cache" not in told
    assert {metric.name for metric in found.metrics if np.isnan(metric.b)} >= {"waiting.mean", "request_rate"}
    rows = dict(summary_rows(summarise(log), untold(log)))
    assert {rows[name] for name in ("preemptions", "throughput, generated", "requests finished", "KV peak")} == {DASH}
    assert rows["steps"] == "20" and DASH not in dict(summary_rows(summarise(run), untold(run)))["preemptions"]


def test_the_command_says_how_the_clock_was_moved(tmp_path: Path) -> None:
    run = busy(3)
    run.save(tmp_path / "run")
    sampled(run, 2.0, 5.0).save(tmp_path / "log")
    said = arcsim("compare", tmp_path / "run", tmp_path / "log").out
    assert "decisions: not comparable, the steps of at least one run are not known" in said
    assert "clock of b: -5.0" in said and "by cross-correlation of the running gauges" in said
    given = arcsim("compare", tmp_path / "run", tmp_path / "log", "--offset", "-4", "--json").json
    assert (given["offset"]["seconds"], given["offset"]["found"]) == (-4.0, "given")
    assert [gauge["name"] for gauge in given["gauges"]] == ["running", "waiting"]


def test_a_real_log_lies_on_its_record(shared: Path, tmp_path: Path) -> None:
    """The log of an open run near saturation, a line every two seconds in whole seconds, against the record of the same
    run: the gauges agree at most of its lines."""
    data = shared / "data" / "vllm_cpu"
    for name, file in (("record", "a_rate2_ample.json.gz"), ("log", "a_rate2_ample.log")):
        import_file(data / file, tmp_path / name)
    record, log = Run.load(tmp_path / "record"), Run.load(tmp_path / "log")
    offset = find_offset(record, log)
    times, values = Curve.points(log, "running")
    there = Curve.of(record, "running").at(times + offset.seconds)
    assert offset.found == "correlation" and 0.0 <= offset.seconds <= 2.0
    assert (there == values).mean() > 0.6 and np.abs(there - values).mean() < 0.6
