"""Tokens of steps that were launched and not collected: they stay on the device until somebody needs them."""

from collections.abc import Mapping, Sequence as Ids
from dataclasses import dataclass

import torch
from torch import Tensor

from ..policies.base import Sequence

Sampled = Ids[tuple[Ids[Sequence], Tensor]]
"""Of each forward pass of a step: who gets a token, and the tokens, int64 [rows]."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sequence's token of a step in flight lies."""

    tokens: Tensor
    row: int


def places(steps: Ids[Sampled]) -> Mapping[Sequence, Place]:
    """The newest token in flight of each sequence; `steps` oldest first."""
    return {
        sequence: Place(tokens, row)
        for step in steps for sequences, tokens in step for row, sequence in enumerate(sequences)
    }


def fill(ids: Tensor, late: Mapping[int, Place]) -> None:
    """Write tokens in flight into packed `ids` int64 [tokens], each at its position. Waits for no device."""
    sources: dict[int, tuple[Tensor, list[int], list[int]]] = {}
    for position, place in late.items():
        _, positions, rows = sources.setdefault(id(place.tokens), (place.tokens, [], []))
        positions.append(position)
        rows.append(place.row)
    for tokens, positions, rows in sources.values():
        ids[_index(positions, ids)] = tokens[_index(rows, ids)]


def _index(numbers: list[int], like: Tensor) -> Tensor:
    found = torch.tensor(numbers)
    return found if like.device.type == "cpu" else found.pin_memory().to(like.device, non_blocking=True)
