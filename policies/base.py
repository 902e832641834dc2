"""What a scheduling policy is: the verbs the engine calls, and the nouns they speak of."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence as Ids
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from .decode_batch import DecodeBatch
from .engine_config import EngineConfig
from .fault import EngineFault
from .kv.ledger import Ledger
from .sample import EmulatedSample
from .sequence import Sequence
from .step import Chunk, Forward, Gauges, Step
from .tokens import Tokens

__all__ = [
    "Chunk", "DecodeBatch", "EmulatedSample", "EngineConfig", "EngineFault", "Forward", "Gauges", "Ledger",
    "Options", "Policy", "Sequence", "Step", "Tokens",
]


class Options(BaseModel):
    """Base of a policy's own options: an unknown key or a wrong type is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Policy(ABC):
    """A scheduler: it owns its queues and its KV ledger.

    A subclass sets `waiting` and `running` (any sized iterables of sequences: the audit and the stall report read
    them), and `ledger` where it keeps one. Class attributes: `Options`, a pydantic model of its own options;
    `engine_defaults`, its values for keys of `EngineConfig` that an experiment leaves out; `engine_keys`, those it
    heeds; `log_style`, whose interval log line is replayed from its traces; `stall_after`, how many
    consecutive empty steps mean that nothing will ever run; `exempt`, names of audit laws that the engine it
    reproduces breaks; `paged`, false where it needs no pages, so that models which cannot page run on it too.

    `speculates`: its decode rows may carry drafts.

    `overlap`: the engine schedules and launches a step before the output of the one ahead of it is there, so
    `schedule` for step k+1 comes before `commit` of step k. `delivers_in_flight`: then, a sequence that is preempted
    while its token is in flight still gets it.
    """

    Options: ClassVar[type[BaseModel]] = Options
    engine_defaults: ClassVar[Mapping[str, Any]] = {}
    engine_keys: ClassVar[frozenset[str]] = frozenset(EngineConfig.model_fields)
    log_style: ClassVar[str] = "plain"
    stall_after: int = 12
    exempt: frozenset[str] = frozenset()
    paged: ClassVar[bool] = True
    overlap: bool = False
    speculates: bool = False
    delivers_in_flight: ClassVar[bool] = True

    waiting: Collection[Sequence]
    running: Collection[Sequence]
    ledger: Ledger | None = None

    def __init__(self, engine: EngineConfig, options: BaseModel) -> None:
        self.engine = engine
        self.options = options

    @classmethod
    def defaults(cls, given: Mapping[str, Any], options: Mapping[str, Any], device: str, memory: float) -> (
        Mapping[str, Any]
    ):
        """Its values for keys of `EngineConfig` that are not among the `given` ones: `engine_defaults`, but for
        engines that choose them by the device (its name and memory in bytes; "" and 0 if there is none)."""
        return cls.engine_defaults

    @abstractmethod
    def add(self, sequence: Sequence) -> str | None:
        """A request arrives. Returns None, or the reason why it is rejected."""

    @abstractmethod
    def schedule(self, now: float) -> Step:
        """Decide what runs next. `now` in seconds. Called only while there is a request to serve."""

    @abstractmethod
    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        """The forward is done: take the new token ids, let the `stopped` go. Returns the gauges after that."""

    @abstractmethod
    def abort(self, sequence: Sequence) -> None:
        """A client left: forget the sequence and free what it held."""

    def idle(self) -> None:  # noqa: B027 - optional
        """Nothing is left to do."""

    def horizon(self, step: Step) -> int:
        """How many further decode steps would be decided as `step` was, if nothing arrived or ended."""
        return 0

    def extend(self, step: Step, steps: int) -> list[int]:
        """Decide `steps` further decode steps (at most `horizon`) at once: give out their blocks.

        Returns `kv_used` after each. One `commit` with `steps + 1` tokens per sequence follows.
        """
        raise NotImplementedError(f"{type(self).__name__} has a horizon but no extend()")

    def notes(self) -> list[str]:
        """Lines for the log about how the policy resolved its options."""
        return []

    def resolved_options(self) -> dict[str, Any]:
        """The options as resolved, for the record of the run."""
        return self.options.model_dump(mode="json")
