"""The measured backend: a real model runs every step, and a clock says how long it took."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import StepResult
from ..policies.base import Forward, Ledger, Sequence, Step
from .attention.base import Needs
from .attention.choose import choose
from .cache import Pass, check_block_size
from .clock import Clock, Stopwatch, stopwatch, ticker
from .facts import machine_facts
from .failure import failure
from .in_flight import Place, Sampled, places
from .inputs import InputBuilder, Inputs
from .memory import require
from .model import PagedModel
from .own_pages import OwnPages
from .prospect import capability_of
from .runner import Runner
from .warm_up import warm_up

Outputs = Literal["forced", "sampled"]


@dataclass(slots=True)
class _Pending:
    """A step that was launched: who gets which token, the host's seconds for its inputs, and those of the launch.
    `alone`: no other step was in flight at any time of it."""

    step: Step
    sampled: Sampled
    watch: Stopwatch
    building: float
    launching: float
    alone: bool

    def tokens(self) -> dict[Sequence, list[int]]:
        return {
            sequence: [token] for sequences, tokens in self.sampled
            for sequence, token in zip(sequences, tokens.tolist(), strict=True)
        }


class MeasuredBackend:
    """Runs steps on a model whose KV cache has blocks 0 to `blocks`: room for engines that count from 0 and from 1.

    A step may be launched while the one ahead of it is not collected: tokens stay on the device until they are needed.
    `outputs`: `forced` leaves the end of an output to the workload, `sampled` ends it at the model's own end token
    (give the same to the loop). Tokens are greedy. `attention` is one of `attention.choose.NAMES`. `max_num_seqs` and
    `max_model_len` bound what is captured into CUDA graphs. `packed_linears`: weights laid out once (CPU, 16-bit).
    `fused`: norms, activations and rotary embeddings by C++ kernels (CPU).
    `clock`: see `clock.Clock`. `ledger`: that of a policy which does not page; the backend then finds pages itself.
    Raises `ExecutorError` for what cannot run.
    """

    def __init__(
        self, model: PagedModel, *, blocks: int, block_size: int, attention: str = "auto", outputs: Outputs = "forced",
        cuda_graphs: bool = True, packed_linears: bool = True, fused: bool = True, max_num_seqs: int | None = None,
        max_model_len: int | None = None, ledger: Ledger | None = None, clock: Clock = "wall",
    ) -> None:
        check_block_size(block_size)
        self.empty_step = 0.0
        self._now = ticker(clock, model.device)
        self._clock_name = clock
        self.clock: Callable[[], float] | None = self._now
        self.model = model
        self.choice = choose(attention, _needs(model, block_size))
        self.outputs = outputs
        if packed_linears:
            model.pack()
        if fused:
            model.fuse()
        self._blocks, self._block_size, self._rows = blocks, block_size, max_num_seqs or 256
        current = Pass(self.choice.attention)
        self._attach(current)
        own = None if ledger is None else OwnPages(ledger, blocks + 1, block_size)
        self.builder = InputBuilder(model.vocabulary, blocks + 1, block_size, model.device, own)
        self.runner = Runner(model, current, block_size)
        if cuda_graphs:
            longest = min(max_model_len or model.max_model_len or 1 << 62, blocks * block_size)
            self.runner.capture(self._rows, -(-longest // block_size), blocks + 1)
        self._pending: deque[_Pending] = deque()
        self._warm_up: dict[str, float] | None = None

    def _attach(self, current: Pass) -> None:
        """The policy's blocks, and a spare one for the padding of CUDA graphs."""
        blocks, model = self._blocks + 2, self.model
        model.detach()
        size = float(blocks * self._block_size * model.kv_bytes_per_token)
        require(model.name, {f"a KV pool of {self._blocks:,} blocks of {self._block_size} tokens": size}, model.device,
                "lower engine.num_blocks")
        model.attach(current, blocks, self._block_size)

    def warm_up(self) -> None:
        """Run passes of several shapes before anything is measured. The cache must be unused."""
        start = self._now()
        passes = warm_up(
            self.builder, self.runner, blocks=self._blocks, block_size=self._block_size, rows=self._rows,
            positions=self.model.max_model_len,
        )
        self._warm_up = {"passes": passes, "seconds": self._now() - start}

    def launch(self, step: Step) -> None:
        """Start a step. Raises `BackendFailed` where memory runs out or the device fails, `PolicyError` for a row that
        has no address."""
        start, watch = self._now(), stopwatch(self.model.device, self._now)
        flying = places([pending.sampled for pending in self._pending])
        building, sampled = 0.0, []
        try:
            for forward in step.forwards:
                inputs, seconds = self._inputs(forward, flying)
                building += seconds
                watch.start()
                sampled.append((inputs.sampling, self.runner.run(inputs)))
                watch.stop()
        except (MemoryError, RuntimeError) as error:
            self._fail(error, step)
        for pending in self._pending:
            pending.alone = False
        self._pending.append(_Pending(step, sampled, watch, building, self._now() - start, not self._pending))

    def _fail(self, error: Exception, step: Step) -> NoReturn:
        failed = failure(error, step)
        if failed is None:
            raise error
        raise failed from error

    def _inputs(self, forward: Forward, flying: Mapping[Sequence, Place]) -> tuple[Inputs, float]:
        start = self._now()
        return self.builder.build(forward, flying), self._now() - start

    def collect(self) -> StepResult:
        """Wait for the step launched first of those not yet collected.

        By itself it took the time from its launch on. With another in flight its host seconds are those for its inputs
        and for reading its tokens, and what it waited for the other does not count. Raises `BackendFailed` where the
        device has failed.
        """
        start, pending = self._now(), self._pending.popleft()
        try:
            device = pending.watch.seconds()
            reading = self._now()
            sampled = pending.tokens()
        except RuntimeError as error:
            self._fail(error, pending.step)
        now = self._now()
        host = pending.building + now - reading
        if pending.alone:
            host = max(pending.launching + now - start - device, 0.0)
        ended = self._ended(sampled) if self.outputs == "sampled" else ()
        return StepResult(host + device, sampled, host, device, ended)

    def _ended(self, sampled: dict[Sequence, list[int]]) -> list[Sequence]:
        ends = self.model.vocabulary.ends
        return [sequence for sequence, tokens in sampled.items() if tokens[-1] in ends]

    def series(self, step: Step, steps: int) -> NDArray[np.float64] | None:
        return None

    def facts(self) -> dict[str, Any]:
        """What ran, for the record of the run."""
        model = self.model
        return machine_facts(model.device) | {
            "model": model.name, "seed": model.seed, "dtype": str(model.dtype).removeprefix("torch."),
            "source": model.source, "weights": "stored" if model.seed is None else "random",
            "attention": self.choice.attention.describe, "attention_why": self.choice.why, "linears": model.linears,
            "elementwise": model.elementwise,
            "cuda_graphs": self.runner.graphs, "outputs": self.outputs, "clock": self._clock_name,
            "warm_up": self._warm_up, "blocks": self._blocks, "block_size": self._block_size,
            "kv_bytes": self._blocks * self._block_size * model.kv_bytes_per_token,
        }


def _needs(model: PagedModel, block_size: int) -> Needs:
    return Needs(
        model.device, model.dtype, block_size, frozenset((layer.key_dim, layer.value_dim) for layer in model.layers),
        any(layer.spec.window is not None for layer in model.layers),
        any(layer.spec.softcap is not None for layer in model.layers),
        capability_of(model.device),
    )
