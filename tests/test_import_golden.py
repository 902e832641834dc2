"""SGLang's own log lines beside its recorded steps: what is read of the lines agrees with the steps."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arcsim.traces.importers.clock import Clock
from arcsim.traces.importers.log_sglang import SglangReader
from arcsim.traces.importers.record import Record

from .importing import read

GOLDEN = Path(__file__).parent / "golden" / "sglang"
BROKEN = "s55_mixed_chunk_engine_oom.overlap"
"""Ends with an exception before the last pass is logged."""


def traces() -> Iterator[dict[str, Any]]:
    for path in sorted(GOLDEN.glob("*.json*")):
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            yield json.load(file)


def said(trace: dict[str, Any]) -> tuple[list[Record], list[str]]:
    """The records of its lines, and the lines that are none."""
    reader = SglangReader(Clock(2026, "UTC"))
    told = [(line, reader.read(line)) for line in trace["logs"]]
    return [record for _, found in told for record in found or ()], [line for line, found in told if found is None]


def queues(trace: dict[str, Any], place: int) -> set[int]:
    """With overlap a line is printed when the next pass has been scheduled, which may have emptied the queue."""
    steps = trace["steps"]
    after = steps[min(place + 1, len(steps) - 1)]
    return {len(steps[place]["waiting"])} | ({len(after["waiting"])} if trace["config"]["overlap"] else set())


def test_prefill_lines_are_the_passes_that_prefill() -> None:
    """Caught: `#new-seq` for `#running-req`, and the queue after the pass for the one before."""
    checked = 0
    for trace in traces():
        lines = [record for record in said(trace)[0] if record.kind == "prefill"]
        passes = [(place, step["log"]) for place, step in enumerate(trace["steps"]) if step.get("log")]
        assert len(lines) == len(passes) - (trace["name"] == BROKEN)
        for record, (place, log) in zip(lines, passes, strict=False):
            assert record.running == log["running_req"]
            assert record.waiting in queues(trace, place)
            checked += 1
    assert checked > 2000


def test_decode_lines_are_every_fortieth_pass_that_decodes() -> None:
    checked = 0
    for trace in traces():
        lines = [record for record in said(trace)[0] if record.kind == "decode"]
        passes = [place for place, step in enumerate(trace["steps"]) if step["kind"] == "decode"][39::40]
        for record, place in zip(lines, passes, strict=True):
            after = trace["steps"][min(place + 1, len(trace["steps"]) - 1)]
            assert record.running == len(trace["steps"][place]["batch"])
            assert record.waiting in queues(trace, place) | {len(after["waiting"])}
            checked += 1
    assert checked > 150


def test_retractions_add_up_to_those_of_the_steps() -> None:
    counts = []
    for trace in traces():
        told = sum(record.preempted or 0 for record in said(trace)[0])
        assert told == sum(len(step["retracted"]) for step in trace["steps"])
        counts.append(told)
    assert sum(counts) > 60


def test_other_lines_are_left_alone() -> None:
    others = [line for trace in traces() for line in said(trace)[1]]
    assert len(others) == 3 and all(line.startswith(("Input length", "Out of memory")) for line in others)


def test_a_log_without_any_clock_is_read_and_says_so(tmp_path: Path) -> None:
    trace = next(traces())
    found = read(tmp_path, "\n".join(trace["logs"]) + "\n")
    assert found.report.samples == found.report.matched == len(trace["logs"])
    assert any("have no clock" in note for note in found.report.notes)
    assert found.run.meta["clock_start"] is None and all(time != time for time in found.column("time"))
