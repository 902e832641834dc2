"""A latency model from first principles: bytes over bandwidth or FLOPs over rate, whichever takes longer."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ...models.dtype import bytes_of, canonical
from ...models.fields import Fraction, Seconds
from ...models.hardware import Hardware
from ...models.shape import ModelShape
from .decode_series import series
from .work import Work


class RooflineConfig(BaseModel):
    """Number formats (default: the model's own), devices, and numbers to use instead of the hardware file's."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kind: Literal["roofline"] = "roofline"
    tensor_parallel: Annotated[int, Field(gt=0)] = 1
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    bandwidth_efficiency: Fraction | None = None
    matmul_efficiency: Fraction | None = None
    attention_efficiency: Fraction | None = None
    step_overhead: Seconds | None = None
    row_overhead: Seconds | None = None
    layer_overhead: Seconds | None = None

    @field_validator("weight_dtype", "kv_dtype")
    @classmethod
    def _known_format(cls, dtype: str | None) -> str | None:
        return dtype and canonical(dtype)

    def overrides(self) -> dict[str, float]:
        own = {"kind", "tensor_parallel", "weight_dtype", "kv_dtype"}
        return self.model_dump(exclude=own, exclude_none=True)


@dataclass(frozen=True, slots=True)
class Roofline:
    """The seconds of everything countable in a step, on one of the devices that share the model.

    A step takes, added up: the host's overheads per forward and row; per forward the gaps in the layers; the layers'
    matrix products, the larger of the FLOPs of all tokens (padding included) and the weights, read once per forward;
    the output head likewise, over the rows; per token the all-reduces between devices; attention, by FLOPs per
    query-key pair of prefills and by KV entries read.

    With the numbers of hw_h100.yaml, fitted on 127 published runs of vLLM on H100, it meets their time per output token
    within 2.7 % on average and 11 % at worst. It stands for a well-tuned engine; other engines need their own overheads
    (or the affine model). Sliding windows are not credited, and of chunks that do not sample the head is counted.

    `weight_second`: per parameter of the layers; `head_second`: to read the head; `context_second`: per KV entry.
    """

    settings: dict[str, Any]
    model: ModelShape
    host_forward_second: float
    host_row_second: float
    forward_second: float
    token_second: float
    weight_second: float
    head_second: float
    head_row_second: float
    reduce_second: float
    pair_second: float
    context_second: float

    def seconds(self, work: Work) -> float:
        return self._fixed(work) + self.context_second * work.context_tokens

    def host_seconds(self, work: Work) -> float:
        return self.host_forward_second * work.forwards + self.host_row_second * work.rows

    def decode_series(self, work: Work, steps: int) -> NDArray[np.float64]:
        return series(self._fixed(work), self.context_second, work, steps)

    def describe(self) -> dict[str, Any]:
        return dict(self.settings)

    def _fixed(self, work: Work) -> float:
        """All but the context."""
        forwards, tokens = work.forwards, work.padded_tokens + work.decode_seqs + work.draft_tokens
        layers = max(self.token_second * tokens, self._weights(tokens, forwards))
        head = max(self.head_row_second * (work.rows + work.draft_tokens), self.head_second * forwards)
        attention = self.pair_second * work.prefill_attended
        device = self.forward_second * forwards + layers + head + self.reduce_second * tokens + attention
        return self.host_seconds(work) + device

    def _weights(self, tokens: int, forwards: int) -> float:
        """Seconds to read what `tokens` tokens, spread evenly over `forwards`, touch of the layers' weights."""
        if not forwards:
            return 0.0
        attention = self.model.layers * self.model.attention.parameters
        touched = attention + self.model.feed_forward.touched(tokens / forwards)
        return self.weight_second * touched * forwards


def build_roofline(config: RooflineConfig, model: ModelShape, hardware: Hardware) -> Roofline:
    """Fold model and hardware into seconds. ValueError where the model cannot be split as asked.

    All-reduces: two per layer, each moving 2 (n - 1) / n of the activations over the link (a ring over n devices).
    """
    ranks, device = config.tensor_parallel, hardware.model_copy(update=config.overrides())
    _check_split(ranks, model, device)
    weights, kv = config.weight_dtype or model.weight_dtype, config.kv_dtype or model.dtype
    bandwidth = device.bandwidth * device.bandwidth_efficiency
    matmul = device.matmul_efficiency * ranks
    attention = device.rate(model.dtype) * device.attention_efficiency * ranks
    head_bytes = model.embedding * model.dtype_bytes
    kv_seconds = model.kv_bytes_per_token(kv, ranks) / bandwidth
    return Roofline(
        settings=_settings(config, model, device, weights, kv), model=model,
        host_forward_second=device.step_overhead, host_row_second=device.row_overhead,
        forward_second=model.layers * (device.layer_overhead + _latency(ranks, device)),
        token_second=model.flops_per_token / (device.rate(weights) * matmul),
        weight_second=bytes_of(weights) / bandwidth / ranks,
        head_second=head_bytes / bandwidth / ranks,
        head_row_second=model.head_flops / (device.rate(model.dtype) * matmul),
        reduce_second=model.layers * _transfer(ranks, device) * model.hidden_size * model.dtype_bytes,
        pair_second=model.prefill_pair_flops / attention,
        context_second=max(kv_seconds, model.decode_pair_flops / attention),
    )


def _latency(ranks: int, device: Hardware) -> float:
    """Seconds per layer that its all-reduces take however small they are."""
    return 2 * device.link_latency if ranks > 1 else 0.0


def _transfer(ranks: int, device: Hardware) -> float:
    """Seconds per layer and byte of activations that its all-reduces take."""
    if ranks == 1 or device.link_bandwidth is None:
        return 0.0
    return 2 * 2 * (ranks - 1) / ranks / (device.link_bandwidth * device.bandwidth_efficiency)


def _check_split(ranks: int, model: ModelShape, device: Hardware) -> None:
    if model.attention.heads % ranks:
        raise ValueError(f"tensor_parallel {ranks} does not divide the {model.attention.heads} attention heads of "
                         f"{model.name}")
    if ranks > 1 and device.link_bandwidth is None:
        raise ValueError(f"tensor_parallel {ranks} needs a hardware with a link_bandwidth, {device.name} states none")


def _settings(config: RooflineConfig, model: ModelShape, device: Hardware, weights: str, kv: str) -> dict[str, Any]:
    """What was resolved, for the record: the model, the formats and the whole hardware with its overrides."""
    return {"kind": "roofline", "model": model.name, "tensor_parallel": config.tensor_parallel,
            "weight_dtype": weights, "kv_dtype": kv, "hardware": device.model_dump(mode="json")}
