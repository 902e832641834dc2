"""What transformers' layers do between their linear layers, done by C++ kernels where those give the same (CPU)."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from .kernels.build import BuildError
from .kernels.elementwise import DTYPES, Elementwise

ROTARY = "apply_rotary_pos_emb"
"""What transformers' attention layers call for it, a function of their module."""

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 0.008}
"""Relative, a last digit of each; every result that transformers rounds is rounded here too."""


@torch.inference_mode()
def fuse(network: nn.Module, attention: Iterable[nn.Module], device: torch.device, dtype: torch.dtype) -> str:
    """Replace what the kernels do alike, in place, module by module; says what that is, or why nothing is.

    `attention`: the attention modules. A module is left as it is where its own result on random numbers differs.
    """
    if device.type != "cpu" or dtype not in DTYPES:
        return "plain: the kernels compute float32 and bfloat16 on a CPU only"
    try:
        kernels = Elementwise(dtype)
    except BuildError as error:
        return f"plain: {error}"
    done = Counter[str]()
    for module in network.modules():
        done["norms"] += _norm(module, kernels)
        done["activations"] += _activation(module, kernels)
    for module in attention:
        done["rotary embeddings"] += _rotary(module, kernels)
    told = ", ".join(f"{count} {name}" for name, count in done.items() if count)
    return f"{told} by C++" if told else "plain: this model has no layers that the kernels know"


def _norm(module: nn.Module, kernels: Elementwise) -> bool:
    epsilon, weight = getattr(module, "variance_epsilon", None), getattr(module, "weight", None)
    if epsilon is None or weight is None or not kernels.takes(weight):
        return False
    plain: Callable[[Tensor], Tensor] = module.forward

    def forward(hidden_states: Tensor) -> Tensor:
        if not kernels.takes(hidden_states):
            return plain(hidden_states)
        return kernels.rms_norm(hidden_states, weight, epsilon)

    return _take(module, forward, plain, weight.shape[-1], kernels.dtype)


def _activation(module: nn.Module, kernels: Elementwise) -> bool:
    parts: list[Any] = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not hasattr(module, "act_fn") or not all(isinstance(part, nn.Module) for part in parts):
        return False
    gate, up, down = parts

    def forward(x: Tensor) -> Tensor:
        return down(kernels.silu_product(gate(x), up(x)))

    return _take(module, forward, module.forward, gate.in_features, kernels.dtype)


def _take(
    module: nn.Module, forward: Callable[[Tensor], Tensor], plain: Callable[[Tensor], Tensor], dim: int,
    dtype: torch.dtype,
) -> bool:
    sizes = torch.tensor([[1], [30], [1000]], dtype=dtype)  # a layer may cap large numbers
    x = _random(1, 3, dim, dtype=dtype) * sizes
    try:
        alike = _alike(forward(x), plain(x))
    except (AttributeError, RuntimeError, TypeError):  # not the module that it looked like
        return False
    if alike:
        module.forward = forward
    return alike


def _rotary(module: nn.Module, kernels: Elementwise) -> bool:
    """The layer's own code, with another function for the name that it calls."""
    code: Any = inspect.unwrap(type(module).forward)
    plain = code.__globals__.get(ROTARY)
    if plain is None or ROTARY not in code.__code__.co_names or not _rotates_alike(plain, kernels):
        return False
    names = code.__globals__ | {ROTARY: _rotation(plain, kernels)}
    own = FunctionType(code.__code__, names, code.__name__, code.__defaults__, code.__closure__)
    own.__kwdefaults__ = code.__kwdefaults__
    module.forward = MethodType(own, module)
    return True


def _rotation(plain: Callable[..., Any], kernels: Elementwise) -> Callable[..., Any]:
    def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *rest: Any, **more: Any) -> Any:
        usual = kernels.takes(q, k, cos, sin) and cos.shape == sin.shape == (1, q.shape[2], q.shape[3])
        if rest or more or not usual or q.stride(3) != 1 or k.stride(3) != 1 or k.shape[3] != q.shape[3]:
            return plain(q, k, cos, sin, *rest, **more)
        cos, sin = cos.contiguous(), sin.contiguous()
        return kernels.rotate(q, cos, sin), kernels.rotate(k, cos, sin)

    return rotate


def _rotates_alike(plain: Callable[..., Any], kernels: Elementwise) -> bool:
    q, k = (_random(1, heads, 3, 8, dtype=kernels.dtype) for heads in (4, 2))
    cos, sin = (_random(1, 3, 8, dtype=kernels.dtype) for _ in range(2))
    try:
        wanted = plain(q, k, cos, sin)
        return all(map(_alike, _rotation(plain, kernels)(q, k, cos, sin), wanted))
    except (IndexError, RuntimeError, TypeError, ValueError):
        return False


def _random(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def _alike(found: Tensor, wanted: Tensor) -> bool:
    """Up to the last digit of the largest result of each token."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    return bool(((found - wanted).abs().amax(-1) <= TOLERANCES[wanted.dtype] * wanted.abs().amax(-1)).all())
