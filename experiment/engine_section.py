"""The `engine:` section: the limits of the engine, and what only the loop and the pool's size need."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..models.hardware import Hardware
from ..policies.base import EngineConfig, Policy

Positive = Annotated[int, Field(gt=0)]


class EngineSection(BaseModel):
    """What an experiment may say of the engine; a key left out is the policy's own default.

    `num_blocks: auto` (or left out) is what fits beside the model on the hardware; `gpu_memory_utilization` is the
    share of memory an engine may use. `empty_step`: seconds that a step without a forward takes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    block_size: Positive = Field(16, description="tokens in a block of KV")
    num_blocks: Positive | Literal["auto"] = Field(
        "auto", description="blocks in the engine's own count; auto: what fits beside the model"
    )
    max_num_seqs: Positive | None = Field(None, description="most sequences that run at once (null: no limit)")
    max_num_batched_tokens: Positive | None = Field(None, description="most tokens in a step (null: no limit)")
    max_model_len: Positive | None = Field(None, description="longest prompt and output together")
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = Field(
        0.9, description="share of the memory that an engine may use (for num_blocks: auto)"
    )
    empty_step: Annotated[float, Field(gt=0)] = Field(1e-3, description="seconds that a step without a forward takes")

    def resolved(
        self, policy: type[Policy], options: Mapping[str, Any], max_model_len: int | None, hardware: Hardware | None
    ) -> dict[str, Any]:
        """`EngineConfig`'s keys: as given here, else the policy's default (with these options, on this hardware), else
        the model's or the general one. What the policy does not heed keeps its general default."""
        defaults = {name: field.default for name, field in EngineConfig.model_fields.items()}
        given = {name: getattr(self, name) for name in self.model_fields_set if name in EngineConfig.model_fields}
        known = {"num_blocks": "auto", "max_model_len": max_model_len} | given
        device = ("", 0.0) if hardware is None else (hardware.name, hardware.memory)
        own = known | dict(policy.defaults(known, options, *device)) | given
        return defaults | {name: value for name, value in own.items() if name in policy.engine_keys}

    def ignored(self, policy: type[Policy]) -> list[str]:
        """Keys that were given a value, but that the policy does not heed."""
        given = sorted(self.model_fields_set & (EngineConfig.model_fields.keys() - policy.engine_keys))
        return [name for name in given if getattr(self, name) is not None]
