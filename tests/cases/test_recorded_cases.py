"""Scheduler faults that people reported, with the numbers of a step-only model for each: `golden/cases.json.gz`.

Mutations tried, and what catches each: no watermark (C05c), admission by the chunk (C02a, C05e), a blocked head that is
never passed over (C03b), slots that are never taken by priority (C08b) or taken among equals (C08c), the other victim
(C05a, C10a), nothing reserved for max_tokens (C18a), oversize requests let in (C01c, C01e, C02b).
"""

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from arcsim.policies.base import EngineConfig, Sequence
from arcsim.policies.continuous import Blocked, Continuous
from arcsim.policies.plan import Plan
from arcsim.policies.vllm import Vllm
from arcsim.policies.vllm_options import VllmOptions

from .play import Outcome, Request, alike, continuous, play

FILE = Path(__file__).parents[1] / "golden" / "cases.json.gz"
CASES = {case["id"]: case for case in json.loads(gzip.decompress(FILE.read_bytes()))["cases"]}

SYMPTOMS = {
    "C01a": "requests larger than the whole pool wait for ever, and nothing says why",
    "C01b": "let in by their first chunk, requests larger than the pool are preempted every other step",
    "C01c": "right: what can never fit is turned away at the door",
    "C01d": "one request larger than the pool keeps everybody behind it waiting",
    "C01e": "right: once it is turned away the others are served",
    "C02a": "the prompt fits, the output does not: it hits the end of the pool and is stuck",
    "C02b": "right: prompt and output together are what must fit",
    "C02d": "right: with one block more it is served",
    "C03a": "a request that does not fit yet holds up small ones that would",
    "C03b": "the small ones pass it",
    "C03d": "so many small ones pass it that it hardly ever starts",
    "C05a": "let in to the brim, requests preempt each other over and over",
    "C05c": "a share of the pool that admission leaves free cures most of it",
    "C05e": "more of it costs time again",
    "C08a": "an urgent request waits for the seat of a less urgent one",
    "C08b": "right: it takes that seat",
    "C08c": "right: among equals nobody takes a seat",
    "C10a": "right: the newest request makes room",
    "C10b": "the oldest request is preempted though it was nearly done",
    "C18a": "everything a request may ever need is kept free for it, so few run",
    "C20a": "right: decodes go on beside a long prefill",
    "C20b": "a long prefill stops every decode until it is done",
    "C21a": "short prompts wait until a long one is prefilled",
    "C34a": "with huge blocks the pool holds few requests, however short they are",
    "C37a": "prompts always first: each arrival halts all decodes",
    "C06a": "hits on one's own blocks after a preemption make the prefix cache look useful (120 blocks)",
    "C06b": "the same with 160 blocks",
    "C06c": "the same with 200 blocks",
    "C32": "a prompt that is cached whole must still compute something",
}

DIFFERS: dict[str, dict[str, Any]] = {
    # The model stops looking at running requests once one of them was its own victim. With the last as the victim
    # nobody is left behind it, but here the two others lose a step although six blocks have just come free. The policy
    # lets them decode, so all three end a step earlier.
    "C10b": {
        "steps": 96,
        "running_waiting_rle": [[1, 0, 1], [2, 0, 1], [3, 0, 31], [2, 1, 32], [2, 0, 1], [1, 0, 30]],
        "per_request": {
            "s1": {"admitted": 0, "first_token": 0, "finished": 95, "preempted": 1},
            "s2": {"admitted": 1, "first_token": 1, "finished": 64, "preempted": 0},
            "s3": {"admitted": 2, "first_token": 2, "finished": 65, "preempted": 0},
        },
    },
}


