"""What can be chosen of vLLM, what a server chooses itself, and with what it does not start."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from .base import EngineConfig, Options

LARGE_MEMORY = 70 * 2**30
"""Bytes of a device on which a server takes larger limits."""


class VllmOptions(Options):
    """Options of `vllm`, under vLLM's own names and with its defaults."""

    async_scheduling: bool = Field(
        True, description="schedule a step before the output of the one ahead of it is there (a server's default)"
    )
    scheduling_policy: Literal["fcfs", "priority"] = Field(
        "fcfs", description="order of the queue and choice of the victim (vLLM: --scheduling-policy)"
    )
    enable_chunked_prefill: bool = Field(True, description="a prompt may be cut to what the token budget leaves")
    enable_prefix_caching: bool = Field(True, description="blocks are found again by their content")
    long_prefill_token_threshold: int = Field(0, ge=0, description="longest chunk of a prefill; 0: no limit")
    scheduler_reserve_full_isl: bool = Field(
        True, description="admit a prompt only when the blocks for all of it are free, not just for its first chunk"
    )
    watermark: float = Field(
        0.0, ge=0, lt=1, description="share of all blocks that an admission must leave free while others run"
    )
    strict_vllm: bool = Field(
        False, description="the bare scheduler: let in what can never be served, and stall with it as the engine does"
    )


def server_defaults(
    given: Mapping[str, Any], options: Mapping[str, Any], device: str, memory: float
) -> Mapping[str, int]:
    """`max_num_seqs` and `max_num_batched_tokens` of an API server that is not told them, beside `given` keys of
    `EngineConfig` (vllm/engine/arg_utils.py). Larger on devices of much memory, but for the A100."""
    large = memory >= LARGE_MEMORY and "a100" not in device.lower()
    seqs, longest = given.get("max_num_seqs"), given.get("max_model_len")
    tokens = given.get("max_num_batched_tokens")
    if tokens is None:
        tokens = 8192 if large else 2048
        if longest is not None:
            tokens = tokens if options.get("enable_chunked_prefill", True) else max(tokens, longest)
            tokens = min(tokens, longest * (seqs or (1024 if large else 256)))
    return {"max_num_seqs": seqs or min(1024 if large else 256, tokens), "max_num_batched_tokens": tokens}


def check(engine: EngineConfig, options: VllmOptions, budget: int, seats: int) -> None:
    """Raises ValueError where a vLLM server would not start."""
    longest, threshold = engine.max_model_len, options.long_prefill_token_threshold
    if budget < seats:
        raise ValueError(f"engine.max_num_batched_tokens ({budget}) is below engine.max_num_seqs ({seats})")
    if longest is not None and threshold > longest:
        raise ValueError(f"long_prefill_token_threshold ({threshold}) is above engine.max_model_len ({longest})")
    if longest is not None and not options.enable_chunked_prefill and budget < longest:
        raise ValueError(
            f"engine.max_num_batched_tokens ({budget}) is below engine.max_model_len ({longest}), and without chunked "
            "prefill a prompt must fit into one step"
        )
    if engine.num_blocks < 2:
        raise ValueError(f"engine.num_blocks: {engine.num_blocks}, but one is the null block: give at least 2")
    needed = 0 if longest is None or options.strict_vllm else -(-longest // engine.block_size)
    if engine.num_blocks < needed:
        raise ValueError(
            f"engine.num_blocks ({engine.num_blocks}) cannot hold one sequence of engine.max_model_len ({longest}), "
            f"which takes {needed} blocks of {engine.block_size} tokens: give more blocks or lower max_model_len"
        )
