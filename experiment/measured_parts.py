"""From a configuration to the parts of a measured run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..policies.base import Policy
from .engine_section import EngineSection
from .errors import UserError
from .parts import Builder, Served
from .plan import Config

PLENTY = 1 << 14
"""Stands for a number of blocks that is not known yet."""


class Model(Protocol):
    """What the parts depend on."""

    @property
    def name(self) -> str: ...

    @property
    def max_model_len(self) -> int | None: ...

    @property
    def positions(self) -> int | None:
        """Beyond which it cannot run; None where nothing says so."""

    @property
    def supports_paged_attention(self) -> bool: ...

    def require(self, kv_tokens: int) -> None:
        """Raises ValueError where weights and a KV pool of that many tokens do not fit."""


AutoBlocks = Callable[[int, int, float], int]
"""The blocks of a pool that nobody states, of `block_size` tokens, beside a pass of `batched_tokens`, with a
`utilisation` of the device's memory."""


@dataclass(frozen=True, slots=True)
class MeasuredParts(Served):
    """`blocks` and `block_size` of the KV pool, which a policy that does not page leaves to the executor."""

    blocks: int
    block_size: int


def model_of(config: Config) -> tuple[str, Path]:
    """The name or path of the model, and the folder that a relative path starts at. Raises `UserError`."""
    found = config.raw.get("model")
    if not isinstance(found, str):
        problem = "missing" if found is None else "a mapping"
        raise UserError(
            f"{config.where('model')}: {problem}; the executor runs a preset, a Hugging Face directory, a config.json "
            "or a model of the hub: name one with --model"
        )
    return found, config.origins.folder_of("model")


def check_measured(config: Config, model: Model) -> int:
    """Find what the executor cannot run before a model is loaded; the block size of the KV pool.

    Raises `UserError`, and what `model.require` raises."""
    return _Builder(config, model, lambda *_: PLENTY).check()


def measured_parts(config: Config, model: Model, auto_blocks: AutoBlocks) -> MeasuredParts:
    """Raises `UserError`, and what `auto_blocks` raises."""
    return _Builder(config, model, auto_blocks).parts()


class _Builder(Builder):
    def __init__(self, config: Config, model: Model, auto_blocks: AutoBlocks) -> None:
        super().__init__(config)
        self._model = model
        self._auto_blocks = auto_blocks

    def check(self) -> int:
        self._require(self._engine())  # a policy may make something of each block
        engine, policy = self._engine_parts()
        self._check_workload()
        self._refuse(policy)
        return self._block_size(engine, policy)

    def _require(self, engine: EngineSection) -> None:
        values = engine.resolved(self._policy_class(), self._raw["policy"], None, self._hardware())
        size = values["block_size"] if "block_size" in self._policy_class().engine_keys else engine.block_size
        self._model.require(size * (1 if engine.num_blocks == "auto" else engine.num_blocks))

    def parts(self) -> MeasuredParts:
        engine, policy = self._engine_parts()
        workload = self.workload()
        blocks, block_size = self._blocks(engine, policy), self._block_size(engine, policy)
        self._notes += [*getattr(workload, "notes", ()), *policy.notes(), *_warnings(policy)]
        resolved = self._resolved(policy, None, {"num_blocks": blocks, "block_size": block_size})
        return MeasuredParts(workload, policy, resolved, tuple(self._notes), blocks, block_size)

    def _engine_parts(self) -> tuple[EngineSection, Policy]:
        engine, policy_class, hardware = self._engine(), self._policy_class(), self._hardware()
        self._check_paging(policy_class, self._model.name, self._model.supports_paged_attention)
        limits = self._limits(engine, policy_class, self._model.max_model_len, hardware, self._fit)
        return engine, self._policy(policy_class, limits)

    def _fit(self, engine: EngineSection, values: dict[str, Any]) -> int:
        batched = values["max_num_batched_tokens"] or 8192
        return self._auto_blocks(values["block_size"], batched, engine.gpu_memory_utilization)

    def _blocks(self, engine: EngineSection, policy: Policy) -> int:
        if "num_blocks" in policy.engine_keys:
            return policy.engine.num_blocks
        if engine.num_blocks == "auto":
            return self._fit(engine, policy.engine.model_dump() | {"block_size": engine.block_size})
        return engine.num_blocks

    def _block_size(self, engine: EngineSection, policy: Policy) -> int:
        return policy.engine.block_size if "block_size" in policy.engine_keys else engine.block_size

    def _ignored(self, engine: EngineSection, policy: type[Policy]) -> list[str]:
        """The executor heeds the pool's size where the policy does not."""
        return [key for key in super()._ignored(engine, policy) if key not in ("num_blocks", "block_size")]

    def _refuse(self, policy: Policy) -> None:
        self._refuse_length(policy.engine.max_model_len)
        name = self._raw["policy"]["name"]
        if policy.speculates:
            raise UserError(
                f"{self._config.where('policy.speculative')}: the executor has no draft model, so it cannot run what "
                "is simulated here; leave the key out, or set it to null"
            )
        if policy.ledger is None:
            raise UserError(
                f"{self._config.where('policy')}: {name} keeps no ledger (Policy.ledger), so nobody says where its KV "
                "lies; the executor runs policies that give each sequence its block_table"
            )

    def _refuse_length(self, longest: int | None) -> None:
        positions = self._model.positions
        if positions is not None and longest is not None and longest > positions:
            raise UserError(
                f"{self._config.where('engine.max_model_len')}: {self._model.name} has a table of {positions:,} "
                f"positions, found {longest:,}; leave the key out, or take at most {positions:,}"
            )


def _warnings(policy: Policy) -> list[str]:
    if getattr(policy.options, "caching", None) != "by_len":
        return []
    return ["policy.caching: by_len takes blocks for cached that were never computed, as the engine does: the tokens "
            "of requests that hit them are wrong"]
