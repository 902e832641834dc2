"""Worked examples of mistral.rs's paged scheduler: four requests A5 B9 C9 D14 and blocks of 4, checked by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import ascii_uppercase, digits
from typing import Any

import numpy as np
import pytest

from .serving import Seen, Served, of_lengths, paged, serve

LENGTHS = (5, 9, 9, 14)
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "a": {"decode": "bucketed", "prefill": "bucketed"},
    "b": {"decode": "ragged", "prefill": "bucketed"},
    "c": {"decode": "ragged", "prefill": "length_rule"},
}

TABLES: Mapping[str, str] = {
    "a none": """
        prefill A5            5 1/3 D C B
        prefill B9 C9        18 3/1 D
        prefill D14          14 4/0
        decode  A6            0 1/3 D B C
        prefill B10 C10      20 3/1 D
        prefill D15          15 4/0
        decode  A7            0 1/3 D B C
        prefill B11 C11      22 2/1 D
        prefill D16          16 1/0
    """,
    "b none": """
        prefill A5            5 1/3 D C B
        prefill B9 C9        18 3/1 D
        prefill D14          14 4/0
        decode  A6 B10 C10 D15 0 4/0
        decode  A7 B11 C11 D16 0 4/0
    """,
    "c none": """
        prefill A5 B9 C9 D14 37 4/0
        decode  A6 B10 C10 D15 0 4/0
        decode  A7 B11 C11 D16 0 4/0
    """,
    "a by_computed": """
        prefill A5            5 1/3 D C B
        prefill B9 C9        18 3/1 D
        prefill D14          14 4/0
        decode  A6            0 1/3 D B C
        prefill B10 C10       4 3/1 D
        prefill D15           3 4/0
        decode  B11 C11       0 2/2 A D
        prefill A7            3 1/1 D
        prefill D16           4 1/0
    """,
    "a by_len": """
        prefill A5            5 1/3 D C B
        prefill B9 C9         2 3/1 D
        prefill D14           2 4/0
        decode  B10 C10       0 2/2 A D
        prefill A6            2 3/1 D
        prefill D15           3 4/0
        decode  A7            0 1/3 B C D
        prefill B11 C11       6 2/1 D
        prefill D16           4 1/0
    """,
}
"""Each step: its kind, who runs (with the length before it, in alphabetical order), prefilled tokens, the logged
gauges, who is preempted."""


def line(seen: Seen) -> str:
    kind, rows = ("prefill", seen.prefill) if seen.prefill else ("decode", seen.decode)
    running, waiting = seen.gauges
    return " ".join([kind, *sorted(rows), str(seen.tokens), f"{running}/{waiting}", *seen.preempted])


@pytest.mark.parametrize("name", TABLES)
def test_ample_memory_step_by_step(name: str) -> None:
    """`by_len` is the engine's own fault: B, C and D start from blocks that were never written. (Mutation tried: losing
    buckets preempted shortest first.)"""
    variant, caching = name.split()
    served = serve(paged(caching=caching, **VARIANTS[variant]), of_lengths(LENGTHS, 3))
    assert [line(seen) for seen in served.seen] == [" ".join(row.split()) for row in TABLES[name].strip().splitlines()]


@dataclass(frozen=True, slots=True)
class Row:
    """`prefill`: of what had never run; `again`: of what had; `logged`: what the fork's logger counts."""

    steps: int
    running: float
    width: float
    prefill: int
    again: int
    decode: int
    logged: int


def recounted(served: Served) -> int:
    """The fork's logger, from who ran: a prompt counts its length after the step, a finished or decoded row 1."""
    lengths = {id: (row["prompt_tokens"], row["output_tokens"]) for id, row in served.requests.items()}
    total = 0
    for seen in served.seen:
        for row in seen.prefill:
            id, after = row.rstrip(digits), int(row.lstrip(ascii_uppercase)) + 1
            total += 1 if after == sum(lengths[id]) else after
        total += len(seen.decode)
    return total


def check(served: Served, row: Row) -> None:
    assert recounted(served) == row.logged
    again = served.total("reprefill_tokens")
    assert served.outcome == "completed"
    assert (len(served.run.steps), served.total("prefill_tokens") - again, again) == (row.steps, row.prefill, row.again)
    assert (served.total("decode_tokens"), served.total("logged_tokens")) == (row.decode, row.logged)
    assert served.mean("running") == pytest.approx(row.running, abs=0.0051)
    assert served.mean("forward_width") == pytest.approx(row.width, abs=0.0051)


AMPLE = {
    "a none": Row(9, 20 / 9, 12 / 9, 37, 73, 2, 84), "b none": Row(5, 16 / 5, 2.40, 37, 0, 8, 49),
    "c none": Row(3, 4.00, 4.00, 37, 0, 8, 49), "a by_computed": Row(9, 2.22, 1.33, 37, 14, 3, 84),
    "a by_len": Row(9, 21 / 9, 1.33, 9, 15, 3, 70),
}


@pytest.mark.parametrize("name", AMPLE)
def test_ample_memory_in_total(name: str) -> None:
    variant, caching = name.split()
    check(serve(paged(caching=caching, **VARIANTS[variant]), of_lengths(LENGTHS, 3)), AMPLE[name])


