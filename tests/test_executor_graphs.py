"""Decode passes at padded sizes on static buffers, with a stand-in for CUDA's capture that runs the same calls again.

Tried by hand, each fails here: padding rows that write into a block of the pool, lengths of a larger batch before left
in place, a block table copied without the rows' order, the output read after the next pass.
"""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from arcsim.executor.attention.choose import Choice
from arcsim.executor.attention.flash_attn import FlashAttention2, FlashAttention3
from arcsim.executor.backend import MeasuredBackend
from arcsim.executor.graphs import DecodeGraphs, StaticInputs, padded_sizes
from arcsim.executor.inputs import InputBuilder, Inputs
from arcsim.executor.tokens import Vocabulary
from arcsim.policies.base import Chunk, EngineConfig, Forward

from . import kernels
from .executing import differences, mixed_requests, policy, sequence, serve, tiny


class Again:
    """In place of CUDA's capture: the call is run once now, and again at each replay."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        run()

        def replay() -> None:
            self.replays += 1
            run()

        return replay


@pytest.mark.parametrize(("most", "sizes"), [
    (1, [1]), (3, [1, 2, 4]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 16]), (16, [1, 2, 4, 8, 16]),
    (40, [1, 2, 4, 8, 16, 32, 48]),
])
def test_sizes(most: int, sizes: list[int]) -> None:
    assert padded_sizes(most) == sizes


def _decode(rows: int, tokens: int = 9) -> Inputs:
    made = [sequence(str(row), tokens, [row * 3, row * 3 + 1, row * 3 + 2], computed=tokens - 1) for row in range(rows)]
    builder = InputBuilder(Vocabulary(100), 32, 4, torch.device("cpu"))
    return builder.build(Forward([Chunk(each, tokens - 1, 1) for each in made]))


def test_padding_rows_touch_only_the_spare_block() -> None:
    static = StaticInputs(8, pages=5, block_size=4, spare=33, device=torch.device("cpu"))
    static.fill(_decode(8), 8)
    batch = _decode(3, tokens=6)
    static.fill(batch, 4)
    seen = static.view(4)
    assert seen.slots.tolist() == [*batch.slots.tolist(), 33 * 4]
    assert seen.ids.tolist() == [[*batch.ids[0].tolist(), 0]]
    assert seen.positions.tolist() == [[5, 5, 5, 0]]
    assert seen.rows.seqused_k.tolist() == [6, 6, 6, 1]
    assert seen.rows.cu_seqlens_k.tolist() == [0, 6, 12, 18, 19]
    assert seen.rows.cu_seqlens_q.tolist() == [0, 1, 2, 3, 4]
    assert seen.rows.block_table[:3, :2].tolist() == batch.rows.block_table.tolist()
    assert seen.rows.block_table[3, 0] == 33
    assert (seen.rows.max_q, seen.rows.max_k) == (1, 20)


def test_which_passes_are_replayed() -> None:
    static = StaticInputs(4, pages=3, block_size=4, spare=33, device=torch.device("cpu"))
    graphs = DecodeGraphs(lambda inputs: inputs.ids[0] + 1, static, [1, 2, 4], Again())
    assert graphs.takes(_decode(3))
    assert not graphs.takes(_decode(5))
    prefill = InputBuilder(Vocabulary(100), 32, 4, torch.device("cpu")).build(
        Forward([Chunk(sequence("p", 6, [0, 1]), 0, 6)])
    )
    assert not graphs.takes(prefill)
    first = graphs.run(_decode(3))
    wanted = (_decode(3).ids[0] + 1).tolist()
    graphs.run(_decode(3, tokens=5))
    assert first.tolist() == wanted


@pytest.mark.parametrize("flash", [2, 3])
def test_a_run_by_graphs_gives_the_same_tokens(monkeypatch: pytest.MonkeyPatch, flash: int) -> None:
    again, kernel = Again(), kernels.Flash2(page=1)
    backend = (
        FlashAttention2(kernel.flash_attn_varlen_func, kernel.flash_attn_with_kvcache) if flash == 2
        else FlashAttention3(kernels.Flash3().flash_attn_with_kvcache)
    )
    monkeypatch.setattr("arcsim.executor.backend.choose", lambda name, needs: Choice(backend, "a test"))
    monkeypatch.setattr("arcsim.executor.runner.CudaCapture", lambda: again)
    monkeypatch.setattr("arcsim.executor.runner.Runner._uncapturable", lambda self: None)
    engine = EngineConfig(block_size=4, num_blocks=17, max_num_seqs=4, max_num_batched_tokens=11)
    requests = mixed_requests()
    ran = serve(tiny("qwen2"), requests, policy("continuous", engine), max_num_seqs=4)
    assert not differences("qwen2", ran, requests)
    assert again.replays > 10
    assert ran.backend.facts()["cuda_graphs"] == "decode passes of 1, 2, 4 rows"


def test_off_on_a_cpu_and_where_capture_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MeasuredBackend(tiny("qwen2"), blocks=8, block_size=4)
    assert plain.facts()["cuda_graphs"] == "off: they need a CUDA device"

    def broken() -> Any:
        raise RuntimeError("a wait in the middle\nand more")

    monkeypatch.setattr("arcsim.executor.runner.CudaCapture", broken)
    monkeypatch.setattr("arcsim.executor.runner.Runner._uncapturable", lambda self: None)
    told = MeasuredBackend(tiny("qwen2"), blocks=8, block_size=4, max_num_seqs=2).facts()["cuda_graphs"]
    assert told == "off: capture failed: a wait in the middle"
    off = MeasuredBackend(tiny("qwen2"), blocks=8, block_size=4, cuda_graphs=False)
    assert off.facts()["cuda_graphs"] == "off"
