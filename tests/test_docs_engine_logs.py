"""docs/engine_logs.md: every command in it runs, in its order; and arcsim's own log lines are read back."""

import json
import re
import shlex
from pathlib import Path

import pytest

from arcsim.traces.importers.catalog import importers
from arcsim.traces.interval import interval_lines, stamped
from arcsim.traces.run import Run
from arcsim.workloads.export import FORMATS

from .command import SMALL, arcsim, written
from .importing import read
from .test_import_results import SNAPSHOTS, aiperf, bench

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "engine_logs.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    found: list[str] = re.findall(r"^arcsim .*$", PAGE, re.MULTILINE)
    return found


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, SNAPSHOTS, "gauges.prom")
    written(tmp_path, json.dumps(bench()), "result.json")
    written(tmp_path, json.dumps(aiperf(10**18)) + "\n", "profile_export.jsonl")
    told = {"start_time": 1.0, "first_token_time": 1.5, "end_time": 2.0, "prompt_tokens": 1, "output_tokens": 2}
    written(tmp_path, json.dumps({"benchmarks": [{"requests": {"successful": [told]}}]}), "benchmarks.json")
    assert len(commands()) == 14
    for command in commands():
        words, _, target = command.partition(" > ")
        left = arcsim(*shlex.split(words.removeprefix("arcsim ")))
        assert left.code == 0, (command, left)
        if target:
            Path(target).write_text(left.out)


def test_every_engine_and_format_is_in_the_page() -> None:
    for importer in importers():
        assert f"`{importer.name}`" in PAGE or importer.name in ("vllm-bench", "guidellm", "aiperf")
    assert all(f"- `{name}`" in PAGE for name in FORMATS)


@pytest.mark.parametrize("policy", ["vllm", "sglang", "mistralrs_paged"])
def test_arcsims_own_lines_are_read_back(tmp_path: Path, policy: str) -> None:
    """The lines of a simulated run, at their times to the clock's second, with the counts they were made of."""
    text = SMALL.replace("count: 4", "count: 40, arrivals: {poisson: 20}").replace("continuous", policy)
    text = text.replace("block_size: 16", "block_size: 32").replace("output: 5", "output: 60")
    config = written(tmp_path, text)
    assert arcsim("simulate", "-c", config, "-o", tmp_path / "out", "-q").code == 0
    run = Run.load(next((tmp_path / "out").rglob("steps.parquet")).parent)
    style = str(run.meta["log_style"])
    lines = interval_lines(run, style, 5 if style == "sglang" else 0.25)
    assert len(lines) > 4
    found = read(tmp_path, "".join(f"{stamped(line, style)}\n" for line in lines))
    assert found.report.format == style and found.report.matched == len(lines)
    assert found.counts() == [(line.running, line.waiting) for line in lines]
    slack = 1.0 if style != "mistralrs" else 1e-3
    for line, time in zip(lines, found.column("time"), strict=True):
        assert time == pytest.approx(line.time - lines[0].time, abs=slack)
