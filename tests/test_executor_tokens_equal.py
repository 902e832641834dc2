"""The measured arm gives the tokens that transformers' own `generate` gives, whatever a policy does to the batch.

Tried by hand, each fails here: the block of another row read or written, the causal offset of a chunk shifted by one,
positions not counted from the chunk's start, a prefix hit taken as computed anew, the token after the last one fed.
"""

from collections.abc import Iterator, Mapping, Sequence as Ids
from typing import Any, get_args

import pytest

pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from arcsim.executor import tables
from arcsim.executor.attention import reference
from arcsim.policies.base import EngineConfig, Policy
from arcsim.policies.find import known_policies

from .executing import TINY, differences, logit_error, mixed_requests, policy, request, serve, tiny

CACHING = ("cach", "prefix", "radix")
"""Parts of the names of options that turn a prefix cache on and off, in any policy."""

NOT_THE_EXECUTORS = {("mistralrs_paged", "caching", "by_len")}
"""Options under which the real engine itself computes wrong tokens."""

LEGS: Mapping[str, Ids[dict[str, Any]]] = {
    "mistralrs_dense": ({}, {"version": "0.9.5"}, {"ragged_admission": "granted"}),
    "mistralrs_paged": ({"decode": "ragged"}, {"decode": "bucketed", "prefill": "length_rule"}),
    "sglang": ({"disable_overlap_schedule": True}, {}, {"enable_mixed_chunk": True}),
    "vllm": ({"async_scheduling": False}, {}),
}
"""Further options that change what a batch looks like, or when a step is launched."""

SHAPES = ((1, 4, 60), (7, 1, 60), (7, 32, 60), (None, 16, 60), (40, 4, 400))
"""Tokens of a step, of a block and of the pool. A request has up to 39: only the last has room for all."""


def _values(annotation: Any) -> tuple[Any, ...]:
    return (True, False) if annotation is bool else get_args(annotation)


def _caching(name: str) -> Iterator[dict[str, Any]]:
    fields = known_policies()[name].Options.model_fields
    named = [(key, _values(field.annotation)) for key, field in fields.items() if any(part in key for part in CACHING)]
    kinds = [{key: value} for key, values in named for value in values if (name, key, value) not in NOT_THE_EXECUTORS]
    yield from kinds or [{}]


def _variants() -> Iterator[tuple[str, dict[str, Any], tuple[int | None, int, int]]]:
    """Each policy with and without its prefix cache, in each shape; one shape if it heeds none."""
    for name, policy_class in known_policies().items():
        for caching in _caching(name):
            for leg in LEGS.get(name, ({},)):
                for shape in SHAPES if policy_class.paged else SHAPES[-1:]:
                    yield name, caching | leg, shape


def _engine(budget: int | None, block_size: int, pool: int = 60) -> EngineConfig:
    seats = min(budget or 8, 8)
    return EngineConfig(block_size=block_size, num_blocks=pool // block_size + 2, max_num_seqs=seats,
                        max_num_batched_tokens=budget)


def _served(name: str, options: dict[str, Any], shape: tuple[int | None, int, int]) -> Policy:
    """SGLang cuts prompts by an option of its own."""
    budget, block_size, _ = shape
    if name == "sglang":
        options = options | {"chunked_prefill_size": -1 if budget is None else -(-budget // block_size) * block_size}
    return policy(name, _engine(*shape), **options)


@pytest.mark.parametrize(("name", "options", "shape"), list(_variants()), ids=str)
def test_every_policy(name: str, options: dict[str, Any], shape: tuple[int | None, int, int]) -> None:
    requests = mixed_requests()
    ran = serve(tiny("qwen2"), requests, _served(name, options, shape))
    assert ran.loop.outcome == "completed", ran.loop.report
    assert not differences("qwen2", ran, requests)
    budget, _, pool = shape
    assert ran.preempted > 0 or budget == 1 or pool > 60 or name == "sglang"


@pytest.mark.parametrize("block_size", [1, 4])
@pytest.mark.parametrize("radix", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_sglang_retracts(overlap: bool, radix: bool, block_size: int) -> None:
    """It lets in what will need more than there is only where it reserves nothing for who is running."""
    requests = [request(str(row), 5 + row % 3, 18) for row in range(7)]
    served = policy(
        "sglang", _engine(None, block_size), disable_overlap_schedule=not overlap, disable_radix_cache=not radix,
        init_new_token_ratio=0.0, retract_decode_steps=2,
    )
    ran = serve(tiny("qwen2"), requests, served)
    assert not differences("qwen2", ran, requests)
    assert ran.preempted > 0


@pytest.mark.parametrize("attention", ["reference", "cpp"])
@pytest.mark.parametrize("kind", TINY)
def test_every_architecture(kind: str, attention: str) -> None:
    """Under memory pressure, with a prefix cache and prompts cut to 7 tokens beside the decoding rows."""
    requests = mixed_requests()
    ran = serve(tiny(kind), requests, policy("continuous", _engine(11, 4)), attention=attention)
    assert not differences(kind, ran, requests)
    assert logit_error(kind, ran, requests) < 1e-4
    assert ran.preempted > 0
    assert ran.hits > 0


def test_a_row_that_reads_anothers_blocks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = tables.BlockTables.of

    def mutated(self: tables.BlockTables, sequences: Any, lengths: Any) -> Any:
        table = honest(self, sequences, lengths)
        if len(table) > 1:
            table[0, 0] = table[1, 0]
        return table

    monkeypatch.setattr(tables.BlockTables, "of", mutated)
    monkeypatch.setattr("arcsim.executor.inputs.InputBuilder._slots", _unchecked_slots)
    requests = mixed_requests()
    ran = serve(tiny("qwen2"), requests, policy("continuous", _engine(None, 4)), attention="reference")
    assert differences("qwen2", ran, requests)


def _unchecked_slots(self: Any, table: Any, rows: Any, positions: Any) -> Any:
    size = self._block_size
    return table[rows, positions // size].astype("int64") * size + positions % size


def test_a_causal_offset_shifted_by_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = reference.visible

    def mutated(queries: int, length: int, window: int | None, device: Any) -> Any:
        return honest(queries, length, window, device).roll(-1, dims=1)

    monkeypatch.setattr(reference, "visible", mutated)
    requests = mixed_requests()
    ran = serve(tiny("qwen2"), requests, policy("continuous", _engine(7, 4)), attention="reference")
    assert differences("qwen2", ran, requests)