def options_of(config: dict[str, Any]) -> dict[str, Any]:
    """The options of `continuous` under the names of the cases."""
    names = {
        "admission": "admission", "batching": "batching", "chunked_prefill": "chunked_prefill",
        "free_order": "free_order", "long_prefill_token_threshold": "long_prefill_token_threshold", "policy": "order",
        "prefix_cache": "prefix_cache", "priority_preempts_for_slot": "priority_preempts_for_slot",
        "reject_oversize": "reject_oversize", "skip_blocked_head": "skip_blocked_head", "watermark": "watermark",
    }
    found = {name: config[key] for key, name in names.items() if key in config}
    if "victim" in config:
        found["victim"] = {"tail": "last", "head": "first"}[config["victim"]]
    return found | {"watermark": float(config.get("watermark", 0))}


def requests_of(case: dict[str, Any]) -> list[Request]:
    """Listed in the file, or described there in words."""
    given, number = case["requests"], case["id"]
    if isinstance(given, list):
        return [_listed(row) for row in given]
    if number == "C03d":
        lights = [Request(f"l{index}", 2 + index, 240, 30) for index in range(200)]
        return [Request("r0", 0, 960, 100), Request("heavy", 1, 1280, 8), *lights]
    if number.startswith("C05"):
        return storm()
    described = {
        "C18a": alike(99, 0, 60, 400), "C34a": alike(100, 0, 128, 128),
        "C37a": alike(20, 0, 32, 60, "r") + alike(9, 30, 500, 8, "n"),
    }
    return described.get(number) or alike(40, 0, 64, 64)


