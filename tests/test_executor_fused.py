"""Norms, activations and rotary embeddings by C++ kernels: which layers take them, and that they give the same."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from arcsim.executor.fused import fuse
from arcsim.executor.kernels import elementwise
from arcsim.executor.kernels.build import BuildError
from arcsim.executor.model import PagedModel, load_model

from .executing import config_file


def _model(kind: str, dtype: str = "float32") -> PagedModel:
    return load_model(str(config_file(kind)), dtype=dtype)


@pytest.fixture(autouse=True)
def _compiler() -> None:
    try:
        elementwise.Elementwise(torch.float32)
    except BuildError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("kind", "told"), [
    ("llama", "5 norms, 2 activations, 2 rotary embeddings by C++"),
    ("gemma2", "2 rotary embeddings by C++"),
])
def test_what_computes_alike_is_replaced(kind: str, dtype: str, told: str) -> None:
    """Gemma's norm adds one to its weight, and its activation is another: both stay."""
    model = _model(kind, dtype)
    model.fuse()
    assert model.elementwise == told


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_round_where_transformers_does(dtype: Any) -> None:
    """Sizes that fill no vector; heads that lie apart. (Mutation tried: a sine of the wrong half.)"""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

    kernels, random = elementwise.Elementwise(dtype), torch.Generator().manual_seed(0)
    x, gate, up, cos, sin, weight = (
        torch.randn(*shape, generator=random).to(dtype) for shape in (
            (1, 5, 2 * 3 * 22), (1, 5, 37), (1, 5, 37), (1, 5, 22), (1, 5, 22), (132,),
        )
    )
    norm = LlamaRMSNorm(132).to(dtype)
    norm.weight.data = weight
    heads = x.view(1, 5, 6, 22).transpose(1, 2)[:, ::2]
    tolerance = {"rtol": 0.008, "atol": 1e-6} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(kernels.rms_norm(x, weight, 1e-6), norm(x), **tolerance)
    torch.testing.assert_close(kernels.silu_product(gate, up), torch.nn.functional.silu(gate) * up, **tolerance)
    turned, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    torch.testing.assert_close(kernels.rotate(heads, cos, sin), turned, **tolerance)


def test_other_models_of_the_process_stay_as_they_are() -> None:
    one, other = _model("llama"), _model("llama")
    one.fuse()
    assert all("forward" not in vars(module) for module in other.network.modules())


def test_without_a_compiler_layers_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    elementwise._library.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    model = _model("llama")
    model.fuse()
    elementwise._library.cache_clear()
    assert model.elementwise.startswith("plain: no C++ compiler (no-such-compiler not found)")
    elsewhere = fuse(model.network, model.modules, torch.device("cuda"), torch.float32)
    assert elsewhere == "plain: the kernels compute float32 and bfloat16 on a CPU only"
