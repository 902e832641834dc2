"""A run as trace events: the rules of the format, and that they tell of the run."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from arcsim.policies.base import EngineConfig
from arcsim.policies.vllm import Vllm
from arcsim.traces import timeline_file
from arcsim.traces.curve import Curve
from arcsim.traces.lanes import Lanes
from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run
from arcsim.traces.timeline import COUNTERS, events
from arcsim.traces.timeline_file import write_timeline

from .command import SMALL, TWO, arcsim, refused, written
from .serving import continuous, of_lengths, request, serve

HAIR = 1e-6
"""Microseconds by which rounded times may miss each other; a nanosecond is a thousand of it."""
KINDS = {"prefill", "decode", "preempted", "waited"}

Event = dict[str, Any]


def tight() -> Run:
    """Preemptions, and more requests than seats."""
    requests = [*of_lengths(range(3, 17, 2), 14), request("late", 8, 5, 9.25)]
    return serve(continuous(14, seats=5, budget=24), requests).run


def overlapped() -> Run:
    engine = EngineConfig(block_size=4, num_blocks=20, max_num_seqs=4, max_num_batched_tokens=64)
    return serve(Vllm(engine, Vllm.Options.model_validate({})), of_lengths(range(3, 17, 2), 14)).run


def odd() -> Run:
    """What no engine here does: nothing ended well, names that are no names."""
    steps = [{"t_start": i, "t_end": i + 1, "preempted": int(i == 3), "prefill_tokens": int(i == 0)} for i in range(6)]
    return run_from_rows(steps, [
        {"id": 'wa"its\n', "arrival": 1.0, "status": "unfinished"},
        {"id": "gone", "arrival": 1.0, "status": "rejected", "reason": 'too "long"'},
        {"id": "ü", "arrival": 0.0, "first_scheduled": 0.0, "first_token": 1.0, "token_times": [1.0, 2.0, 3.0],
         "output_tokens": 3, "preemptions": 1, "status": "unfinished"},
        {"id": "outside", "arrival": 0.0, "first_token": 1.5, "finish": 4.0, "token_times": [1.5, 4.0]},
        {"id": "left", "arrival": 0.5, "first_scheduled": 0.5, "status": "aborted"},
    ])


RUNS = {"tight": tight, "overlapped": overlapped, "odd": odd, "empty": run_from_rows}


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    return RUNS[request.param]()


@pytest.fixture(scope="module")
def told(run: Run) -> list[Event]:
    return [json.loads(event) for event in events(run)]


def check_event(event: Event) -> None:
    """The fields of each phase, as the format's document lists them."""
    assert isinstance(event["name"], str) and isinstance(event["args"], dict)
    assert type(event["pid"]) is int and type(event["tid"]) is int
    match event["ph"]:
        case "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
        case "C":
            assert event["ts"] >= 0 and event["args"]
            assert all(type(value) in (int, float) for value in event["args"].values())
        case "i":
            assert event["ts"] >= 0 and event["s"] in ("g", "p", "t")
        case "M":
            known = {"process_name": str, "thread_name": str, "process_sort_index": int, "thread_sort_index": int}
            (value,) = event["args"].values()
            assert type(value) is known[event["name"]]
        case other:
            pytest.fail(f"a phase that is not written: {other}")


def tracks(told: list[Event]) -> dict[tuple[int, int], list[Event]]:
    """The slices of each track, outer before inner."""
    found = defaultdict(list)
    for event in told:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return {key: sorted(of, key=lambda event: (event["ts"], -event["dur"])) for key, of in found.items()}


def nested(slices: list[Event]) -> Iterator[tuple[Event, ...]]:
    """Each slice with those around it. Fails where two overlap without one holding the other."""
    open_: list[Event] = []
    for event in slices:
        while open_ and open_[-1]["ts"] + open_[-1]["dur"] <= event["ts"] + HAIR:
            open_.pop()
        for outer in open_:
            assert event["ts"] + event["dur"] <= outer["ts"] + outer["dur"] + HAIR, (outer, event)
        open_.append(event)
        yield tuple(open_)


def test_each_event_has_the_fields_of_its_phase(told: list[Event]) -> None:
    for event in told:
        check_event(event)


def test_slices_of_a_track_nest_and_are_a_request_and_its_parts(told: list[Event]) -> None:
    """(Mutations tried: one track for all steps, and slots that are free some steps too early, overlap here.)"""
    for (process, _), slices in tracks(told).items():
        for stack in nested(slices):
            assert len(stack) <= (2 if process == 2 else 1)
            if len(stack) == 2:
                assert stack[1]["name"] in KINDS and stack[1]["args"] == {"request": stack[0]["name"]}


def test_tracks_and_processes_are_named_once(told: list[Event]) -> None:
    names = [(e["pid"], e["tid"]) for e in told if e["ph"] == "M" and e["name"] == "thread_name"]
    assert len(names) == len(set(names)) and set(names) == set(tracks(told))
    processes = [event["pid"] for event in told if event["ph"] == "M" and event["name"] == "process_name"]
    assert sorted(processes) == [1, 2, 3] and {event["pid"] for event in told} == {1, 2, 3}