def _listed(row: dict[str, Any]) -> Request:
    blocks = row.get("prefix_block_ids")
    pieces = None if blocks is None else tuple((name, row["prompt"] // len(blocks)) for name in blocks)
    return Request(row["id"], row["arrival_step"], row["prompt"], row["output"], row.get("priority", 0), pieces)


def storm() -> list[Request]:
    """450 requests at once, prompts of 80 to 120 tokens, outputs of 400 to 600."""
    draw = Random(1)
    return [Request(f"q{i}", 0, draw.randint(80, 120), draw.randint(400, 600)) for i in range(450)]


class Counting(Continuous):
    """Counts what a hit rate would be that takes every look at a waiting request for a look-up."""

    looked_for = found = 0

    def _admit_head(self, plan: Plan, head: Sequence) -> Blocked:
        if len(self.running) < self.seats and plan.budget > 0:
            self.looked_for += head.num_tokens
            self.found += len(self.blocks.hit(head)) * self.pool.block_size
        return super()._admit_head(plan, head)


def run_case(case: dict[str, Any]) -> Outcome:
    config = case["config"]
    policy = continuous(
        config["usable_blocks"], config["block_size"], config["max_num_seqs"], config["token_budget"], Counting,
        **options_of(config),
    )
    return play(policy, requests_of(case), config.get("step_limit", 200_000))


@pytest.mark.parametrize("number", CASES)
def test_case(number: str) -> None:
    assert SYMPTOMS[number]
    case = CASES[number]
    expected = case["expected"] | DIFFERS.get(number, {})
    assert told(run_case(case), case, expected) == expected


UNKNOWN_TO_VLLM = {
    "reserve_max_tokens", "prefill_first", "head", "skip_blocked_head", "priority_preempts_for_slot",
}


def vllm_has_it(case: dict[str, Any]) -> bool:
    """Its rules are those of the case, and it is not one of the long ones of which another stands for it. (C02b: vLLM
    cuts the output at max_model_len instead.)"""
    config = case["config"]
    asked = {key for key in config if config[key] is True} | set(map(str, config.values()))
    return not asked & UNKNOWN_TO_VLLM and case["id"] not in ("C02b", "C05c", "C06b", "C06c")


@pytest.mark.parametrize("number", [number for number, case in CASES.items() if vllm_has_it(case)])
def test_case_under_vllm(number: str) -> None:
    """The reports are mostly of vLLM. Under the policy of that name the faults are there by its own rules and options,
    synchronous and strict, and so are the right outcomes."""
    case = CASES[number]
    expected = {key: value for key, value in case["expected"].items() if key not in ("hit_rate_pct", "lookups")}
    outcome = play(vllm(case["config"]), requests_of(case), case["config"].get("step_limit", 200_000))
    assert told(outcome, case, expected) == expected


def vllm(config: dict[str, Any]) -> Vllm:
    usable, size = config["usable_blocks"], config["block_size"]
    rejects = config.get("reject_oversize", False)
    engine = EngineConfig(
        block_size=size, num_blocks=usable + 1, max_num_seqs=config["max_num_seqs"],
        max_num_batched_tokens=config["token_budget"], max_model_len=usable * size if rejects else 200_000,
    )
    options = {
        "async_scheduling": False, "scheduling_policy": config.get("policy", "fcfs"), "strict_vllm": not rejects,
        "enable_prefix_caching": config.get("prefix_cache", False), "watermark": float(config.get("watermark", 0)),
        "scheduler_reserve_full_isl": config.get("admission") != "chunk_only",
    }
    return Vllm(engine, VllmOptions.model_validate(options))


def told(outcome: Outcome, case: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The outcome under the keys of the file. Its recomputed tokens are those whose KV was dropped, whether they had
    been computed again by the last step or not (arcsim's own column counts those that were)."""
    rows = outcome.told
    found: dict[str, Any] = {
        "steps": outcome.steps, "finished": outcome.finished, "rejected": list(outcome.rejected),
        "preemptions": outcome.preemptions, "recomputed_tokens": outcome.dropped,
        "max_preemptions_per_request": max(row.preempted for row in rows.values()),
        "peak_running": outcome.peak_running, "free_blocks_end": outcome.policy.ledger and outcome.policy.ledger.free,
        "running_waiting_rle": shortened(outcome, expected["running_waiting_rle"]), "lookups": outcome.lookups,
        "heavy_admitted": rows["heavy"].admitted if "heavy" in rows else None, "A_max_gap_steps": max_gap(outcome),
        "hit_rate_pct": hit_rates(outcome, requests_of(case)) if "hit_rate_pct" in expected else None,
        "per_request": {
            id: {key: getattr(rows[id], key) for key in row} for id, row in expected.get("per_request", {}).items()
        },
    }
    return {key: found[key] for key in expected}


def shortened(outcome: Outcome, expected: list[list[Any]]) -> list[list[Any]]:
    runs: list[list[Any]] = [list(run) for run in outcome.runs]
    if not expected or expected[-1][0] != "...":
        return runs
    shown = len(expected) - 1
    return [*runs[:shown], ["...", len(runs) - shown, "more"]]


def max_gap(outcome: Outcome) -> int:
    tokens = outcome.told["A"].tokens if "A" in outcome.told else []
    return max((later - earlier for earlier, later in zip(tokens, tokens[1:], strict=False)), default=0)


def hit_rates(outcome: Outcome, requests: list[Request]) -> dict[str, float]:
    """Per cent of the tokens. Of the three, arcsim shows the last (in the request table) and the second (in the step
    table); the first is the inflated one of the report."""
    policy = outcome.policy
    assert isinstance(policy, Counting)
    first = sum(row.cached_at_admission for row in outcome.told.values())
    return {
        "counted_every_lookup": percent(policy.found, policy.looked_for),
        "counted_every_admission": percent(outcome.hits, outcome.queries),
        "counted_first_admission": percent(first, sum(request.prompt for request in requests)),
    }


def percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def test_the_model_of_c10b_differs_in_one_rule_only() -> None:
    """Both agree on who is preempted and on what that costs."""
    outcome = run_case(CASES["C10b"])
    assert (outcome.preemptions, outcome.dropped, outcome.told["s1"].preempted) == (1, 96, 1)


@pytest.mark.parametrize(("watermark", "preemptions", "steps"), [(0.02, 339, 3167), (0.10, 182, 3255)])
def test_watermarks_between(watermark: float, preemptions: int, steps: int) -> None:
    """Fewer preemptions with every step up; the time has its minimum in between."""
    outcome = play(continuous(1872, seats=128, watermark=watermark), storm())
    assert (outcome.preemptions, outcome.steps) == (preemptions, steps)
