"""Traces recorded from vLLM 0.27.1's own scheduler, replayed step for step by the policy of the same name."""

from pathlib import Path

import pytest

from arcsim.conform.check import check, trace_files

GOLDEN = trace_files([Path(__file__).parent / "golden" / "vllm"])


def test_the_traces_are_there() -> None:
    assert len(GOLDEN) == 95


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_step_is_decided_as_the_engine_decided_it(path: Path) -> None:
    checked = check(path, {})
    assert checked.identical and checked.steps, checked
