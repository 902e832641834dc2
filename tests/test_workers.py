"""Processes that take tasks: the answers, what goes wrong in them, and an interruption."""

import math
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from arcsim.experiment.errors import UserError
from arcsim.experiment.workers import spread


def test_every_task_is_answered() -> None:
    assert sorted(spread(math.sqrt, [4.0, 9.0, 16.0], 2)) == [(4.0, 2.0), (9.0, 3.0), (16.0, 4.0)]


def test_what_a_task_raises_is_raised_here_with_the_place_where_it_happened() -> None:
    with pytest.raises(ValueError, match="math domain error") as raised:
        list(spread(math.sqrt, [-1.0], 1))
    assert "work(task)" in raised.value.__notes__[0]


def test_a_process_that_dies_is_told_and_the_others_end() -> None:
    with pytest.raises(UserError, match="a worker process died .*; try --jobs 1"):
        list(spread(os._exit, [3], 1))


def test_an_interruption_ends_the_tasks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleeping processes are interrupted too, and what is still waiting is never begun."""

    def interrupted(*_: Any) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr("arcsim.experiment.workers.wait", interrupted)
    started = time.monotonic()
    assert list(spread(time.sleep, [60.0, 60.0], 1)) == []
    assert time.monotonic() - started < 30
