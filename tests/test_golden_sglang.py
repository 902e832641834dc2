"""SGLang 0.5.18's own decisions, iteration by iteration: every field of every step, the outcome, and the log lines.

Mistakes tried, each on a copy of the policy, and how many of the 116 traces differ then (the names of one or two):

the queue and its flag (`batch_is_full`)
- memory that does not suffice leaves the queue open: 52; anything that ends a look at it closes it: 38
- the flag is not cleared when the last prefill lost a request: 1 (s26 normal); nor when the decode batch did: 74
- the flag survives when the last prefill becomes the running batch: 13 (s15, s18)
- finished requests leave before the look at the queue, so there is no idle bubble: 75
- finished requests do not count for seats: 12 (s10, L09); nor in the reserved memory: 12 (L01)
- a chunked request takes no second seat: 2 (s11)
- a request that does not fit may be passed: 13; one that exhausts the budget is turned away: 7 (L02, L05)
- new requests stand before the running ones: 81

the estimate of memory
- no page is added at page size 1: 11; `>` for `>=`: 2 (s26); whole numbers for the reserve: 2 (s55)
- the charge takes max_new_tokens less the output, as the check does: 11 (s13); the check takes all of it: 11 (L07)
- a candidate's prefix is not locked while it is checked: 4 (L01, L03)
- mixed rows cost no budget: 6 (s38, s52); a chunk is not cut to the memory: 2 (s55)
- chunks are cut in the middle of a page: 2 (s08)
- room is made for exactly what is needed with pages of 16, by a prefill: 4 (s17, L02), by a decode step: 4 (s17, L02)

retraction and the ratio
- the batch keeps its order: 6 (L05); victims go to the front of the queue: 16
- the longest output goes first: 14; among ties the shortest prompt: 4, or the first of the batch: 9 (s15)
- a victim's prompt leaves the tree: 7 (s16); it is not found when it comes back: 6 (s16, s43)
- the ratio counts the victims: 14, decays with a retraction: 20, with a prefill: 116, with a mixed step: 6 (s38)
- no room for 20 steps is made: 14; the ratio is reset whenever a step is empty: 115

the radix tree and the orders
- looked-up nodes are not visited by it (first in, first out): 10; look-ups of lpm leave no trace: 2 (L03)
- a hit may cover a whole prompt: 5 (s35)
- lpm beyond 128 waiting: 2 (s21); without the comparison within the queue: 4 (s22)
- with overlap the last token is not kept: 48

and of the 30 traces of `sglang_more`
- the look-ahead of ignore_eos puts the longest one last: 1 (r26, and none of the 116); it forgets those before:
  4; every request has the share 1: 2; the budget of all outputs is not looked at: 3
- a batch that asked for no output decodes: 2 (m01, r02); victims queue up in reverse: 1 (r03); among ties the first of
  the batch goes: 7; room is made for exactly what is needed with pages, by a prefill: 7, by a decode step: 7
- in the replay: EOS beyond max_new_tokens counts as EOS: 2

Not seen by either, but by test_sglang: an order of lpm that does not last, and look-ups of requests that
prefill_max_requests keeps out.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from arcsim.conform.sglang import replay

FOLDER = Path(__file__).parent / "golden"
GOLDEN = sorted((FOLDER / "sglang").glob("*.json.gz"))
MORE = sorted((FOLDER / "sglang_more").glob("*.json.gz"))


def load(path: Path) -> Any:
    with gzip.open(path, "rt") as file:
        return json.load(file)


def test_the_traces_are_there() -> None:
    assert (len(GOLDEN), len(MORE)) == (116, 30)


@pytest.mark.parametrize("path", GOLDEN + MORE, ids=lambda path: path.name.removesuffix(".json.gz"))
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


@pytest.mark.parametrize("name", [
    "s26_never_fits.overlap", "s52_mixed_chunk_retract.normal", "s55_mixed_chunk_engine_oom.overlap",
])
def test_every_line_of_the_log_is_compared(name: str) -> None:
    """Those of a refused prompt and of a failing engine too."""
    trace = load(FOLDER / "sglang" / f"{name}.json.gz")
    logs = trace["logs"]
    assert not differs(trace)
    for place, line in enumerate(logs):
        assert differs(trace | {"logs": [*logs[:place], f"{line}.", *logs[place + 1 :]]})
        assert differs(trace | {"logs": logs[:place] + logs[place + 1 :]})
    assert differs(trace | {"logs": [*logs, "a line of nobody's"]})
