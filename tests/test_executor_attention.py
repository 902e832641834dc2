"""Every attention backend computes the same, and those for a GPU are called as their packages want."""

import inspect
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from arcsim.executor.attention import cpp
from arcsim.executor.attention.base import Attention, Needs, Rows, Spec
from arcsim.executor.attention.choose import Choice, choose
from arcsim.executor.attention.cpp import Cpp
from arcsim.executor.attention.flash_attn import FlashAttention2, FlashAttention3
from arcsim.executor.attention.flashinfer import FlashInfer
from arcsim.executor.attention.reference import Reference
from arcsim.executor.attention.torch_varlen import TorchVarlen
from arcsim.executor.errors import ExecutorError
from arcsim.executor.kernels import build
from arcsim.policies.base import EngineConfig

from . import kernels
from .executing import differences, mixed_requests, policy, serve, tiny

BLOCKS = 128
MIXED = ([1, 5, 1, 20, 3], [7, 5, 40, 33, 19])
DECODE = ([1, 1, 1], [1, 17, 30])
LOCKSTEP = ([1] * 6, [9, 11, 9, 9, 11, 9])
SPECS = (Spec(0.3), Spec(0.3, window=6), Spec(0.3, softcap=1.5), Spec(0.3, window=6, softcap=1.5))


def _made(rows: Rows, block_size: int, heads: tuple[int, int, int], dtype: Any = None) -> tuple[Any, Any, Any]:
    """Queries, and a pool in which what no row holds is not a number."""
    many, few, dim = heads
    random = torch.Generator().manual_seed(1)
    query = torch.randn(sum(rows.query_lens), many, dim, generator=random)
    keys, values = (torch.randn(BLOCKS, block_size, few, dim, generator=random) for _ in range(2))
    for row, length in enumerate(rows.key_lens):
        page, used = rows.block_table[row, (length - 1) // block_size], (length - 1) % block_size + 1
        keys[page, used:], values[page, used:] = torch.nan, torch.nan
    return tuple(part.to(dtype or torch.float32) for part in (query, keys, values))


def _wanted(query: Any, keys: Any, values: Any, rows: Rows, spec: Spec) -> Any:
    window = (-1, 0) if spec.window is None else (spec.window - 1, 0)
    return kernels.plain_paged(query, keys, values, rows.cu_seqlens_q, rows.seqused_k, rows.block_table, spec.scale,
                               window, spec.softcap or 0.0)


def _backends(block_size: int) -> list[Attention]:
    flash = kernels.Flash2(page=1)
    return [
        Reference(), Cpp(), FlashAttention2(flash.flash_attn_varlen_func, flash.flash_attn_with_kvcache),
        FlashAttention3(kernels.Flash3().flash_attn_with_kvcache), TorchVarlen(kernels.varlen_attn, block_size),
        TorchVarlen(kernels.varlen_attn_211, block_size), FlashInfer(kernels.PrefillWrapper, torch.device("cpu")),
    ]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("lengths", [MIXED, DECODE, LOCKSTEP], ids=["mixed", "decode", "lockstep"])
@pytest.mark.parametrize(("block_size", "heads"), [
    (1, (4, 2, 8)), (7, (6, 2, 20)), (16, (9, 3, 64)), (32, (2, 2, 128)),
])
def test_all_compute_the_same(
    block_size: int, heads: tuple[int, int, int], lengths: tuple[list[int], list[int]], spec: Spec
) -> None:
    rows = kernels.rows_of(*lengths, block_size, BLOCKS)
    query, keys, values = _made(rows, block_size, heads)
    wanted = _wanted(query, keys, values, rows, spec)
    for backend in _backends(block_size):
        if not (spec.softcap and isinstance(backend, TorchVarlen)):
            backend.begin(rows, block_size)
            found = backend.attend(query, keys, values, rows, spec)
            torch.testing.assert_close(found, wanted, atol=2e-6, rtol=1e-5, msg=lambda m, b=backend: f"{b.name}: {m}")


@pytest.mark.parametrize("lengths", [MIXED, DECODE], ids=["mixed", "decode"])
def test_bfloat16(lengths: tuple[list[int], list[int]]) -> None:
    rows = kernels.rows_of(*lengths, 16, BLOCKS)
    query, keys, values = _made(rows, 16, (9, 3, 64), torch.bfloat16)
    wanted = _wanted(query.float(), keys.float(), values.float(), rows, SPECS[0])
    for backend in (Reference(), Cpp()):
        backend.begin(rows, 16)
        found = backend.attend(query, keys, values, rows, SPECS[0])
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), wanted, atol=0.02, rtol=0.02)


