"""From a configuration to the parts of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..models.hardware import Hardware, load_hardware
from ..models.shape import ModelShape, load_model
from ..policies.base import EngineConfig, Policy
from ..policies.find import PolicyNotFound, find_policy
from ..sim.kv_capacity import auto_num_blocks
from ..sim.latency.config import AnyLatency, LatencyConfig, LatencyError, build_latency, load_latency_file
from ..sim.latency.model import LatencyModel
from ..sim.latency.roofline import RooflineConfig
from ..workloads.build import build as build_workload
from ..workloads.config import WorkloadConfig
from ..workloads.workload import Workload
from .engine_section import EngineSection
from .errors import UserError
from .faults import validated
from .plan import Config
from .shape import Text

Fit = Callable[[EngineSection, dict[str, Any]], int]
"""The blocks of `num_blocks: auto`, beside the other limits."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is served by whom, on either arm; the policy is fresh. `resolved`: the configuration as it was understood.
    `notes`: lines that a person should see."""

    workload: Workload
    policy: Policy
    resolved: dict[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parts(Served):
    """Everything a simulated run is made of."""

    latency: LatencyModel
    empty_step: float


def build_parts(config: Config) -> Parts:
    """Raises `UserError` naming file, line and key."""
    return _Builder(config).parts()


def check_parts(config: Config) -> None:
    """Raises what `build_parts` would for any section but the content of a workload's file."""
    _Builder(config).check()


def build_workload_of(config: Config) -> Workload:
    """The workload of a configuration alone. Raises `UserError`."""
    return Builder(config).workload()


class Builder:
    """Takes a configuration apart, section by section: what both arms have in common."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._raw = config.raw
        self._notes: list[str] = []

    def _check_workload(self) -> None:
        validated(WorkloadConfig, self._workload_section(), self._config, "workload")

    def _engine(self) -> EngineSection:
        engine: EngineSection = validated(EngineSection, self._raw["engine"], self._config, "engine")
        return engine

    def _resolved(self, policy: Policy, latency: Any, engine: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": self._raw.get("model"), "hardware": self._raw.get("hardware"),
            "workload": self._workload_section(), "engine": policy.engine.model_dump() | engine, "latency": latency,
            "policy": {"name": self._raw["policy"]["name"]} | policy.resolved_options(),
        }

    def workload(self) -> Workload:
        section = self._workload_section()
        config = validated(WorkloadConfig, section, self._config, "workload")
        key = _file_key(section)
        try:
            return build_workload(config, self._folder(key))
        except ValueError as error:
            hint = f"; name another with --set {key}=..." if str(error).startswith("no file") else ""
            raise UserError(f"{self._config.where(key)}: {error}{hint}") from error

    def _workload_section(self) -> dict[str, Any]:
        """With the experiment's seed where it has none of its own."""
        if "workload" not in self._raw:
            raise UserError(f"{self._config.where('workload')}: missing; say what requests there are")
        return {"seed": self._raw["seed"], **self._raw["workload"]} if "seed" in self._raw else self._raw["workload"]

    def _folder(self, key: str) -> Path:
        return self._config.origins.folder_of(key)

    def _name_of(self, key: str) -> str | None:
        """What a section names: a preset or a path. None: there is no such section."""
        name: str | None = validated(Text | None, self._raw.get(key), self._config, key)
        return name

    def _hardware(self) -> Hardware | None:
        name = self._name_of("hardware")
        if name is None:
            return None
        try:
            return load_hardware(name, self._folder("hardware"))
        except ValueError as error:
            raise UserError(f"{self._config.where('hardware')}: {error}") from error

    def _policy_class(self) -> type[Policy]:
        try:
            return find_policy(self._raw["policy"]["name"], self._folder("policy.name"))
        except PolicyNotFound as error:
            raise UserError(f"{self._config.where('policy')}: {error}") from error

    def _check_paging(self, policy: type[Policy], model: str, pages: bool) -> None:
        if policy.paged and not pages:
            name = self._raw["policy"]["name"]
            raise UserError(
                f"{self._config.where('policy')}: {name} pages its KV and model {model} cannot page "
                "(supports_paged_attention: false): choose mistralrs_dense"
            )

    def _limits(
        self, engine: EngineSection, policy: type[Policy], longest: int | None, hardware: Hardware | None, fit: Fit
    ) -> EngineConfig:
        for key in self._ignored(engine, policy):
            self._notes.append(f"engine.{key} is not heeded by {self._raw['policy']['name']}")
        values = engine.resolved(policy, self._raw["policy"], longest, hardware)
        if values["num_blocks"] == "auto":
            values["num_blocks"] = fit(engine, values)
        return EngineConfig.model_validate(values)

    def _ignored(self, engine: EngineSection, policy: type[Policy]) -> list[str]:
        return engine.ignored(policy)

    def _policy(self, policy: type[Policy], limits: EngineConfig) -> Policy:
        given = {key: value for key, value in self._raw["policy"].items() if key != "name"}
        if "speculative" in given and "speculative" not in policy.Options.model_fields:
            raise UserError(
                f"{self._config.where('policy.speculative')}: {self._raw['policy']['name']} counts one token a decode "
                "row, in its blocks and its budget; speculative decoding is of mistralrs_dense only"
            )
        options = validated(policy.Options, given, self._config, "policy")
        try:
            return policy(limits, options)
        except ValidationError as error:
            raise UserError(f"{self._config.where('policy')}: {error}") from error
        except Exception as error:
            name = self._raw["policy"]["name"]
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise UserError(f"{self._config.where('policy')}: {name} cannot be built: {reason}") from error


