"""The report: one page that opens offline."""

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arcsim.traces.importers.catalog import import_file
from arcsim.traces.report import write_report, write_sweep_report
from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run
from arcsim.traces.run_view import PANELS, POINTS, RunView, points_for

VOID = {"meta", "link", "input", "br", "hr", "img"}


class Page(HTMLParser):
    """Reads a page: its attributes that could fetch something, its texts by element, and whether its tags match."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.mismatched: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1:] != [tag]:
            self.mismatched.append(tag)
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    @property
    def data(self) -> Any:
        return json.loads(self.texts["script"][0])


def run(count: int = 20, width: int = 4) -> Run:
    steps = [
        {"t_start": i, "t_end": i + 1, "running": width + i % 3, "forward_width": width, "running_end": width,
         "sampled_tokens": width, "kv_used": i}
        for i in range(count)
    ]
    requests = [{"first_scheduled": 0.5, "first_token": 1 + i, "finish": 3 + i, "output_tokens": 3} for i in range(5)]
    return run_from_rows(steps, requests, {"arm": "simulated", "outcome": "completed"})


STATEMENTS: list[dict[str, Any]] = [
    {"kind": "control", "text": "equal_steps(a, b)", "outcome": "HOLDS", "measured": "20 steps"},
    {"kind": "expect", "text": "mean(forward_width, a) < 1.5", "outcome": "REFUTED", "measured": 4.0},
    {"kind": "note", "text": "the logged gauge", "outcome": None, "measured": None},
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    path = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    write_report(path, "ragged", {"bucketed": run(), "length_rule": run(15, 8)}, verdict="REFUTED",
                 statements=STATEMENTS, notes=["a note"])
    assert os.listdir(path.parent) == ["report.html"]
    return Page(path)


def test_the_page_parses_and_fetches_nothing(page: Page) -> None:
    assert page.mismatched == [] and page.open == []
    assert page.fetched == ["data:,"]
    style = page.texts["style"][0]
    assert "@import" not in style and "url(" not in style
    assert not [value for name, value in page.attributes if name.startswith("on")]


def test_the_page_carries_the_plotting_library_once(page: Page) -> None:
    assert sum("plotly.js v" in script for script in page.texts["script"]) == 1


def test_the_verdict_and_its_statements_come_first(page: Page) -> None:
    assert page.texts["h1"] == ["ragged"] and page.texts["title"] == ["ragged"]
    assert page.texts["span"][:3] == ["REFUTED", "HOLDS", "REFUTED"]
    assert page.texts["code"] == [row["text"] for row in STATEMENTS]
    assert "a note" in page.texts["li"]


def test_the_numbers_of_each_variant_are_in_a_table(page: Page) -> None:
    assert {"bucketed", "length_rule"} <= set(page.texts["th"])
    assert "8 · 8 · 8" in page.texts["td"]


def test_a_short_run_is_drawn_step_by_step(page: Page) -> None:
    runs = page.data["cells"][0]["runs"]
    assert [run["name"] for run in runs] == ["bucketed", "length_rule"]
    assert list(runs[0]["panels"]) == list(PANELS)
    assert runs[0]["panels"]["running"] == {"x": list(range(21)), "y": [4 + i % 3 for i in range(20)] + [4]}
    assert runs[0]["latencies"]["ttft"] == {"x": [1000, 1000, 2000, 3000, 4000, 5000], "y": [0, 0.2, 0.4, 0.6, 0.8, 1]}


def test_dark_and_light_follow_the_system(page: Page) -> None:
    assert "@media (prefers-color-scheme: dark)" in page.texts["style"][0]
    assert ("content", "light dark") in page.attributes


def test_what_a_user_names_is_never_markup(tmp_path: Path) -> None:
    """(Mutation tried: leaving out any one of the escapes opens an element here.)"""
    evil = "</script><img src=http://x onerror=alert(1)>&amp;"
    row = dict.fromkeys(("kind", "text", "outcome", "measured"), evil)
    views = {evil: run()}
    path = tmp_path / "r.html"
    write_sweep_report(path, evil, {evil: views, "b": views}, verdict=evil, statements=[row], notes=[evil])
    page = Page(path)
    assert page.fetched == ["data:,"] and page.mismatched == [] and "img" not in page.texts
    assert page.texts["h1"] == [evil] and page.texts["code"] == [evil] and page.texts["li"] == [evil]
    assert page.data["cells"][0]["label"] == page.data["cells"][0]["runs"][0]["name"] == evil


def test_a_sweep_offers_its_cells(tmp_path: Path) -> None:
    cells: dict[str, dict[str, Run | RunView]] = {f"count={count}": {} for count in (1, 8, 32)}
    for count, views in zip((1, 8, 32), cells.values(), strict=True):
        views.update(a=run(count), b=RunView.of(run(count)))
    write_sweep_report(tmp_path / "r.html", "sweep", cells)
    page = Page(tmp_path / "r.html")
    assert page.texts["option"] == ["count=1", "count=8", "count=32"]
    assert page.texts["h3"] == ["count=1", "count=8", "count=32"]
    assert [cell["label"] for cell in page.data["cells"]] == ["count=1", "count=8", "count=32"]
    assert [value for name, value in page.attributes if name == "data-choose"] == ["0", "0", "1", "1", "2", "2"]
    assert page.data["first"] == 0


def test_the_cell_whose_variants_differ_most_is_shown_first(tmp_path: Path) -> None:
    """By the ratio of their makespans. (Mutation tried: the least one.)"""
    pairs = {"same": (4, 4), "apart": (4, 9), "less": (8, 9)}
    cells: dict[str, dict[str, Run | RunView]] = {
        label: {"a": run(a), "b": run(b)} for label, (a, b) in pairs.items()
    }
    write_sweep_report(tmp_path / "r.html", "sweep", cells)
    assert Page(tmp_path / "r.html").data["first"] == 1


def test_a_long_run_is_thinned_without_losing_its_peaks() -> None:
    """(Mutation tried: taking every n-th step instead of an envelope loses the peak.)"""
    steps = 50_000
    running = np.full(steps, 3)
    running[31_234], running[7] = 99, 0
    rows = [{"t_start": i / 8, "t_end": (i + 1) / 8, "running": v} for i, v in enumerate(running.tolist())]
    view = RunView.of(run_from_rows(rows))
    panel = view.panels["running"]
    assert len(panel["mean"]) == len(panel["low"]) == len(panel["high"]) == POINTS // 3
    assert max(panel["high"]) == 99 and min(panel["low"]) == 0
    peak = int((31_234 / 8 - panel["from"]) / panel["width"])
    assert panel["high"][peak] == 99 and 3 < panel["mean"][peak] < 5
    assert panel["from"] + panel["width"] * len(panel["mean"]) == pytest.approx(steps / 8)


def test_the_moment_between_two_measured_steps_is_not_drawn_as_idle() -> None:
    rows = [{"t_start": i, "t_end": i + (0.95 if i < 5 else 0.5), "forward_width": 3} for i in range(8)]
    panel = RunView.of(run_from_rows(rows)).panels["forward_width"]
    assert panel["x"] == [0, 1, 2, 3, 4, 5, 5.5, 6, 6.5, 7, 7.5] and panel["y"] == [3] * 6 + [0, 3, 0, 3, 0]


def test_a_log_is_drawn_as_its_samples(tmp_path: Path) -> None:
    """Without steps nothing is known between them, and of KV only the share in use."""
    line = (
        "INFO 08-04 15:24:5{second} [loggers.py:271] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        "throughput: 2.0 tokens/s, Running: {running} reqs, Waiting: 4 reqs, GPU KV cache usage: 12.5%, "
        "Prefix cache hit rate: 0.0%\n"
    )
    (tmp_path / "log.txt").write_text("".join(line.format(second=i, running=i + 1) for i in range(3)))
    import_file(tmp_path / "log.txt", tmp_path / "log")
    view = RunView.of(Run.load(tmp_path / "log"), moved=10.0)
    assert view.panels["running"] == {"x": [10, 11, 12], "y": [1, 2, 3], "sampled": True}
    assert view.panels["kv_used"]["y"] == [12.5] * 3 and view.panels["forward_width"] == {"x": [], "y": []}
    write_report(tmp_path / "r.html", "log", {"log": Run.load(tmp_path / "log")})
    assert Page(tmp_path / "r.html").data["cells"][0]["runs"][0]["panels"]["waiting"]["sampled"]


def test_a_page_of_many_runs_stays_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, 9000).tolist()
    rows = [{"t_start": i, "t_end": i + 1, "running": v, "kv_used": v} for i, v in enumerate(values)]
    requests = [{"first_token": float(v), "finish": float(v) + 1, "output_tokens": 2} for v in rng.random(3000)]
    view = RunView.of(run_from_rows(rows, requests), points_for(100))
    write_sweep_report(tmp_path / "r.html", "many", {str(cell): {"a": view, "b": view} for cell in range(50)})
    assert (tmp_path / "r.html").stat().st_size < 8_000_000


def test_a_run_without_steps_or_requests_is_drawn(tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", "empty", {"nothing": run_from_rows()})
    assert Page(tmp_path / "r.html").data["cells"][0]["runs"][0]["panels"]["running"] == {"x": [], "y": []}


def test_the_scripts_know_only_elements_that_the_page_has(page: Page) -> None:
    ids = {value for name, value in page.attributes if name == "id"} | {"cell"}  # the choice of a cell: sweeps only
    used = re.findall(r'getElementById\("([a-z]+)"\)', page.texts["script"][-1])
    assert used and set(used) <= ids
    assert {"time", "ttft", "tpot", "e2e"} <= ids


def test_a_page_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=f"cannot write {tmp_path / 'file' / 'r.html'}: "):
        write_report(tmp_path / "file" / "r.html", "x", {})
    assert os.listdir(tmp_path) == ["file"]