def test_queries_of_other_strides() -> None:
    """Some architectures hand out heads before tokens."""
    rows = kernels.rows_of(*MIXED, 16, BLOCKS)
    query, keys, values = _made(rows, 16, (4, 2, 8))
    turned = query.transpose(0, 1).contiguous().transpose(0, 1)
    for backend in (Reference(), Cpp()):
        backend.begin(rows, 16)
        torch.testing.assert_close(backend.attend(turned, keys, values, rows, SPECS[0]),
                                   backend.attend(query, keys, values, rows, SPECS[0]))


def test_values_of_another_size_than_keys() -> None:
    rows = kernels.rows_of(*MIXED, 16, BLOCKS)
    query, keys, values = _made(rows, 16, (4, 2, 24))
    values = values[..., :9].contiguous()
    for backend in (Reference(), Cpp()):
        backend.begin(rows, 16)
        found = backend.attend(query, keys, values, rows, SPECS[1])
        torch.testing.assert_close(found, _wanted(query, keys, values, rows, SPECS[1]), atol=2e-6, rtol=1e-5)


def test_flash_attention_2_decodes_by_the_kernel_that_splits() -> None:
    flash = kernels.Flash2()
    backend = FlashAttention2(flash.flash_attn_varlen_func, flash.flash_attn_with_kvcache)
    for lengths in (MIXED, DECODE):
        rows = kernels.rows_of(*lengths, 256, BLOCKS)
        backend.attend(*_made(rows, 256, (4, 2, 8)), rows, SPECS[0])
    assert flash.calls == ["varlen", "kvcache"]


def test_flashinfer_plans_once_a_pass_for_each_kind_of_layer() -> None:
    made: list[kernels.PrefillWrapper] = []

    def wrapper(workspace: Any, layout: str) -> kernels.PrefillWrapper:
        made.append(kernels.PrefillWrapper(workspace, layout))
        return made[-1]

    backend, rows = FlashInfer(wrapper, torch.device("cpu")), kernels.rows_of(*MIXED, 16, BLOCKS)
    tensors = _made(rows, 16, (4, 2, 8))
    for _ in range(2):
        backend.begin(rows, 16)
        for spec in (SPECS[0], SPECS[1], SPECS[0], SPECS[1]):
            backend.attend(*tensors, rows, spec)
    assert [(one.plans, one.runs) for one in made] == [(2, 4), (2, 4)]


def test_torchs_own_signature_takes_the_arguments() -> None:
    """The installed torch has no kernel for a CPU, but its signature is the real one."""
    real = inspect.signature(pytest.importorskip("torch.nn.attention.varlen").varlen_attn)

    def strict(*args: Any, **rules: Any) -> Any:
        real.bind(*args, **rules)
        return kernels.varlen_attn(*args, **rules)

    strict.__signature__ = real  # type: ignore[attr-defined]
    for block_size in (16, 256):
        rows = kernels.rows_of(*MIXED, block_size, BLOCKS)
        tensors, backend = _made(rows, block_size, (4, 2, 8)), TorchVarlen(strict, block_size)
        assert backend.capturable == (block_size == 256 and "block_table" in real.parameters)
        backend.begin(rows, block_size)
        torch.testing.assert_close(backend.attend(*tensors, rows, SPECS[1]), _wanted(*tensors, rows, SPECS[1]))


@pytest.mark.parametrize("number", range(2, 7))
@pytest.mark.parametrize("kind", ["qwen2", "mistral"])
def test_a_model_on_the_call_path_of_a_gpu(monkeypatch: pytest.MonkeyPatch, kind: str, number: int) -> None:
    """Chunks, decode rows, prefix hits and preemption through each backend's own argument building."""
    backend = _backends(4)[number]
    monkeypatch.setattr("arcsim.executor.backend.choose", lambda name, needs: Choice(backend, "a test"))
    engine = EngineConfig(block_size=4, num_blocks=17, max_num_seqs=4, max_num_batched_tokens=11)
    requests = mixed_requests()[:6]
    ran = serve(tiny(kind), requests, policy("continuous", engine))
    assert not differences(kind, ran, requests)
    assert ran.preempted


# The choice


