"""The runs of an experiment on a real model, one after the other. Importing this needs torch."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast, get_args

from ..engine.backend import Backend
from ..executor.attention.choose import choose
from ..executor.backend import MeasuredBackend
from ..executor.cache import check_block_size
from ..executor.clock import CLOCKS, Clock, ticker
from ..executor.errors import ExecutorError
from ..executor.memory import gib
from ..executor.model import PagedModel, load
from ..executor.pool import auto_blocks
from ..executor.prospect import Prospect, prospect
from ..executor.ready import memory_named, ready, use_threads
from ..traces.run import Run
from .errors import UserError
from .jobs import Done, Job, Key
from .measured_parts import PLENTY, MeasuredParts, check_measured, measured_parts, model_of
from .plan import Config
from .serve import Progress, policy_stays, serve
from .unready import Unready

Outputs = Literal["forced", "sampled"]


def outputs_of(name: str) -> Outputs:
    """Raises `UserError` for a name that is neither."""
    if name in get_args(Outputs):
        return cast(Outputs, name)
    raise UserError(f"--outputs {name}: forced (as long as the workload says) or sampled (until the model ends them)")


def clock_of(name: str) -> Clock:
    """Raises `UserError` for a name that is neither."""
    for clock in CLOCKS:
        if name == clock:
            return clock
    raise UserError(f"--clock {name}: wall, or cpu (what the thread computed, on a busy machine)")


@dataclass(frozen=True, slots=True)
class Choices:
    """How a model is run. `device`: auto, cpu, cuda, cuda:N; `attention`: one of `executor.attention.choose.NAMES`;
    `dtype`: auto is that of the config. `outputs`: see `MeasuredBackend`. `threads` None: torch's own number. `seed`:
    of random weights. `clock`: see `executor.clock.Clock`."""

    device: str = "auto"
    attention: str = "auto"
    dtype: str = "auto"
    outputs: Outputs = "forced"
    cuda_graphs: bool = True
    threads: int | None = None
    seed: int = 0
    clock: Clock = "wall"


@dataclass(slots=True)
class MeasuredArm:
    """Runs jobs in this process; a model is loaded once as long as the jobs name the same. `audit`: the laws are
    checked after every step, outside the clock."""

    choices: Choices
    audit: bool = False
    adjective: str = "measured"
    _prospects: dict[str, Prospect] = field(default_factory=dict)
    _loaded: "_Loaded | None" = None

    def check(self, jobs: Sequence[Job]) -> None:
        """Raises `UserError` or `ExecutorError` for whatever can be told before a model is loaded."""
        use_threads(self.choices.threads)
        for job in jobs:
            model = self._prospect(job.config)
            block_size = check_measured(job.config, model)
            check_block_size(block_size)
            choose(self.choices.attention, model.needs(block_size))
            ticker(self.choices.clock, model.device)

    def _prospect(self, config: Config) -> Prospect:
        key, (name, folder) = _key(config), model_of(config)
        if key not in self._prospects:
            self._prospects[key] = prospect(name, device=self.choices.device, dtype=self.choices.dtype, base=folder)
        return self._prospects[key]

    def run(self, jobs: Sequence[Job], progress: Progress, done: Done) -> dict[Key, Run]:
        """Call `check` before. What cannot start after another run was made is recorded as a run that failed; an
        interruption ends with what there is."""
        runs: dict[Key, Run] = {}
        for job in jobs:
            try:
                runs[job.key] = self._run(job, progress, bool(runs))
            except KeyboardInterrupt:
                if not runs:
                    raise
                break
            done(job)
            if runs[job.key].outcome == "interrupted":
                break
        return runs

    def _run(self, job: Job, progress: Progress, late: bool) -> Run:
        with policy_stays(job.config):
            parts, model = self._parts(job.config, late)
            backend = model if isinstance(model, Unready) else self._backend(model, parts, late)
            facts = backend.facts() if isinstance(backend, MeasuredBackend) else {}
            arm = {"arm": "measured", "measured": facts}
            run = serve(
                parts, backend, arm, audit=self.audit, progress=progress, origin=job.origin,
                outputs=self.choices.outputs,
            )
        run.meta["notes"][:0] = [] if isinstance(model, Unready) else _notes(model, facts)
        return run

    def _parts(self, config: Config, late: bool) -> tuple[MeasuredParts, PagedModel | Unready]:
        """And the model; of a `late` one that cannot be loaded, or leaves no room for a pool, why."""
        try:
            with memory_named("while the model is loaded", "take a smaller model or a narrower dtype"):
                loaded = self._load(config)
                return measured_parts(config, loaded.prospect, loaded.auto_blocks), loaded.model
        except ExecutorError as error:
            if not late:
                raise
            return measured_parts(config, self._prospects[_key(config)], lambda *_: PLENTY), Unready(str(error))

    def _load(self, config: Config) -> "_Loaded":
        key = _key(config)
        if self._loaded is None or self._loaded.key != key:
            self._loaded = None  # its memory first
            gc.collect()
            found = self._prospects[key]
            self._loaded = _Loaded(key, found, load(found, seed=self.choices.seed))
        return self._loaded

    def _backend(self, model: PagedModel, parts: MeasuredParts, late: bool) -> Backend:
        policy, choices = parts.policy, self.choices
        gc.collect()  # a former run's graphs hold memory
        try:
            return ready(
                model, blocks=parts.blocks, block_size=parts.block_size, attention=choices.attention,
                outputs=choices.outputs, cuda_graphs=choices.cuda_graphs, max_num_seqs=policy.engine.max_num_seqs,
                max_model_len=policy.engine.max_model_len, ledger=None if policy.paged else policy.ledger,
                clock=choices.clock,
            )
        except ExecutorError as error:
            if not late:
                raise
            return Unready(str(error))


@dataclass(slots=True)
class _Loaded:
    """A model, and the pools that were found to fit beside it: the same for every run, so that runs compare."""

    key: str
    prospect: Prospect
    model: PagedModel
    _pools: dict[tuple[int, int, float], int] = field(default_factory=dict)

    def auto_blocks(self, block_size: int, batched_tokens: int, utilisation: float) -> int:
        sizes = (block_size, batched_tokens, utilisation)
        if sizes not in self._pools:
            self.model.detach()
            find = partial(auto_blocks, batched_tokens=batched_tokens, utilisation=utilisation)
            self._pools[sizes] = find(self.model, block_size)
        return self._pools[sizes]


def _key(config: Config) -> str:
    name, folder = model_of(config)
    return f"{folder}/{name}"


def _notes(model: PagedModel, facts: dict[str, Any]) -> list[str]:
    if not facts:
        return list(model.notes)
    return [
        *model.notes,
        f"measured on {facts['device_name']} ({facts['device']}, torch {facts['torch']}, threads: {facts['threads']}), "
        f"{facts['dtype']}; linears: {facts['linears']}; CUDA graphs: {facts['cuda_graphs']}",
        f"attention: {facts['attention']} ({facts['attention_why']})",
        f"KV pool: {facts['blocks']:,} blocks of {facts['block_size']} tokens, {gib(facts['kv_bytes'])}",
    ]
