"""What people read: numbers are never cut, whatever the width, and never in scientific notation."""

import io
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from arcsim.console import print_hanging, print_lines
from arcsim.console_grid import Grid, Group, print_grid
from arcsim.traces.summary_text import number

from .command import POLICY, SMALL, TWO, arcsim, written

SWEEP = TWO + "sweep: {workload.count: [1, 40], workload.prompt: [{fixed: 20}, {spread: [10, 90], distinct: 8}]}\n"
EXPONENT = re.compile(r"\d[eE][-+]?\d")


def printed(width: int, show: object, *what: object) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(console, *what)  # type: ignore[operator]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


GRID = Grid("numbers", ("steps", "forward width", "E2E"), [
    Group("a cell", [("  one", ("64", "1.00 / 1", "13,353 · 13,483 · 13,487")), ("  two", ("5", "9.00 / 9", "–"))]),
])


@pytest.mark.parametrize("width", [100, 80, 40, 25, 5])
def test_no_cell_is_cut(width: int) -> None:
    text = "\n".join(printed(width, print_grid, GRID))
    for name, cell in zip(GRID.names, GRID.groups[0].rows[0][1], strict=True):
        assert name in text and cell in text and "…" not in text


def test_columns_that_do_not_fit_go_into_a_further_table() -> None:
    assert printed(60, print_grid, GRID) == [
        "numbers",
        "       steps  forward width                       E2E",
        "a cell",
        "  one     64       1.00 / 1  13,353 · 13,483 · 13,487",
        "  two      5       9.00 / 9                         –",
    ]
    assert printed(40, print_grid, GRID) == [
        "numbers",
        "       steps  forward width",
        "a cell",
        "  one     64       1.00 / 1",
        "  two      5       9.00 / 9",
        "                            E2E",
        "a cell",
        "  one  13,353 · 13,483 · 13,487",
        "  two                         –",
    ]


def test_a_long_label_is_folded_beside_its_numbers() -> None:
    grid = Grid("", ("a",), [Group("", [("running (the engine's gauge): mean · by time · max", ("1 · 2 · 3",))])])
    assert printed(44, print_grid, grid)[2:] == [
        "running (the engine's gauge):      1 · 2 · 3",
        "  mean · by time · max",
    ]


CELL = st.from_regex(r"[0-9]{1,12}", fullmatch=True)


@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=4), st.integers(1, 60))
def test_every_cell_is_printed_once(rows: list[tuple[str, str, str]], width: int) -> None:
    grid = Grid("t", ("x", "y", "z"), [Group("", [("r", row) for row in rows])])
    words = " ".join(printed(width, print_grid, grid)).split()
    assert sorted(word for word in words if word.isdigit()) == sorted(cell for row in rows for cell in row)


def test_text_is_folded_beside_its_head() -> None:
    lines = printed(30, print_hanging, "note: ", "one two three four five six seven eight")
    assert lines == ["note: one two three four five", "      six seven eight"]
    path = "/a/long/path/that/has/no/place/to/be/folded/at"
    assert "".join(line.strip() for line in printed(30, print_hanging, "", path)) == path


def test_lists_are_aligned_and_their_last_column_is_folded() -> None:
    lines = printed(40, print_lines, [["name", "what it is"], ["h200_ragged", "one of those that come with arcsim"]])
    assert lines == ["name         what it is", "h200_ragged  one of those that come with", "             arcsim"]


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"), (1.0, "1"), (12.3456, "12.35"), (999.9, "999.9"), (999.96, "1,000"), (1234.5, "1,234"),
    (1.5e9, "1,500,000,000"), (0.0123456, "0.01235"), (1.5e-5, "0.000015"), (-2.5e-7, "-0.00000025"),
    (float("nan"), "–"), (float("inf"), "–"), (100, "100"), (0.1 + 0.2, "0.3"),
])
def test_a_number_has_four_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_a_number_is_close_to_what_is_printed(value: float) -> None:
    text = number(value)
    assert not EXPONENT.search(text)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-4, abs=0)


@pytest.mark.parametrize("width", ["100", "80", "60"])
def test_a_sweep_is_readable_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    """Every line within the width, every number whole: as many as in a console of any width."""
    monkeypatch.setenv("COLUMNS", "400")
    config = written(tmp_path, SWEEP + "expect: ['mean(running, plain) > 0 where workload.count == 1']\n")
    monkeypatch.chdir(tmp_path)
    wide = arcsim("simulate", "-c", config, "-o", "out").out
    monkeypatch.setenv("COLUMNS", width)
    out = arcsim("simulate", "-c", config, "-o", "out").out
    assert max(map(len, out.splitlines())) <= int(width) and "…" not in out and not EXPONENT.search(out)
    cells = [re.split(r"  +", line.strip())[1:] for line in wide.splitlines() if line.startswith("  plain")]
    assert len(cells) == 8
    for cell in (cell for row in cells for cell in row):
        assert cell in out


def test_a_sweep_has_a_table_of_the_batch_and_one_of_latencies(tmp_path: Path) -> None:
    lines = arcsim("simulate", "-c", written(tmp_path, SWEEP), "-o", tmp_path / "out").out.splitlines()
    assert lines[0] == "small: the batch (gauges: mean / max over steps)"
    assert lines[1].split() == [
        "steps", "running", "forward", "width", "waiting", "tok/s", "preempted", "recomputed", "KV", "peak",
    ]
    assert lines[2] == "count=1 prompt=fixed(20)" and lines[3].split()[:2] == ["plain", "5"]
    place = lines.index("small: latency in ms (p50 · p90 · p99)")
    assert lines[place + 1].split() == ["TTFT", "TPOT", "E2E"]
    assert lines[place + 3].split()[:6] == ["plain", "2.1", "·", "2.1", "·", "2.1"]


def test_many_variants_go_into_several_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    variants = ", ".join(f"variant_{place}: {{policy.victim: last}}" for place in range(6))
    out = arcsim("simulate", "-c", written(tmp_path, f"{SMALL}variants: {{{variants}}}\n"), "-o", tmp_path / "o").out
    assert len([line for line in out.splitlines() if line.startswith("TTFT")]) == 3
    assert all(f"variant_{place}" in out for place in range(6)) and "…" not in out


STALLS_ON_FORTY = POLICY.replace("        admitted, self", """\
        if len(self.waiting) == 40:
            return Step(Gauges(0, 40))
        admitted, self""")


def test_a_run_that_did_not_end_is_marked(tmp_path: Path) -> None:
    written(tmp_path, STALLS_ON_FORTY, "mine.py")
    config = written(tmp_path, SWEEP.replace("policy.batching: mixed", "policy: mine.py:Mine"))
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out")
    marked = [line.split()[:2] for line in left.out.splitlines() if line.startswith("  plain: stalled")]
    assert left.code == 2 and marked == [["plain:", "stalled"]] * 4
    assert "small / count=40 prompt=fixed(20) / plain: stalled: 12 empty steps in a row" in left.err
    assert "verdict: INVALID" in left.out
