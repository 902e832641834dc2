"""The page of two runs side by side."""

from pathlib import Path

import pytest

from arcsim.sim.cross_validation import RegionError
from arcsim.traces.compare import compare
from arcsim.traces.comparison_page import write_comparison
from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run

from .command import SMALL, TWO, arcsim, refused, written
from .serving import continuous, of_lengths, serve
from .test_report import Page


def page(folder: Path, a: Run, b: Run, paths: tuple[str, str] = ("runs/x", "runs/y")) -> Page:
    write_comparison(folder / "c.html", compare(a, b), (a, b), paths)
    return Page(folder / "c.html")


def served(seats: int) -> Run:
    return serve(continuous(14, seats=seats), of_lengths(range(3, 17, 2), 14)).run


def test_different_decisions_are_said_first_with_reasons_and_numbers(tmp_path: Path) -> None:
    a, b = served(8), served(2)
    found, comparison = page(tmp_path, a, b), compare(a, b)
    assert found.mismatched == [] and found.fetched == ["data:,"]
    assert found.texts["span"][0] == "decisions DIFFERENT" and ("class", "badge bad") in found.attributes
    assert found.texts["p"][:len(comparison.why)] == list(comparison.why)
    assert found.texts["li"] == list(comparison.reasons)
    texts = found.texts["td"]
    split = comparison.split
    assert split is not None and f"The first step that differs: {split.step:,}" in found.texts["h2"]
    assert {"TTFT p99, ms", "throughput, tok/s", "forward width mean", "prefix hit share"} <= set(texts)
    place = texts.index("steps")
    assert texts[place + 1:place + 3] == [str(run.steps.num_rows) for run in (a, b)]
    assert [run["name"] for run in found.data["cells"][0]["runs"]] == ["a: runs/x", "b: runs/y"]


def test_the_error_of_a_latency_model_is_shown(tmp_path: Path) -> None:
    runs = served(8), served(2)
    errors = {"a": [RegionError("decode, 1 row", 12, 0.031, 0.05, -0.02)], "b": []}
    write_comparison(tmp_path / "c.html", compare(*runs), runs, ("x", "y"), errors)
    found = Page(tmp_path / "c.html")
    assert "The latency model of a on the steps that the other side ran" in found.texts["h2"]
    place = found.texts["td"].index("decode, 1 row")
    assert found.texts["td"][place + 1:place + 5] == ["12", "3.1 %", "5.0 %", "-2 %"]


def test_equal_decisions_are_said_too(tmp_path: Path) -> None:
    found = page(tmp_path, served(8), served(8))
    assert found.texts["span"][0] == "decisions IDENTICAL" and ("class", "badge good") in found.attributes
    assert not [title for title in found.texts["h2"] if "differs" in title]


def test_a_request_that_one_run_served_badly_is_told_of_the_other_too(tmp_path: Path) -> None:
    waits = [{"id": str(i), "first_scheduled": 0.0, "first_token": 1.0 + i, "finish": 99.0} for i in range(40)]
    other = [{**row, "first_token": 41.0 - i} for i, row in enumerate(waits)]
    runs = page(tmp_path, run_from_rows([], waits), run_from_rows([], other)).data["cells"][0]["runs"]
    ids = [{request["id"] for request in run["requests"]} for run in runs]
    assert ids[0] == ids[1] and {"0", "39"} <= ids[0] and len(ids[0]) < 40


def test_runs_with_nothing_in_them_make_a_page(tmp_path: Path) -> None:
    assert page(tmp_path, run_from_rows(), run_from_rows()).mismatched == []


def test_what_a_user_names_is_never_markup(tmp_path: Path) -> None:
    evil = "</td><img src=x>&amp;"
    found = page(tmp_path, served(8), served(2), (evil, evil))
    assert found.mismatched == [] and "img" not in found.texts and evil in found.texts["td"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert arcsim("simulate", "-c", written(folder, TWO), "-o", folder / "out", "-q").code == 0
    return folder / "out"


def test_the_command_writes_it(runs: Path, tmp_path: Path) -> None:
    html = tmp_path / "deep" / "compare.html"
    left = arcsim("compare", runs / "plain", runs / "first", "--html", html)
    assert left.code == 0 and left.out.splitlines()[-1] == f"page: {html}"
    assert Page(html).texts["h1"] == ["a against b"]
    assert arcsim("compare", runs / "plain", runs / "first", "--html", html, "--json").json["page"] == str(html)


def test_a_page_that_cannot_be_written_is_one_message(runs: Path, tmp_path: Path) -> None:
    path = written(tmp_path, SMALL) / "c.html"
    left = arcsim("compare", runs / "plain", runs / "first", "--html", path)
    assert refused(left).startswith(f"cannot write {path}: ")