def test_every_step_and_every_request_is_there(told: list[Event], run: Run) -> None:
    slices = [event for event in told if event["ph"] == "X"]
    assert sorted(e["args"]["step"] for e in slices if e["pid"] == 1) == list(range(run.steps.num_rows))
    rows = run.requests.to_pylist()
    ran = [row["id"] for row in rows if row["token_times"]]
    assert sorted(event["name"] for event in slices if event["pid"] == 2 and event["name"] not in KINDS) == sorted(ran)
    turned = {event["args"]["request"] for event in told if event["ph"] == "i" and event["pid"] == 3}
    assert turned == {row["id"] for row in rows if row["status"] in ("rejected", "aborted")}


def test_counters_are_the_gauges_where_they_change(told: list[Event], run: Run) -> None:
    for column, name in COUNTERS.items():
        found = [(e["ts"], e["args"]["value"]) for e in told if e["ph"] == "C" and e["name"] == name]
        assert all(a[0] <= b[0] and a[1] != b[1] for a, b in pairwise(found))
        curve = Curve.of(run, column)
        assert len(found) <= len(curve.times) and bool(found) == bool(len(curve.times))
        if found:
            assert found[0] == (round(curve.times[0] * 1e6, 3), curve.values[0]) and found[-1][1] == curve.values[-1]


def test_parts_tell_of_queueing_and_preemption() -> None:
    run = tight()
    told = [json.loads(event) for event in events(run)]
    preempted = [event for event in told if event["ph"] == "X" and event["name"] == "preempted"]
    assert 0 < len(preempted) <= run.column("preempted").sum()
    marks = [event["args"]["sequences"] for event in told if event["ph"] == "i" and event["name"] == "preempted"]
    assert sum(marks) == run.column("preempted").sum()
    queued = sum(event["dur"] for event in told if event["ph"] == "X" and event["name"] == "queue")
    waits = run.request_column("first_scheduled") - run.request_column("arrival")
    assert queued == pytest.approx(1e6 * waits.sum())


def test_steps_that_overlap_lie_on_two_tracks() -> None:
    told = [json.loads(event) for event in events(overlapped())]
    assert {event["tid"] for event in told if event["pid"] == 1 and event["ph"] == "X"} == {1, 2}


def test_lanes_are_as_few_as_can_be() -> None:
    lanes = Lanes()
    assert [lanes.take(*span) for span in ((0, 4), (1, 2), (2, 9), (3, 5), (4, 6), (9, 9))] == [0, 1, 1, 2, 0, 0]
    assert lanes.count == 3


def test_the_file_is_json_the_same_each_time_and_compressed_alike(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.json", "a.json.gz", "b.json.gz")]
    counts = {write_timeline(path, tight()) for path in paths}
    plain, again, packed, packed_again = (path.read_bytes() for path in paths)
    assert plain == again and packed == packed_again and gzip.decompress(packed) == plain
    whole = json.loads(plain)
    assert counts == {len(whole["traceEvents"])} and whole["displayTimeUnit"] == "ms"
    assert all(isinstance(value, str) for value in whole["otherData"].values())


def test_an_interrupted_file_leaves_the_former_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    write_timeline(path, tight())
    before = path.read_bytes()

    def breaking(run: Run) -> Iterator[str]:
        yield "{}"
        raise KeyboardInterrupt

    monkeypatch.setattr(timeline_file, "events", breaking)
    with pytest.raises(KeyboardInterrupt):
        write_timeline(path, tight())
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_the_command_writes_into_the_run_or_where_it_is_told(tmp_path: Path) -> None:
    config = written(tmp_path, SMALL)
    assert arcsim("simulate", "-c", config, "-o", tmp_path / "out", "-q").code == 0
    left = arcsim("timeline", tmp_path / "out")
    file = tmp_path / "out" / "timeline.json"
    assert left.code == 0 and left.out.startswith(f"timeline: {file} (") and json.loads(file.read_text())
    assert arcsim("timeline", tmp_path / "out", "-o", tmp_path / "t.json.gz").code == 0
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == file.read_bytes()
    assert arcsim("simulate", "-c", config, "-o", tmp_path / "out", "-q").code == 0, "the run may be replaced"


def test_what_cannot_be_is_one_message(tmp_path: Path) -> None:
    assert refused(arcsim("timeline", tmp_path / "none")) == f"no run at {tmp_path / 'none'}: there is no such folder"
    assert arcsim("simulate", "-c", written(tmp_path, TWO), "-o", tmp_path / "two", "-q").code == 0
    assert "holds 2 runs; name one of them" in refused(arcsim("timeline", tmp_path / "two"))
    bad = tmp_path / "small.yaml" / "t.json"
    assert refused(arcsim("timeline", tmp_path / "two" / "first", "-o", bad)).startswith(f"cannot write {bad}: ")
