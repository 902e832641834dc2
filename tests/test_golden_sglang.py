"""SGLang 0.5.18's own decisions, iteration by iteration: every field of every step, the outcome, and the log lines."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from arcsim.conform.sglang import replay

GOLDEN = sorted((Path(__file__).parent / "golden" / "sglang").glob("*.json.gz"))


def load(path: Path) -> Any:
    with gzip.open(path, "rt") as file:
        return json.load(file)


def test_the_traces_are_there() -> None:
    assert len(GOLDEN) == 116


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_step_is_decided_as_the_engine_decided_it(path: Path) -> None:
    trace = load(path)
    frames = 0
    for frame in replay(trace):
        assert frame.found == frame.expected, f"step {frame.step}\n{frame.state}"
        frames += 1
    assert frames == len(trace["steps"]) + 1


def differs(trace: Any) -> bool:
    return any(frame.found != frame.expected for frame in replay(trace))


def test_a_changed_trace_is_noticed() -> None:
    changes: dict[str, Any] = {"waiting": ["x"], "new_token_ratio": 0.7, "end_evictable_tokens": 1}
    for field, value in changes.items():
        trace = load(GOLDEN[-1])
        trace["steps"][-1][field] = value
        assert differs(trace)
    for field, value in (("stop", "drained"), ("logs", [])):
        assert differs(load(GOLDEN[-1]) | {field: value})