class _Builder(Builder):
    """The parts of a simulated run."""

    def check(self) -> None:
        self._engine_parts()
        self._check_workload()

    def parts(self) -> Parts:
        engine, latency, policy = self._engine_parts()
        workload = self.workload()
        self._notes += [*getattr(workload, "notes", ()), *policy.notes()]
        resolved = self._resolved(policy, latency.describe(), {"empty_step": engine.empty_step})
        return Parts(workload, policy, resolved, tuple(self._notes), latency, engine.empty_step)

    def _engine_parts(self) -> tuple[EngineSection, LatencyModel, Policy]:
        model, hardware = self._model(), self._hardware()
        engine = self._engine()
        policy_class = self._policy_class()
        if model is not None:
            self._check_paging(policy_class, model.name, model.supports_paged_attention)
        config = self._latency_config()
        latency = self._latency(config, model, hardware)
        longest = None if model is None else model.max_model_len
        fit = partial(self._fitting_blocks, model, hardware, config)
        return engine, latency, self._policy(policy_class, self._limits(engine, policy_class, longest, hardware, fit))

    def _model(self) -> ModelShape | None:
        name = self._name_of("model")
        if name is None:
            return None
        try:
            return load_model(name, self._folder("model"))
        except ValueError as error:
            raise UserError(f"{self._config.where('model')}: {error}") from error

    def _latency_config(self) -> AnyLatency:
        section = self._raw.get("latency", {"kind": "roofline"})
        if not isinstance(section, str):
            config: AnyLatency = validated(LatencyConfig, section, self._config, "latency")
            return config
        try:
            return load_latency_file(_existing(self._folder("latency"), section))
        except (LatencyError, FileNotFoundError) as error:
            raise UserError(f"{self._config.where('latency')}: {error}") from error

    def _latency(
        self, config: AnyLatency, model: ModelShape | None, hardware: Hardware | None
    ) -> LatencyModel:
        try:
            return build_latency(config, model, hardware)
        except LatencyError as error:
            raise UserError(f"{self._config.where('latency')}: {error}") from error

    def _fitting_blocks(
        self, model: ModelShape | None, hardware: Hardware | None, latency: AnyLatency,
        engine: EngineSection, values: dict[str, Any],
    ) -> int:
        where = self._config.where("engine.num_blocks")
        if model is None or hardware is None:
            missing = " and ".join(name for name, part in (("model", model), ("hardware", hardware)) if part is None)
            raise UserError(f"{where}: give a number of blocks; 'auto' needs {missing}")
        devices = latency if isinstance(latency, RooflineConfig) else RooflineConfig(kind="roofline")
        try:
            budget = auto_num_blocks(
                model, hardware, values["block_size"], utilisation=engine.gpu_memory_utilization,
                batched_tokens=values["max_num_batched_tokens"] or 8192, kv_dtype=devices.kv_dtype,
                weight_dtype=devices.weight_dtype, tensor_parallel=devices.tensor_parallel,
            )
        except ValueError as error:
            raise UserError(f"{where}: {error}") from error
        self._notes.append(f"KV pool: {budget.explain()}")
        return budget.num_blocks


def _file_key(workload: dict[str, Any]) -> str:
    """The key that names a file, where there is one: what goes wrong is in it most of the time."""
    return next((f"workload.{key}" for key in ("path", "rows") if isinstance(workload.get(key), str)), "workload")


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / name, Path(name)):
        if path.is_file():
            return path
    raise FileNotFoundError(f"no latency file {name} in {folder} or in the working directory")