def test_the_length_rule_pads_and_bucketing_does_not() -> None:
    """Prompts of different length that share a step are computed as rows of the longest: 4 x 14."""
    padded = {name: serve(paged(caching="none", **VARIANTS[name]), of_lengths(LENGTHS, 3)).total("padded_tokens")
              for name in VARIANTS}
    assert padded == {"a": 37 + 73, "b": 37, "c": 56}


def test_the_forks_cache_finds_blocks_that_were_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """26 poisoned hits of B, C and D over the run: 2, 2 and 3 blocks before they ever ran."""
    policy = paged(caching="by_len", **VARIANTS["a"])
    hits: list[tuple[str, int]] = []
    start = policy.blocks.start

    def noted(sequence: object, tokens: int, hit: list[int]) -> list[int]:
        hits.append((str(getattr(sequence, "id", "")), len(hit)))
        return start(sequence, tokens, hit)  # type: ignore[arg-type]

    monkeypatch.setattr(policy.blocks, "start", noted)
    served = serve(policy, of_lengths(LENGTHS, 3))
    assert [hit for hit in hits if hit[1]][:3] == [("B", 2), ("C", 2), ("D", 3)]
    assert sum(blocks for id, blocks in hits if id != "A") == 26
    assert served.requests["B"]["cached_tokens"] == 8 and served.requests["B"]["recomputed_tokens"] < 9


PRESSURE = {
    "a oldest": Row(25, 1.600, 1.280, 37, 132, 18, 185), "a newest": Row(28, 1.536, 1.143, 37, 185, 14, 238),
    "b oldest": Row(19, 1.842, 1.684, 37, 24, 26, 77), "b newest": Row(19, 1.789, 1.684, 37, 30, 26, 99),
    "c oldest": Row(17, 1.941, 1.882, 37, 24, 26, 77), "c newest": Row(17, 1.882, 1.882, 37, 30, 26, 99),
}


@pytest.mark.parametrize("name", PRESSURE)
def test_memory_pressure(name: str) -> None:
    """Nine usable blocks, outputs of 8. (Mutations tried, each fails here: the order of victims flipped,
    nothing freed on preemption.)"""
    variant, victim = name.split()
    check(serve(paged(10, caching="none", victim=victim, **VARIANTS[variant]), of_lengths(LENGTHS, 8)), PRESSURE[name])


def test_memory_pressure_step_by_step() -> None:
    """The key moments of (b) with the oldest as the victim."""
    served = serve(paged(10, caching="none", victim="oldest", **VARIANTS["b"]), of_lengths(LENGTHS, 8))
    lines = [line(seen) for seen in served.seen]
    assert lines[:5] == [
        "prefill A5 5 1/3 C B", "prefill B9 C9 18 3/1", "decode A6 B10 C10 0 3/1", "decode A7 B11 C11 0 3/1",
        "decode B12 C12 0 2/2 A",
    ]
    assert [seen.gauges for seen in served.seen[5:8]] == [(2, 2)] * 3
    assert lines[8:12] == [
        "decode C16 0 1/3 B", "prefill A8 8 1/2 B", "prefill B16 16 2/1", "prefill D14 14 2/0",
    ]
    assert [seen.decode[0] for seen in served.seen[12:]] == [f"D{length}" for length in range(15, 22)]
    assert {id: row["finish"] for id, row in served.requests.items()} == {"A": 16.0, "B": 11.0, "C": 9.0, "D": 19.0}


def spread(batch: int) -> list[int]:
    return [round(length) for length in np.linspace(50, 500, batch)]


LAW = {
    "a 8 none": Row(512, 4.45, 1.00, 2_200, 149_562, 63, 149_683),
    "a 8 by_computed": Row(210, 5.22, 2.44, 2_200, 5_891, 163, 116_019),
    "b 8 none": Row(71, 7.61, 7.21, 2_200, 0, 504, 2_712), "c 8 none": Row(64, 8.00, 8.00, 2_200, 0, 504, 2_712),
    "a 32 none": Row(2048, 16.26, 1.00, 8_800, 613_746, 63, 613_891),
    "b 32 none": Row(95, 26.78, 21.56, 8_800, 0, 2_016, 10_848),
}


@pytest.mark.parametrize("name", LAW)
def test_the_law_of_batch_over_distinct_lengths(name: str) -> None:
    """Prompts of 50 to 500 tokens evenly, outputs of 64, blocks of 32, ample memory. The bucketed arm's
    forward width of exactly 1 proves that all the lengths differ, which the ragged arms' figures rest on; theirs
    prove that nothing else keeps the rows apart. (Mutation tried: the ragged leg buckets anyway.)"""
    variant, batch, caching = name.split()
    policy = paged(3000, 32, caching=caching, **VARIANTS[variant])
    served = serve(policy, of_lengths(spread(int(batch)), 64), audit=batch == "8")
    check(served, LAW[name])
    if name == "a 8 by_computed":
        assert served.total("prefix_hits") == 546  # for 8 requests: every admission counts
