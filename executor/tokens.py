"""Token ids of the vocabulary: of prompts that are only content, and of what the model samples."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..policies.base import Tokens

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`size` tokens, of which `ends` end an output."""

    size: int
    ends: frozenset[int] = frozenset()

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids below `size` are tokens already (sampled ones, and prompts given as tokens). Those derived from content
        lie far above (`policies/tokens.py`) and are spread over the vocabulary, equal ones to equal tokens."""
        return np.where(ids < self.size, ids, (_mixed(ids) % np.uint64(self.size)).astype(np.int64))


def _mixed(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): neighbours end far apart."""
    mixed = ids.astype(np.uint64) + GOLDEN
    for shift, factor in zip((30, 27), MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return mixed ^ (mixed >> np.uint64(31))


def ids_of(tokens: Tokens, start: int, stop: int) -> NDArray[np.int64]:
    """The ids at positions `start` to `stop`."""
    found, at = np.empty(stop - start, np.int64), 0
    for first, length in tokens.runs(start, stop):
        found[at:at + length] = first if length == 1 else np.arange(first, first + length)
        at += length
    return found


def greedy(logits: Tensor) -> Tensor:
    """The most likely token of each row, the first of equal ones. numpy finds it several times faster on a CPU."""
    if logits.device.type == "cpu":
        return torch.from_numpy(logits.float().numpy().argmax(-1))
    return logits.argmax(-1)
