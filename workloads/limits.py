"""What clients ask for: max_tokens and priorities of a list of requests."""

from collections.abc import Sequence as Items

from .config import Factor
from .pieces import scale_up


def max_tokens_of(rule: int | Factor | None, outputs: Items[int]) -> list[int]:
    """Per request: the true output length, a number for all, or a factor (rounded up) over the output length."""
    if rule is None:
        return list(outputs)
    if isinstance(rule, Factor):
        return [scale_up(output, rule.factor) for output in outputs]
    return [rule] * len(outputs)


def priorities_of(rule: Items[int], count: int) -> list[int]:
    """The list over and over."""
    return [rule[index % len(rule)] for index in range(count)]