def _needs(device: str = "cpu", **changes: Any) -> Needs:
    given: dict[str, Any] = {"dtype": torch.bfloat16, "block_size": 16, "dims": frozenset({(64, 64)})} | changes
    capability = (9, 0) if device == "cuda" else None
    return Needs(torch.device(device), capability=given.pop("capability", capability), **given)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of packages that are taken to be installed."""
    names: set[str] = set()
    for module in ("flash_attn", "flashinfer"):
        monkeypatch.setattr(f"arcsim.executor.attention.{module}.find_spec", lambda name: name in names or None)
    for backend in (FlashAttention2, FlashAttention3, FlashInfer):
        monkeypatch.setattr(backend, "load", classmethod(lambda cls, needs: cls))
    return names


def test_auto_on_a_cpu() -> None:
    choice = choose("auto", _needs())
    assert (choice.attention.name, choice.why) == ("cpp", "the best that can serve")


def test_auto_on_a_gpu_takes_the_best_and_says_what_it_passed_over(installed: set[str]) -> None:
    bare = choose("auto", _needs("cuda"))
    assert bare.attention.name == "torch_varlen"
    assert "not flash_attn: version 3 (flash_attn_interface) is not installed; the package flash-attn is" in bare.why
    installed.add("flashinfer")
    assert choose("auto", _needs("cuda")).attention is FlashInfer  # type: ignore[comparison-overlap]
    installed.add("flash_attn")
    passed = choose("auto", _needs("cuda"))
    assert passed.attention is FlashInfer and "pages by multiples of 256" in passed.why  # type: ignore[comparison-overlap]
    assert choose("auto", _needs("cuda", block_size=256)).attention is FlashAttention2  # type: ignore[comparison-overlap]
    installed.add("flash_attn_interface")
    assert choose("auto", _needs("cuda")).attention is FlashAttention3  # type: ignore[comparison-overlap]
    assert choose("auto", _needs("cuda", dtype=torch.float32)).attention.name == "reference"


@pytest.mark.parametrize(("name", "needs", "told"), [
    ("flash_attn", _needs("cuda"),
     "version 2 pages by multiples of 256 tokens, engine.block_size is 16: set it to 256, install flash-attn 3 (any "
     "size), or take flashinfer, torch_varlen or reference"),
    ("flash_attn", _needs("cuda", block_size=256, dtype=torch.float32), "float16 and bfloat16, not float32"),
    ("flash_attn", _needs("cuda", block_size=256, dims=frozenset({(512, 512)})), "not a multiple of 8 up to 256"),
    ("flash_attn", _needs("cuda", block_size=256, dims=frozenset({(192, 128)})), "keys of 192 and values of 128"),
    ("flash_attn", _needs("cuda", block_size=256, capability=(7, 5)), "capability 8.0, this device has 7.5"),
    ("flash_attn", _needs("cpu"), "it computes on cuda, the model is on cpu"),
    ("torch_varlen", _needs("cuda", softcaps=True), "no soft-capping"),
    ("flashinfer", _needs("cuda", dims=frozenset({(96, 96)})), "heads of 64, 128, 256 numbers, not of 96"),
    ("cpp", _needs("cuda"), "it computes on cpu, the model is on cuda"),
    ("cpp", _needs("cpu", dtype=torch.float16), "float32 and bfloat16, not float16"),
    ("nonsense", _needs("cpu"), "known: auto, flash_attn, flashinfer, torch_varlen, cpp, reference"),
])
def test_refusals(installed: set[str], name: str, needs: Needs, told: str) -> None:
    installed.update({"flash_attn", "flashinfer"})
    with pytest.raises(ExecutorError, match="attention") as error:
        choose(name, needs)
    assert told in str(error.value)


def test_without_a_compiler_the_plain_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    cpp.library.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    choice = choose("auto", _needs())
    cpp.library.cache_clear()
    assert choice.attention.name == "reference"
    assert "not cpp: no C++ compiler (no-such-compiler not found); install one, or name it in CXX" in choice.why


def test_a_library_is_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "one.cpp"
    source.write_text('extern "C" int one() { return 1; }', encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = build.build(source)
    stamp = first.stat().st_mtime_ns
    assert build.build(source) == first and first.stat().st_mtime_ns == stamp
    source.write_text("this is not C++", encoding="utf-8")
    with pytest.raises(build.BuildError, match="failed: .*error"):
        build.build(source)
    assert list((tmp_path / "arcsim").iterdir()) == [first]
