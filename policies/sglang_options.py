"""The options of `sglang`, under SGLang's own names and with its defaults."""

from typing import Literal

from pydantic import Field, field_validator

from .base import EngineConfig, Options

SchedulePolicy = Literal["fcfs", "lpm", "lof", "dfs-weight"]


class SglangOptions(Options):
    """Server arguments, and the settings that SGLang reads from its environment (SGLANG_...)."""

    schedule_policy: SchedulePolicy = Field(
        "fcfs", description="order of the queue: of arrival, longest cached prefix, longest output, or prefix tree"
    )
    schedule_conservativeness: float = Field(1.0, gt=0, description="scales init_new_token_ratio")
    chunked_prefill_size: int = Field(8192, description="tokens of prefill in a step; -1: prompts are not cut")
    max_prefill_tokens: int = Field(16384, gt=0, description="tokens of prompts admitted in a step")
    prefill_max_requests: int | None = Field(None, gt=0, description="most requests in a prefill step")
    max_queued_requests: int | None = Field(None, ge=0, description="a request beyond these is turned away")
    enable_mixed_chunk: bool = Field(False, description="the running requests decode along with a prefill")
    disable_radix_cache: bool = Field(False, description="prefixes are neither kept nor looked up")
    disable_overlap_schedule: bool = Field(
        False, description="schedule a step only when the output of the one before it is there"
    )
    ignore_eos: bool = Field(False, description="every request is sent with ignore_eos, as benchmarks do")
    init_new_token_ratio: float = Field(
        0.7, ge=0, description="share of its remaining output that is reserved for a running request"
    )
    min_new_token_ratio_factor: float = Field(0.14, ge=0, description="down to which part of it the share decays")
    new_token_ratio_decay_steps: int = Field(600, gt=0, description="decode steps that the decay takes")
    retract_decode_steps: int = Field(20, ge=0, description="decode steps of room that a retraction makes")
    clip_max_new_tokens: int = Field(4096, ge=0, description="most output tokens reserved for a request")
    in_batch_prefix_caching_check_threshold: int = Field(
        32, ge=-1, description="lpm: cached prefixes up to this are compared within the queue (-1: none)"
    )
    in_batch_prefix_caching_deprioritize_threshold: int = Field(
        32, ge=0, description="lpm: a prefix this long shared with one ahead in the queue makes a request wait"
    )
    strict_sglang: bool = Field(
        False, description="follow the engine where a request cannot be served: cut max_tokens, answer an impossible "
        "prompt with a stub, crash out of memory, or hang",
    )

    @field_validator("chunked_prefill_size")
    @classmethod
    def _positive_or_off(cls, value: int) -> int:
        if value == -1 or value > 0:
            return value
        raise ValueError(f"{value}, but it has to be above 0, or -1 to leave prompts whole")


def check_chunk(options: SglangOptions, engine: EngineConfig) -> None:
    """Refuse what SGLang's server refuses: chunks are whole pages, and one shorter than a page would never run.

    Raises ValueError. Under `strict_sglang` the scheduler alone is followed, which does not look.
    """
    chunk, page = options.chunked_prefill_size, engine.block_size
    if not options.strict_sglang and chunk != -1 and chunk % page:
        raise ValueError(
            f"policy.chunked_prefill_size ({chunk}) is no multiple of engine.block_size ({page}), SGLang's page_size: "
            f"give {max(chunk // page, 1) * page}, or -1 to leave prompts whole"
        )
