"""A workload in numbers, against the tables that describe the public traces."""

from pathlib import Path
from typing import Any

import pytest

from arcsim.workloads.build import build
from arcsim.workloads.config import load_config
from arcsim.workloads.requests import OpenLoop
from arcsim.workloads.statistics import LengthStatistics, WorkloadStatistics, describe


def described(block_size: int = 16, **section: Any) -> WorkloadStatistics:
    return describe(build(load_config(section)), block_size)


def synthetic(**section: Any) -> WorkloadStatistics:
    return described(kind="synthetic", **section)


def rounded(lengths: LengthStatistics) -> tuple[float, ...]:
    return (round(lengths.mean, 1), *(round(value + 1e-9) for value in (lengths.p50, lengths.p90, lengths.p99)))


@pytest.mark.parametrize(("name", "count", "span", "rate", "variation", "prompt", "output"), [
    ("code", 8_819, 3_435.95, 2.567, 13.15, (2_047.8, 1_469, 5_188, 7_436), (27.9, 13, 55, 251)),
    ("conv", 19_366, 3_501.72, 5.530, 1.094, (1_154.7, 1_020, 2_735, 4_142), (211.1, 129, 424, 601)),
])
def test_azure(shared: Path, name: str, count: int, span: float, rate: float, variation: float,
               prompt: tuple[float, ...], output: tuple[float, ...]) -> None:
    path = shared / f"data/traces/azure_llm_2023/AzureLLMInferenceTrace_{name}.csv"
    said = described(kind="trace", path=str(path))
    assert said.count == count
    assert said.span is not None and said.mean_rate is not None and said.interarrival_cv is not None
    assert said.span == pytest.approx(span, abs=0.01)
    assert round(said.mean_rate, 3) == rate
    assert said.interarrival_cv == pytest.approx(variation, abs=0.005)
    assert rounded(said.prompt) == prompt and rounded(said.output) == output
    assert (said.prompt.max, said.output.max, said.output.min) == {
        "code": (7_437, 1_899, 6), "conv": (14_050, 1_000, 7),
    }[name]
    assert said.reuse.tokens == 0


@pytest.mark.parametrize(("name", "rate", "hit"), [
    ("conversation_trace.head5000.jsonl", 3.139, 0.333), ("synthetic_trace.jsonl", 3.907, 0.640),
])
def test_mooncake(shared: Path, name: str, rate: float, hit: float) -> None:
    """The hit of an endless cache is counted in hash blocks, the partial last ones included."""
    said = described(512, kind="trace", path=str(shared / "data/traces/mooncake_fast25" / name))
    assert said.mean_rate is not None and round(said.mean_rate, 3) == rate
    assert round(said.reuse.pieces, 3) == hit
    assert hit < said.reuse.blocks < said.reuse.tokens < hit + 0.02
    assert said.prompt.max == {"c": 123_192, "s": 191_378}[name[0]]


def test_ragpulse(shared: Path) -> None:
    said = described(kind="trace", path=str(shared / "data/traces/ragpulse/0_trace.head5000.jsonl"))
    assert said.span == 604_800 + 199_190 - 82
    assert said.interarrival_cv == pytest.approx(3.06, abs=0.01)


def test_a_small_one_by_hand() -> None:
    said = synthetic(prompt={"spread": [10, 30]}, output=4, arrivals={"explicit": [0, 1, 4]})
    assert (said.count, said.span, said.mean_rate, said.interarrival_cv) == (3, 4, 0.75, 0.5)
    assert (said.prompt.total, said.prompt.mean, said.prompt.max, said.prompt.min) == (60, 20, 30, 10)
    assert (said.prompt.p50, said.prompt.p90, said.prompt.p99) == pytest.approx((20, 28, 29.8))
    assert said.total_tokens == 60 + 12


def test_all_at_once_has_no_rate() -> None:
    said = synthetic(count=3, prompt=1, output=1)
    assert (said.span, said.mean_rate, said.interarrival_cv) == (0, None, None)


def test_a_closed_loop_is_described_whole_and_has_no_span() -> None:
    said = synthetic(count=7, prompt=3, output={"spread": [1, 7]}, arrivals={"closed_loop": 2})
    assert (said.count, said.span, said.mean_rate) == (7, None, None)
    assert said.output.total == 28


def test_shared_prefixes_are_reuse() -> None:
    """Two groups of 40 of 100 tokens: all but the first of each group hit 40, and 2 blocks of 16 of them."""
    said = synthetic(count=10, prompt=100, output=1, prefix={"tokens": 40, "groups": 2})
    assert said.reuse.tokens == pytest.approx(8 * 40 / 1000)
    assert said.reuse.blocks == pytest.approx(8 * 32 / 1000)
    assert said.reuse.pieces == pytest.approx(8 / 20)
    assert said.reuse.block_size == 16


def test_nothing_to_describe() -> None:
    with pytest.raises(ValueError, match="has no requests"):
        describe(OpenLoop("none", ()))
