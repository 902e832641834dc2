"""What can never be served, said at the door."""

from .sequence import Sequence


def too_large(sequence: Sequence, usable_blocks: int, block_size: int) -> str | None:
    """Reason to reject a request whose KV can never fit the pool: its last token needs none, so it writes
    prompt + max_tokens - 1 tokens."""
    tokens = sequence.prompt_len + max(sequence.max_tokens, 1) - 1
    blocks = -(-tokens // block_size)
    if blocks <= usable_blocks:
        return None
    return (
        f"needs {blocks} blocks of {block_size} tokens (prompt {sequence.prompt_len} + max_tokens "
        f"{sequence.max_tokens} - 1), the pool has {usable_blocks}"
    )


def too_long(sequence: Sequence, max_model_len: int | None) -> str | None:
    """Reason to reject a request that goes beyond the model's context."""
    tokens = sequence.prompt_len + sequence.max_tokens
    if max_model_len is None or tokens <= max_model_len:
        return None
    return f"prompt {sequence.prompt_len} + max_tokens {sequence.max_tokens} exceeds max_model_len {max_model_len}"
