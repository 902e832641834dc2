"""Recorded steps of the real engine, replayed against `mistralrs_dense`.

The first twelve are the public recordings; `*_seats*`, `*_late`, `*_mixed` and `*_catch_up_*` were added: seats that
bind, requests that come late, prompts and decodes of one length, and the bounds of the catch-up rule.

Fifteen mutations tried, and what catches each: the mean of the priorities instead of their sum, ln instead of log2
(v0.9.x_hand), no re-prefill (v0.9.0_hand), no zombies (v0.9.0_b8_spread64), seats where 0.9.0 has none, none where
0.9.5 has them, waiting not in order of arrival, urgency for those without a seat (the seats traces), a window of 7 or
9 tokens, 7 or 9 catch-ups in a row, a count of them that is never reset (v0.9.5_catch_up_*), catching up with a prompt
(v0.9.5_hand) or by one (v0.9.5_mixed).
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from arcsim.conform.difference import Difference
from arcsim.conform.mistralrs_dense import replay

FOLDER = Path(__file__).parent / "golden" / "mistralrs_dense"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json.gz")), ids=lambda path: path.name.split(".json")[0])
def test_every_step_is_the_recorded_one(path: Path) -> None:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    frames = list(replay(trace))
    assert len(frames) > 9
    for frame in frames:
        assert frame.found == frame.expected, f"step {frame.step}\n{frame.state}"


def test_a_wrong_trace_is_not_identical() -> None:
    """The comparison can fail: the last step's lengths changed by one."""
    trace = json.loads(gzip.decompress((FOLDER / "v0.9.5_hand.json.gz").read_bytes()))
    trace["steps"][-1]["completion_lens_after"] = [18]
    *same, last, _ = replay(trace)
    assert all(frame.found == frame.expected for frame in same) and last.found != last.expected


def load(name: str) -> Any:
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


@pytest.mark.parametrize("name", ["v0.9.0_hand", "v0.9.5_hand", "v0.9.0_b8_spread64"])
@pytest.mark.parametrize("length", [0, 5, -1])
def test_a_trace_cut_short_is_not_identical(name: str, length: int) -> None:
    trace = load(name)
    *same, last = replay(trace | {"steps": trace["steps"][:length]})
    assert all(frame.found == frame.expected for frame in same)
    assert last.found["unfinished"] and last.found != last.expected


def test_a_step_after_the_end_is_not_identical() -> None:
    trace = load("v0.9.5_hand")
    steps = [*trace["steps"], {"prompt_lens_after": [], "completion_lens_after": []}]
    *_, last = replay(trace | {"steps": steps})
    assert (last.expected["steps"], last.found["steps"]) == (10, 9)


@pytest.mark.parametrize("value", [None, ["x"], [None], 6, [6, "x"]])
@pytest.mark.parametrize("field", ["prompt_lens_after", "completion_lens_after", "new"])
def test_what_is_no_list_of_lengths_is_a_difference(field: str, value: object) -> None:
    trace = load("v0.9.5_hand")
    trace["steps"][2][field] = value
    different = [frame.step for frame in replay(trace) if Difference.first(frame) is not None]
    assert different == [3]
