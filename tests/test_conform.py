"""Golden traces of real engines: every field of every step equal, and the runner that says so."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arcsim.conform.check import check, read, trace_files
from arcsim.conform.difference import same
from arcsim.conform.known import load_known

from .command import Left, arcsim, refused

GOLDEN = Path(__file__).resolve().parent / "golden"
FOLDERS = sorted(path for path in GOLDEN.iterdir() if path.is_dir())
FILES = trace_files(FOLDERS)
KNOWN = load_known(GOLDEN / "known.yaml") if (GOLDEN / "known.yaml").exists() else {}
PACKED = gzip.compress(b'{"engine": "vllm", "config": {}, "steps": []}', mtime=0)
RICH = GOLDEN / "vllm" / "g01_aborts.json.gz"
"""Has aborts, hits and several requests."""
SGLANG = GOLDEN / "sglang" / "s01_single.normal.json.gz"


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name}" for path in FILES])
def test_golden_traces_are_reproduced(path: Path) -> None:
    checked = check(path, KNOWN)
    difference = checked.difference
    told = "" if difference is None else f"{difference.place}: {difference.expected} {difference.found}"
    assert checked.passes, f"{checked.broken or told}"
    assert checked.accepted or checked.steps == len(read(path)["steps"])


def test_all_of_them_are_here() -> None:
    """A folder that is not found would be a test that passes."""
    counts = {folder.name: len(trace_files([folder])) for folder in FOLDERS}
    assert counts["vllm"] == 95 and counts["vllm_cpu"] == 6 and counts["vllm_more"] == 39


# A difference anywhere is found


def changed(tmp_path: Path, change: Callable[[dict[str, Any]], object], source: Path = RICH) -> Path:
    """A copy of a trace with something changed in it."""
    trace = copy.deepcopy(dict(read(source)))
    change(trace)
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    return tmp_path / "trace.json"


def other(value: Any) -> Any:
    """Something near, of the same kind."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return [*value, "r9"] if len(value) < 2 else value[::-1]
    return {**value, "r9": 1}


STEP_FIELDS = sorted({field for step in read(RICH)["steps"] for field in step})


@pytest.mark.parametrize("field", STEP_FIELDS)
def test_a_change_of_any_field_of_a_step_is_found_there(field: str, tmp_path: Path) -> None:
    steps = read(RICH)["steps"]
    for number in [number for number, step in enumerate(steps) if field in step]:
        def change(trace: dict[str, Any], number: int = number) -> None:
            trace["steps"][number][field] = other(trace["steps"][number][field])

        found = check(changed(tmp_path, change), {}).difference
        assert found is not None and (found.step, found.field) == (number, field)


@pytest.mark.parametrize("field", STEP_FIELDS)
def test_a_field_that_is_missing_in_the_trace_or_too_much_is_found(field: str, tmp_path: Path) -> None:
    steps = read(RICH)["steps"]
    number = next(number for number, step in enumerate(steps) if field in step)
    found = check(changed(tmp_path, lambda trace: trace["steps"][number].pop(field)), {}).difference
    assert found is not None and (found.step, found.field, found.expected) == (number, field, "(absent)")


@pytest.mark.parametrize("number", [0, 9, 11])
def test_a_change_deep_in_the_statistics_is_found(number: int, tmp_path: Path) -> None:
    for name in read(RICH)["steps"][number]["stats"]:
        def change(trace: dict[str, Any], name: str = name) -> None:
            stats = trace["steps"][number]["stats"]
            stats[name] = other(stats[name])

        found = check(changed(tmp_path, change), {}).difference
        assert found is not None and (found.step, found.field) == (number, "stats")


def test_the_order_of_rows_counts(tmp_path: Path) -> None:
    def swap(trace: dict[str, Any]) -> None:
        rows = trace["steps"][1]["scheduled"]
        trace["steps"][1]["scheduled"] = dict(reversed(rows.items()))

    found = check(changed(tmp_path, swap), {}).difference
    assert found is not None and (found.step, found.field) == (1, "scheduled")


@pytest.mark.parametrize(("change", "fields"), [
    (lambda trace: trace.update(outcome="stalled"), {"outcome"}),
    (lambda trace: trace.update(unfinished=["r0"]), {"unfinished"}),
    (lambda trace: trace["steps"].append({**trace["steps"][-1], "step": 12}), {"outcome", "steps", "scheduled"}),
    (lambda trace: trace["steps"].pop(), {"outcome", "unfinished", "steps"}),
])
def test_what_is_said_of_the_run_is_compared(
    change: Callable[[dict[str, Any]], object], fields: set[str], tmp_path: Path
) -> None:
    found = check(changed(tmp_path, change), {}).difference
    assert found is not None and found.field in fields


