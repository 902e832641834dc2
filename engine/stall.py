"""The report of a run that cannot go on: who waits for what."""

from collections.abc import Iterable

from ..policies.base import Policy, Sequence

SHOWN = 8


def stall_report(policy: Policy, why: str) -> str:
    """Several lines: why the run ended, the ledger, and the sequences at the head of each queue."""
    lines = [f"stalled: {why}"]
    if policy.ledger is not None and policy.paged:
        lines.append(f"  KV: {policy.ledger.free} of {policy.ledger.usable} blocks free")
    for name, queue in (("running", policy.running), ("waiting", policy.waiting)):
        lines.append(f"  {len(queue)} {name}" + (":" if queue else ""))
        lines += [f"    {waits_for(policy, sequence)}" for sequence in _first(queue)]
        if len(queue) > SHOWN:
            lines.append(f"    and {len(queue) - SHOWN} more")
    return "\n".join(lines)


def waits_for(policy: Policy, sequence: Sequence) -> str:
    """One sequence: what it holds and what it would need to go on."""
    stands = f"{sequence.id}: {sequence.num_tokens} tokens, {sequence.computed} computed"
    if not policy.paged:
        return stands
    held = len(sequence.block_table)
    needed = -(-sequence.num_tokens // policy.engine.block_size) - held
    needs = f"needs {needed} more blocks" if needed > 0 else "needs no more blocks"
    return f"{stands}, holds {held} blocks, {needs}"


def _first(queue: Iterable[Sequence]) -> list[Sequence]:
    return [sequence for sequence, _ in zip(queue, range(SHOWN), strict=False)]
