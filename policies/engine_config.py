"""The limits of the engine that a policy schedules for."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]


class EngineConfig(BaseModel):
    """One set of names for every engine. A policy fills what the experiment left out with its own defaults.

    `num_blocks` is the engine's own count, the null block of policies that keep one included.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    block_size: Positive = 16
    num_blocks: Positive = 1024
    max_num_seqs: Positive | None = 256
    max_num_batched_tokens: Positive | None = None
    max_model_len: Positive | None = None
