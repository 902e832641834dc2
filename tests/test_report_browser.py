"""The pages in a real browser: they draw, they answer, and they ask the network for nothing."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from arcsim.traces.compare import compare
from arcsim.traces.comparison_page import write_comparison
from arcsim.traces.report import write_sweep_report
from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run

from .browser import CHROMIUM, Browser, Tab, opened
from .serving import continuous, of_lengths, serve

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (Debian's package: chromium)")

EVIL = "</script><img src=x onerror=alert(1)>&amp;"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


def tight(blocks: int) -> Run:
    """Seven requests; with few blocks some are preempted."""
    return serve(continuous(blocks, seats=8), of_lengths(range(3, 17, 2), 14)).run


def long() -> Run:
    """More steps than a page draws one by one; two requests, one of them preempted once, one rejected."""
    steps: list[dict[str, Any]] = [
        {"t_start": i, "t_end": i + 1, "running": 3 + (i == 4321), "prefill_tokens": 9 * (i % 50 == 0),
         "decode_tokens": 3, "forward_width": 3, "preempted": int(i == 5000), "resumed": int(i == 5100)}
        for i in range(9000)
    ]
    requests: list[dict[str, Any]] = [
        {"id": EVIL, "first_scheduled": 0.0, "first_token": 1.0, "finish": 9000.0, "output_tokens": 3, "preemptions": 1,
         "token_times": [1.0, 5000.0, 9000.0]},
        {"id": "no", "status": "rejected", "reason": EVIL},
    ]
    return run_from_rows(steps, requests)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    runs = tight(14), tight(200)
    cells = {"tight": {"few": runs[0], "many": runs[1]}, EVIL: {EVIL: long(), "empty": run_from_rows()}}
    statements = [{"kind": "expect", "text": "1 < 2", "outcome": "holds", "measured": "1 < 2"}]
    write_sweep_report(folder / "report.html", EVIL, cells, verdict="CONFIRMED", statements=statements, notes=[EVIL])
    write_comparison(folder / "compare.html", compare(*runs), runs, ("runs/few", "runs/many"))
    return {"report": folder / "report.html", "compare": folder / "compare.html"}


@pytest.fixture(scope="module")
def report(browser: Browser, pages: dict[str, Path]) -> Iterator[Tab]:
    """Each test leaves the page as it found it: to read and draw one takes seconds."""
    with opened(browser, pages["report"]) as tab:
        yield tab


@pytest.fixture(scope="module")
def comparison(browser: Browser, pages: dict[str, Path]) -> Iterator[Tab]:
    with opened(browser, pages["compare"]) as tab:
        yield tab


def lines(tab: Tab, chart: str = "time") -> list[str]:
    """The names of the runs that are drawn in a chart, each once."""
    script = f"[...new Set(document.getElementById('{chart}').data.filter(t => t.visible !== false).map(t => t.meta))]"
    found: list[str] = tab.run(script)
    return [name for name in found if not name.startswith("tokens of ")]


def click(tab: Tab, selector: str, place: int = 0) -> None:
    tab.run(f"document.querySelectorAll({selector!r})[{place}].click()")


def is_quiet(tab: Tab) -> bool:
    return tab.requested == [] and tab.complaints == []


WHITE, BLACK = "rgb(255, 255, 255)", "rgb(20, 23, 27)"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
LINE = "document.querySelector('#time').data[0].line.color"


@pytest.mark.parametrize("name", ["report", "comparison"])
def test_a_page_draws_and_asks_for_nothing(name: str, request: pytest.FixtureRequest) -> None:
    tab = request.getfixturevalue(name)
    assert tab.run("document.querySelectorAll('#time .scatterlayer .js-line').length") >= 8
    assert tab.run("document.querySelectorAll('#ttft .js-line').length") == 2
    assert tab.run("document.querySelectorAll('#time .points path').length") > 0, "preemption marks"
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    assert is_quiet(tab)


def test_a_page_is_light_or_dark_as_the_system_says_and_then_as_the_button_says(report: Tab) -> None:
    light = report.run(LINE)
    assert report.run(BACKGROUND) == WHITE
    report.prefer("dark")
    assert report.until(f"{LINE} !== '{light}'")
    dark = report.run(LINE)
    assert report.run(BACKGROUND) == BLACK
    assert report.run("document.getElementById('theme').textContent") == "light"
    click(report, "#theme")
    assert report.run(BACKGROUND) == WHITE and report.run(LINE) == light
    report.prefer("light")
    assert report.run(BACKGROUND) == WHITE
    click(report, "#theme")
    assert report.run(BACKGROUND) == BLACK and report.run(LINE) == dark
    click(report, "#theme")
    assert is_quiet(report)


def test_the_legend_hides_a_run_everywhere(comparison: Tab) -> None:
    names = ["a: runs/few", "b: runs/many"]
    assert lines(comparison) == names
    rows = comparison.run("document.querySelectorAll('#worst .request').length")
    click(comparison, ".legend button", 0)
    assert lines(comparison) == lines(comparison, "e2e") == names[1:]
    pressed = comparison.run("[...document.querySelectorAll('.legend button')].map(b => b.ariaPressed)")
    assert pressed == ["false", "true"] * 3
    assert 0 < comparison.run("document.querySelectorAll('#worst .request').length") < rows
    click(comparison, ".legend button", 0)
    assert lines(comparison) == names and is_quiet(comparison)


def test_a_request_opens_into_its_story_in_every_run(comparison: Tab) -> None:
    comparison.run("document.getElementById('measure').value = 'preemptions'")
    comparison.run("document.getElementById('measure').dispatchEvent(new Event('change'))")
    assert not comparison.run("[...document.querySelectorAll('.story')].some(row => row.checkVisibility())")
    click(comparison, ".request")
    story = "document.querySelector('.story')"
    assert comparison.run(f"{story}.checkVisibility() && document.querySelector('.open').ariaExpanded") == "true"
    assert comparison.run(f"{story}.querySelectorAll('.track').length") == 2
    assert comparison.run(f"{story}.querySelector('.track .preempted').getBoundingClientRect().width") > 5
    widths = f"[...{story}.querySelector('.track').querySelectorAll('.part')].map(part => parseFloat(part.style.width))"
    assert sum(comparison.run(widths)) == pytest.approx(100, abs=0.5), "the run with preemptions takes longest"
    assert comparison.run("document.documentElement.scrollWidth <= innerWidth")
    click(comparison, ".request")
    assert not comparison.run(f"{story}.checkVisibility()") and is_quiet(comparison)


def test_another_cell_is_drawn_and_its_names_are_texts(report: Tab) -> None:
    click(report, "[data-choose='1']")
    assert lines(report) == [EVIL, "empty"] and report.run("document.querySelector('#cell').value") == "1"
    assert "cut into buckets" in report.run("document.getElementById('buckets').textContent")
    assert report.run("Math.max(...document.getElementById('time').data[1].y)") == 4, "the peak of one step"
    report.run("[...document.querySelectorAll('.request')].forEach(row => row.click())")
    assert EVIL in report.run("document.getElementById('worst').textContent")
    assert report.run("document.images.length") == 0
    click(report, "[data-choose='0']")
    assert is_quiet(report)


def test_zooming_one_panel_zooms_all(report: Tab) -> None:
    assert report.run("new Set(document.getElementById('time').data.map(t => t.xaxis)).size") == 1
    report.run("Plotly.relayout('time', {'xaxis.range': [2, 5]}).then(() => 1)")
    click(report, "#theme")
    assert report.run("document.getElementById('time').layout.xaxis.range") == [2, 5], "drawing again keeps the view"
    click(report, "#theme")
    assert is_quiet(report)


def test_the_page_fits_a_small_screen(comparison: Tab) -> None:
    comparison.resize(420)
    click(comparison, ".request")
    assert comparison.until("document.documentElement.scrollWidth <= 420")
    time.sleep(0.5)  # charts resize when the window has been still for a while
    script = "[...document.querySelectorAll('#time, .grid > div, #worst')].map(e => e.getBoundingClientRect().toJSON())"
    places = comparison.run(script)
    assert all(above["bottom"] <= below["top"] for above, below in pairwise(places)), "one below the other"
    assert all(place["height"] >= 200 for place in places)
    click(comparison, ".request")
    comparison.resize(1200)
    assert is_quiet(comparison)


def test_a_complaint_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    """That the tests above can fail."""
    page = tmp_path / "bad.html"
    page.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.warn('x'); throw Error('y')</script>")
    with opened(browser, page) as tab:
        assert len(tab.requested) == 1 and len(tab.complaints) >= 2