@pytest.mark.parametrize(("source", "setting", "told"), [
    (RICH, {"watermark": 2}, "its settings are none of vllm's: watermark: Input should be less than 1"),
    (SGLANG, {"schedule_policy": "x"}, "its settings are none of sglang's: schedule_policy: Input should be 'fcfs', "),
    (SGLANG, {"page_size": 0}, "not a trace of sglang: "),
])
def test_settings_that_no_engine_has_are_told(
    source: Path, setting: dict[str, Any], told: str, tmp_path: Path
) -> None:
    broken = check(changed(tmp_path, lambda trace: trace["config"].update(setting), source), {}).broken
    assert broken is not None and broken.startswith(told) and "\n" not in broken


def test_values_are_of_one_kind() -> None:
    assert not same(True, 1, ordered=False) and same(1, 1.0, ordered=False)
    assert same({"a": 1, "b": 2}, {"b": 2, "a": 1}, ordered=False)
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1}, ordered=True)
    assert not same([1, 2], [1], ordered=False) and not same([1], {"a": 1}, ordered=False)


# The command


def conform(*arguments: object) -> Left:
    return arcsim("conform", *arguments)


def test_files_and_folders_plain_and_gzipped(tmp_path: Path) -> None:
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(RICH.read_bytes()))
    left = conform(plain, RICH, GOLDEN / "vllm_cpu")
    assert (left.code, left.out) == (0, "8 of 8 traces identical (8,699 steps)\n")


def test_the_first_difference_is_shown_with_both_values_and_the_queues(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda trace: trace["steps"][2]["stats"].update(running=7))
    left = conform(path)
    assert left.code == 1 and left.out.splitlines() == [
        f"{path}: step 2, stats differs after 2 equal steps",
        "  trace:  {'running': 7, 'waiting': 0, 'kv_cache_usage': 0.15, 'prefix': [1, 8, 0]}",
        "  policy: {'running': 2, 'waiting': 0, 'kv_cache_usage': 0.15, 'prefix': [1, 8, 0]}",
        "  running: r0 (13 of 14 tokens, 4 blocks), r2 (0 of 8 tokens, 2 blocks)",
        "  waiting: nobody",
        "  free blocks: 34 of 40",
        "0 of 1 traces identical (2 steps), 1 different",
    ]


def test_json_for_machines(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda trace: trace["steps"][0].update(free_blocks=1))
    left = conform(path, RICH, "--json")
    assert left.code == 1
    assert left.json[0]["difference"] | {"state": ""} == {
        "step": 0, "field": "free_blocks", "expected": 1, "found": 36, "state": "", "known": False,
    }
    assert left.json[1] == {"file": str(RICH), "steps": 12, "identical": True}


def test_a_known_difference_passes_where_it_is_and_nowhere_else(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda trace: trace["steps"][3].update(free_blocks=1))
    known = tmp_path / "known.yaml"
    known.write_text("trace.json: {step: 3, field: free_blocks, because: it was changed}\n")
    left = conform(path, "--known-differences", known)
    assert left.code == 0 and "trace.json: known: step 3, free_blocks: it was changed" in left.out
    known.write_text("trace.json: {step: run, field: outcome, because: it was changed}\n")
    left = conform(path, "--known-differences", known)
    assert left.code == 1 and "(known is a difference at step run, outcome)" in left.out
    known.write_text(f"{RICH.name}: {{step: 3, field: free_blocks, because: no more}}\n")
    left = conform(RICH, "--known-differences", known)
    assert left.code == 0 and "identical, though a difference is named for it" in left.out


@pytest.mark.parametrize(("content", "message"), [
    (b"", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[1, 2]", "not a golden trace: it has no steps"),
    (b"{}", "not a golden trace: it has no steps"),
    (b'{"steps": [{}, 5]}', "not a golden trace: steps[1] is no object"),
    (b'{"engine": "orca", "steps": []}', "a trace of engine 'orca', which none of mistral.rs, sglang, vllm is"),
    (b'{"engine": "vllm", "steps": []}', "not a whole trace: it has no 'config'"),
    (RICH.read_bytes()[:500], "not a whole gzip file"),
    (PACKED, "not a whole trace: it has no 'block_size'"),
])
def test_what_cannot_be_replayed_is_told_and_the_rest_is(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json.gz"
    path.write_bytes(content)
    left = conform(path, RICH)
    assert left.code == 2 and f"{path}: {message}" in left.out
    assert left.out.endswith("1 of 2 traces identical (12 steps), 1 unreadable\n")


def test_a_trace_with_a_policy_that_cannot_be_built_is_told(tmp_path: Path) -> None:
    left = conform(changed(tmp_path, lambda trace: trace["config"].update(max_num_batched_tokens=1)))
    assert left.code == 2 and "max_num_batched_tokens (1) is below engine.max_num_seqs" in left.out


def test_nothing_to_replay_is_an_error(tmp_path: Path) -> None:
    assert "no golden trace (*.json, *.json.gz) in this folder" in refused(conform(tmp_path))
    assert conform(tmp_path / "none.json").code == 2
    (tmp_path / "known.yaml").write_text("trace.json: {step: 3}\n")
    message = refused(conform(RICH, "--known-differences", tmp_path / "known.yaml"))
    assert "known.yaml: trace.json.field: Field required (a line is `trace.json: {step, field, because}`)" in message
