"""Linear layers whose weights oneDNN has laid out once, instead of at every call (CPU, 16-bit)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

TOLERANCE = 0.02
"""Of the largest result; both ways round to 16 bits."""

ROWS = 64
"""Rows that a layout is chosen for; long inputs to few outputs do better without (measured on AMX)."""


class PackedLinear(nn.Module):
    """`nn.Linear` in inference, by a private operator of torch; check `refusal` before."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        rows = ROWS if plain.in_features <= plain.out_features else None
        self._packed = torch.ops.mkldnn._reorder_linear_weight(plain.weight.detach(), rows)
        self._bias = None if plain.bias is None else plain.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return result


@torch.inference_mode()
def prepack(network: nn.Module) -> int:
    """Replace every linear layer, in place; the number of them. The plain weights are dropped where nothing else
    (a tied embedding) holds them. Check `refusal` before."""
    found = [
        (parent, name, child) for parent in network.modules() for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    for parent, name, child in found:
        setattr(parent, name, PackedLinear(child))
    return len(found)


@torch.inference_mode()
def refusal(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why linear layers stay as they are; None if packing works here and gives the same results."""
    if device.type != "cpu" or dtype == torch.float32:
        return "it helps 16-bit weights on a CPU only"
    if not torch.backends.mkldnn.is_available():
        return "this torch has no oneDNN"
    plain = nn.Linear(64, 32, dtype=dtype)
    x = torch.linspace(-1, 1, 3 * 64).view(1, 3, 64).to(dtype)
    try:
        packed, wanted = PackedLinear(plain)(x), linear(x, plain.weight, plain.bias)
    except (AttributeError, RuntimeError, TypeError) as error:  # a private operator may change or be absent
        return f"torch {torch.__version__} does not do it: {str(error).strip().splitlines()[0]}"
    close = bool((packed - wanted).abs().max() <= TOLERANCE * wanted.abs().max())
    return None if close else f"torch {torch.__version__} gives other results by it"
