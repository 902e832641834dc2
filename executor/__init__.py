"""The measured arm: a real model over a paged KV cache, and a clock."""
