"""The choices of the `continuous` policy."""

from typing import Literal

from pydantic import Field

from .base import Options

Order = Literal["fcfs", "priority", "longest_prefix"]
Demand = Literal["reserve_full_prompt", "chunk_only", "reserve_max_tokens"]


class ContinuousOptions(Options):
    """Options of `continuous`. Each stands for itself: any combination is allowed unless it says so."""

    batching: Literal["mixed", "prefill_first"] = Field(
        "mixed", description="decode and prefill share a step, or a step prefills while anything can"
    )
    chunked_prefill: bool = Field(True, description="a prompt may be cut to what the token budget leaves")
    long_prefill_token_threshold: int = Field(
        0, ge=0, description="most tokens of one request's prefill in a step (0: what the budget leaves)"
    )
    order: Order = Field(
        "fcfs", description="who is let in first: by arrival, by priority then arrival, or by cached prefix"
    )
    preempted_first: int = Field(
        0, ge=0, description="priority: how many preemptions put a request ahead of others of its priority"
    )
    priority_preempts_for_slot: bool = Field(
        False, description="priority: a more urgent request takes the seat of the least urgent running one"
    )
    ageing: int = Field(0, ge=0, description="longest_prefix: tokens that each pass waited is worth")
    admission: Demand = Field(
        "reserve_full_prompt",
        description="what must fit to be let in: the whole prompt, its first chunk, or prompt and max_tokens, kept "
        "free until they are used",
    )
    watermark: float = Field(
        0.0, ge=0, lt=1, description="share of the pool that letting a request in must leave free, while others run"
    )
    skip_blocked_head: bool = Field(False, description="pass over requests that do not fit, for others that do")
    skip_passes: int | None = Field(
        None, ge=0, description="how many passes the first blocked request is passed over before others wait for it"
    )
    reject_oversize: bool = Field(True, description="turn away at the door what can never fit the pool")
    waiting_served_ratio: float = Field(
        0.0, ge=0, description="prefill_first: waiting per running requests from which a step prefills"
    )
    max_waiting_tokens: int = Field(
        20, ge=0, description="prefill_first: decode steps after which a step prefills for fewer, too"
    )
    victim: Literal["last", "first"] = Field(
        "last", description="who is preempted when blocks run out (priority: the least urgent)"
    )
    prefix_cache: bool = Field(True, description="computed blocks are found again by their content")
    free_order: Literal["tail_first", "head_first"] = Field(
        "tail_first", description="which end of a sequence's freed blocks is used up first"
    )
    free_delay: int = Field(0, ge=0, description="steps until a freed block can be used (without prefix_cache)")
    wait_for_freed: bool = Field(
        True, description="free_delay: rows that can have a block once it arrives wait, nobody is preempted for them"
    )
