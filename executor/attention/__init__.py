"""Attention over a paged KV cache: one file for each way to compute it, behind one signature."""
