"""Runs forward passes of a model over its paged cache: eagerly, or decode passes by CUDA graphs."""

from torch import Tensor

from .cache import Pass
from .graphs import CudaCapture, DecodeGraphs, StaticInputs, padded_sizes
from .inputs import Inputs
from .model import PagedModel
from .tokens import greedy


class Runner:
    """`graphs`: whether decode passes are replayed, in words."""

    def __init__(self, model: PagedModel, current: Pass, block_size: int) -> None:
        self.graphs = "off"
        self._model = model
        self._current = current
        self._block_size = block_size
        self._captured: DecodeGraphs | None = None

    def run(self, inputs: Inputs) -> Tensor:
        """The token of each sampling row, int64 [rows], on the device."""
        if self._captured is not None and self._captured.takes(inputs):
            return self._captured.run(inputs)
        return self.forward(inputs)

    def forward(self, inputs: Inputs) -> Tensor:
        """As `run`, always eagerly."""
        return greedy(self.logits(inputs))

    def logits(self, inputs: Inputs) -> Tensor:
        """[sampling rows, vocabulary]."""
        self._current.rows, self._current.slots = inputs.rows, inputs.slots
        self._current.attention.begin(inputs.rows, self._block_size)
        return self._model.logits(inputs.ids, inputs.positions, inputs.last)

    def capture(self, rows: int, pages: int, spare: int) -> None:
        """Capture decode passes of up to `rows` rows and `pages` pages each, if the device, the attention backend and
        the model let it. `spare`: a block that no sequence has."""
        reason = self._uncapturable()
        if reason is None:
            static = StaticInputs(rows, pages, self._block_size, spare, self._model.device)
            try:
                self._captured = DecodeGraphs(self.forward, static, padded_sizes(rows), CudaCapture())
                self.graphs = f"decode passes of {', '.join(map(str, self._captured.sizes))} rows"
            except RuntimeError as error:  # a model that waits for the device in the middle cannot be captured
                reason = f"capture failed: {str(error).strip().splitlines()[0]}"
        if reason is not None:
            self.graphs = f"off: {reason}"

    def _uncapturable(self) -> str | None:
        if self._model.device.type != "cuda":
            return "they need a CUDA device"
        attention = self._current.attention
        return None if attention.capturable else f"{attention.name} cannot be captured"
