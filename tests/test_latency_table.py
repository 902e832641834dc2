"""The table latency model: its curves, what each kind of step costs, and the messages on the way."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from arcsim.experiment.document import parse
from arcsim.experiment.errors import UserError
from arcsim.experiment.plan import plan
from arcsim.experiment.simulate import simulate
from arcsim.sim.latency.config import LatencyError, build_latency, parse_latency
from arcsim.sim.latency.curve import Curve, weights
from arcsim.sim.latency.table import Table, TableConfig
from arcsim.sim.latency.work import Work

KEYS = {
    "kind": "table",
    "decode": {"rows": [1, 2, 3, 8], "seconds": ["30ms", "34ms", "28ms", "38ms"], "context_token": "4us"},
    "prefill": {"tokens": [16, 256], "seconds": ["40ms", "280ms"], "row": "1ms", "context_token": "5us",
                "attended_pair": "1us"},
    "host": {"step": "2ms", "row": "1ms"},
}
DECODE = Work(forwards=1, decode_seqs=2, context_tokens=1000)
PREFILL = Work(forwards=1, prefill_seqs=1, prefill_tokens=100, padded_tokens=160, context_tokens=100,
               prefill_attended=5050)


def model(**changes: object) -> Table:
    found = build_latency(parse_latency(KEYS | changes))
    assert isinstance(found, Table)
    return found


@pytest.mark.parametrize(("rows", "seconds"), [(1, 0.030), (2, 0.034), (3, 0.028), (5, 0.032), (8, 0.038)])
def test_decode_rows_are_read_off_the_table(rows: int, seconds: float) -> None:
    """Two rows may cost more than three: what straight lines cannot say."""
    assert model().seconds(Work(forwards=1, decode_seqs=rows)) == pytest.approx(seconds)


def test_beyond_the_table_the_line_goes_on() -> None:
    """From 3 rows, the last knot at or below half of 8: 2 ms a row."""
    assert model().seconds(Work(forwards=1, decode_seqs=20)) == pytest.approx(0.038 + 12 * 0.002)


def test_parts_of_a_step() -> None:
    table = model()
    assert table.seconds(DECODE) == pytest.approx(0.034 + 1000 * 4e-6)
    packed = 0.040 + (100 - 16) * 1e-3
    assert table.seconds(PREFILL) == pytest.approx(packed + 1e-3 + 100 * 5e-6 + 5050 * 1e-6)
    mixed = replace(PREFILL, decode_seqs=4, context_tokens=500)
    assert table.seconds(mixed) == pytest.approx(packed + 4e-3 + 5e-3 + 500 * 5e-6 + 5050 * 1e-6)
    assert table.seconds(Work()) == table.host_seconds(Work()) == 0.0


def test_padding_costs_only_where_it_is_charged() -> None:
    padded = replace(PREFILL, padded_tokens=200)
    assert model().seconds(padded) == model().seconds(PREFILL)
    charged = model(charge_padding=True)
    assert charged.seconds(padded) - charged.seconds(PREFILL) == pytest.approx(40e-3)


def test_forwards_share_the_tokens() -> None:
    """Two passes of one row each are not a pass of two."""
    two = Work(forwards=2, decode_seqs=2)
    assert model().seconds(two) == pytest.approx(2 * 0.030)


def test_drafts_are_tokens() -> None:
    assert model().seconds(replace(DECODE, decode_seqs=1, draft_tokens=2)) == pytest.approx(0.028 + 4e-3)


def test_the_hosts_part_is_within_the_step() -> None:
    assert model().host_seconds(DECODE) == pytest.approx(4e-3)
    assert model(host={"step": "1s"}).host_seconds(DECODE) == pytest.approx(0.034)


@given(st.integers(1, 40), st.integers(0, 10**6), st.integers(1, 50), st.integers(0, 9), st.integers(1, 3))
def test_a_series_is_what_single_steps_give(rows: int, context: int, steps: int, drafts: int, forwards: int) -> None:
    """Bit for bit."""
    table, work = model(), Work(forwards=forwards, decode_seqs=rows, context_tokens=context, draft_tokens=drafts)
    alone = [table.seconds(replace(work, context_tokens=context + i * rows)) for i in range(1, steps + 1)]
    assert table.decode_series(work, steps).tolist() == alone


def test_only_decode_goes_on_as_a_series() -> None:
    with pytest.raises(ValueError, match="prefills 1 rows"):
        model().decode_series(PREFILL, 3)


knots = st.lists(st.integers(1, 300), min_size=1, max_size=8, unique=True).map(sorted)


@given(knots, st.data())
def test_weights_and_curve_agree(places: list[int], data: st.DataObject) -> None:
    """`weights @ values`, the curve of arrays and that of numbers; values that rise, so that none falls far out."""
    size = len(places)
    values = sorted(data.draw(st.lists(st.floats(0, 1), min_size=size, max_size=size)))
    counts = np.array(data.draw(st.lists(st.integers(1, 900), min_size=1, max_size=9)), dtype=float)
    curve = Curve(tuple(places), tuple(values))
    alone = [curve(count) for count in counts]
    assert curve.at(counts) == pytest.approx(alone, abs=1e-9)
    assert weights(counts, places) @ np.array(values) == pytest.approx(alone, abs=1e-9)


def test_a_curve_never_falls_far_out() -> None:
    assert Curve((1, 4, 8), (3.0, 2.0, 1.0))(100) == 1.0 and Curve((5,), (2.0,))(100) == 2.0


@pytest.mark.parametrize(("part", "keys", "said"), [
    ("decode", {"rows": [1, 2], "seconds": [0.1]}, "latency: 'decode': 2 rows and 1 seconds: give as many of each"),
    ("decode", {"rows": [2, 2], "seconds": [0.1, 0.2]}, "latency: 'decode': rows must rise, found 2"),
    ("decode", {"rows": [0], "seconds": [0.1]}, "latency: 'decode.rows.0': Input should be greater than or equal to 1"),
    ("decode", {"rows": [], "seconds": []}, "latency: 'decode.rows': List should have at least 1 item"),
    ("decode", {"rows": [1], "seconds": [-0.1]}, "latency: 'decode.seconds.0': Input should be greater than or equal"),
    ("prefill", {"tokens": [8], "seconds": [0.1], "rows": 1}, "latency: unknown key 'prefill.rows' (known for prefill: "
     "tokens, seconds, row, context_token, attended_pair)"),
    ("prefill", {"seconds": [0.1]}, "latency: 'prefill.tokens': Field required"),
])
def test_what_is_wrong_is_said_with_its_key(part: str, keys: object, said: str) -> None:
    with pytest.raises(LatencyError) as error:
        parse_latency(KEYS | {part: keys})
    assert str(error.value).startswith(said) and "\n" not in str(error.value)


EXPERIMENT = """
workload: {kind: synthetic, count: 6, prompt: 40, output: 20, arrivals: at_once}
engine: {block_size: 16, num_blocks: 64, max_num_seqs: 4, max_num_batched_tokens: 64}
policy: continuous
latency:
  kind: table
  decode: {rows: [1, 2, 4], seconds: [30ms, 34ms, 28ms], context_token: 4us}
  prefill: {tokens: [16, 64], seconds: [40ms, 90ms]}
"""


def test_an_experiment_takes_it(tmp_path: Path) -> None:
    """Every decode step costs what the table says for its rows and context."""
    document = parse(EXPERIMENT.encode(), "mine.yaml", tmp_path, "mine")
    run = simulate(next(iter(plan(document).cells[0].configs.values())))
    decode = run.column("prefill_seqs") == 0
    rows, context = run.column("decode_seqs")[decode], run.column("context_tokens")[decode]
    said = np.interp(rows, [1, 2, 4], [0.030, 0.034, 0.028]) + 4e-6 * context
    assert decode.sum() > 20 and run.step_seconds()[decode] == pytest.approx(said, abs=1e-8)
    assert TableConfig.model_validate(run.meta["config"]["latency"])


def test_an_experiment_says_where_it_is_wrong(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("rows: [1, 2, 4]", "rows: [1, 4, 2]")
    with pytest.raises(UserError, match=r"mine.yaml:7: latency.decode: rows must rise, found 2"):
        simulate(next(iter(plan(parse(text.encode(), "mine.yaml", tmp_path, "mine")).cells[0].configs.values())))
