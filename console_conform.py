"""What a person sees of replayed golden traces."""

from collections.abc import Sequence
from typing import Any

from .conform.check import Checked

LONGEST = 2_000
"""Characters of a value or of the queues that are printed."""


def print_checked(checked: Sequence[Checked]) -> None:
    """The differences, each with both values and the queues, then a line of counts."""
    for one in checked:
        if one.broken is not None:
            print(f"{one.file}: {one.broken}")
        elif one.difference is not None and one.known is not None and one.accepted:
            print(f"{one.file}: known: {one.difference.place}: {one.known.because}")
        elif one.difference is not None:
            _print_difference(one)
        elif one.known is not None:
            print(f"{one.file}: identical, though a difference is named for it")
    identical, accepted = sum(one.identical for one in checked), sum(one.accepted for one in checked)
    rest = "".join(
        f", {count} {what}" for count, what in (
            (accepted, "with a known difference"), (sum(one.broken is not None for one in checked), "unreadable"),
            (sum(not one.passes and one.broken is None for one in checked), "different"),
        ) if count
    )
    print(f"{identical} of {len(checked)} traces identical ({sum(one.steps for one in checked):,} steps){rest}")


def _print_difference(one: Checked) -> None:
    difference = one.difference
    assert difference is not None
    print(f"{one.file}: {difference.place} differs after {one.steps} equal steps")
    print(f"  trace:  {_cut(difference.expected)}\n  policy: {_cut(difference.found)}")
    for line in difference.state.splitlines():
        print(f"  {_cut(line)}")
    if one.known is not None:
        print(f"  (known is a difference at step {one.known.step}, {one.known.field})")


def _cut(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def as_dicts(checked: Sequence[Checked]) -> list[dict[str, Any]]:
    return [_as_dict(one) for one in checked]


def _as_dict(one: Checked) -> dict[str, Any]:
    answer: dict[str, Any] = {"file": one.file, "steps": one.steps, "identical": one.identical}
    if one.broken is not None:
        answer["broken"] = one.broken
    if one.difference is not None:
        facts = ("step", "field", "expected", "found", "state")
        answer["difference"] = {name: getattr(one.difference, name) for name in facts} | {"known": one.accepted}
    return answer


def exit_code(checked: Sequence[Checked]) -> int:
    """0: all pass; 1: one is different; 2: one could not be replayed."""
    if any(one.broken is not None for one in checked):
        return 2
    return 0 if all(one.passes for one in checked) else 1
