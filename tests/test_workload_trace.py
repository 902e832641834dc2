"""What is done to a trace: window, limit, rate, lengths, and where its path leads."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from arcsim.workloads.arrival import Arrival
from arcsim.workloads.build import build
from arcsim.workloads.closed_loop import ClosedLoopWorkload
from arcsim.workloads.config import load_config
from arcsim.workloads.error import WorkloadError

PLAIN = "arrival,prompt,output\n" + "".join(f"{second},{second + 1},{second + 2}\n" for second in range(10))


def requests(path: Path, **options: Any) -> tuple[Arrival, ...]:
    return build(load_config({"kind": "trace", "path": str(path)} | options)).requests


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(PLAIN)
    return path


def test_window_then_limit_then_rate(trace: Path) -> None:
    """Caught: limiting before the window, which would leave one request."""
    made = requests(trace, window=[2.5, 8], limit=4, rate="x2")
    assert [(r.id, r.time, r.prompt_tokens) for r in made] == [
        ("r0", 0.25, 4), ("r1", 0.75, 5), ("r2", 1.25, 6), ("r3", 1.75, 7),
    ]


def test_a_window_is_half_open_and_may_not_be_empty(trace: Path) -> None:
    assert [r.prompt_tokens for r in requests(trace, window=[2, 4])] == [3, 4]
    with pytest.raises(WorkloadError, match=r"no request in window \[20, 30\): they arrive from 0\.000 to 9\.000 s"):
        requests(trace, window=[20, 30])


def test_limit_beyond_the_end_is_the_whole(trace: Path) -> None:
    assert len(requests(trace, limit=100)) == 10


@given(
    arrivals=st.lists(st.integers(0, 10**11).map(lambda us: us / 1e6), min_size=2, max_size=40),
    speed=st.integers(1, 500), rate=st.floats(0.01, 1e4),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rates(tmp_path: Path, arrivals: list[float], speed: int, rate: float) -> None:
    """`xN` divides the times by N; a number becomes the mean rate, counted as requests over span. Times to the
    microsecond."""
    path = tmp_path / "rates.csv"
    path.write_text("arrival,prompt,output\n" + "".join(f"{time!r},1,1\n" for time in sorted(arrivals)))
    plain = [r.time for r in requests(path)]
    assert [r.time for r in requests(path, rate=f"x{speed}")] == pytest.approx([time / speed for time in plain])
    span = plain[-1] - plain[0]
    if span == 0:
        with pytest.raises(WorkloadError, match="all requests arrive at once"):
            requests(path, rate=rate)
        return
    scaled = [r.time for r in requests(path, rate=rate)]
    if span > 1e-9 * plain[-1]:
        assert len(scaled) / (scaled[-1] - scaled[0]) == pytest.approx(rate, rel=1e-4)
    assert scaled == sorted(scaled)


def test_other_arrivals(trace: Path) -> None:
    assert [r.time for r in requests(trace, arrivals={"uniform": 2}, limit=3)] == [0, 0.5, 1]
    drawn = [r.time for r in requests(trace, arrivals={"poisson": 5}, seed=1)]
    assert drawn == [r.time for r in requests(trace, arrivals={"poisson": 5}, seed=1)]
    assert drawn != [r.time for r in requests(trace, arrivals={"poisson": 5}, seed=2)]
    loop = build(load_config({"kind": "trace", "path": str(trace), "arrivals": {"closed_loop": 3}}))
    assert isinstance(loop, ClosedLoopWorkload)
    assert len(loop.start().arrivals()) == 3 and len(loop.requests) == 10


@given(st.floats(0.01, 8), st.floats(0.01, 8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_scaled_lengths_round_up_and_stay(trace: Path, prompt: float, output: float) -> None:
    for r in requests(trace, scale_prompt=prompt, scale_output=output):
        second = int(r.id[1:])
        assert 0 <= r.prompt_tokens - (second + 1) * prompt < 1 + 1e-6 and r.prompt_tokens >= 1
        assert 0 <= r.output - (second + 2) * output < 1 + 1e-6 and r.output >= 1
        assert r.max_tokens == r.output


def test_max_prompt_max_tokens_and_priority(trace: Path) -> None:
    made = requests(trace, max_prompt=4, max_tokens=5, priority=[1, 2])
    assert [r.prompt_tokens for r in made] == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    assert [r.output for r in made] == [2, 3, 4, 5, 5, 5, 5, 5, 5, 5]
    assert {r.max_tokens for r in made} == {5}
    assert [r.priority for r in made][:3] == [1, 2, 1]


def test_options_go_before_columns(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival,prompt,output,max_tokens,priority\n0,1,4,8,5\n1,1,4,2,6\n")
    assert [(r.output, r.max_tokens, r.priority) for r in requests(path)] == [(4, 8, 5), (2, 2, 6)]
    assert [(r.max_tokens, r.priority) for r in requests(path, max_tokens=9, priority=0)] == [(9, 0), (9, 0)]
    assert [r.max_tokens for r in requests(path, scale_output=2)] == [16, 4]
    assert "max_tokens ends 1 of 2 outputs early" in build(load_config({"kind": "trace", "path": str(path)})).notes


def test_a_path_starts_from_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, rows in (("configs", 1), ("here", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.csv").write_text("prompt,output\n" + "1,1\n" * rows)
    monkeypatch.chdir(tmp_path / "here")
    config = load_config({"kind": "trace", "path": "t.csv"})
    assert len(build(config, tmp_path / "configs").requests) == 1
    assert len(build(config, tmp_path).requests) == 2
    assert len(build(config).requests) == 2
